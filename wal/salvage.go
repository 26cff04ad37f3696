package wal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// How a damaged log is read.
//
// Every frame carries the checksum of the one before, which is the seed of its
// own, so that it verifies without its neighbours; file number and store are
// in the seed too. Salvage goes through each file in steps of 8 bytes and
// takes whatever verifies. What is lost is told by the LSNs: of one record to
// the next they differ by one. Nothing is guessed: bytes that do not verify
// are a gap, whatever they look like.

// A Gap is a part of a log that could not be read. FirstLSN to LastLSN is the
// range in which records are missing; it is empty, LastLSN being FirstLSN-1,
// where only a sync mark, a header or padding was damaged, and in files that
// are not needed.
type Gap struct {
	File              uint64
	Path              string
	Offset            int64 // in bytes
	Bytes             int64 // that are no frame; 0 for a file that is missing
	FirstLSN, LastLSN LSN
	// AtLeast and AtMost bound the number of records that are lost. They are
	// equal where the records on both sides are there. AtMost is -1 where
	// nothing tells: at the very end of a log.
	AtLeast, AtMost int64
	Reason          string

	more bool // than Bytes, and what stood there, is missing
}

// Needed says from where on a log is needed: what is in files below File, and
// in records below LSN, is safe elsewhere.
type Needed struct {
	File uint64
	LSN  LSN
}

// Salvage reads the log files of dir as far as they can be read. Where Read
// returns a CorruptError it goes on at the next frame that verifies by itself,
// and reports what lies between as a Gap, in order. It writes nothing. The
// Chain's files may have numbers missing between them; its Replay passes over
// the gaps, and its Next continues behind everything that is on record. An
// error is one of reading, or ErrVersion.
//
// Unlike Read it drops no torn tail: a record that verifies was written.
func Salvage(fs vfs.FS, dir string, storeID [16]byte, needed Needed) (*Chain, []Gap, error) {
	nums, err := listFiles(fs, dir)
	if err != nil {
		return nil, nil, err
	}
	s := salvager{Chain: &Chain{fs: fs, store: storeID, salvaged: true, needed: needed}}
	for _, n := range nums {
		path := fs.PathJoin(dir, fileName(n))
		h, size, err := salvageHeader(fs, path, n, storeID)
		if err != nil && !errors.Is(err, errUnfinished) {
			return nil, nil, err
		}
		s.headers = append(s.headers, fileHeader{h, err})
		s.Files = append(s.Files, FileInfo{
			File: n, Path: path, Start: headerBytes, End: headerBytes, Size: size, Meta: h.meta,
		})
	}
	next := needed.File
	for i := range s.Files {
		n := s.Files[i].File
		if n >= needed.File {
			s.beginNeeded()
		}
		if n > next && next > 0 {
			s.missing(fs.PathJoin(dir, fileName(next)), next, n-1)
		}
		if err := s.file(i); err != nil {
			return nil, nil, err
		}
		next = max(next, n+1)
	}
	if n := len(s.Files); n == 0 || s.Files[n-1].Switched || s.Files[n-1].File < needed.File {
		s.missing(fs.PathJoin(dir, fileName(next)), next, next)
	}
	s.finish()
	return s.Chain, s.gaps, nil
}

// salvageHeader is readHeader for a damaged file: whatever is wrong with the
// header, the frames may verify. Only a version that is really another one is
// an error that stands.
func salvageHeader(fs vfs.FS, path string, num uint64, store [16]byte) (header, int64, error) {
	w, err := openWindow(fs, path)
	if err != nil {
		return header{}, 0, err
	}
	defer w.close()
	b, err := w.peek(headerBytes)
	if err != nil {
		return header{}, 0, err
	}
	h, err := decodeHeader(b)
	switch {
	case errors.Is(err, ErrVersion) && binary.LittleEndian.Uint64(b[headerChecksumOff:]) == xxhash.Sum64(b[:headerChecksumOff]):
		return header{}, 0, fmt.Errorf("wal: %s: %w", path, err)
	case err != nil:
	case h.store != store:
		err = fmt.Errorf("it belongs to store %x", h.store)
	case h.file != num:
		err = fmt.Errorf("it is file %d by its header", h.file)
	}
	if err != nil {
		return header{}, w.end, fmt.Errorf("%w: %w", errUnfinished, err)
	}
	return h, w.end, nil
}

// A salvager is the state of Salvage between files.
type salvager struct {
	*Chain
	headers []fileHeader
	gaps    []Gap

	want LSN  // of the next record; 0 if nothing tells yet
	last LSN  // the highest
	open *Gap // a gap whose end is not known yet
}

