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
	// fewSegments are set in the bitmap segment by segment. It has a line for
	// each word, so that one pass for all spares none, but sorting them again.
	fewSegments = 4
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
		if err := s.setBits(m, s.idsOf(m)); err != nil {
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

// logClockLocked puts the clock on record: as it is, with what else an ingest's
// record says once more.
func (s *Store) logClockLocked() {
	s.mu.registry.clock = s.time.stamp()
	s.logIngestLocked()
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
	r.clock, r.dead, r.leaked = changed.clock, changed.dead, changed.leaked
	for id, row := range changed.segments {
		now := r.segments[id]
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
	r := s.mu.registry
	number := r.ingest + 1
	changed.dead, changed.leaked = r.dead, r.leaked
	changed.bitmapGeneration = r.bitmapGeneration // that the dead ones are of
	for id, row := range changed.segments {
		now, ok := r.segments[id]
		if !ok { // it was dropped
			delete(changed.segments, id)
			continue
		}
		row.words = now.words + uint64(m.wordsOf(id)) - uint64(m.deleted[id])
		row.ingest = number
		changed.segments[id] = row
		changed.dead += uint64(m.deleted[id])
		if now.state == segmentCounted {
			changed.leaked += uint64(m.deleted[id])
		}
	}
	s.mu.Unlock()
	changed.ingest, changed.flushed = number, m.file
	changed.flushedLSN = m.lsn.Load()
	changed.clock = s.time.stamp()
	ids := s.idsOf(m)

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
	if err := s.beginSpanFilters(ids); err != nil {
		return 0, err
	}
	words, n, err := s.writeWords(m, ids, number)
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
	if err := s.ingested(err); err != nil {
		return 0, err
	}
	s.maintainer.stored = changed.storeRow
	return bytes + n, nil
}

// ingested is what became of an ingest that returned err. A full disk has changed
// nothing; after any other error it is not known what Pebble has done.
func (s *Store) ingested(err error) error {
	if s.events.dead.Load() {
		// It may have returned nil all the same: a MANIFEST whose sync failed
		// in a compaction syncs the next time, and what was lost is lost.
		return s.Err()
	}
	if err == nil {
		return nil
	}
	err = wrapPebble(err)
	if errors.Is(err, ErrDiskFull) {
		return err
	}
	s.poison(err)
	return s.Err()
}

// idsOf are the segments, in ascending order, that a memtable has words of and
// that were not dropped since.
func (s *Store) idsOf(m *memtable) []segmentID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(m.ids(), func(id segmentID) bool {
		_, ok := s.mu.registry.segments[id]
		return !ok && !planted.DroppedFlushed
	})
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

// tableCutter writes keys in ascending order to as many tables as they need.
type tableCutter struct {
	s      *Store
	number uint64 // of the ingest
	t      *table
	paths  []string
	bytes  int64
}

func (c *tableCutter) begin() (err error) {
	if c.t != nil {
		return nil
	}
	path := c.s.tmpTable(c.number, len(c.paths)+1)
	c.paths = append(c.paths, path)
	c.t, err = c.s.newTable(path)
	return err
}

func (c *tableCutter) set(id segmentID, words []word) error {
	if err := c.begin(); err != nil {
		return err
	}
	for _, w := range words {
		c.t.key = appendWordKey(c.t.key[:0], id, w)
		if err := c.t.w.Set(c.t.key, nil); err != nil {
			return wrapPebble(err)
		}
	}
	return nil
}

func (c *tableCutter) delete(d segmentWord) error {
	if err := c.begin(); err != nil {
		return err
	}
	c.t.key = appendWordKey(c.t.key[:0], d.segment, d.word)
	return wrapPebble(c.t.w.Delete(c.t.key))
}

// cut ends a table that is large enough.
func (c *tableCutter) cut() error {
	if c.t == nil || c.t.w.Raw().EstimatedSize() < tableBytes {
		return nil
	}
	return c.finish()
}

func (c *tableCutter) finish() error {
	if c.t == nil {
		return nil
	}
	n, err := c.t.finish()
	c.t = nil
	c.bytes += n
	return err
}

// writeWords writes what a memtable has of the given segments, and what it
// deletes, as tables, cuts of one sequence in the order of segment and word. A
// segment that is worth an excision when it is dropped has tables of its own:
// one that began in a segment and ended in the next would overlap that of the
// next flush, and Pebble would merge a chain of them all the time.
//
// It sets the words' bits: in the same pass, unless there are many segments.
func (s *Store) writeWords(m *memtable, ids []segmentID, number uint64) (paths []string, bytes int64, err error) {
	few := len(ids) <= fewSegments
	if !few && !planted.ReleaseBeforeBits {
		if err := s.setBitmapBits(m, ids); err != nil {
			return nil, 0, err
		}
	}
	c := tableCutter{s: s, number: number}
	deletes := s.deletesOf(m)
	var setBits func([]word) error
	var of segmentID
	err = m.bySegment(ids, sortedPart, func(id segmentID, words []word) error {
		if of != id {
			if uint64(max(m.wordsOf(of), m.wordsOf(id))) >= s.exciseWords() {
				if err := c.finish(); err != nil {
					return err
				}
			}
			of, setBits = id, s.bitSetter(id, few)
		}
		if !planted.ReleaseBeforeBits {
			if err := setBits(words); err != nil {
				return err
			}
		}
		for len(deletes) > 0 && deletes[0].compare(segmentWord{id, words[len(words)-1]}) <= 0 {
			d := deletes[0]
			deletes = deletes[1:]
			n := 0
			if d.segment == id {
				n, _ = slices.BinarySearch(words, d.word)
			}
			if err := c.set(id, words[:n]); err != nil {
				return err
			}
			if words = words[n:]; d.segment == id && words[0] == d.word {
				continue // added again to the same segment
			}
			if err := c.delete(d); err != nil {
				return err
			}
		}
		if err := c.set(id, words); err != nil {
			return err
		}
		return c.cut()
	})
	for err == nil && len(deletes) > 0 {
		if err = c.delete(deletes[0]); err == nil {
			err = c.cut()
		}
		deletes = deletes[1:]
	}
	err = errors.Join(err, c.finish())
	return c.paths, c.bytes, err
}

// deletesOf are the words, in order, that a memtable deletes from segments that
// were not dropped since.
func (s *Store) deletesOf(m *memtable) []segmentWord {
	if len(m.deletes) == 0 {
		return nil
	}
	s.mu.Lock()
	deletes := slices.DeleteFunc(slices.Clone(m.deletes), func(d segmentWord) bool {
		_, ok := s.mu.registry.segments[d.segment]
		return !ok || planted.TombstoneLifted && m.look(d.word, 0) == present
	})
	s.mu.Unlock()
	slices.SortFunc(deletes, segmentWord.compare)
	return slices.Compact(deletes)
}

// bitSetter returns what sets the bits of a segment's words, ascending ones: in
// the filters of its span, and with bitmap in the bitmaps too.
func (s *Store) bitSetter(id segmentID, bitmap bool) func([]word) error {
	s.mu.Lock()
	row := s.mu.registry.segments[id]
	s.mu.Unlock()
	filters := s.spanFilters(row.spanID())
	if bitmap {
		filters = append(filters, s.bitmaps()...)
	}
	return setIn(filters)
}

func setIn(filters []*filter) func([]word) error {
	return func(words []word) error {
		for _, f := range filters {
			if err := f.setSorted(words); err != nil {
				return err
			}
		}
		return nil
	}
}

// setBitmapBits sets the bits of a memtable's words of the given segments in
// the bitmaps, in one pass in word order.
func (s *Store) setBitmapBits(m *memtable, ids []segmentID) error {
	numbers := make([]bool, maxMemSegments+1)
	for _, id := range ids {
		numbers[m.numbers[id]] = true
	}
	pick := func(slot uint64) bool { return numbers[m.number(slot)] }
	return m.sorted(sortedPart, pick, setIn(s.bitmaps()))
}

// setBits sets the bits of a memtable's words in all filters.
func (s *Store) setBits(m *memtable, ids []segmentID) error {
	return m.bySegment(ids, sortedPart, func(id segmentID, words []word) error {
		return s.bitSetter(id, true)(words)
	})
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
