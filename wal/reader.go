package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/planted"
)

// How a reader tells an incomplete tail from damage.
//
// A crash leaves the log complete up to some record, at or above the synced
// position; above it, pages reached the disk in any order, so that bad bytes
// may be followed by good frames. Damage can be anywhere. What tells them
// apart is the synced position that every frame carries: a frame was made when
// everything up to there was safe. So
//
//   - the good part of the chain ends at the first bytes, file by file, that
//     are not the frame which has to follow: a wrong magic, length, LSN,
//     chain or checksum, zeros with something behind them, or no switch record
//     although the next file has records;
//   - the frames behind it, each verified by itself, in all files, and the
//     headers of created files, are asked for the highest synced position;
//   - if the record that should be there is at or below it, it was promised to
//     be there: corruption. If it is above: a torn tail, and everything from
//     there on is dropped.
//
// Neither of two simpler rules would do. "Torn if nothing good follows" calls
// the legal hole of a crash corruption; "torn if it is the last file" drops
// what was acknowledged.
//
// Whatever is made durable before anything rests on it is corruption when it
// is missing or bad, wherever the synced position is: the lowest file's header,
// a file that a switch record names, and what a recovery sealed.

// A Chain is what Read found. Files are in order; those with Discard or
// Prepared set are at the end and hold nothing that is part of the log.
type Chain struct {
	Files        []FileInfo
	Synced       LSN    // the highest that is on record
	Last         LSN    // of the last good record
	LastChecksum uint64 // of the last good frame, marks included
	Torn         *Torn  // nil if the log ends as it should

	fs       vfs.FS
	store    [16]byte
	salvaged bool   // by Salvage: there may be gaps between the frames
	needed   Needed // of Salvage
}

// A FileInfo describes a log file.
type FileInfo struct {
	File              uint64
	Path              string
	FirstLSN, LastLSN LSN   // FirstLSN is LastLSN+1 if it has no records
	Start, End        int64 // of the good part
	Size              int64
	Meta              [MetaBytes]byte
	Switched          bool  // ends with a switch record
	Records           int64 // good ones, the switch record included
	// Dropped counts the bytes behind End up to the last one that is not
	// zero. A file that has some is kept for inspection: see Quarantine.
	Dropped int64
	// Discard means that the file has records and is wholly behind a torn
	// tail.
	Discard bool
	// Prepared means that the file was made and never switched to. It is to
	// be removed before a Log is created, or replaced by it: see Next.
	Prepared bool

	chain uint64 // checksum that the first frame follows
}

// Torn describes a torn tail, which was dropped.
type Torn struct {
	Path   string
	Offset int64 // where the good part of that file ends
	Bytes  int64 // dropped, in all files
	LSN    LSN   // of the first record that is not there
	Reason string
	// Files have dropped bytes. They are to be quarantined once their good
	// part is safe elsewhere.
	Files []uint64
}

// A Record is one that Replay found.
type Record struct {
	Kind    Kind
	LSN     LSN
	Payload []byte // valid until the function returns
	Path    string
	Offset  int64
}

// Next returns the Start of the Log that continues c. Before it is created,
// files with Prepared set are removed and those with Discard set quarantined,
// highest number first, but for the one whose number the Log takes: Create
// replaces it, so that the number is taken at every moment, and KeepCopy keeps
// what was in it. The others stay until afterwards, and then leave lowest
// number first.
func (c *Chain) Next(meta [MetaBytes]byte) Start {
	s := Start{File: max(c.needed.File, 1), FirstLSN: c.Last + 1, Chain: c.LastChecksum, Meta: meta}
	for _, f := range c.Files {
		if !f.Discard && !f.Prepared && f.File >= c.needed.File {
			s.File, s.SealedEnd = f.File+1, f.End
		}
	}
	for _, f := range c.Files {
		s.Replaces = s.Replaces || f.File == s.File
	}
	return s
}

