package counting

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// This file is the codec: bytes in, values out, no I/O. The boxes are in the
// package's documentation.

// Magic is what a counter file begins with.
const Magic = "DDCOUNTS"

const (
	magic   = Magic
	version = 1

	headerBytes  = 80
	sumBytes     = 8
	trailerBytes = 32

	offMagic      = 0
	offVersion    = 8
	offFlags      = 12
	offStoreID    = 16
	offGeneration = 32
	offForget     = 40
	offBlocks     = 48
	offProbes     = 56
	offReserved   = 60
	offSeed       = 64
	offChecksum   = 72

	offWords           = 0
	offOnes            = 8
	offSaturated       = 16
	offTrailerChecksum = 24
)

// Bounds of a Geometry, for what is asked and for what a file says alike. They
// are those of mmapfilter.
const (
	// MaxBlocks bounds a filter at 256 GiB, and its counters at 1 TiB.
	MaxBlocks = 1 << 32
	// MaxProbes is how many 9-bit positions one 64-bit hash gives.
	MaxProbes = 7
	// BlocksPerPage is the number of blocks in a page. Blocks come in whole
	// pages.
	BlocksPerPage = 64
)

// A Geometry says where the bits of a word are. It is that of the filter.
type Geometry struct {
	// Blocks is the number of 64-byte blocks: a multiple of BlocksPerPage, at
	// most MaxBlocks.
	Blocks uint64
	// Probes is the number of bits that a word sets: 1 to MaxProbes.
	Probes uint32
	// Seed sets filters apart.
	Seed uint64
}

// check tells the field at fault by its offset within a header too. The error
// is ErrParams.
func (g Geometry) check() (offset int64, err error) {
	switch {
	case g.Blocks == 0 || g.Blocks > MaxBlocks || g.Blocks%BlocksPerPage != 0:
		return offBlocks, fmt.Errorf("%w: %d blocks, want a multiple of %d up to %d",
			ErrParams, g.Blocks, BlocksPerPage, uint64(MaxBlocks))
	case g.Probes == 0 || g.Probes > MaxProbes:
		return offProbes, fmt.Errorf("%w: %d probes, want 1 to %d", ErrParams, g.Probes, MaxProbes)
	}
	return 0, nil
}

func (g Geometry) validate() error {
	_, err := g.check()
	return err
}

// FileBytes is the size of a counter file: 4.002 times the bits.
func (g Geometry) FileBytes() int64 {
	return headerBytes + int64(g.pages())*(pageBytes+sumBytes) + trailerBytes
}

func (g Geometry) pages() uint64 { return g.Blocks / pageBlocks }

// counters is how many there are.
func (g Geometry) counters() uint64 { return g.Blocks * blockBits }

// firstWord is the least word of a page: ceil(first block * 2^64 / Blocks).
func (g Geometry) firstWord(page uint64) uint64 {
	w, rest := bits.Div64(page*pageBlocks, 0, g.Blocks)
	if rest > 0 {
		w++
	}
	return w
}

// lastWord is the greatest word of a page.
func (g Geometry) lastWord(page uint64) uint64 {
	if page+1 == g.pages() {
		return ^uint64(0)
	}
	return g.firstWord(page+1) - 1
}

// A Header says whose counters a file holds, and of what.
type Header struct {
	// StoreID is the store that the file belongs to.
	StoreID [16]byte
	// Generation numbers the files that take each other's place.
	Generation uint64
	// Forget is the number of the last forget whose words were taken.
	Forget uint64
	Geometry
}

// Counts are the figures of the trailer.
type Counts struct {
	// Words is how many were added less how many were taken.
	Words uint64
	// Ones is the number of counters above 0: the bits that are set.
	Ones uint64
	// Saturated is the number of counters of 15, which are never taken from.
	Saturated uint64
}

