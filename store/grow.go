package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dedupstore/mmapfilter"
)

// What calls for a build: a bitmap or a segment filter that is past its
// designed fill, or below the floor, or missing, or doubted.

// need is why a build is to be made. The higher one goes first.
type need int

const (
	none     need = iota
	unproven      // a crash has left the file, and it may be as it must be
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

// wantsBitmapLocked wants the bitmap to hold what is in Pebble and what waits
// to go there, and no less than the floor.
func (s *Store) wantsBitmapLocked(st *state, waiting uint64) (t buildTarget, n need) {
	r := s.mu.registry
	words := max(r.words()+waiting, r.floor)
	now := st.bitmap.header().Capacity
	t.capacity = max(now, r.floor)
	for t.capacity < words {
		t.capacity *= 2
	}
	return t, needOf(st.bitmap, words, now)
}

// wantsSpanFilterLocked wants the first of the spans, which are in order, to
// have its filter.
func (s *Store) wantsSpanFilterLocked(spans []span) (t buildTarget, n need) {
	r, sp := s.mu.registry, spans[0]
	words, now := r.wordsIn(sp.segments), sp.filter.header().Capacity
	n = needOf(sp.filter, words, uint64(maxFilterLoad*float64(now)))
	t = buildTarget{sp.id, max(now, words)}
	switch {
	case n == tooSmall:
		t.capacity = 2 * now
	case !r.closed(sp.segments):
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
	return len(spans) > 1 || len(spans) == 1 && r.wordsIn(spans[0].segments) >= loneFilterWords
}

const loneFilterWords = 8 << 20

// firstCapacity is what the filter of an open span that holds so many words is
// made for: the size of the span before it, the first one of the given.
func firstCapacity(r *registry, words uint64, before []span) uint64 {
	if len(before) == 0 {
		return 2 * words
	}
	return max(minFilterCapacity, before[0].filter.header().Capacity, r.wordsIn(before[0].segments))
}

// minFilterCapacity keeps the filters of small spans from being doubled often.
const minFilterCapacity = 1 << 12

// beginSpanFilter makes the filter of a span whose first words a flush is
// about to bring. Without space for it the span goes without, until a build
// finds some.
func (s *Store) beginSpanFilter(segment segmentID) error {
	s.mu.Lock()
	r := s.mu.registry
	row := r.segments[segment]
	id := row.spanID()
	spans := r.spans(s.maintainer.filters)
	alone := len(spans) == 0
	known := slices.ContainsFunc(spans, func(sp span) bool { return sp.id == id })
	capacity := firstCapacity(r, 0, spans)
	s.mu.Unlock()
	if alone || known || s.maintainer.filters[id] != nil {
		return nil
	}
	f, err := s.createFilter(s.spanFilterPath(id, 1), mmapfilter.Header{
		StoreID: s.identity.id, Generation: 1,
		Params: mmapfilter.ParamsFor(capacity, id.seed(&s.identity.hasher)),
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
