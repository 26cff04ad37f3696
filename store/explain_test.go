package store

import (
	"errors"
	"testing"
	"time"
)

// explain is Explain, and its answer must be that of Has.
func (n *Namespace) explain(t *testing.T, key string) Explanation {
	t.Helper()
	e, err := n.Explain(t.Context(), key)
	must(t, err)
	seen, err := n.Has(t.Context(), key)
	must(t, err)
	if seen != (e.State == KeySeen) {
		t.Fatalf("%s: seen is %v, explained as %+v", key, seen, e)
	}
	return e
}

// TestExplain follows one key through its life.
func TestExplain(t *testing.T) {
	w, c := clocked(inMemory(t))
	w.memtableWords = 400
	s := w.open()
	defer s.close()
	n, err := s.OpenNamespace("news", &NamespaceOptions{TTL: 48 * time.Hour})
	must(t, err)
	check := func(when string, state KeyState, tier Tier) Explanation {
		t.Helper()
		e := n.explain(t, "k")
		if e.State != state || e.Tier != tier || e.Namespace != "news" || e.Digest != s.Digest("k") {
			t.Errorf("%s: got %+v, want %s by the %s", when, e, state, tier)
		}
		if seen := state == KeySeen || state == KeyExpired; (e.Segment != 0) != seen || (e.SpanWidth == time.Hour+8*time.Minute+16*time.Second) != seen {
			t.Errorf("%s: got %+v, a segment: %v", when, e, seen)
		}
		return e
	}
	check("at first", KeyNew, TierBitmap)
	claim, _, err := n.Claim(t.Context(), "k", time.Minute)
	must(t, err)
	if e := check("claimed", KeyClaimed, TierBitmap); e.Lease != time.Minute {
		t.Errorf("the lease is %v", e.Lease)
	}
	must(t, claim.Commit(t.Context(), 0))
	if e := check("committed", KeySeen, TierMemtable); e.Left < 48*time.Hour || e.Left > 50*time.Hour {
		t.Errorf("%v are left", e.Left)
	}
	_, err = n.Forget(t.Context(), "k")
	must(t, err)
	check("forgotten", KeyForgotten, TierMemtable)
	_, err = n.Add(t.Context(), "k")
	must(t, err)
	s.flush()
	if e := check("flushed", KeySeen, TierTables); !e.Bitmap || e.Spans != 1 || e.Filters != 1 {
		t.Errorf("got %+v", e)
	}
	check("asked", KeySeen, TierCache)
	c.pass(50 * time.Hour)
	if e := check("over", KeyExpired, TierTables); e.Left > 0 {
		t.Errorf("%v are left", e.Left)
	}
	if e := s.explain(t, "k"); e.State != KeyNew || e.Namespace != "" {
		t.Errorf("in the default namespace: got %+v", e)
	}
	must(t, s.DropNamespace(t.Context(), "news"))
	if e := n.explain(t, "k"); e.State != KeyNew {
		t.Errorf("dropped: got %+v", e)
	}
	_, err = n.Explain(t.Context(), "")
	is(t, "Explain", err, ErrEmptyKey)
}

// TestExplainModel compares it with Has in stores that do everything.
func TestExplainModel(t *testing.T) {
	w, c := clocked(inMemory(t))
	w.memtableWords, w.spanWords, w.buildWords, w.o.ExpectedURLs = 200, 400, 300, 1000
	s := w.open()
	rng := seeded(t)
	states, tiers := map[KeyState]int{}, map[Tier]int{}
	for range 4000 {
		k := key(rng.IntN(1500))
		switch rng.IntN(8) {
		case 0, 1, 2:
			ttl := []time.Duration{0, time.Hour, 30 * time.Hour}[rng.IntN(3)]
			if _, err := s.With(WriteOptions{TTL: ttl}).Add(t.Context(), k); !errors.Is(err, ErrClaimed) {
				must(t, err)
			}
		case 3:
			if _, err := s.Forget(t.Context(), k); !errors.Is(err, ErrClaimed) {
				must(t, err)
			}
		case 4:
			c.pass(time.Duration(rng.Int64N(int64(2 * time.Minute))))
		case 5:
			if rng.IntN(5) == 0 {
				_, _, err := s.Claim(t.Context(), k, time.Hour)
				must(t, err)
			}
		default:
			e := s.explain(t, k)
			states[e.State]++
			tiers[e.Tier]++
		}
	}
	t.Logf("%v by %v", states, tiers)
	if len(states) < 4 || len(tiers) < 5 {
		t.Errorf("only %v by %v", states, tiers)
	}
	s.close()
}