// appendHeader appends the encoded header, headerBytes long.
func appendHeader(dst []byte, h Header) []byte {
	start := len(dst)
	le := binary.LittleEndian
	dst = append(dst, magic...)
	dst = le.AppendUint32(dst, version)
	dst = le.AppendUint32(dst, 0) // flags
	dst = append(dst, h.StoreID[:]...)
	dst = le.AppendUint64(dst, h.Generation)
	dst = le.AppendUint64(dst, h.Forget)
	dst = le.AppendUint64(dst, h.Blocks)
	dst = le.AppendUint32(dst, h.Probes)
	dst = le.AppendUint32(dst, 0) // reserved
	dst = le.AppendUint64(dst, h.Seed)
	return le.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// decodeHeader decodes the first headerBytes of a file of fileSize bytes, or as
// many as there are.
func decodeHeader(src []byte, fileSize int64) (Header, error) {
	if len(src) < headerBytes {
		return Header{}, corruptf(int64(len(src)), "file of %d bytes ends within the header", fileSize)
	}
	le := binary.LittleEndian
	src = src[:headerBytes]
	if string(src[:len(magic)]) != magic {
		return Header{}, corruptf(offMagic, "magic is %q, want %q", src[:len(magic)], magic)
	}
	if v := le.Uint32(src[offVersion:]); v != version {
		return Header{}, fmt.Errorf("%w: got %d, want %d", ErrVersion, v, version)
	}
	if got, want := le.Uint64(src[offChecksum:]), xxhash.Sum64(src[:offChecksum]); got != want {
		return Header{}, corruptf(offChecksum, "header checksum is %016x, want %016x", got, want)
	}
	if f := le.Uint32(src[offFlags:]); f != 0 {
		return Header{}, corruptf(offFlags, "flags are %#x, want 0", f)
	}
	if r := le.Uint32(src[offReserved:]); r != 0 {
		return Header{}, corruptf(offReserved, "reserved field is %#x, want 0", r)
	}
	h := Header{
		StoreID:    [16]byte(src[offStoreID:]),
		Generation: le.Uint64(src[offGeneration:]),
		Forget:     le.Uint64(src[offForget:]),
		Geometry: Geometry{
			Blocks: le.Uint64(src[offBlocks:]),
			Probes: le.Uint32(src[offProbes:]),
			Seed:   le.Uint64(src[offSeed:]),
		},
	}
	if off, err := h.check(); err != nil {
		return Header{}, corruptf(off, "%v", err)
	}
	// check has bounded Blocks, so this cannot overflow.
	if want := h.FileBytes(); fileSize != want {
		return Header{}, corruptf(offBlocks, "file of %d bytes, want %d for %d blocks", fileSize, want, h.Blocks)
	}
	return h, nil
}

// sumOf is the checksum that an encoded header ends with.
func sumOf(header []byte) uint64 { return binary.LittleEndian.Uint64(header[offChecksum:]) }

// lastSum is the checksum that an encoded page ends with.
func lastSum(page []byte) uint64 { return binary.LittleEndian.Uint64(page[pageBytes:]) }

// chained is the xxh64 of b under a seed, the checksum before.
func chained(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	d.Write(b) // it returns no error
	return d.Sum64()
}

// appendPage appends an encoded page and its checksum, chained to the one
// before.
func appendPage(dst []byte, p *page, before uint64) []byte {
	start := len(dst)
	for _, c := range p {
		dst = binary.LittleEndian.AppendUint64(dst, c)
	}
	return binary.LittleEndian.AppendUint64(dst, chained(before, dst[start:]))
}

// decodePage decodes what appendPage has encoded. A page that does not verify
// is not decoded. It returns the page's checksum.
func decodePage(p *page, src *[pageBytes + sumBytes]byte, before uint64) (sum uint64, err error) {
	sum = lastSum(src[:])
	if want := chained(before, src[:pageBytes]); sum != want {
		return 0, corruptf(0, "page checksum is %016x, want %016x", sum, want)
	}
	for i := range p {
		p[i] = binary.LittleEndian.Uint64(src[8*i:])
	}
	return sum, nil
}

// appendTrailer appends the encoded trailer, trailerBytes long.
func appendTrailer(dst []byte, c Counts, before uint64) []byte {
	start := len(dst)
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, c.Words)
	dst = le.AppendUint64(dst, c.Ones)
	dst = le.AppendUint64(dst, c.Saturated)
	return le.AppendUint64(dst, chained(before, dst[start:]))
}

// decodeTrailer decodes the trailer of a file of the geometry. Offsets in its
// errors count from the trailer's start.
func decodeTrailer(src []byte, g Geometry, before uint64) (Counts, error) {
	le := binary.LittleEndian
	src = src[:trailerBytes]
	if got, want := le.Uint64(src[offTrailerChecksum:]), chained(before, src[:offTrailerChecksum]); got != want {
		return Counts{}, corruptf(0, "trailer checksum is %016x, want %016x", got, want)
	}
	c := Counts{
		Words:     le.Uint64(src[offWords:]),
		Ones:      le.Uint64(src[offOnes:]),
		Saturated: le.Uint64(src[offSaturated:]),
	}
	if c.Ones > g.counters() {
		return Counts{}, corruptf(offOnes, "%d counters above 0 of %d", c.Ones, g.counters())
	}
	if c.Saturated > c.Ones {
		return Counts{}, corruptf(offSaturated, "%d counters of 15, of %d above 0", c.Saturated, c.Ones)
	}
	return c, nil
}
