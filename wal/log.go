package wal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	defaultPreallocateBytes = 4 << 20 // 4 MiB

	// keptBufferBytes is the largest buffer that is kept for the next frames;
	// a larger one was a burst.
	keptBufferBytes = 4 << 20 // 4 MiB

	// hiddenBytes of each file are not the caller's: they hold the switch
	// record, the mark at Close, and sync marks until more is reserved.
	hiddenBytes = switchBytes + markBytes + markBudget*markBytes
	markBudget  = 64

	maxLSN = ^LSN(0)
)

// Options are the settings of a Log. All but StoreID may be zero.
type Options struct {
	// StoreID is in every file, and in the checksum of every frame.
	StoreID [16]byte
	// PreallocateBytes is how much is reserved on the disk at a time. More
	// means fewer calls, and more that is idle. Default: 4 MiB.
	PreallocateBytes int64
	// SyncInterval is the longest time that a record waits for a sync which
	// nobody asked for, and after which an idle log puts its last sync on
	// record. Default: 0, no sync but those that are asked for.
	SyncInterval time.Duration
	// OnPoison is told the error that poisons the Log: once, by the goroutine
	// that met it, without a lock held. It must not call Close.
	OnPoison func(error)
}

func (o Options) withDefaults() Options {
	if o.PreallocateBytes == 0 {
		o.PreallocateBytes = defaultPreallocateBytes
	}
	if o.OnPoison == nil {
		o.OnPoison = func(error) {}
	}
	return o
}

func (o *Options) validate() error {
	var errs []error
	if o.PreallocateBytes < 0 {
		errs = append(errs, fmt.Errorf("wal: options: PreallocateBytes is negative: %d", o.PreallocateBytes))
	}
	if o.SyncInterval < 0 {
		errs = append(errs, fmt.Errorf("wal: options: SyncInterval is negative: %v", o.SyncInterval))
	}
	return errors.Join(errs...)
}

// A Start says where a Log begins. Chain.Next makes the one that continues
// what was read; the zero value but for File and FirstLSN of 1 begins a new
// log.
type Start struct {
	File      uint64
	FirstLSN  LSN
	Chain     uint64 // checksum of the last frame before; 0 if there is none
	SealedEnd int64  // where file File-1 ends; 0 if there is none
	Replaces  bool   // a file of this number is there, to be replaced
	Meta      [MetaBytes]byte
}

// A Log appends records to log files. Create makes one.
//
// A record passes through three stages, each with a lock or a turn of its own,
// so that nobody appends behind a write and nobody writes behind a sync:
//
//	Append   encodes it into a buffer, under mu, without I/O
//	write    whoever has the write turn takes the whole buffer and writes it
//	sync     whoever has the sync turn notes the written position, syncs, and
//	         makes the noted position the synced one
//
// The written position as of before the sync is what makes rule "covered only
// by a sync that started later" hold: there is no flag to get it wrong with.
type Log struct {
	fs  vfs.FS
	dir string
	o   Options

	mu struct {
		sync.Mutex
		pend     []byte // frames that no write has taken yet
		spare    []byte // the buffer that the last write gave back
		taken    int    // capacity of the buffer that is being written
		cuts     []cut  // where pend passes from one file to the next
		last     LSN    // of the last record
		buffered LSN    // of the last record in pend or taken; last unless stopped
		chain    uint64 // checksum of the last frame
		recorded LSN    // highest synced LSN that a frame or header carries

		cur     *logFile   // takes the frames
		next    *logFile   // is prepared, or nil
		writing *logFile   // takes the next write: cur, or one before it
		retired []*logFile // are written to their end, not yet synced and closed
		open    []*logFile // all of these, and those between

		dropping bool // stopped: Append counts on and buffers nothing
		stats    Stats
	}
	written atomic.Uint64 // LSN; set under mu, with writing and retired
	synced  atomic.Uint64 // LSN; set by who has the sync turn

	write, sync turn
	prepare     sync.Mutex // makes Prepare one at a time; taken before mu

	stop     atomic.Pointer[stop] // set under mu, once or by Close after a poison
	announce sync.Once

	quit      chan struct{} // closed by Close
	done      chan struct{} // closed by the sync goroutine, when there is one
	closeOnce sync.Once
	closeErr  error
}

