package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/planted"
	"dedupstore/wal"
)

// A flush turns a frozen memtable into tables in word order, ingests them and
// the registry's changed rows in one call, sets the words' bits, and lets the
// memtable and its log file go.

const (
	tmpDir = "tmp" // tables on their way into Pebble; emptied at open

	// sortedPart is how many words go through the table writer and the bitmap
	// at a time: 512 KiB, so that the second finds them in the cache.
	sortedPart = 64 << 10
	l0Wait     = 2 * time.Millisecond
	l0Idle     = 100 // waits in which nothing is merged, and should be
	// tableWordBytes is a little more than a word takes in a table.
	tableWordBytes = 10
)

// flushFrozen flushes the frozen memtable and lets it go.
func (s *Store) flushFrozen(m *memtable) error {
	start := time.Now()
	s.mu.Lock()
	changed := s.mu.frozenChanged
	s.mu.Unlock()
	if err := s.reserveLog(room{logBytes: keepLogBytes}); err != nil {
		return err
	}
	if err := s.waitForL0(); err != nil {
		return err
	}
	s.opts.seams.At("flush")
	bytes, err := s.ingest(m, changed)
	if err != nil {
		return err
	}
	s.opts.seams.At("ingested")

	words := m.count.Load()
	s.mu.Lock()
	s.mu.registry.apply(changed)
	s.mu.logCut = s.mu.nextCut
	s.mu.full = nil // it can flush
	record := s.logIngestLocked()
	s.publishLocked(func(st *state) {
		st.frozen, st.spans = nil, s.spansLocked()
	})
	epoch := s.current.Load().epoch
	s.mu.Unlock()
	s.opts.seams.At("released")
	if planted.ReleaseBeforeBits {
		if err := m.sorted(sortedPart, s.bitSetter(m.segment)); err != nil {
			return err
		}
	}

	s.maintainer.bitsUnsynced += words
	if s.maintainer.bitsUnsynced*4 >= int64(s.words()) {
		if err := s.syncFilters(); err != nil {
			return err
		}
	}
	if err := s.checkLinked(); err != nil {
		return err
	}
	if !planted.UnlinkBeforeIngestRow {
		if err := s.waitSynced(record); err != nil {
			return err
		}
	}
	if err := s.removeLogs(m.file); err != nil {
		return err
	}
	s.opts.seams.At("unlinked")
	s.maintainer.emptied = emptied{m, epoch}
	s.recycle()

	took := time.Since(start)
	c := &s.counters
	c.flushes.Add(1)
	c.flushWords.Add(words)
	c.flushBytes.Add(bytes)
	c.flushNanos.Add(int64(took))
	c.lastFlushNanos.Store(int64(took))
	return nil
}

// logIngestLocked puts the last ingest on record in the active log file.
func (s *Store) logIngestLocked() wal.LSN {
	r := &s.mu.registry.storeRow
	return s.log.Append(recordIngest, appendIngest(nil, r.ingest, r.flushed, r.clock))
}

// words is the number of words in Pebble.
func (s *Store) words() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.registry.words()
}

// apply takes over the rows that an ingest has made durable.
func (r *registry) apply(changed *registry) {
	r.ingest, r.flushed, r.flushedLSN = changed.ingest, changed.flushed, changed.flushedLSN
	r.clock = changed.clock
	for id, row := range changed.segments {
		now := r.segments[id]
		if now.spanKind == 0 {
			now = row
		}
		now.words, now.ingest = row.words, row.ingest
		r.segments[id] = now
	}
}

