package main

// What a stream is packed with is told by its first bytes, here.

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow is the largest window that the zstd program takes without
// being asked for more.
const maxZstdWindow = 128 << 20 // 128 MiB

// unpack looks at the first bytes of r, and no further than it takes to
// decide, and returns what a gzip or zstd stream unpacks to, or r itself.
func unpack(r io.Reader) (plain io.Reader, done func(), err error) {
	head, err := readUntil(r, func(head []byte) bool { return formatOf(head) != formatUnknown })
	if err != nil {
		return nil, nil, err
	}
	whole := io.MultiReader(bytes.NewReader(head), r)
	switch formatOf(head) {
	case formatGzip:
		return &gzipReader{src: bufio.NewReaderSize(whole, 64<<10)}, func() {}, nil
	case formatZstd:
		z, err := newZstd(whole)
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case formatZstdDict:
		return unpackWithDict(whole)
	case formatBzip2:
		return bzip2.NewReader(whole), func() {}, nil
	case formatXZ:
		return nil, nil, errors.New("it is packed with xz: unpack it first, as in xzcat FILE | dedupstore filter")
	}
	return whole, func() {}, nil
}

func newZstd(r io.Reader, o ...zstd.DOption) (*zstd.Decoder, error) {
	return zstd.NewReader(r, append(o, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))...)
}

// maxDictBytes bounds the dictionary of a .warc.zst file.
const maxDictBytes = 16 << 20 // 16 MiB

// unpackWithDict unpacks a zstd stream whose first frame is a skippable one with
// the dictionary of the others, itself packed or not, as the IIPC's proposal for
// .warc.zst has it.
func unpackWithDict(r io.Reader) (plain io.Reader, done func(), err error) {
	var head [8]byte // the magic, and the size of the frame
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, err
	}
	size := binary.LittleEndian.Uint32(head[4:])
	if size > maxDictBytes {
		return nil, nil, fmt.Errorf("its dictionary has %d bytes, at most %d", size, maxDictBytes)
	}
	dict := make([]byte, size)
	if _, err := io.ReadFull(r, dict); err != nil {
		return nil, nil, err
	}
	if formatOf(dict) == formatZstd {
		z, err := newZstd(nil, zstd.WithDecoderMaxMemory(maxDictBytes))
		if err != nil {
			return nil, nil, err
		}
		defer z.Close()
		if dict, err = z.DecodeAll(dict, nil); err != nil {
			return nil, nil, fmt.Errorf("its dictionary: %w", err)
		}
	}
	z, err := newZstd(r, zstd.WithDecoderDicts(dict))
	if err != nil {
		return nil, nil, fmt.Errorf("its dictionary: %w", err)
	}
	return z, z.Close, nil
}

// A gzipReader unpacks gzip streams that follow each other. Unlike
// gzip.Reader it hands out the end of one without waiting for the next.
type gzipReader struct {
	src    *bufio.Reader
	z      *gzip.Reader // nil before the first stream
	inside bool
}

func (g *gzipReader) Read(p []byte) (int, error) {
	if !g.inside {
		if err := g.next(); err != nil {
			return 0, err
		}
	}
	n, err := g.z.Read(p)
	if err == io.EOF {
		g.inside, err = false, nil
	}
	return n, err
}

// next begins the next stream, or returns io.EOF if there is none.
func (g *gzipReader) next() error {
	if _, err := g.src.Peek(1); err != nil {
		return err
	}
	if g.z == nil {
		g.z = new(gzip.Reader)
	}
	err := g.z.Reset(g.src)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // it ended inside the header
	}
	g.z.Multistream(false)
	g.inside = err == nil
	return err
}

// readUntil reads until enough is there or r ends, and no further.
func readUntil(r io.Reader, enough func(head []byte) bool) ([]byte, error) {
	var head []byte
	var buf [512]byte
	for {
		n, err := r.Read(buf[:])
		head = append(head, buf[:n]...)
		if err == io.EOF || err == nil && enough(head) {
			return head, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

type format uint8

const (
	formatUnknown format = iota // more bytes are needed
	formatPlain
	formatGzip
	formatZstd
	formatZstdDict
	formatBzip2
	formatXZ
)

// formatOf tells the format of a stream that begins with head.
func formatOf(head []byte) format {
	for _, m := range []struct {
		magic []byte
		mask  byte // of the first byte
		f     format
	}{
		{[]byte{0x1f, 0x8b}, 0xff, formatGzip},
		{[]byte{0x28, 0xb5, 0x2f, 0xfd}, 0xff, formatZstd},
		{[]byte{0x5d, 0x2a, 0x4d, 0x18}, 0xff, formatZstdDict},
		{[]byte{0x50, 0x2a, 0x4d, 0x18}, 0xf0, formatZstd}, // a skippable frame
		{[]byte{0xfd, '7', 'z', 'X', 'Z', 0}, 0xff, formatXZ},
	} {
		n := min(len(head), len(m.magic))
		if n == 0 {
			return formatUnknown
		}
		if head[0]&m.mask != m.magic[0] || !bytes.Equal(head[1:n], m.magic[1:n]) {
			continue
		}
		if n < len(m.magic) {
			return formatUnknown
		}
		return m.f
	}
	return bzip2Format(head)
}

// bzip2Format tells bzip2, whose magic is followed by a digit and by that of its
// first block, from text that begins like it.
func bzip2Format(head []byte) format {
	const magic, block = "BZh", "1AY&SY"
	n := min(len(head), len(magic))
	switch {
	case string(head[:n]) != magic[:n]:
		return formatPlain
	case len(head) < len(magic)+1+len(block):
		return formatUnknown
	case head[3] >= '1' && head[3] <= '9' && string(head[4:10]) == block:
		return formatBzip2
	}
	return formatPlain
}