// A cut is the place in the buffer where a file ends.
type cut struct {
	end  int // in pend
	lsn  LSN // of the switch record
	next *logFile
}

// A stop is why nothing is written or synced any more, and what is safe all
// the same.
type stop struct {
	err             error
	written, synced LSN
	poison          bool
}

// Stats are figures of a Log, counted since Create.
type Stats struct {
	Files           int64 // made
	Bytes           int64 // in frames, appended
	Records         int64 // appended
	Writes          int64
	Syncs           int64
	UnsyncedRecords int64 // now
	PendingBytes    int64 // RAM that the buffers hold now
}

// Create makes log file first.File in dir and returns a Log that appends to
// it. Files with lower numbers are synced first, for the new file vouches for
// them; one with a higher number is refused with fs.ErrExist, and so is one
// with the same unless first.Replaces is set.
func Create(fs vfs.FS, dir string, first Start, o Options) (*Log, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := checkStart(fs, dir, &first); err != nil {
		return nil, err
	}
	l := &Log{fs: fs, dir: dir, o: o, quit: make(chan struct{})}
	l.write.cond.L = &l.write.mu
	l.sync.cond.L = &l.sync.mu
	f, err := makeFile(fs, dir, &header{
		store:     o.StoreID,
		file:      first.File,
		firstLSN:  first.FirstLSN,
		chain:     first.Chain,
		sealedEnd: first.SealedEnd,
		meta:      first.Meta,
	}, o.PreallocateBytes)
	if err != nil {
		return nil, err
	}
	before := first.FirstLSN - 1
	l.mu.cur, l.mu.writing, l.mu.open = f, f, []*logFile{f}
	l.mu.last, l.mu.buffered, l.mu.recorded = before, before, before
	l.mu.chain = first.Chain
	l.mu.stats.Files = 1
	l.written.Store(uint64(before))
	l.synced.Store(uint64(before))
	if o.SyncInterval > 0 {
		l.done = make(chan struct{})
		go l.syncLoop()
	}
	return l, nil
}

// Next returns the LSN that the next record gets.
func (l *Log) Next() LSN { return l.Last() + 1 }

// Last returns the LSN of the last record.
func (l *Log) Last() LSN {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.last
}

// Written returns the position that is written.
func (l *Log) Written() LSN { return LSN(l.written.Load()) }

// Synced returns the position that is synced.
func (l *Log) Synced() LSN { return LSN(l.synced.Load()) }

// File returns the number of the file that takes the next record.
func (l *Log) File() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.cur.num
}

// Err returns the error that poisoned the Log, or nil. It is ErrPoisoned.
func (l *Log) Err() error {
	if s := l.stop.Load(); s != nil && s.poison {
		return s.err
	}
	return nil
}

// Stats returns the figures of this moment.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.stats
	s.UnsyncedRecords = int64(l.mu.last) - int64(l.synced.Load())
	s.PendingBytes = int64(cap(l.mu.pend) + cap(l.mu.spare) + l.mu.taken)
	return s
}