// ingest makes the tables of a memtable and of the rows that its log file has
// changed, ingests them as one, and has the words' bits set by then. It writes
// the new number and counts into the rows. An error that is ErrDiskFull has
// changed nothing.
func (s *Store) ingest(m *memtable, changed *registry) (bytes int64, err error) {
	s.mu.Lock()
	number := s.mu.registry.ingest + 1
	for id, row := range changed.segments {
		now := s.mu.registry.segments[id]
		row.words = now.words
		if id == m.segment {
			row.words += uint64(m.count.Load())
		}
		row.ingest = number
		changed.segments[id] = row
	}
	s.mu.Unlock()
	changed.ingest, changed.flushed = number, m.file
	changed.flushedLSN = m.lsn.Load()
	changed.clock = stampClock()

	if err := s.space.check(m.count.Load() * tableWordBytes); err != nil {
		return 0, err
	}
	var paths []string
	defer func() {
		for _, p := range paths {
			err = errors.Join(err, removeIfThere(s.opts.seams.FS, p))
		}
	}()
	rows := s.tmpTable(number, 0)
	paths = append(paths, rows)
	n, err := s.writeRows(rows, changed)
	if err != nil {
		return 0, err
	}
	bytes += n
	if err := s.beginSpanFilter(m.segment); err != nil {
		return 0, err
	}
	words, n, err := s.writeWords(m, number)
	paths = append(paths, words...)
	if err != nil {
		return 0, err
	}
	if s.events.dead.Load() {
		return 0, s.Err()
	}
	err = s.events.apart(func() error {
		return s.db.Ingest(context.Background(), slices.Clone(paths))
	})
	if s.events.dead.Load() {
		// It may have returned nil all the same: a MANIFEST whose sync failed
		// in a compaction syncs the next time, and what was lost is lost.
		return 0, s.Err()
	}
	if err != nil {
		if isDiskFull(err) {
			return 0, wrapPebble(err)
		}
		err = wrapPebble(err)
		s.poison(err)
		return 0, s.Err()
	}
	return bytes + n, nil
}

func (s *Store) tmpTable(number uint64, i int) string {
	fs := s.opts.seams.FS
	return fs.PathJoin(s.dir, tmpDir, fmt.Sprintf("%010d-%03d.sst", number, i))
}

// table is one table being written.
type table struct {
	path string
	w    *sstable.Writer
	key  []byte
}

func (s *Store) newTable(path string) (*table, error) {
	f, err := s.opts.seams.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, wrapPebble(err)
	}
	o := s.pebble.MakeWriterOptions(0, s.db.TableFormat())
	return &table{path: path, w: sstable.NewWriter(objstorageprovider.NewFileWritable(f), o)}, nil
}

// finish syncs and closes the table and returns its size.
func (t *table) finish() (int64, error) {
	if err := t.w.Close(); err != nil {
		return 0, wrapPebble(err)
	}
	meta, err := t.w.Metadata()
	if err != nil {
		return 0, wrapPebble(err)
	}
	return int64(meta.Size), nil
}

// writeWords writes a memtable's words as tables, cuts of one sequence in word
// order, and sets their bits in the same pass.
func (s *Store) writeWords(m *memtable, number uint64) (paths []string, bytes int64, err error) {
	var t *table
	finish := func() error {
		n, err := t.finish()
		t = nil
		bytes += n
		return err
	}
	setBits := s.bitSetter(m.segment)
	err = m.sorted(sortedPart, func(words []word) error {
		if !planted.ReleaseBeforeBits {
			if err := setBits(words); err != nil {
				return err
			}
		}
		if t == nil {
			path := s.tmpTable(number, len(paths)+1)
			paths = append(paths, path)
			if t, err = s.newTable(path); err != nil {
				return err
			}
		}
		for _, w := range words {
			t.key = appendWordKey(t.key[:0], m.segment, w)
			if err := t.w.Set(t.key, nil); err != nil {
				return wrapPebble(err)
			}
		}
		if t.w.Raw().EstimatedSize() >= tableBytes {
			return finish()
		}
		return nil
	})
	if t != nil {
		err = errors.Join(err, finish())
	}
	return paths, bytes, err
}

