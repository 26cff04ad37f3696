package counting

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A Reader reads a counter file once, from front to back.
type Reader struct {
	r      io.Reader
	path   string
	header Header
	sum    uint64 // the last checksum read
	next   uint64 // page
	off    int64
	buf    [pageBytes + sumBytes]byte
}

// NewReader reads the header of a file of size bytes and checks it. The path is
// for errors. The error is ErrCorrupt, ErrVersion or that of r.
//
// It reads a page at a time: r needs no buffer.
func NewReader(r io.Reader, path string, size int64) (*Reader, error) {
	rd := &Reader{r: r, path: path}
	src := rd.buf[:max(0, min(headerBytes, size))]
	if err := rd.fill(src); err != nil {
		return nil, err
	}
	h, err := decodeHeader(src, size)
	if err != nil {
		return nil, withPath(path, 0, err)
	}
	rd.header, rd.sum = h, sumOf(src)
	return rd, nil
}

// Header returns the header.
func (r *Reader) Header() Header { return r.header }

// Check reads what is left of the file, verifies it, and returns the counts of
// its trailer. Between two pages it looks at the context. It costs the reading
// and 2 us a page.
func (r *Reader) Check(ctx context.Context) (Counts, error) {
	var p page
	for r.next < r.header.pages() {
		if err := ctx.Err(); err != nil {
			return Counts{}, err
		}
		if err := r.read(&p); err != nil {
			return Counts{}, err
		}
	}
	return r.readTrailer()
}

// precedes returns why counters with the header next cannot be made from these.
func (r *Reader) precedes(next Header) error {
	h := r.header
	switch {
	case h.StoreID != next.StoreID:
		return fmt.Errorf("%w: %s: store id %x, want %x", ErrForeign, r.path, h.StoreID, next.StoreID)
	case h.Geometry != next.Geometry:
		return fmt.Errorf("%w: %s: geometry %+v, want %+v", ErrMismatch, r.path, h.Geometry, next.Geometry)
	case h.Generation >= next.Generation:
		return fmt.Errorf("%w: %s: generation %d, want less than %d", ErrMismatch, r.path, h.Generation, next.Generation)
	case h.Forget > next.Forget:
		return fmt.Errorf("%w: %s: last forget %d, want at most %d", ErrMismatch, r.path, h.Forget, next.Forget)
	case r.next != 0:
		return fmt.Errorf("%w: %s: %d pages were read already", ErrMismatch, r.path, r.next)
	}
	return nil
}

// read reads the next page.
func (r *Reader) read(p *page) error {
	start := r.off
	if err := r.fill(r.buf[:]); err != nil {
		return err
	}
	sum, err := decodePage(p, &r.buf, r.sum)
	if err != nil {
		return withPath(r.path, start, err)
	}
	r.sum = sum
	r.next++
	return nil
}

// readTrailer reads what is behind the last page.
func (r *Reader) readTrailer() (Counts, error) {
	start := r.off
	src := r.buf[:trailerBytes]
	if err := r.fill(src); err != nil {
		return Counts{}, err
	}
	c, err := decodeTrailer(src, r.header.Geometry, r.sum)
	return c, withPath(r.path, start, err)
}

// fill reads all of dst. An end before that is damage: the file's size has
// promised more.
func (r *Reader) fill(dst []byte) error {
	n, err := io.ReadFull(r.r, dst)
	r.off += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return withPath(r.path, r.off, corruptf(0, "the file ends"))
	}
	return fmt.Errorf("counting: read %s at offset %d: %w", r.path, r.off, err)
}

// ReadCounts reads the header and the trailer of a file of size bytes, and no
// page. The path is for errors, which are those of NewReader and Check: the
// trailer's checksum goes on from that of the last page.
func ReadCounts(r io.ReaderAt, path string, size int64) (Header, Counts, error) {
	rd, err := NewReader(io.NewSectionReader(r, 0, size), path, size)
	if err != nil {
		return Header{}, Counts{}, err
	}
	var src [sumBytes + trailerBytes]byte
	start := size - int64(len(src))
	if n, err := r.ReadAt(src[:], start); n < len(src) {
		if errors.Is(err, io.EOF) {
			err = withPath(path, start+int64(n), corruptf(0, "the file ends"))
		}
		return rd.header, Counts{}, err
	}
	c, err := decodeTrailer(src[sumBytes:], rd.header.Geometry, binary.LittleEndian.Uint64(src[:]))
	return rd.header, c, withPath(path, start+sumBytes, err)
}
