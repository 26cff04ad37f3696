package store

import (
	"context"
	"errors"
	"fmt"

	"dedupstore/mmapfilter"
)

// What calls for a build: a bitmap or a segment filter that is past its
// designed fill, or below the floor, or missing, or doubted.

// need is why a build is to be made. The higher one goes first.
type need int

const (
	none        need = iota
	tooLarge         // for the words that are left
	tooMuchGone      // so many words are over that it is worth to build without
	unproven         // a crash has left the file, and it may be as it must be
	tooSmall
	unusable // there is no file, or one that cannot be believed
)

// needOf is what speaks for a build of a filter that is to hold so many words.
func needOf(f *filter, words, capacity uint64) need {
	switch d := f.doubt.Load(); {
	case f.Filter == nil, d != nil && !d.unverified:
		return unusable
	case words > capacity:
		return tooSmall
	case d != nil:
		return unproven
	}
	return none
}

// wantsBuild returns what is to be built next.
func (s *Store) wantsBuild() (t buildTarget, wants bool) {
	st := s.current.Load()
	waiting := uint64(st.active.count.Load())
	if st.frozen != nil {
		waiting += uint64(st.frozen.count.Load())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, most := s.wantsBitmapLocked(st, waiting)
	if s.mu.registry.needsFilters(st.spans) {
		for i := range st.spans {
			if span, need := s.wantsSpanFilterLocked(st.spans[i:]); need > most {
				t, most = span, need
			}
		}
	}
	return t, most > none
}

// wantsBitmapLocked wants the bitmap to hold what is in Pebble, what waits to go
// there, and what has left it since the bitmap was made, for its bits are still
// set; and no less than the floor.
func (s *Store) wantsBitmapLocked(st *state, waiting uint64) (t buildTarget, n need) {
	r := s.mu.registry
	l := s.loadLocked(waiting)
	now := st.bitmap.header().Capacity
	n = needOf(st.bitmap, max(l.live+l.over+r.dead, r.floor), now)
	if n == none && l.live+l.over <= now/shrinkShare && now/2 >= r.floor {
		n = tooLarge
	}
	if s.opts.Counters && s.wantsSubtractedLocked(&l, n, now) {
		t.capacity, t.counters = now, oldCounters
		if r.counterGen == 0 {
			t.counters = newCounters
		}
		return t, tooMuchGone
	}
	t.capacity = s.capacityLocked(&l, n, now)
	switch {
	case !s.opts.Counters || r.counterGen == 0:
	case t.capacity != now || n == tooSmall:
		t.counters = newCounters
	default:
		t.counters = keepCounters
	}
	return t, n
}

// load is what of the bitmap's bits is for what.
type load struct {
	live uint64 // words that count, or may, and those that wait to be flushed
	over uint64 // words of counted segments that are over
	idle uint64 // words that have left, and that counters would forget
}

func (s *Store) loadLocked(waiting uint64) (l load) {
	r := s.mu.registry
	for _, row := range r.segments {
		if row.state != segmentSubtracted {
			l.live += row.words
		}
	}
	if s.opts.Counters && r.counterGen != 0 {
		for _, id := range r.over(s.now(), s.expires.Load() && s.time.dropsAllowed()) {
			if row := r.segments[id]; row.state == segmentCounted {
				l.over += row.words
			}
		}
	}
	l.live += waiting - l.over
	l.idle = r.dead - min(r.dead, r.leaked)
	return l
}

// wantsSubtractedLocked reports that a build from counters is to be made: so
// much is over, or somebody has asked for it, or it spares a larger bitmap.
func (s *Store) wantsSubtractedLocked(l *load, n need, capacity uint64) bool {
	r := s.mu.registry
	gone := l.over + l.idle
	switch {
	case n > tooSmall || n == unproven || gone == 0 || capacity < r.floor:
		return false
	case n == tooSmall:
		return r.counterGen != 0 && l.live+r.leaked <= capacity-capacity/deadShare
	}
	return l.over > 0 && s.mu.hurried > 0 || gone >= l.live/goneShare && gone >= capacity/goneFloor
}

// capacityLocked is what a bitmap that is built from Pebble is made for.
func (s *Store) capacityLocked(l *load, n need, now uint64) uint64 {
	r := s.mu.registry
	return capacityFor(l.live, n, now, r.floor, r.dead+l.over > 0)
}

// capacityFor is what a bitmap of so many live words is made for, after one of
// the capacity now; dead says that words have left.
func capacityFor(live uint64, n need, now, floor uint64, dead bool) uint64 {
	capacity := max(now, floor)
	if n != none {
		for capacity/2 >= max(floor, 1) && live <= capacity/shrinkShare {
			capacity /= 2
		}
	}
	for capacity < live || dead && n == tooSmall && capacity-live < capacity/deadShare {
		capacity *= 2
	}
	return capacity
}

const (
	// shrinkShare is how little of a bitmap is in use when it is made smaller:
	// so little that the smaller one, half the size, is not full soon.
	shrinkShare = 4
	// deadShare is the share of a bitmap that is free, at least, when one is
	// built because of the bits of words that have left: what leaves from
	// then on fills it before the next one is due.
	deadShare = 3
	// goneShare is the share of the live words that is worth a build from
	// counters when it has gone. It writes all counters and bits, 7.5 bytes for
	// each word that the bitmap is made for: at a quarter, 30 for each word that
	// has gone, which is less than its add has cost. Until then the dead bits
	// let at most three times as many words through as were designed for.
	goneShare = 4
	// goneFloor is the part of the bitmap that they are, at least: else one
	// that is almost empty would be built again and again.
	goneFloor = 64
)

// wantsSpanFilterLocked wants the first of the spans, which are in order, to
// have its filter.
func (s *Store) wantsSpanFilterLocked(spans []span) (t buildTarget, n need) {
	r, sp := s.mu.registry, spans[0]
	words, now := r.wordsIn(sp.ids()), sp.filter.header().Capacity
	n = needOf(sp.filter, words, uint64(maxFilterLoad*float64(now)))
	t = buildTarget{span: sp.id, capacity: max(now, words)}
	switch {
	case n == tooSmall:
		t.capacity = 2 * now
	case !r.closed(sp.ids()):
		t.capacity = max(t.capacity, firstCapacity(r, words, spans[1:]))
	}
	return t, n
}

// maxFilterLoad is the load at which a segment filter is built anew, doubled.
// A bitmap lets 1 word in 250 through to it, so that 1.1 % instead of 0.4 % of
// those is nothing, and a span that has grown by a little over the last one's
// size does not take twice the space.
const maxFilterLoad = 1.25

// needsFilters reports whether the spans are to have filters. One alone needs
// none: the bitmap says as much. But while a larger bitmap is built, the old
// one lets more and more new words through, and each would be a Get: adds would
// be slowed to a third, and the build by them ("bench grow").
func (r *registry) needsFilters(spans []span) bool {
	return len(spans) > 1 || len(spans) == 1 && r.wordsIn(spans[0].ids()) >= loneFilterWords
}

const loneFilterWords = 8 << 20

// firstCapacity is what the filter of an open span that holds so many words is
// made for: the size of the span before it, the first one of the given.
func firstCapacity(r *registry, words uint64, before []span) uint64 {
	if len(before) == 0 {
		return 2 * words
	}
	return max(minFilterCapacity, before[0].filter.header().Capacity, r.wordsIn(before[0].ids()))
}

// minFilterCapacity keeps the filters of small spans from being doubled often.
const minFilterCapacity = 1 << 12

// beginSpanFilters makes the filters of the spans whose first words a flush is
// about to bring. Without space for one the span goes without, until a build
// finds some.
func (s *Store) beginSpanFilters(ids []segmentID) error {
	s.mu.Lock()
	r := s.mu.registry
	spans := r.spans(s.maintainer.filters)
	known := map[spanID]bool{}
	for _, sp := range spans {
		known[sp.id] = true
	}
	var begin []spanID
	for _, id := range ids {
		row := r.segments[id]
		if sp := row.spanID(); !known[sp] && s.maintainer.filters[sp] == nil {
			known[sp] = true
			begin = append(begin, sp)
		}
	}
	capacity := firstCapacity(r, 0, spans)
	s.mu.Unlock()
	if len(spans)+len(begin) < 2 {
		return nil
	}
	for _, sp := range begin {
		if err := s.beginSpanFilter(sp, capacity); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) beginSpanFilter(id spanID, capacity uint64) error {
	f, err := s.createFilter(s.spanFilterPath(id, 1), mmapfilter.Header{
		StoreID: s.identity.id, Generation: 1,
		Params: mmapfilter.ParamsFor(max(capacity, minFilterCapacity), id.seed(&s.identity.hasher)),
	})
	switch {
	case err == nil:
		s.maintainer.filters[id] = f
		s.opts.seams.At("filter-made")
	case errors.Is(err, mmapfilter.ErrNoSpace):
		s.opts.Logger.Warn("store: no space for a segment filter", "err", err)
	default:
		return err
	}
	return nil
}

// Grow makes the bitmap large enough for the given number of URLs, and records
// the number as a floor: no later build makes it smaller. It returns when the
// bitmap has that size; adds go on meanwhile. Nobody has to call it: the bitmap
// grows by itself, and a store that is known to become large is spared the
// smaller ones.
//
// When ctx ends, or the disk has no space for the bitmap, the floor stays
// recorded and the build is done later.
func (s *Store) Grow(ctx context.Context, urls int64) error {
	if urls < 1 || urls > MaxExpectedURLs {
		return fmt.Errorf("store: grow to %d URLs, want 1 to %d", urls, int64(MaxExpectedURLs))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.waiting != nil {
		return s.waiting.call(func(s *Store) error { return s.Grow(ctx, urls) })
	}
	if s.current.Load().closed {
		return ErrClosed
	}
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.setFloor(uint64(urls)); err != nil {
		return err
	}
	givenUp := s.counters.buildsGivenUp.Load()
	for {
		s.mu.Lock()
		st, changed := s.current.Load(), s.mu.changed
		s.mu.Unlock()
		switch {
		case st.closed:
			return ErrClosed
		case st.bitmap.header().Capacity >= uint64(urls):
			return nil
		case s.counters.buildsGivenUp.Load() > givenUp:
			return fmt.Errorf("%w: a bitmap for %d URLs is built when there is space", ErrDiskFull, urls)
		}
		s.kick()
		if err := s.waitFor(ctx, changed); err != nil {
			return err
		}
	}
}

// setFloor records the floor, durably, if it is higher than the one there is.
func (s *Store) setFloor(urls uint64) error {
	if err := s.reserveLog(room{logBytes: keepLogBytes}); err != nil {
		return err
	}
	s.mu.Lock()
	if s.mu.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	if urls <= s.mu.registry.floor {
		s.mu.Unlock()
		return nil
	}
	s.mu.registry.floor = urls
	record := s.log.Append(recordFloor, appendFloor(nil, urls))
	s.mu.Unlock()
	s.kick()
	return s.waitSynced(record)
}