// Read reads and verifies all log files of dir. It writes nothing. Damage is
// a *CorruptError, which is ErrCorrupt; a torn tail is part of the Chain.
func Read(fs vfs.FS, dir string, storeID [16]byte) (*Chain, error) {
	nums, err := listFiles(fs, dir)
	if err != nil {
		return nil, err
	}
	r := reader{Chain: &Chain{fs: fs, store: storeID}}
	for i, n := range nums {
		path := fs.PathJoin(dir, fileName(n))
		if want := nums[0] + uint64(i); n != want {
			return nil, corrupt(fs.PathJoin(dir, fileName(want)), 0, 0,
				fmt.Sprintf("the file is missing, file %d is there", n), nil)
		}
		h, size, err := readHeader(fs, path, n, storeID)
		if err != nil && !errors.Is(err, errUnfinished) {
			return nil, err
		}
		r.headers = append(r.headers, fileHeader{h, err})
		r.Files = append(r.Files, FileInfo{
			File: n, Path: path, Start: headerBytes, End: headerBytes, Size: size, Meta: h.meta,
		})
	}
	for i := range r.Files {
		if err := r.file(i); err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// Replay calls fn for each good record of Files[i] that the caller appended,
// in order. It returns the first error of fn.
func (c *Chain) Replay(i int, fn func(Record) error) error {
	info := &c.Files[i]
	if info.Discard || info.Prepared {
		return nil
	}
	w, err := openWindow(c.fs, info.Path)
	if err != nil {
		return err
	}
	defer w.close()
	if w.end < info.End && info.Records > 0 {
		return corrupt(info.Path, w.end, 0, fmt.Sprintf("the file had %d good bytes when it was read", info.End), nil)
	}
	w.end = min(w.end, info.End)
	if c.salvaged {
		return c.replaySalvaged(w, info, fn)
	}
	w.seek(info.Start)
	walk := walk{window: w, salt: fileSalt(c.store, info.File), want: info.FirstLSN, prev: info.chain}
	for {
		f, at, err := walk.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errZeros), isBroken(err):
			return corrupt(info.Path, at, walk.want, "the frame was good when it was read", err)
		case err != nil:
			return err
		}
		if f.kind < FirstCallerKind {
			continue
		}
		if err := fn(Record{Kind: f.kind, LSN: f.lsn, Payload: f.payload, Path: info.Path, Offset: at}); err != nil {
			return err
		}
	}
}

// corrupt makes every CorruptError of the package.
func corrupt(path string, offset int64, lsn LSN, reason string, cause error) error {
	return &CorruptError{Path: path, Offset: offset, LSN: lsn, Reason: reason, Err: cause}
}

func isBroken(err error) bool {
	_, ok := errors.AsType[*brokenError](err)
	return ok
}

// listFiles returns the numbers of the log files in dir, sorted.
func listFiles(fs vfs.FS, dir string) ([]uint64, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("wal: list %s: %w", dir, err)
	}
	var nums []uint64
	for _, name := range names {
		if n, ok := parseFileName(name); ok {
			nums = append(nums, n)
		}
	}
	slices.Sort(nums)
	return nums, nil
}

// errUnfinished marks a header that may never have been written to its end.
var errUnfinished = errors.New("header not complete")

// readHeader returns the header of a file, and its size. An error that is not
// errUnfinished stands whatever the file's place in the chain is.
func readHeader(fs vfs.FS, path string, num uint64, store [16]byte) (header, int64, error) {
	w, err := openWindow(fs, path)
	if err != nil {
		return header{}, 0, err
	}
	defer w.close()
	size := w.end
	b, err := w.peek(headerBytes)
	if err != nil {
		return header{}, 0, err
	}
	h, err := decodeHeader(b)
	switch {
	case errors.Is(err, ErrVersion):
		return header{}, 0, fmt.Errorf("wal: %s: %w", path, err)
	case errors.Is(err, errShort), errors.Is(err, errMagic), errors.Is(err, errChecksum):
		return header{}, size, fmt.Errorf("%w: %w", errUnfinished, err)
	case err != nil:
		return header{}, 0, corrupt(path, 0, 0, "bad header", err)
	case h.store != store:
		return header{}, 0, corrupt(path, headerStoreOff, 0,
			fmt.Sprintf("it belongs to store %x, want %x", h.store, store), ErrForeign)
	case h.file != num:
		return header{}, 0, corrupt(path, headerFileOff, 0, fmt.Sprintf("it is file %d by its header", h.file), nil)
	}
	return h, size, nil
}

