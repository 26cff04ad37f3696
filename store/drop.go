package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/internal/planted"
)

// A segment whose words have expired, or whose incarnation of its namespace was
// dropped, leaves as a whole: its key range is taken out of Pebble, together
// with its row, in one ingest. Answers do not wait for that, nor for anything
// here: looks go by the segments' ends, and by the words' incarnation.

// exciseWords is how many words, of neighbouring segments, are worth taking
// their tables apart for: two at their ends, which costs some milliseconds.
// Fewer leave by a range tombstone, and all of those by one table.
const exciseWords = 1 << 16

// over are the segments, in ascending order, whose words count no more. What
// has expired waits until the clock is believed: a wrong one is then reversible.
func (r *registry) over(now int64, allowed bool) (ids []segmentID) {
	for id, row := range r.segments {
		if r.gone(&row) || allowed && row.ends <= now {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// due are those of them that are to be dropped: a counted one is subtracted
// first.
func (r *registry) due(now int64, allowed bool) []segmentID {
	return slices.DeleteFunc(r.over(now, allowed), func(id segmentID) bool {
		return r.segments[id].state == segmentCounted && !planted.CountedDropped
	})
}

// counts reports whether the build under way reads a segment to count it: it
// must not be dropped meanwhile. The maintainer calls it.
func (s *Store) counts(id segmentID) bool {
	b := s.maintainer.build
	return b != nil && b.count != nil && slices.Contains(b.count.plus, id)
}

// nextDue is how long until something expires; 0 if nothing will.
func (s *Store) nextDue() time.Duration {
	if !s.expires.Load() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	soonest := int64(forever)
	now := s.time.now()
	for id, row := range s.mu.registry.segments {
		if row.ends <= now && (row.state == segmentCounted || s.counts(id)) {
			continue // it waits for a build
		}
		soonest = min(soonest, row.ends)
	}
	if soonest == forever || !s.time.dropsAllowed() {
		return 0
	}
	return max(time.Duration(soonest-s.time.now()), time.Millisecond)
}

// dropDue drops what is due. It reports whether there was anything.
func (s *Store) dropDue() (did bool, err error) {
	s.mu.Lock()
	now := s.now()
	due := s.mu.registry.due(now, s.expires.Load() && (s.time.dropsAllowed() || planted.DropInDoubt))
	due = slices.DeleteFunc(due, s.counts)
	last := s.log.Last()
	s.mu.Unlock()
	if len(due) == 0 {
		return false, nil
	}
	// That a namespace was dropped must be on record before its words are gone.
	if err := s.waitSynced(last); err != nil {
		return false, err
	}
	if err := s.reserveLog(room{logBytes: keepLogBytes}); err != nil {
		return false, err
	}
	if err := s.syncBeforeDrop(due); err != nil {
		return false, err
	}
	s.opts.seams.At("drop")
	big, small := s.dropRanges(due)
	for _, ids := range big {
		if err := s.drop(ids, &pebble.KeyRange{
			Start: appendWordKey(nil, ids[0], 0)[:4], End: appendWordKey(nil, ids[len(ids)-1]+1, 0)[:4],
		}); err != nil {
			return true, err
		}
	}
	if len(small) > 0 {
		return true, s.drop(small, nil)
	}
	return true, nil
}

// dropRanges splits what is due into ranges that are worth an excision each and
// the rest. Segments that no live one is between are one range.
func (s *Store) dropRanges(due []segmentID) (big [][]segmentID, small []segmentID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.registry
	var ids []segmentID // of the range under way
	var words uint64
	end := func() {
		if words >= s.exciseWords() {
			big = append(big, ids)
		} else {
			small = append(small, ids...)
		}
		ids, words = nil, 0
	}
	for _, id := range r.ids() {
		if _, isDue := slices.BinarySearch(due, id); isDue {
			ids = append(ids, id)
			words += r.segments[id].words
		} else if !planted.DropOverLive {
			end()
		}
	}
	end()
	return big, small
}

func (s *Store) exciseWords() uint64 {
	if n := s.opts.seams.ExciseWords; n > 0 {
		return uint64(n)
	}
	return exciseWords
}

// drop takes segments out, in one ingest: their rows, and their words, which
// are the range to excise, or leave by range tombstones.
func (s *Store) drop(ids []segmentID, excise *pebble.KeyRange) (err error) {
	s.mu.Lock()
	row := s.maintainer.stored
	row.ingest = s.mu.registry.ingest + 1
	row.dead, row.leaked = s.mu.registry.dead, s.mu.registry.leaked
	row.bitmapGeneration = s.mu.registry.bitmapGeneration // that the dead ones are of
	stored := slices.Clone(ids)
	stored = slices.DeleteFunc(stored, func(id segmentID) bool {
		seg := s.mu.registry.segments[id]
		if seg.state != segmentSubtracted { // which has no bits
			row.dead += seg.words
		}
		return seg.ingest == 0 // no flush has brought it yet, nor will one
	})
	s.mu.Unlock()
	row.clock = s.time.stamp()
	if len(stored) > 0 {
		if err := s.ingestDrop(row, stored, excise); err != nil {
			return err
		}
	}
	s.opts.seams.At("dropped")

	var words int64
	s.mu.Lock()
	r := s.mu.registry
	if len(stored) > 0 {
		r.ingest, r.dead, r.clock = row.ingest, row.dead, row.clock
		s.logIngestLocked()
	}
	st := s.current.Load()
	for _, id := range ids {
		words += int64(r.segments[id].words)
		r.dropSegment(id)
		// What the memtables have of it is gone too, if the clock goes back too.
		st.active.setEnds(id, 0)
		if st.frozen != nil {
			st.frozen.setEnds(id, 0)
		}
	}
	s.publishLocked(func(st *state) { st.spans = s.spansLocked() })
	over := s.overSpansLocked()
	for _, f := range over {
		s.retireLocked(f.close)
	}
	s.mu.Unlock()
	s.counters.drops.Add(int64(len(ids)))
	s.counters.dropWords.Add(words)
	var errs []error
	for _, f := range over {
		errs = append(errs, s.removeFilter(f))
	}
	s.opts.seams.At("drop-removed")
	return errors.Join(errs...)
}

// overSpansLocked are the filters of the spans that have no segment left, which
// are let go.
func (s *Store) overSpansLocked() (over []*filter) {
	have := make(map[spanID]bool, len(s.maintainer.filters))
	for _, row := range s.mu.registry.segments {
		have[row.spanID()] = true
	}
	for id, f := range maps.All(s.maintainer.filters) {
		if !have[id] && !(s.maintainer.build != nil && s.maintainer.build.span == id) {
			over = append(over, f)
			delete(s.maintainer.filters, id)
		}
	}
	return over
}

// ingestDrop ingests the row of the store, and takes out the rows and the words
// of segments.
func (s *Store) ingestDrop(row storeRow, ids []segmentID, excise *pebble.KeyRange) (err error) {
	if s.space.check(0) != nil {
		defer s.space.below()() // a drop gives space back
	}
	var paths []string
	defer func() {
		for _, p := range paths {
			err = errors.Join(err, removeIfThere(s.opts.seams.FS, p))
		}
	}()
	rows := s.tmpTable(row.ingest, 0)
	paths = append(paths, rows)
	if err := s.writeDropRows(rows, row, ids); err != nil {
		return err
	}
	if excise == nil {
		ranges := s.tmpTable(row.ingest, 1)
		paths = append(paths, ranges)
		if err := s.writeRangeTombstones(ranges, ids); err != nil {
			return err
		}
	}
	if s.events.dead.Load() {
		return s.Err()
	}
	err = s.events.apart(func() error {
		if excise == nil {
			return s.db.Ingest(context.Background(), slices.Clone(paths))
		}
		_, err := s.db.IngestAndExcise(context.Background(), slices.Clone(paths), nil, nil, *excise)
		return err
	})
	if err := s.ingested(err); err != nil {
		return err
	}
	s.maintainer.stored = row
	return nil
}

func (s *Store) writeDropRows(path string, row storeRow, ids []segmentID) error {
	t, err := s.newTable(path)
	if err != nil {
		return err
	}
	err = wrapPebble(t.w.Set(appendRowKey(nil, rowStore, 0), appendStoreRow(nil, &row)))
	for _, id := range ids {
		if err == nil {
			err = wrapPebble(t.w.Delete(appendRowKey(nil, rowSegment, uint32(id))))
		}
	}
	_, ferr := t.finish()
	return errors.Join(err, ferr)
}

// writeRangeTombstones writes one for each run of consecutive ids.
func (s *Store) writeRangeTombstones(path string, ids []segmentID) error {
	t, err := s.newTable(path)
	if err != nil {
		return err
	}
	for len(ids) > 0 && err == nil {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+segmentID(n) {
			n++
		}
		err = wrapPebble(t.w.DeleteRange(appendWordKey(nil, ids[0], 0)[:4], appendWordKey(nil, ids[n-1]+1, 0)[:4]))
		ids = ids[n:]
	}
	_, ferr := t.finish()
	return errors.Join(err, ferr)
}