// missing notes that files from to last are not there.
func (s *salvager) missing(path string, from, last uint64) {
	reason := "the file is missing"
	if last > from {
		reason = fmt.Sprintf("the file is missing, and those up to %d", last)
	}
	if s.open != nil {
		s.open.more = true
		s.open.Reason += fmt.Sprintf("; behind it file %d is missing", from)
		return
	}
	s.open = &Gap{File: from, Path: path, Reason: reason}
}

// beginNeeded leaves behind what is in files that are not needed: a gap at
// their end says nothing of the next file.
func (s *salvager) beginNeeded() {
	if s.open == nil || s.open.File >= s.needed.File {
		return
	}
	s.gaps = append(s.gaps, *s.open)
	s.open = nil
	s.needed.LSN = max(s.needed.LSN, s.want)
	s.want = 0
}

// file reads file i.
func (s *salvager) file(i int) error {
	info, h := &s.Files[i], &s.headers[i]
	if h.err == nil && !h.prepared() {
		s.Synced = max(s.Synced, h.firstLSN-1)
		if s.want == 0 && s.open == nil || h.firstLSN < s.want {
			s.want = h.firstLSN
		}
		s.upTo(i, h.firstLSN)
	}
	w, err := openWindow(s.fs, info.Path)
	if err != nil {
		return err
	}
	defer w.close()
	sealed := int64(0)
	if i+1 < len(s.Files) && s.Files[i+1].File == info.File+1 {
		sealed = s.headers[i+1].sealedEnd
	}
	if sealed != 0 {
		w.end = min(w.end, sealed)
	}
	info.FirstLSN = s.want
	from, read := info.End, false
	bad, err := w.verified(s.want, fileSalt(s.store, info.File), func(f frame, at int64, bad string) error {
		if bad != "" {
			s.bytes(info, from, at, bad)
		}
		s.frame(i, &f)
		from, info.End, read = w.off, w.off, true
		return nil
	})
	if err != nil {
		return err
	}
	if info.FirstLSN == 0 {
		info.FirstLSN = s.want
	}
	info.LastLSN = max(s.want, 1) - 1
	named := i > 0 && s.Files[i-1].Switched && s.Files[i-1].File+1 == info.File
	if h.err != nil && (read || bad != "" || named || i+1 < len(s.Files)) {
		s.gaps = append(s.gaps, Gap{
			File: info.File, Path: info.Path, Bytes: min(info.Size, headerBytes),
			FirstLSN: info.FirstLSN, LastLSN: max(info.FirstLSN, 1) - 1, Reason: h.err.Error(),
		})
	}
	if bad != "" {
		s.bytes(info, from, w.end, bad)
		info.Dropped = w.end - from
	}
	if s.want == 0 && s.open == nil && info.File >= s.needed.File && sealed != headerBytes {
		s.open = &Gap{File: info.File, Path: info.Path, Offset: headerBytes, Reason: "no record is there"}
	}
	info.Prepared = !read && bad == "" && !named && i > 0 && i+1 == len(s.Files) && (h.err != nil || h.prepared())
	return nil
}

// bytes notes that from to end of a file are no frames.
func (s *salvager) bytes(info *FileInfo, from, end int64, reason string) {
	if s.open != nil {
		s.open.more = true
		s.open.Reason += fmt.Sprintf("; behind it %d bytes of file %d: %s", end-from, info.File, reason)
		return
	}
	s.open = &Gap{File: info.File, Path: info.Path, Offset: from, Bytes: end - from, Reason: reason}
}

// frame takes a frame of file i.
func (s *salvager) frame(i int, f *frame) {
	next := f.lsn
	if f.kind == kindMark {
		next++
	} else {
		s.Files[i].Records++
	}
	s.upTo(i, next)
	s.Synced = max(s.Synced, f.synced)
	s.LastChecksum = f.checksum
	if s.Files[i].FirstLSN == 0 {
		s.Files[i].FirstLSN = next
	}
	s.Files[i].Switched = f.kind == kindSwitch
	s.last = max(s.last, f.lsn)
	s.want = f.lsn + 1
}