// Append makes a record of a copy of payload and returns its LSN. It does no
// I/O and cannot fail: what becomes of the record is for WaitWritten and
// WaitSynced to say. Room for it should have been reserved.
func (l *Log) Append(k Kind, payload []byte) LSN {
	if k < FirstCallerKind {
		panic(fmt.Sprintf("bug: append of a record of kind %d, which is the log's own", k))
	}
	if len(payload) > MaxPayload {
		panic(fmt.Sprintf("bug: append of a record of %d bytes, at most %d", len(payload), MaxPayload))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.last++
	l.mu.stats.Records++
	if !l.mu.dropping {
		l.appendLocked(k, payload)
	}
	return l.mu.last
}

// Switch ends the current file with a record that names the prepared one,
// which takes every later record, and returns that one's number.
func (l *Log) Switch() (file uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.mu.next
	if next == nil {
		panic("bug: switch to a log file that is not prepared")
	}
	l.mu.last++
	l.mu.stats.Records++
	if l.mu.dropping {
		return next.num // nothing goes there any more
	}
	var payload [switchPayload]byte
	putSwitch(payload[:], next.num)
	l.appendLocked(kindSwitch, payload[:])
	l.mu.cuts = append(l.mu.cuts, cut{end: len(l.mu.pend), lsn: l.mu.last, next: next})
	l.mu.cur, l.mu.next = next, nil
	return next.num
}

// appendLocked encodes a frame into the buffer: the last record, or a mark.
func (l *Log) appendLocked(k Kind, payload []byte) {
	if k != kindMark {
		l.mu.buffered = l.mu.last
	}
	f := frame{
		kind:    k,
		lsn:     l.mu.buffered,
		synced:  LSN(l.synced.Load()),
		prev:    l.mu.chain,
		payload: payload,
	}
	l.mu.pend, l.mu.chain = appendFrame(l.mu.pend, l.mu.cur.salt, &f)
	l.mu.recorded = f.synced
	n := FrameBytes(len(payload))
	l.mu.cur.size += n
	l.mu.stats.Bytes += n
}

// Room returns how many bytes of frames fit into what is reserved of the
// current file.
func (l *Log) Room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.mu.cur.room())
}

// Reserve makes room for n more bytes of frames in the current file. It
// returns ErrNoSpace, with nothing changed, where the disk has none, and may
// be tried again. A caller that finds less than it needs when it looks at Room
// later, since others reserved with it or the file was switched, reserves
// again.
func (l *Log) Reserve(n int64) error {
	if l.Room() >= n && l.stop.Load() == nil {
		return nil
	}
	return l.grow(func(f *logFile) (bytes, marks int64) {
		short := n - f.room()
		if short <= 0 {
			return 0, 0
		}
		used := hiddenBytes - f.hidden
		step := l.o.PreallocateBytes
		return (short + used + step - 1) / step * step, used
	})
}

// grow preallocates what size says for the current file: so many bytes, of
// which so many are for sync marks.
func (l *Log) grow(size func(*logFile) (bytes, marks int64)) error {
	// With the write turn, the current file stays open and takes no write,
	// which a file may not while it is preallocated.
	if !l.lead(&l.write, &l.written, maxLSN) {
		return l.stop.Load().err
	}
	defer l.write.pass()
	l.mu.Lock()
	f := l.mu.cur
	bytes, marks := size(f)
	from := f.reserved
	l.mu.Unlock()
	if bytes == 0 {
		return nil
	}
	if err := preallocate(f.w, from, bytes); err != nil {
		return noSpace("preallocate", f.path, err)
	}
	l.mu.Lock()
	f.reserved += bytes
	f.hidden += marks
	l.mu.Unlock()
	return nil
}

// Prepared reports whether the next file is there, so that Switch may be
// called.
func (l *Log) Prepared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.next != nil
}

// Prepare makes the next file, with meta in its header, and the same room as
// Reserve gives. Until Switch is called, calling it again does nothing. Where
// the disk is full it returns ErrNoSpace, with nothing changed, and may be
// tried again.
func (l *Log) Prepare(meta [MetaBytes]byte) error {
	err := l.prepareNext(meta)
	if errors.Is(err, ErrPoisoned) {
		l.tell(err)
	}
	return err
}

func (l *Log) prepareNext(meta [MetaBytes]byte) error {
	l.prepare.Lock()
	defer l.prepare.Unlock()
	if s := l.stop.Load(); s != nil {
		return s.err
	}
	l.mu.Lock()
	done, num := l.mu.next != nil, l.mu.cur.num+1
	l.mu.Unlock()
	if done {
		return nil
	}
	f, err := makeFile(l.fs, l.dir, &header{store: l.o.StoreID, file: num, meta: meta}, l.o.PreallocateBytes)
	if errors.Is(err, ErrNoSpace) {
		return err
	}
	if err != nil {
		return l.setPoison(err, l.Written())
	}
	l.mu.Lock()
	l.mu.next = f
	l.mu.open = append(l.mu.open, f)
	l.mu.stats.Files++
	l.mu.Unlock()
	return nil
}