// bitSetter returns what sets the bits of a segment's words, ascending ones.
func (s *Store) bitSetter(id segmentID) func([]word) error {
	s.mu.Lock()
	row := s.mu.registry.segments[id]
	s.mu.Unlock()
	filters := s.filtersOf(row.spanID())
	return func(words []word) error {
		for _, f := range filters {
			if err := f.setSorted(words); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeRows writes rows of the registry as one table.
func (s *Store) writeRows(path string, r *registry) (int64, error) {
	t, err := s.newTable(path)
	if err != nil {
		return 0, err
	}
	err = r.rows(func(key, value []byte) error { return wrapPebble(t.w.Set(key, value)) })
	n, ferr := t.finish()
	return n, errors.Join(err, ferr)
}

// rows calls fn with the rows in key order.
func (r *registry) rows(fn func(key, value []byte) error) error {
	if err := fn(appendRowKey(nil, rowStore, 0), appendStoreRow(nil, &r.storeRow)); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(r.namespaces)) {
		row := r.namespaces[id]
		if err := fn(appendRowKey(nil, rowNamespace, id), appendNamespaceRow(nil, &row)); err != nil {
			return err
		}
	}
	for _, id := range r.ids() {
		row := r.segments[id]
		if err := fn(appendRowKey(nil, rowSegment, uint32(id)), appendSegmentRow(nil, &row)); err != nil {
			return err
		}
	}
	return nil
}

// waitForL0 waits until Pebble has merged enough: it does not slow an ingest
// down by itself.
//
// A merge that failed keeps Pebble from trying again for half a minute, and
// then nothing would make it look. So it is asked to where it stands idle, and
// what keeps it from merging, a full disk for one, comes out as the error.
func (s *Store) waitForL0() error {
	for idle := 0; ; {
		m := s.metrics()
		if m == nil || m.Levels[0].Sublevels < maxL0Sublevels {
			return s.Err()
		}
		if idle++; m.Compact.NumInProgress > 0 {
			idle = 0
		}
		select {
		case <-time.After(l0Wait):
		case <-s.poisoned:
		}
		if err := s.Err(); err != nil {
			return err
		}
		if idle < l0Idle {
			continue
		}
		err := s.events.apart(func() error {
			end := appendWordKey(nil, ^segmentID(0), 0)
			return s.db.Compact(context.Background(), []byte{0}, end, false)
		})
		if err != nil {
			return wrapPebble(err)
		}
		idle = 0
	}
}

// metrics returns Pebble's figures, nil if it cannot go on.
func (s *Store) metrics() *pebble.Metrics {
	if s.events.dead.Load() {
		return nil
	}
	got := make(chan *pebble.Metrics, 1)
	err := s.events.apart(func() error {
		got <- s.db.Metrics()
		return nil
	})
	if err != nil {
		return nil
	}
	return <-got
}

// removeLogs unlinks the log files up to the given one, and puts aside those
// with a torn tail. Their words are in Pebble, and the ingest is on record,
// synced.
func (s *Store) removeLogs(last uint64) error {
	fsys := s.opts.seams.FS
	for oldest := &s.maintainer.oldestLog; oldest.Load() <= last; oldest.Add(1) {
		n := oldest.Load()
		var err error
		if s.maintainer.tornLogs[n] {
			_, err = wal.Quarantine(fsys, s.logDir(), n)
		} else {
			err = wal.Remove(fsys, s.logDir(), n)
		}
		if err != nil {
			return fmt.Errorf("store: let a flushed log file go: %w", err)
		}
	}
	return nil
}

func (s *Store) logDir() string { return s.opts.seams.FS.PathJoin(s.dir, logDir) }

// emptied is the memtable that a flush has let go. A reader that entered its
// view before the epoch may still look into it.
type emptied struct {
	m     *memtable // nil if there is none
	epoch uint64
}

// recycle empties the memtable that was let go, if no view can reach it any
// more, and makes it the spare one. The maintainer does not wait for views: it
// comes again.
func (s *Store) recycle() {
	e := &s.maintainer.emptied
	if e.m == nil || !s.quiet(e.epoch) {
		return
	}
	e.m.clear()
	s.mu.Lock()
	s.mu.spare = e.m
	s.wakeLocked()
	s.mu.Unlock()
	e.m = nil
}
