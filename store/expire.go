package store

import (
	"context"
	"fmt"
	"time"
)

// ExpireOptions say what Expire does.
type ExpireOptions struct {
	// AcceptClock takes the wall clock for right, whatever it has been. What a
	// wrong clock has stamped with an end too far away ends at the latest a TTL
	// from now.
	AcceptClock bool
	// Progress, if not nil, is called now and then with how many URLs have
	// still to be dropped.
	Progress func(left int64)
}

// ExpireReport is what Expire has done.
type ExpireReport struct {
	URLs     int64 `json:"urls"`     // dropped
	Segments int64 `json:"segments"` // dropped
	Builds   int64 `json:"builds"`   // of filters, because of that
}

// Expire does now what the store would do by and by: it drops what has expired
// and the keys of namespaces that were dropped, and builds the filters that are
// due. It returns when that is done. Answers do not depend on it: what has
// expired is new from its instant.
//
// It also says that the clock is right, where the store has begun to wait for
// ten minutes until it believes it. A clock that is behind the store's time by
// more than an hour is ErrClock, unless it is accepted.
func (s *Store) Expire(ctx context.Context, o ExpireOptions) (ExpireReport, error) {
	if err := ctx.Err(); err != nil {
		return ExpireReport{}, err
	}
	if s.waiting != nil {
		var r ExpireReport
		err := s.waiting.call(func(s *Store) (err error) { r, err = s.Expire(ctx, o); return err })
		return r, err
	}
	if s.current.Load().closed {
		return ExpireReport{}, ErrClosed
	}
	if err := s.writable(); err != nil {
		return ExpireReport{}, err
	}
	if s.time.isBehind() && !o.AcceptClock {
		return ExpireReport{}, fmt.Errorf("%w: %s", ErrClock, s.time.stats().Warning)
	}
	if o.AcceptClock || !s.time.dropsAllowed() {
		if err := s.acceptClock(); err != nil {
			return ExpireReport{}, err
		}
	}
	return s.expireAll(ctx, o)
}

func (s *Store) expireAll(ctx context.Context, o ExpireOptions) (r ExpireReport, err error) {
	c := &s.counters
	words, drops, builds := c.dropWords.Load(), c.drops.Load(), c.builds.Load()
	givenUp := c.buildsGivenUp.Load()
	s.hurry(1)
	defer s.hurry(-1)
	s.maintainer.mu.Lock()
	s.maintainer.noBuildBefore = time.Time{} // one that was given up is tried now
	s.maintainer.mu.Unlock()
	err = s.flushAll(ctx, false)
	for err == nil {
		s.mu.Lock()
		changed, full := s.mu.changed, s.mu.full
		due := s.mu.registry.due(s.now(), true)
		left := int64(s.mu.registry.wordsIn(s.mu.registry.over(s.now(), true)))
		closing := s.mu.closing
		s.mu.Unlock()
		if o.Progress != nil {
			o.Progress(left)
		}
		switch {
		case closing:
			err = ErrClosed
		case full != nil:
			err = full
		case len(due) == 0 && s.noneLeft(c.buildsGivenUp.Load() > givenUp):
			return ExpireReport{
				URLs: c.dropWords.Load() - words, Segments: c.drops.Load() - drops, Builds: c.builds.Load() - builds,
			}, s.awaitRemovals(ctx)
		default:
			s.kick()
			err = s.waitFor(ctx, changed)
		}
	}
	return r, err
}

// hurry counts those who want what is counted and over to be subtracted at
// once.
func (s *Store) hurry(n int) {
	s.mu.Lock()
	s.mu.hurried += n
	s.mu.Unlock()
}

// noneLeft reports that no build is under way, or due and not put off, or that
// they are given up; and that no counters are to be let go, which leaves more to
// drop.
func (s *Store) noneLeft(givenUp bool) bool {
	s.maintainer.mu.Lock()
	defer s.maintainer.mu.Unlock()
	switch {
	case s.countersUnwanted():
		return false
	case givenUp:
		return true
	case s.maintainer.build != nil:
		return false
	}
	_, wants := s.wantsBuild()
	return !wants || time.Now().Before(s.maintainer.noBuildBefore)
}

// acceptClock takes the wall clock for right.
func (s *Store) acceptClock() error {
	fresh, err := s.freshCache()
	if err != nil {
		return err
	}
	return s.record(func() (recorded bool) {
		at := s.time.accept()
		clock := s.time.stamp()
		clock.store = at // the ends go by it
		s.log.Append(recordClock, appendClockStamp(nil, clock))
		capped := s.mu.registry.capEnds(at)
		st := s.current.Load()
		for id, ends := range capped {
			st.active.setEnds(id, ends)
			if st.frozen != nil {
				st.frozen.setEnds(id, ends)
			}
		}
		s.logClockLocked()
		s.replaceCacheLocked(fresh, func(st *state) { st.spans = withEnds(st.spans, capped) })
		return true
	})
}

// withEnds are the spans with other ends of some of their segments.
func withEnds(spans []span, ends map[segmentID]int64) []span {
	changed := make([]span, len(spans))
	for i, sp := range spans {
		changed[i] = sp
		changed[i].segments = make([]spanSegment, len(sp.segments))
		for j, seg := range sp.segments {
			if at, ok := ends[seg.id]; ok {
				seg.ends = at
			}
			changed[i].segments[j] = seg
		}
	}
	return changed
}

// freshCache makes an empty cache for the one there is. Words in that may have
// stamps that a step of the clock has made wrong.
func (s *Store) freshCache() (*cache, error) {
	return newCache(s.opts.MemoryBytes*cacheShare/64, s.time.now())
}

// replaceCacheLocked publishes a state with another cache.
func (s *Store) replaceCacheLocked(fresh *cache, change func(*state)) {
	old := s.current.Load().cache
	s.publishLocked(func(st *state) {
		st.cache = fresh
		change(st)
	})
	s.retireLocked(old.free)
}

// mindClock follows what a step of the wall clock means for one that is not
// believed yet, and renews a cache whose stamps come to their end.
func (s *Store) mindClock() error {
	if !s.expires.Load() {
		return nil
	}
	stepped := s.time.tick()
	if !stepped && !s.current.Load().cache.worn(s.time.now()) {
		return nil
	}
	fresh, err := s.freshCache()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.replaceCacheLocked(fresh, func(*state) {})
	s.mu.Unlock()
	return nil
}
