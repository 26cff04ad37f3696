package wal

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// This file prints, so to speak: it goes through one log file by itself and
// says what is in it, damage included. What the log as a whole holds is for
// Read to say.

// A FileHeader is what the header of a log file says.
type FileHeader struct {
	Store     [16]byte
	File      uint64
	FirstLSN  LSN    // 0: the file was prepared
	Chain     uint64 // checksum of the last frame of the file before
	SealedEnd int64  // of the file before
	Meta      [MetaBytes]byte
}

// A Frame is a record of a caller's, or one of the log's own, as it stands in
// a file.
type Frame struct {
	Kind     Kind
	LSN      LSN
	Synced   LSN    // as of when the frame was made
	Prev     uint64 // checksum of the frame before
	Checksum uint64
	Next     uint64 // the file that a switch record names; 0 in all others
	Payload  []byte // valid until the function that gets it returns
}

// IsMark reports that the frame is a sync mark.
func (f *Frame) IsMark() bool { return f.Kind == kindMark }

// IsSwitch reports that the frame is a switch record.
func (f *Frame) IsSwitch() bool { return f.Kind == kindSwitch }

// A Part is a range of a log file's bytes: its header, a frame, zeros, or
// bytes that are none of these.
type Part struct {
	Offset, Bytes int64
	Header        *FileHeader
	Frame         *Frame
	Zeros         bool
	// Err is what is wrong here: why the header cannot be read, why a frame,
	// though it verifies, is not the one that has to follow, or why there is
	// no frame.
	Err error
}

// An Origin is which file of which store a log file is: frames verify only by
// that.
type Origin struct {
	Store [16]byte
	File  uint64
}

// Walk calls fn for every part of a log file, from its start to its end, and
// returns the first error of fn. Bytes that are not the next frame are a part
// with an Err, and it goes on at the next one that verifies by itself. If the
// header cannot be read, what its bytes say and the guesses are tried for the
// file's origin. It takes the memory of one frame.
func Walk(fs vfs.FS, path string, fn func(Part) error, guesses ...Origin) error {
	w, err := openWindow(fs, path)
	if err != nil {
		return err
	}
	defer w.close()
	b, err := w.peek(headerBytes)
	if err != nil {
		return err
	}
	k := walker{walk: walk{window: w}, fn: fn}
	part := Part{Bytes: int64(len(b))}
	h, err := decodeHeader(b)
	if err == nil {
		part.Header = &FileHeader{h.store, h.file, h.firstLSN, h.chain, h.sealedEnd, h.meta}
		k.salts = []uint64{fileSalt(h.store, h.file)}
		k.want, k.prev = h.firstLSN, h.chain
	} else {
		part.Err = err
		k.salts = saltsOf(b, guesses)
	}
	if err := fn(part); err != nil {
		return err
	}
	w.skip(len(b))
	return k.frames()
}

// saltsOf are those that a file with a bad header may have.
func saltsOf(header []byte, guesses []Origin) (salts []uint64) {
	if len(header) == headerBytes {
		file := binary.LittleEndian.Uint64(header[headerFileOff:])
		salts = append(salts, fileSalt([16]byte(header[headerStoreOff:]), file))
	}
	for _, g := range guesses {
		salts = append(salts, fileSalt(g.Store, g.File))
	}
	return salts
}

// A walker is the state of Walk.
type walker struct {
	walk
	salts []uint64 // one, once a frame has verified
	fn    func(Part) error
}

func (k *walker) frames() error {
	for {
		f, at, err := k.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = k.frame(f, at, nil)
		case errors.Is(err, errZeros) || isBroken(err):
			err = k.broken(at, err)
		}
		if err != nil {
			return err
		}
	}
}

// next is that of walk, under whichever salt the file has.
func (k *walker) next() (f frame, at int64, err error) {
	at, err = k.off, io.EOF
	for _, salt := range k.salts {
		k.salt = salt
		if f, at, err = k.walk.next(); err == nil {
			k.salts = []uint64{salt}
			break
		}
	}
	if len(k.salts) == 0 && k.left() > 0 {
		err = &brokenError{errors.New("frame: nothing tells which file this is")}
	}
	return f, at, err
}

// frame reports a frame, which has been passed.
func (k *walker) frame(f frame, at int64, err error) error {
	p := &Frame{Kind: f.kind, LSN: f.lsn, Synced: f.synced, Prev: f.prev, Checksum: f.checksum, Payload: f.payload}
	if f.kind == kindSwitch {
		p.Next = getSwitch(f.payload)
	}
	return k.fn(Part{Offset: at, Bytes: FrameBytes(len(f.payload)), Frame: p, Err: err})
}

// broken reports what is at an offset where the next frame is not, up to the
// next frame that verifies by itself, and that one.
func (k *walker) broken(at int64, cause error) error {
	f, data, found, err := k.find(at)
	if err != nil {
		return err
	}
	start := k.off
	switch {
	case found && start > at, data > at:
		if errors.Is(cause, errZeros) {
			cause = errors.New("zeros, and something behind them")
		}
		end := data
		if found {
			end = start
		}
		if err := k.fn(Part{Offset: at, Bytes: end - at, Err: cause}); err != nil {
			return err
		}
		at = end
	}
	if !found {
		if at < k.end {
			return k.fn(Part{Offset: at, Bytes: k.end - at, Zeros: true})
		}
		return nil
	}
	// It follows what was not there, unless it begins where it should have.
	follows := k.follows(&f)
	k.skip(int(FrameBytes(len(f.payload))))
	k.prev, k.want = f.checksum, f.lsn+1
	return k.frame(f, start, follows)
}

// find moves the window to the next frame that verifies by itself, or to the
// end. data is where the last byte before that is that is not zero.
func (k *walker) find(from int64) (f frame, data int64, found bool, err error) {
	data = from
	for k.seek(from); k.left() > 0; k.skip(int(min(alignment, k.left()))) {
		b, err := k.peek(framePayloadOff)
		if err != nil {
			return frame{}, 0, false, err
		}
		word := b[:min(alignment, len(b))]
		if isZero(word) {
			continue
		}
		for _, salt := range k.salts {
			f, ok, err := k.standsAlone(b, salt)
			if ok || err != nil {
				k.salts = []uint64{salt}
				return f, data, ok, err
			}
		}
		for i, c := range word {
			if c != 0 {
				data = k.off + int64(i) + 1
			}
		}
	}
	return frame{}, data, false, nil
}

// standsAlone verifies the frame at the start of the window by itself.
func (k *walker) standsAlone(head []byte, salt uint64) (f frame, ok bool, err error) {
	n, err := frameLen(head)
	if err != nil || int64(n) > k.left() {
		return frame{}, false, nil
	}
	if lsn := LSN(binary.LittleEndian.Uint64(head[frameLSNOff:])); k.want != 0 && lsn-k.want+scanReach > 2*scanReach {
		return frame{}, false, nil
	}
	b, err := k.peek(n)
	if err != nil {
		return frame{}, false, err
	}
	f, _, err = decodeFrame(b, salt)
	return f, err == nil, nil
}
