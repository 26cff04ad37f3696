package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// How Pebble is used: its log is off and its memtable always empty. All that
// it holds came in by Ingest, in key order. This file is what that takes: the
// options, and the ears for what Pebble says besides its errors.

const (
	pebbleDir = "pebble"

	// pebbleFormat is pinned: FormatNewest would move with the module, and
	// there is no way back. Columnar blocks make 8.6 bytes of a word where
	// row blocks make 18.6 (BenchmarkTableFormat).
	pebbleFormat = pebble.FormatColumnarBlocks

	tableBytes = 64 << 20 // where a table of a flush or compaction is cut

	// Tables carry no filter. The bitmap lets one new word in 250 through, and
	// a table's filter is one block of 7 MB, more than Pebble's cache takes:
	// with filters 20 M URLs went in at 2.5 M/s, without at 5 M/s ("bench fill -n
	// 20000000 -urls 20000000", built with and without). Small
	// blocks, of the index too, make a Get cheap instead, also when nothing of
	// it is cached, for 2 % more disk than blocks of 16 KiB.
	tableBlockBytes = 4 << 10
	maxL0Sublevels  = 8 // the maintainer ingests below this many only
)

// pebbleEvents is what Pebble has told outside of its calls' errors.
type pebbleEvents struct {
	// fatal is called once, with what Pebble cannot go on from. It must wake
	// every waiter and take no lock.
	fatal  func(error)
	logger *slog.Logger

	once       sync.Once
	dead       atomic.Bool   // fatal was called: only Gets may go to Pebble
	ended      chan struct{} // closed when fatal has returned
	background atomic.Pointer[error]
}

func newPebbleEvents(fatal func(error), logger *slog.Logger) *pebbleEvents {
	return &pebbleEvents{fatal: fatal, logger: logger, ended: make(chan struct{})}
}

// Infof drops Pebble's chatter.
func (*pebbleEvents) Infof(string, ...any) {}

// Errorf passes Pebble's complaints on.
func (e *pebbleEvents) Errorf(format string, args ...any) {
	e.logger.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf ends the goroutine that calls it, and nothing else. Returning would
// let Pebble delete a table that its MANIFEST may name; a panic in one of
// Pebble's goroutines would end the process.
func (e *pebbleEvents) Fatalf(format string, args ...any) {
	e.once.Do(func() {
		err := fmt.Errorf("%w: "+format, append([]any{errPebbleDead}, args...)...)
		for _, arg := range args {
			if cause, ok := arg.(error); ok && isDiskFull(cause) {
				err = fmt.Errorf("%w: %w", ErrDiskFull, err)
			}
		}
		e.fatal(err)
		e.dead.Store(true) // whoever sees it finds the poison
		close(e.ended)
	})
	runtime.Goexit()
}

// errPebbleDead is the error of a call in which Fatalf was called.
var errPebbleDead = errors.New("store: pebble cannot go on")

// apart makes a call of Pebble that may end in Fatalf, in a goroutine of its
// own: the caller's is not ours to end. Nor does it wait for a call that waits
// for a goroutine of Pebble's that was ended. What the call has set may be
// looked at only if the error is not errPebbleDead.
func (e *pebbleEvents) apart(call func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errPebbleDead
		defer func() { done <- err }()
		err = call()
	}()
	select {
	case err := <-done:
		return err
	case <-e.ended:
		return errPebbleDead
	}
}

func (e *pebbleEvents) listener() *pebble.EventListener {
	return &pebble.EventListener{
		// Left alone, this one calls Fatalf in the goroutine that reads. The
		// error reaches the caller of Get anyway.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			e.logger.Error("pebble: damaged table", "path", info.Path, "err", info.Details)
		},
		BackgroundError: func(err error) { e.background.Store(&err) },
		CompactionEnd:   e.compacted,
	}
}

// compacted ends the trouble that a full disk was.
func (e *pebbleEvents) compacted(info pebble.CompactionInfo) {
	if p := e.background.Load(); p != nil && info.Err == nil && isDiskFull(*p) {
		e.background.CompareAndSwap(p, nil)
	}
}

// pebbleFS is the file system that Pebble sees.
type pebbleFS struct {
	vfs.FS
	events *pebbleEvents
}

// Lock does nothing: the store has a lock of its own, and Pebble creates a
// file for its lock even where it must not write.
func (pebbleFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Pebble's markers are empty files whose names say which MANIFEST, and which
// version, counts. Pebble makes the file that a marker names, makes the new
// marker, removes the old one and syncs the directory, once. A file system may
// make those steps durable in another order, and then the marker names a file
// that is not there, or there is none: so that each is durable before the next
// is taken, the directory is synced in between.
const markerPrefix = "marker."

// Create makes what was made before durable, if it is to make a marker.
func (f pebbleFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.beforeMarker(name); err != nil {
		return nil, err
	}
	return f.FS.Create(name, c)
}

// Remove makes the new marker durable, if it is to remove the old one.
func (f pebbleFS) Remove(name string) error {
	if err := f.beforeMarker(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f pebbleFS) beforeMarker(name string) error {
	if !strings.HasPrefix(f.PathBase(name), markerPrefix) {
		return nil
	}
	return syncDir(f.FS, f.PathDir(name))
}

// OpenDir opens a directory whose failing sync is fatal if it is Pebble's own,
// and not a snapshot's. Left alone, Pebble panics when it cannot sync the
// directory behind a marker.
func (f pebbleFS) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if err != nil || f.PathBase(name) != pebbleDir {
		return d, err
	}
	return pebbleDirFile{d, f.events}, nil
}

type pebbleDirFile struct {
	vfs.File
	events *pebbleEvents
}

// Sync does not return where it fails.
func (d pebbleDirFile) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.events.Fatalf("sync of the directory: %w", err)
	}
	return nil
}