// upTo ends the gap before record next, which file i begins with or holds, if
// there is one.
func (s *salvager) upTo(i int, next LSN) {
	g := s.open
	if g == nil {
		if s.want == 0 || next <= s.want {
			return
		}
		// The frames before it are gone without a trace: the end of the file
		// before was cut off, or is zeros.
		before := &s.Files[i]
		if before.End == headerBytes && i > 0 {
			before = &s.Files[i-1]
		}
		g = &Gap{File: before.File, Path: before.Path, Offset: before.End, Reason: "records are missing behind this place"}
	}
	s.open = nil
	exact := s.want != 0
	first := s.want
	if !exact {
		first = s.needed.LSN
	}
	g.FirstLSN, g.LastLSN = first, max(next, first, 1)-1
	g.AtMost = int64(g.LastLSN - g.FirstLSN + 1)
	if exact {
		g.AtLeast = g.AtMost
	} else if g.Bytes > 0 && !g.more {
		g.AtMost = min(g.AtMost, g.Bytes/framePayloadOff)
	}
	s.gaps = append(s.gaps, *g)
	s.want = next
}

// finish decides what is missing at the end.
func (s *salvager) finish() {
	if s.want == 0 {
		s.want = max(s.needed.LSN, 1)
	}
	if s.open == nil && s.Synced >= s.want {
		last := &s.Files[len(s.Files)-1]
		s.open = &Gap{File: last.File, Path: last.Path, Offset: last.End, Reason: "records are missing behind this place"}
	}
	if g := s.open; g != nil {
		g.FirstLSN, g.LastLSN = s.want, max(s.want-1, s.Synced)
		g.AtLeast, g.AtMost = int64(g.LastLSN-g.FirstLSN+1), -1
		s.gaps = append(s.gaps, *g)
	}
	s.Last = max(s.want-1, s.last, s.Synced)
	for i := range s.gaps {
		if g := &s.gaps[i]; g.File < s.needed.File {
			g.LastLSN, g.AtLeast, g.AtMost = max(g.FirstLSN, 1)-1, 0, 0
		}
	}
}

// replaySalvaged is Replay past the gaps.
func (c *Chain) replaySalvaged(w *window, info *FileInfo, fn func(Record) error) error {
	_, err := w.verified(info.FirstLSN, fileSalt(c.store, info.File), func(f frame, at int64, _ string) error {
		if f.kind < FirstCallerKind {
			return nil
		}
		return fn(Record{Kind: f.kind, LSN: f.lsn, Payload: f.payload, Path: info.Path, Offset: at})
	})
	return err
}

// verified calls fn for each frame from the first one on that verifies by
// itself and is not below want, the LSN of the next record or 0. bad says why
// the bytes before it, back to the frame before, are none; "" if there are no
// such bytes. The payload stays valid until fn returns. Behind a switch record
// there is nothing. What is returned concerns the bytes behind the last frame;
// zeros are nothing bad there.
func (w *window) verified(want LSN, salt uint64, fn func(f frame, at int64, bad string) error) (string, error) {
	w.seek(min(headerBytes, w.end))
	for {
		bad, zeros := "", true
		f, n, err := frame{}, 0, error(nil)
		for w.left() > 0 {
			if f, n, err = w.frameHere(want, salt); err == nil {
				break
			}
			if !errors.Is(err, errShort) && !isBroken(err) {
				return "", err
			}
			if b, err := w.peek(alignment); err != nil {
				return "", err
			} else if !isZero(b) {
				zeros = false
			}
			if bad == "" {
				bad = err.Error()
			}
			w.skip(int(min(alignment, w.left())))
		}
		if w.left() == 0 {
			if zeros {
				return "", nil
			}
			return bad, nil
		}
		at := w.off
		want = f.lsn + 1
		w.skip(n)
		if err := fn(f, at, bad); err != nil || f.kind == kindSwitch {
			return "", err
		}
	}
}

// frameHere returns the frame at the start of the window. An error that is a
// *brokenError says that there is none.
func (w *window) frameHere(want LSN, salt uint64) (frame, int, error) {
	head, err := w.peek(framePayloadOff)
	if err != nil {
		return frame{}, 0, err
	}
	n, err := frameLen(head)
	if err != nil {
		return frame{}, 0, &brokenError{err}
	}
	if int64(n) > w.left() {
		return frame{}, 0, &brokenError{fmt.Errorf("frame: %w: %d bytes left, want %d", errShort, w.left(), n)}
	}
	// What only looks like a frame is seldom worth a checksum.
	lsn := LSN(binary.LittleEndian.Uint64(head[frameLSNOff:]))
	if next := lsn + 1; want != 0 && (next < want || lsn > want+scanReach || head[frameKindOff] != byte(kindMark) && lsn < want) {
		return frame{}, 0, &brokenError{fmt.Errorf("frame: %w: LSN %d, want %d", errInvalid, lsn, want)}
	}
	b, err := w.peek(n)
	if err != nil {
		return frame{}, 0, err
	}
	f, n, err := decodeFrame(b, salt)
	if err != nil {
		return frame{}, 0, &brokenError{err}
	}
	return f, n, nil
}
