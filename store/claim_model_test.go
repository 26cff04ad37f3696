package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	modelAdds   = 10_000 // of the one URL
	modelKeys   = 20     // that are asked for at a time, beside it
	modelClaims = 40     // the last ones granted, which are used again
	modelReopen = 1000   // steps, about, from one end of the store to the next
)

// A claimModel is a store, and what must come of its claims.
type claimModel struct {
	t     *testing.T
	rng   *rand.Rand
	s     *testStore
	clock *fakeClock

	seen   map[string]bool
	held   map[string]*modelClaim // by whom
	claims []*modelClaim          // of this store or one before it, holding or not
	first  int                    // the lowest key that is asked for
}

type modelClaim struct {
	Claim
	key    string
	ends   time.Duration
	closed bool // its store was
}

// TestClaimModel adds one URL ten thousand times, and meanwhile claims it and
// others, and commits, releases, extends and outlives the claims at random,
// those that hold and those that do not, through flushes, closes and kills. A
// URL that was seen is never new again, and each answer is the model's.
func TestClaimModel(t *testing.T) {
	w, clock := clocked(inMemory(t))
	w.memtableWords, w.spanWords = 60, 500
	m := &claimModel{
		t: t, rng: seeded(t), s: w.open(), clock: clock,
		seen: map[string]bool{}, held: map[string]*modelClaim{},
	}
	for adds := 0; adds < modelAdds; {
		switch p := m.rng.IntN(modelReopen); {
		case p == 0:
			m.reopen()
		case p < 4:
			m.s.flush()
		case p < modelReopen/2:
			if m.answer(key(0)) == New {
				m.claim(key(0)) // so that it is a commit that makes it seen
			}
			m.add(key(0))
			adds++
		default:
			m.step()
		}
	}
	m.s.urls(len(m.seen))
	if !m.seen[key(0)] || len(m.seen) < 100 {
		t.Errorf("only %d URLs are seen, and the one: %v", len(m.seen), m.seen[key(0)])
	}
}

// step does something to a key or to a claim.
func (m *claimModel) step() {
	if m.rng.IntN(20) == 0 {
		m.first++
	}
	k := key(m.first + m.rng.IntN(modelKeys))
	if len(m.claims) == 0 {
		m.claim(k)
		return
	}
	c := m.claims[m.rng.IntN(len(m.claims))]
	lease := time.Duration(1 + m.rng.IntN(int(time.Minute)))
	switch m.rng.IntN(12) {
	case 0:
		m.add(k)
	case 1:
		m.clock.pass(lease / 20)
	case 2, 3:
		m.use("Extend", c, c.Extend(lease), func() { c.ends = m.clock.Monotonic() + lease })
	case 4, 5:
		m.use("Release", c, c.Release(), func() { delete(m.held, c.key) })
	case 6:
		m.use("Commit", c, c.Commit(m.t.Context(), 0), func() { m.commit(c) })
	default:
		m.claim(k)
	}
}

// holds reports whether a claim does.
func (m *claimModel) holds(c *modelClaim) bool {
	return c != nil && m.held[c.key] == c && c.ends > m.clock.Monotonic()
}

// answer is what an Add or a Claim must get.
func (m *claimModel) answer(k string) Answer {
	switch {
	case m.seen[k]:
		return Seen
	case m.holds(m.held[k]):
		return Busy
	}
	return New
}

func (m *claimModel) add(k string) {
	m.t.Helper()
	want := m.answer(k)
	m.s.add(want, k)
	if want == New {
		m.seen[k] = true
	}
}

func (m *claimModel) claim(k string) {
	m.t.Helper()
	lease := time.Duration(1 + m.rng.IntN(int(time.Minute)))
	want := m.answer(k)
	c := &modelClaim{key: k, ends: m.clock.Monotonic() + lease}
	c.Claim = m.s.claim(want, k, lease)
	m.s.has(map[bool]Answer{true: Seen, false: New}[want == Seen], k)
	if want != New {
		return
	}
	m.held[k] = c
	m.claims = append(m.claims, c)
	if len(m.claims) > modelClaims {
		m.claims = m.claims[1:]
	}
}

// use checks what came of the use of a claim.
func (m *claimModel) use(what string, c *modelClaim, err error, change func()) {
	m.t.Helper()
	var want error
	switch {
	case c.closed:
		want = ErrClosed
	case !m.holds(c):
		want = ErrClaimLost
	}
	if !errors.Is(err, want) {
		m.t.Fatalf("%s of a claim on %s: got %v, want %v", what, c.key, err, want)
	}
	if want == nil {
		change()
	}
}

func (m *claimModel) commit(c *modelClaim) {
	delete(m.held, c.key)
	m.seen[c.key] = true
}

// reopen closes the store, or kills it, and opens what is left. The claims have
// gone; all that is seen is there.
func (m *claimModel) reopen() {
	m.t.Helper()
	w := m.s.w
	if m.rng.IntN(2) == 0 {
		w = w.crash(m.rng, 100)
	}
	m.s.close()
	m.s = w.open()
	for _, c := range m.claims {
		c.closed = true
	}
	clear(m.held)
	m.s.urls(len(m.seen))
	for k := range m.seen {
		has, err := m.s.Has(context.Background(), k)
		if !has || err != nil {
			m.t.Fatalf("%s was seen, and after a reopen: %v, %v", k, has, err)
		}
	}
}
