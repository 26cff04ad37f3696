package mmapfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// This file looks at a filter's file by reading it: nothing is mapped, so that
// a file which is cut or damaged can be looked at as far as it goes.

// A HeaderCopy is one of the two copies of a header, as it stands in the file.
type HeaderCopy struct {
	Header
	Offset   int64
	Sequence uint64
	Sums     uint64 // checksum of the page sums
	Err      error  // why it does not count; the rest is zero then
}

// ReadHeaders reads both copies of the header of a file that has size bytes. A
// copy that cannot be read has its Err; the error is one of reading.
func ReadHeaders(r io.ReaderAt, size int64) (copies [2]HeaderCopy, err error) {
	page := make([]byte, pageBytes)
	n, err := r.ReadAt(page[:min(pageBytes, max(size, 0))], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return copies, fmt.Errorf("mmapfilter: read the header page: %w", err)
	}
	for i := range copies {
		c := &copies[i]
		c.Offset = int64(i * slotBytes)
		if int64(n) < c.Offset+headerBytes {
			c.Err = corruptf(c.Offset, "the file ends at offset %d, within the header", n)
			continue
		}
		s, err := decodeSlot(page, i, size)
		if err != nil {
			c.Err = err
			continue
		}
		c.Header, c.Sequence, c.Sums = s.Header, s.sequence, s.sums
	}
	return copies, nil
}

// A Census is what the blocks of a file are, counted from its bytes.
type Census struct {
	Blocks uint64 // that are there in full; fewer than the header's in a cut file
	Ones   uint64 // bits set
	// Rate is the share of words that were never set and pass all the same, by
	// these very bits: the mean of (share of bits set)^probes over the blocks.
	Rate float64
	// Differ are the pages that are not what their sums were made of, and
	// First is the lowest of them. Pages whose sums are not there are left out.
	Differ, First uint64
	// SumsOK says that the page sums are those that the header was made with.
	SumsOK bool
}

// censusPages is how many pages are read at once: 1 MiB.
const censusPages = 256

// TakeCensus reads a whole file, whose header says c, up to its size. A file
// that nobody changes meanwhile gives exact figures.
func TakeCensus(ctx context.Context, r io.ReaderAt, size int64, c *HeaderCopy) (n Census, err error) {
	p := c.Params
	body := min(size, int64(pageBytes+p.Blocks*blockBytes)) - pageBytes
	sums := sumReader{r: r, at: int64(pageBytes + p.Blocks*blockBytes), size: size}
	buf := make([]byte, censusPages*pageBytes)
	var rates [blockBits + 1]float64 // of a block, by its bits set
	for i := range rates {
		rates[i] = math.Pow(float64(i)/blockBits, float64(p.Probes))
	}
	var rate float64
	for at := int64(0); at < body; at += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		part := buf[:min(int64(len(buf)), body-at)]
		if _, err := r.ReadAt(part, pageBytes+at); err != nil {
			return n, fmt.Errorf("mmapfilter: read at offset %d: %w", pageBytes+at, err)
		}
		for b := part; len(b) >= blockBytes; b = b[blockBytes:] {
			ones := onesOf(b[:blockBytes])
			n.Blocks++
			n.Ones += uint64(ones)
			rate += rates[ones]
		}
		if err := sums.compare(&n, uint64(at/pageBytes), part); err != nil {
			return n, err
		}
	}
	n.Rate = rate / float64(max(n.Blocks, 1))
	n.SumsOK = sums.read == p.Blocks/BlocksPerPage && sums.hash.Sum64() == c.Sums
	return n, nil
}

func onesOf(b []byte) (ones int) {
	for ; len(b) >= 8; b = b[8:] {
		ones += bits.OnesCount64(binary.LittleEndian.Uint64(b))
	}
	return ones
}

// A sumReader reads the sums that stand behind the blocks.
type sumReader struct {
	r        io.ReaderAt
	at, size int64
	read     uint64
	hash     xxhash.Digest
}

// compare compares the pages in part, the first of which has a number, with
// their sums, as far as they are there.
func (s *sumReader) compare(n *Census, first uint64, part []byte) error {
	pages := len(part) / pageBytes
	there := max(0, s.size-s.at-int64(first)*8) / 8
	sums := make([]byte, 8*min(int64(pages), there))
	if len(sums) == 0 {
		return nil
	}
	at := s.at + int64(first)*8
	if _, err := s.r.ReadAt(sums, at); err != nil {
		return fmt.Errorf("mmapfilter: read at offset %d: %w", at, err)
	}
	if s.read == 0 {
		s.hash.Reset()
	}
	_, _ = s.hash.Write(sums)
	for i := range len(sums) / 8 {
		want := binary.LittleEndian.Uint64(sums[8*i:])
		if xxhash.Sum64(part[i*pageBytes:(i+1)*pageBytes])^zeroSum != want {
			if n.Differ == 0 {
				n.First = first + uint64(i)
			}
			n.Differ++
		}
		s.read++
	}
	return nil
}

// ParamsOfSize guesses the geometry of a file whose header cannot be read: the
// blocks that a file of that size has, and nothing of what it was made for.
func ParamsOfSize(size int64) Params {
	pages := max(0, size-pageBytes) / (pageBytes + 8)
	return Params{Blocks: uint64(pages) * BlocksPerPage, Probes: DefaultProbes}
}