// Unwrap returns the file system underneath.
func (f pebbleFS) Unwrap() vfs.FS { return f.FS }

// pebbleOptions returns the options of one store's Pebble.
func pebbleOptions(fsys vfs.FS, cacheBytes int64, id [16]byte, events *pebbleEvents, readOnly bool) *pebble.Options {
	o := &pebble.Options{
		FS:                 pebbleFS{fsys, events},
		CacheSize:          cacheBytes,
		Logger:             events,
		EventListener:      events.listener(),
		ReadOnly:           readOnly,
		ErrorIfNotExists:   true,
		DisableWAL:         true,
		MemTableSize:       64 << 10, // nothing is ever in it
		FormatMajorVersion: pebbleFormat,
		// All levels between the first and the last stay empty: a segment's
		// tables are merged once or twice in its life and never again.
		LBaseMaxBytes: math.MaxInt64 / 16,
		// Four sublevels are merged at once: with two, 100 M URLs cost twice
		// the merging, 0.9 GB, and went in at 3.5 M/s instead of 4.1 ("bench
		// fill -n 100000000 -urls 100000000", built with either).
		L0CompactionThreshold: 8,
		FlushSplitBytes:       math.MaxInt64 / 16,
		MaxOpenFiles:          500,
		BlockPropertyCollectors: []func() pebble.BlockPropertyCollector{
			func() pebble.BlockPropertyCollector { return &idCollector{id: id} },
		},
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 1 },
	}
	o.Experimental.ReadSamplingMultiplier = -1 // reads cause no compactions
	for i := range o.Levels {
		o.TargetFileSizes[i] = tableBytes
		o.Levels[i] = pebble.LevelOptions{
			BlockSize:      tableBlockBytes,
			IndexBlockSize: tableBlockBytes,
			Compression:    func() *sstable.CompressionProfile { return sstable.NoCompression },
			FilterPolicy:   pebble.NoFilterPolicy,
		}
	}
	o.EnsureDefaults()
	return o
}

// idProperty is the name of the table property that holds the store's id, so
// that a table of another store can be told.
const idProperty = "dedupstore.id"

// idCollector writes the store's id into each table.
type idCollector struct{ id [16]byte }

func (*idCollector) Name() string                                 { return idProperty }
func (*idCollector) AddPointKey(pebble.InternalKey, []byte) error { return nil }
func (*idCollector) AddRangeKeys(sstable.Span) error              { return nil }
func (*idCollector) FinishDataBlock(buf []byte) ([]byte, error)   { return buf, nil }
func (*idCollector) AddPrevDataBlockToIndexBlock()                {}
func (*idCollector) FinishIndexBlock(buf []byte) ([]byte, error)  { return buf, nil }
func (c *idCollector) FinishTable(buf []byte) ([]byte, error)     { return append(buf, c.id[:]...), nil }
func (*idCollector) SupportsSuffixReplacement() bool              { return false }
func (*idCollector) AddCollectedWithSuffixReplacement(_, _, _ []byte) error {
	return errors.New("store: no suffixes here")
}

// isDiskFull reports that an error says that there is no space left.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// wrapPebble gives an error of Pebble's the store's type.
func wrapPebble(err error) error {
	switch {
	case err == nil:
		return nil
	case isDiskFull(err):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case pebble.IsCorruptionError(err):
		path := pebbleDir
		if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
			path = info.Path
		}
		return &CorruptError{Path: path, Offset: -1, Reason: "pebble says so", Err: err}
	}
	return fmt.Errorf("store: pebble: %w", err)
}

// scanSegment calls fn with a segment's words in ascending order, in parts. fn
// may keep nothing.
func scanSegment(db pebble.Reader, id segmentID, fn func([]word) error) error {
	return scanRange(db, id, 0, ^word(0), fn)
}

// scanRange does the same with the words from first to last.
func scanRange(db pebble.Reader, id segmentID, first, last word, fn func([]word) error) error {
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: appendWordKey(nil, id, first),
		UpperBound: append(appendWordKey(nil, id, last), 0),
	})
	if err != nil {
		return wrapPebble(err)
	}
	var words []word
	for it.First(); it.Valid(); it.Next() {
		_, w, ok := decodeWordKey(it.Key())
		if !ok {
			err = &CorruptError{Path: pebbleDir, Offset: -1, Reason: fmt.Sprintf("key %x is no word's", it.Key())}
			break
		}
		if words = append(words, w); len(words) == sortedPart {
			if err = fn(words); err != nil {
				break
			}
			words = words[:0]
		}
	}
	if err == nil && len(words) > 0 && it.Error() == nil {
		err = fn(words)
	}
	return errors.Join(err, wrapPebble(it.Close()))
}