type fileHeader struct {
	header
	err error // errUnfinished, or nil
}

// A reader is the state of Read between files.
type reader struct {
	*Chain
	headers []fileHeader

	want LSN    // of the next record; 0 if the lowest file did not tell yet
	prev uint64 // checksum of the last frame

	// torn is set at the first bytes that are not what has to follow, for
	// whatever reason: whether they are a torn tail is decided in finish.
	torn  *Torn
	cause error
}

// file reads file i.
func (r *reader) file(i int) error {
	info, h := &r.Files[i], &r.headers[i]
	lowest, last := i == 0, i == len(r.Files)-1
	named := !lowest && r.Files[i-1].Switched
	if h.err != nil {
		if lowest || named || !last {
			return corrupt(info.Path, 0, 0, "bad header", h.err)
		}
		return r.behind(i)
	}
	if !h.prepared() {
		r.Synced = max(r.Synced, h.firstLSN-1)
	}
	switch {
	case r.torn != nil:
		return r.behind(i)
	case lowest:
		r.want, r.prev = h.firstLSN, h.chain
	case named:
		if !h.prepared() {
			return corrupt(info.Path, headerFirstLSNOff, 0,
				fmt.Sprintf("the switch record of file %d names it, yet it was not prepared", info.File-1), nil)
		}
	case h.prepared():
		return r.behind(i)
	default:
		if err := r.continues(i); err != nil {
			return err
		}
	}
	return r.frames(i)
}

// continues verifies that file i, which was created by a recovery, continues
// the file before.
func (r *reader) continues(i int) error {
	info, h, before := &r.Files[i], &r.headers[i], &r.Files[i-1]
	switch {
	case before.Prepared:
		return corrupt(before.Path, before.Start, 0,
			fmt.Sprintf("no switch record names it, yet file %d continues it", info.File), nil)
	case h.sealedEnd == 0:
		return corrupt(info.Path, headerSealedEndOff, 0,
			fmt.Sprintf("it does not say where file %d ends", before.File), nil)
	case r.want == 0:
		r.want, r.prev = h.firstLSN, h.chain
		before.FirstLSN, before.LastLSN, before.chain = h.firstLSN, h.firstLSN-1, h.chain
	case r.want != h.firstLSN || r.prev != h.chain:
		return corrupt(info.Path, headerFirstLSNOff, r.want,
			fmt.Sprintf("it begins at LSN %d behind checksum %016x, file %d ends before LSN %d with %016x",
				h.firstLSN, h.chain, before.File, r.want, r.prev), nil)
	}
	return nil
}

// behind reads file i, which is not part of the chain, unless its frames show
// that it was.
func (r *reader) behind(i int) error {
	info := &r.Files[i]
	w, err := openWindow(r.fs, info.Path)
	if err != nil {
		return err
	}
	defer w.close()
	e, err := w.scan(headerBytes, 0, fileSalt(r.store, info.File))
	if err != nil {
		return err
	}
	r.Synced = max(r.Synced, e.synced)
	info.Dropped = e.end - headerBytes
	info.Discard = e.frames > 0
	info.Prepared = !info.Discard
	if err := r.headers[i].err; err != nil && info.Discard {
		// The header was synced before the first frame was written.
		return corrupt(info.Path, 0, 0, "bad header, though there are records", err)
	}
	if info.Discard && r.torn == nil {
		before := &r.Files[i-1]
		r.torn = &Torn{
			Path: before.Path, Offset: before.End, LSN: r.want,
			Reason: fmt.Sprintf("no switch record, yet file %d has records", info.File),
		}
	}
	return nil
}

