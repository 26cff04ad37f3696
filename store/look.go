package store

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/internal/planted"
)

// look is the first look at a part's words: cache, active, frozen, bitmap,
// segment filters, Pebble, without the lock. It leaves in p.open the words that are in none of
// them, notes in p.rests what the others rest on, and reports whether the
// state was the same from its beginning to its end. If it was not, nothing of
// what it found may be used.
func (s *Store) look(p *part) (epoch uint64, same bool, err error) {
	st, slot := s.enter()
	if st == nil {
		return 0, false, ErrClosed
	}
	defer slot.leave()
	// A page of the map that the disk cannot read is a fault at the load. 10 ns
	// for a part make it an error of the look, instead of the process's end.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.recoverFault(st, &err)
	p.mix()
	p.now = s.now()
	s.touch(st, p.words)

	var hits int64
	p.open, p.rests, p.filtered, p.copies = p.open[:0], 0, filtered{}, p.copies[:0]
	coarse := st.cache.coarse(p.now)
	for i, w := range p.words {
		if p.verb == verbForget {
			if err := s.findCopies(st, p, i); err != nil {
				return 0, false, err
			}
			continue
		}
		if st.cache.has(w, coarse) {
			hits++
			continue
		}
		switch st.active.look(w, p.now) {
		case present:
			p.rest(st.active)
			if planted.MemtableWordsInCache {
				st.cache.add(w, forever)
			}
			continue
		case forgotten:
			p.open = append(p.open, i)
			continue
		}
		s.opts.seams.At("look-frozen")
		if st.frozen != nil {
			switch st.frozen.look(w, p.now) {
			case present:
				if !planted.SeenBeforeWriteFrozen {
					p.rest(st.frozen)
				}
				continue
			case forgotten:
				p.open = append(p.open, i)
				continue
			}
		}
		s.opts.seams.At("look-bitmap")
		id, err := s.inPebble(st, p, w)
		if err != nil {
			return 0, false, err
		}
		if id == 0 {
			p.open = append(p.open, i)
		}
	}
	c := &s.counters
	addIf(&c.cacheHits, hits)
	addIf(&c.cacheMisses, int64(len(p.words))-hits)
	addIf(&c.negatives, p.filtered.negatives)
	addIf(&c.maybes, p.filtered.maybes)
	addIf(&c.falseMaybes, p.filtered.falseMaybes)
	addIf(&c.filterNegatives, p.filtered.filterNegatives)
	if planted.StaleView {
		st = s.current.Load() // the epoch of after the look, not of before it
	}
	return st.epoch, s.current.Load() == st, nil
}

// recoverFault, deferred, makes an error of a page that could not be read.
func (s *Store) recoverFault(st *state, err *error) {
	if r := recover(); r != nil {
		if *err = st.fault(r); *err == nil {
			panic(r)
		}
		s.kick()
	}
}

// fault is the error of a fault in a filter's mapping, nil for any other panic.
func (st *state) fault(recovered any) error {
	err := st.bitmap.fault(recovered)
	for i := 0; err == nil && i < len(st.spans); i++ {
		err = st.spans[i].filter.fault(recovered)
	}
	return err
}

// filtered counts what the filters said to a part's words.
type filtered struct {
	negatives, maybes, falseMaybes int64 // of the bitmap
	filterNegatives                int64 // of the segment filters
}

// inPebble looks for a word behind the memtables, and returns its segment, 0 if
// it is in none. The bitmap's "no" is final; of the spans only those are asked
// whose filter does not deny the word.
func (s *Store) inPebble(st *state, p *part, w word) (id segmentID, err error) {
	if !st.bitmap.maybe(w) {
		p.filtered.negatives++
		if id, err = s.get(st, p, st.behind, w); id != 0 || err != nil {
			return id, err
		}
		return s.selfCheck(st, p, w)
	}
	p.filtered.maybes++
	if len(st.spans) > 1 { // loads that do not wait for each other
		var sum uint64
		for i := range st.spans {
			sum += st.spans[i].filter.touch(w)
		}
		p.touched += sum
	}
	for i := range st.spans {
		sp := &st.spans[i]
		if !sp.filter.maybe(w) {
			p.filtered.filterNegatives++
			continue
		}
		if id, err = s.get(st, p, sp.of(p.incarnation.number), w); id != 0 || err != nil {
			return id, err
		}
	}
	p.filtered.falseMaybes++
	return s.selfCheck(st, p, w)
}

// addIf spares the cache line of a counter that does not move.
func addIf(c *atomic.Int64, n int64) {
	if n != 0 {
		c.Add(n)
	}
}

// touched keeps the loads of touch from being optimised away.
var touched atomic.Uint64

// touch loads the lines of all words in cache, memtable and bitmap: loads that
// do not wait for each other.
func (s *Store) touch(st *state, words []word) {
	if len(words) == 1 {
		return
	}
	var sum uint64
	for _, w := range words {
		sum += st.cache.touch(w) + st.active.touch(w) + st.bitmap.touch(w)
	}
	if sum == 1 {
		touched.Store(sum)
	}
}

// getFrom asks Pebble for a word in a segment.
func (s *Store) getFrom(p *part, id segmentID, w word) (bool, error) {
	s.counters.gets.Add(1)
	p.key = appendWordKey(p.key[:0], id, w)
	_, closer, err := s.db.Get(p.key)
	if err == pebble.ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, wrapPebble(err)
	}
	return true, wrapPebble(closer.Close())
}

// get asks Pebble for a word in the given segments, and gives a word that it
// finds in a live one to the cache.
func (s *Store) get(st *state, p *part, ask []spanSegment, w word) (segmentID, error) {
	for _, seg := range ask {
		if !seg.is(p.incarnation) || seg.ends <= p.now {
			continue
		}
		if planted.LastAddDecides && p.verb == verbAdd && seg.ends != forever {
			continue
		}
		found, err := s.getFrom(p, seg.id, w)
		if err != nil {
			return 0, err
		}
		if !found {
			continue
		}
		s.opts.seams.At("look-found")
		s.fill(st, w, seg.ends)
		return seg.id, nil
	}
	return 0, nil
}

// fill gives the cache a word that was found in Pebble, if what the look rests
// on is still so. Whoever forgets words takes them out of the cache after the
// publication, and alone: so no word comes into it behind his back, not even for
// a moment, in which another look would find it.
func (s *Store) fill(st *state, w word, ends int64) {
	s.filling.RLock()
	defer s.filling.RUnlock()
	if s.current.Load() == st || planted.FillUnchecked {
		st.cache.add(w, ends)
	}
}
