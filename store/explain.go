package store

import (
	"context"
	"runtime/debug"
	"time"
)

// KeyState says what a store knows of a key. But for KeySeen, Has answers that it
// is not there.
type KeyState string

const (
	// KeyNew was never added, or nothing is left of it.
	KeyNew KeyState = "new"
	// KeySeen was added.
	KeySeen KeyState = "seen"
	// KeyClaimed is new, and somebody holds a claim on it.
	KeyClaimed KeyState = "claimed"
	// KeyForgotten is new since it was forgotten, which waits for its flush.
	KeyForgotten KeyState = "forgotten"
	// KeyExpired is new since its time was over, and is still to be dropped.
	KeyExpired KeyState = "expired"
)

// A Tier is a part of a store that can answer.
type Tier string

// The tiers, in the order in which they are asked.
const (
	TierCache    Tier = "cache"
	TierMemtable Tier = "memtable"
	TierFrozen   Tier = "frozen memtable"
	TierBitmap   Tier = "bitmap"          // it denies the key
	TierFilters  Tier = "segment filters" // all of them deny the key
	TierTables   Tier = "tables"          // the exact set
)

// An Explanation says what a store knows of a key, and where from.
type Explanation struct {
	Digest    Digest   `json:"digest"`
	Namespace string   `json:"namespace"`
	State     KeyState `json:"state"`
	// Tier is the one that answers Has.
	Tier Tier `json:"tier"`
	// Bitmap says whether the bitmap lets the key through, and Filters how many
	// of the segment filters do, of Spans. They were not asked, and are zero, if a
	// memtable has answered.
	Bitmap  bool `json:"bitmap"`
	Filters int  `json:"filters"`
	Spans   int  `json:"spans"`
	// Segment holds the key, also one that has expired. 0: none does.
	Segment uint32 `json:"segment"`
	// SpanWidth is that of the time span to which the segment belongs, 0 if it
	// does not expire.
	SpanWidth time.Duration `json:"span_width_ns"`
	// Left is how long the key is still seen, by the store's time; negative if
	// it has expired, Forever if it does not.
	Left time.Duration `json:"left_ns"`
	// Lease is how long the claim still holds.
	Lease time.Duration `json:"lease_ns"`
}

// Explain says what the store knows of a key, and why Has answers as it does. It
// changes nothing and leaves the cache alone. It asks what Has asks, and for the
// segment of a key that the cache answers for, the tables too: some microseconds
// for each segment of the namespace.
func (n *Namespace) Explain(ctx context.Context, key string) (e Explanation, err error) {
	if n.s.waiting != nil {
		err := n.call(func(n *Namespace) (err error) { e, err = n.Explain(ctx, key); return err })
		return e, err
	}
	if err := checkKeys([]string{key}); err != nil {
		return Explanation{}, err
	}
	p := parts.Get().(*part)
	defer parts.Put(p)
	p.load(n, []string{key}, ask{verb: verbHas})
	for {
		if err := ctx.Err(); err != nil {
			return Explanation{}, err
		}
		x := explaining{s: n.s, p: p}
		same, err := x.look()
		if err != nil {
			return Explanation{}, err
		}
		if !same {
			continue
		}
		if err := n.s.await(p.rests, n.level()); err != nil {
			return Explanation{}, err
		}
		x.e.Digest, x.e.Namespace = p.digests[0], n.Name()
		return x.e, nil
	}
}

// explaining is one look at one word.
type explaining struct {
	s *Store
	p *part
	e Explanation
	// ends is when the word of the segment is over.
	ends int64
}

// answer notes the first tier that decides, in the order of look.
func (x *explaining) answer(t Tier, state KeyState) {
	if x.e.Tier == "" {
		x.e.Tier, x.e.State = t, state
	}
}

// look goes the way of Store.look, and reports whether nothing has changed
// meanwhile.
func (x *explaining) look() (same bool, err error) {
	s, p := x.s, x.p
	st, slot := s.enter()
	if st == nil {
		return false, ErrClosed
	}
	defer slot.leave()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.recoverFault(st, &err)
	p.mix()
	p.now, p.rests = s.now(), 0
	w := p.words[0]
	if st.cache.has(w, st.cache.coarse(p.now)) {
		x.answer(TierCache, KeySeen)
	}
	if !x.inMemtable(st.active, TierMemtable) && !x.inMemtable(st.frozen, TierFrozen) {
		if err := x.inPebble(st, w); err != nil {
			return false, err
		}
	}
	x.finish(w)
	return s.current.Load() == st, nil
}

// inMemtable reports whether m has the last word.
func (x *explaining) inMemtable(m *memtable, t Tier) (last bool) {
	if m == nil {
		return false
	}
	w := x.p.words[0]
	is := m.look(w, x.p.now)
	if is == absent {
		return false
	}
	switch is {
	case present:
		if x.e.Tier == "" {
			x.p.rest(m)
		}
		x.answer(t, KeySeen)
	case forgotten:
		x.answer(t, KeyForgotten)
		return true
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if slot, found := m.find(w); found && m.number(slot) != noSegment {
		x.in(m.segmentOf(slot), (*m.ends.Load())[m.number(slot)])
	}
	return is == present
}

// in notes the segment of the word.
func (x *explaining) in(id segmentID, ends int64) { x.e.Segment, x.ends = uint32(id), ends }

// inPebble asks what is behind the memtables.
func (x *explaining) inPebble(st *state, w word) error {
	x.e.Bitmap, x.e.Spans = st.bitmap.maybe(w), len(st.spans)
	if !x.e.Bitmap {
		if err := x.inSegments(st.behind, w); err != nil {
			return err
		}
		x.answer(TierBitmap, KeyNew)
	}
	for i := range st.spans {
		sp := &st.spans[i]
		if !sp.filter.maybe(w) {
			continue
		}
		x.e.Filters++
		if !x.e.Bitmap && x.e.State != KeySeen {
			continue // Has has its answer
		}
		if err := x.inSegments(sp.of(x.p.incarnation.number), w); err != nil {
			return err
		}
	}
	if x.e.Filters == 0 {
		x.answer(TierFilters, KeyNew)
	}
	x.answer(TierTables, KeyNew)
	return nil
}

// inSegments asks Pebble, which may have the word in one that is over besides.
func (x *explaining) inSegments(ask []spanSegment, w word) error {
	for _, seg := range ask {
		if !seg.is(x.p.incarnation) {
			continue
		}
		live := seg.ends > x.p.now
		if x.e.Segment != 0 && (!live || x.ends > x.p.now) {
			continue // it would tell nothing more
		}
		found, err := x.s.getFrom(x.p, seg.id, w)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		x.in(seg.id, seg.ends)
		if live {
			x.answer(TierTables, KeySeen)
		}
	}
	return nil
}

// finish tells what the lock guards, and the time.
func (x *explaining) finish(w word) {
	s, e := x.s, &x.e
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Segment != 0 {
		if row := s.mu.registry.segments[segmentID(e.Segment)]; row.spanKind == spanTime {
			e.SpanWidth = time.Second << row.spanLog2
		}
		e.Left = Forever
		if x.ends != forever {
			e.Left = time.Duration(x.ends - s.time.now())
		}
		if e.State == KeyNew && x.ends <= x.p.now {
			e.State = KeyExpired
		}
	}
	mono := s.opts.Clock.Monotonic()
	if c, ok := s.mu.claims.held[w]; ok && c.ends > mono && e.State != KeySeen {
		e.State, e.Lease = KeyClaimed, c.ends-mono
	}
}
