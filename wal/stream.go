package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/planted"
)

// This file reads one log file in bounded memory: a window over its bytes,
// the frames that follow each other, and those that stand alone.

const windowBytes = 256 << 10 // 256 KiB

// A window slides over a file. It grows beyond windowBytes only for a frame
// that is longer, which frameLen and the size of the file bound.
type window struct {
	f    vfs.File
	path string
	end  int64 // nothing is read from here on
	off  int64 // file offset of buf[0]
	buf  []byte
	mem  []byte // what buf is a part of
}

func openWindow(fs vfs.FS, path string) (*window, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("wal: open %s: %w", path, err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wal: stat %s: %w", path, err), f.Close())
	}
	return &window{f: f, path: path, end: st.Size()}, nil
}

func (w *window) close() { _ = w.f.Close() }

// seek moves the window to off.
func (w *window) seek(off int64) { w.off, w.buf = off, nil }

// left returns the number of bytes from the window's start to the end.
func (w *window) left() int64 { return w.end - w.off }

// peek returns the next n bytes, or all that are left if these are fewer. They
// stay valid until the next call.
func (w *window) peek(n int) ([]byte, error) {
	n = int(min(int64(n), w.left()))
	if len(w.buf) < n {
		if err := w.fill(n); err != nil {
			return nil, err
		}
	}
	return w.buf[:n], nil
}

// fill reads on until at least n bytes are in the window.
func (w *window) fill(n int) error {
	if n > len(w.mem) {
		mem := make([]byte, max(n, int(min(windowBytes, w.left()))))
		copy(mem, w.buf)
		w.mem = mem
	} else {
		copy(w.mem, w.buf)
	}
	have := len(w.buf)
	want := int(min(int64(len(w.mem)), w.left()))
	at := w.off + int64(have)
	m, err := w.f.ReadAt(w.mem[have:want], at)
	if m < want-have {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("wal: read %s at offset %d: %w", w.path, at+int64(m), err)
	}
	w.buf = w.mem[:want]
	return nil
}

// skip moves the window on by n bytes, which must have been peeked.
func (w *window) skip(n int) { w.off, w.buf = w.off+int64(n), w.buf[n:] }

// A walk reads the frames of a file, each of which must follow the one before.
type walk struct {
	*window
	salt uint64
	want LSN    // of the next record; 0 if the first frame is to tell
	prev uint64 // checksum of the frame before, unless want is 0
}

// errZeros is the end of a walk where the next frame's header is zero.
var errZeros = errors.New("zeros")

// A brokenError is the end of a walk at bytes that are not the next frame.
type brokenError struct{ cause error }

func (e *brokenError) Error() string { return e.cause.Error() }
func (e *brokenError) Unwrap() error { return e.cause }

// next returns the next frame, whose payload stays valid until the call after,
// and its offset; io.EOF at the end, errZeros or a *brokenError where no frame
// is. Any other error is one of reading.
func (w *walk) next() (f frame, at int64, err error) {
	at = w.off
	if w.left() == 0 {
		return frame{}, at, io.EOF
	}
	head, err := w.peek(framePayloadOff)
	if err != nil {
		return frame{}, at, err
	}
	n, err := frameLen(head)
	if err != nil {
		if isZero(head) {
			return frame{}, at, errZeros
		}
		return frame{}, at, &brokenError{err}
	}
	b, err := w.peek(n)
	if err != nil {
		return frame{}, at, err
	}
	f, _, err = decodeFrame(b, w.salt)
	if err == nil && !planted.NoChainCheck {
		err = w.follows(&f)
	}
	if err != nil {
		return frame{}, at, &brokenError{err}
	}
	w.skip(n)
	w.prev, w.want = f.checksum, f.lsn+1
	return f, at, nil
}

// follows returns an error unless f is the frame that should come next.
func (w *walk) follows(f *frame) error {
	if w.want == 0 {
		return nil
	}
	want := w.want
	if f.kind == kindMark {
		want--
	}
	if f.lsn != want {
		return fmt.Errorf("frame: %w: LSN %d, want %d", errInvalid, f.lsn, want)
	}
	if f.prev != w.prev {
		return fmt.Errorf("frame: %w: it follows the frame with checksum %016x, not %016x", errInvalid, f.prev, w.prev)
	}
	return nil
}

// evidence is what frames that are verified one by one tell.
type evidence struct {
	frames int64
	last   LSN   // of the last one
	synced LSN   // the highest that one of them carries
	end    int64 // where the last byte that is not zero ends
}

// scanReach is how far the LSN of a frame may be from the one expected there.
// It spares verifying what only looks like a frame; no log file holds so many.
const scanReach = 1 << 32

// scan looks for frames from offset from on, in bytes of which nothing else is
// known. want is the LSN of the next record as of from, or 0 if that is not
// known.
func (w *window) scan(from int64, want LSN, salt uint64) (evidence, error) {
	e := evidence{end: from}
	w.seek((from + alignment - 1) &^ (alignment - 1))
	if w.off > w.end {
		w.seek(w.end)
	}
	for w.left() > 0 {
		b, err := w.peek(windowBytes)
		if err != nil {
			return evidence{}, err
		}
		// The tail of the window stays for the next one, where a frame that
		// begins there has its header complete.
		stop := len(b) - framePayloadOff
		if int64(len(b)) == w.left() {
			stop = len(b)
		}
		i, found := 0, false
		for ; i < stop; i += alignment {
			var word [alignment]byte
			n := copy(word[:], b[i:])
			v := binary.LittleEndian.Uint64(word[:])
			if v == 0 {
				continue
			}
			e.end = w.off + int64(i+n)
			if uint16(v) == frameMagic {
				found = true
				break
			}
		}
		w.skip(min(i, len(b)))
		if !found {
			continue
		}
		n, ok, err := w.alone(want, salt, &e)
		if err != nil {
			return evidence{}, err
		}
		if !ok {
			n = int(min(alignment, w.left()))
		} else if want == 0 {
			want = e.last + 1
		}
		w.skip(n)
	}
	return e, nil
}

// alone verifies the frame at the start of the window by itself.
func (w *window) alone(want LSN, salt uint64, e *evidence) (n int, ok bool, err error) {
	head, err := w.peek(framePayloadOff)
	if err != nil {
		return 0, false, err
	}
	n, err = frameLen(head)
	if err != nil || int64(n) > w.left() {
		return 0, false, nil
	}
	lsn := LSN(binary.LittleEndian.Uint64(head[frameLSNOff:]))
	if want != 0 && lsn-want+scanReach > 2*scanReach {
		return 0, false, nil
	}
	b, err := w.peek(n)
	if err != nil {
		return 0, false, err
	}
	f, n, err := decodeFrame(b, salt)
	if err != nil {
		return 0, false, nil
	}
	e.frames++
	e.last = f.lsn
	e.synced = max(e.synced, f.synced)
	e.end = w.off + int64(n)
	return n, true, nil
}

// isZero reports whether b is all zeros.
func isZero(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}