// frames reads the frames of file i.
func (r *reader) frames(i int) error {
	info := &r.Files[i]
	w, err := openWindow(r.fs, info.Path)
	if err != nil {
		return err
	}
	defer w.close()
	size := w.end
	sealed := i+1 < len(r.headers) && r.headers[i+1].sealedEnd != 0
	if sealed {
		w.end = r.headers[i+1].sealedEnd
		if w.end > size {
			return corrupt(info.Path, size, r.want, fmt.Sprintf("file %d was made when this one had %d good bytes",
				info.File+1, w.end), nil)
		}
	}
	w.seek(headerBytes)
	walk := walk{window: w, salt: fileSalt(r.store, info.File), want: r.want, prev: r.prev}
	info.FirstLSN, info.chain = r.want, r.prev
	for {
		var f frame
		var at int64
		f, at, err = walk.next()
		if err != nil {
			break
		}
		if info.FirstLSN == 0 {
			info.FirstLSN, info.chain = f.lsn, f.prev
			if f.kind == kindMark {
				info.FirstLSN++
			}
		}
		r.Synced = max(r.Synced, f.synced)
		info.End = w.off
		if f.kind != kindMark {
			info.Records++
		}
		if f.kind == kindSwitch {
			info.Switched = true
			if next := getSwitch(f.payload); next != info.File+1 {
				return corrupt(info.Path, at, f.lsn, fmt.Sprintf("the switch record names file %d, want %d", next, info.File+1), nil)
			}
			if i+1 == len(r.Files) {
				return corrupt(info.Path, at, f.lsn, fmt.Sprintf("the switch record names file %d, which is missing", info.File+1), nil)
			}
			break
		}
	}
	r.want, r.prev = walk.want, walk.prev
	info.LastLSN = max(r.want, 1) - 1
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errZeros) && !isBroken(err) {
		return err
	}
	if sealed && (!errors.Is(err, io.EOF) || info.Switched) {
		return corrupt(info.Path, info.End, r.want, fmt.Sprintf("it was good up to offset %d when file %d was made",
			w.end, info.File+1), err)
	}

	// Behind the end, there should be nothing but zeros.
	w.end = size
	e, serr := w.scan(info.End, r.want, walk.salt)
	if serr != nil {
		return serr
	}
	info.Dropped = e.end - info.End
	if info.Switched || sealed || info.Dropped == 0 {
		return nil
	}
	if errors.Is(err, errZeros) {
		err = errors.New("zeros, and something behind them")
	}
	r.Synced = max(r.Synced, e.synced)
	r.torn = &Torn{Path: info.Path, Offset: info.End, LSN: r.want, Reason: err.Error()}
	r.cause = err
	return nil
}

// finish decides what the end of the log is.
func (r *reader) finish() (*Chain, error) {
	c := r.Chain
	if len(c.Files) == 0 {
		return c, nil
	}
	if r.want == 0 {
		return nil, corrupt(c.Files[0].Path, headerBytes, 0,
			"the lowest file was prepared and has no good frame, so that nothing tells where the log begins", r.cause)
	}
	c.Last, c.LastChecksum = r.want-1, r.prev
	if r.torn == nil {
		return c, nil
	}
	if c.Synced >= r.torn.LSN && !planted.TornIsSkipped {
		return nil, corrupt(r.torn.Path, r.torn.Offset, r.torn.LSN,
			fmt.Sprintf("the log was synced through LSN %d", c.Synced), cmpCause(r.cause, r.torn.Reason))
	}
	c.Torn = r.torn
	for _, f := range c.Files {
		if f.Dropped > 0 && !f.Prepared {
			c.Torn.Bytes += f.Dropped
			c.Torn.Files = append(c.Torn.Files, f.File)
		}
	}
	return c, nil
}

// cmpCause returns the cause, made of the reason where there is none.
func cmpCause(cause error, reason string) error {
	if cause == nil {
		return errors.New(reason)
	}
	return cause
}
