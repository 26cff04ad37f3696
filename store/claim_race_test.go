package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestClaimAgainstAdd claims a key between the look of an Add and its hold of
// the lock.
func TestClaimAgainstAdd(t *testing.T) {
	w := inMemory(t)
	g := newGate(t)
	var looks atomic.Int32
	w.point = func(name string) {
		if name == "look-bitmap" && looks.Add(1) == 1 {
			g.pass()
		}
	}
	s := w.open()
	var added bool
	var err error
	done := start(func() { added, err = s.Add(context.Background(), "k") })
	within(t, "the look", g.reached)
	c := s.claim(New, "k", 0)
	g.open()
	within(t, "Add", done)
	if added || !errors.Is(err, ErrClaimed) {
		t.Errorf("Add: got %v, %v", added, err)
	}
	must(t, c.Commit(t.Context(), 0))
	s.urls(1)
}

// TestManyClaimers lets 64 goroutines claim the same keys in batches and one by
// one. Each key must be granted once; half of them are committed. The whole of it:
//
//	go test ./store -run '^TestManyClaimers$' -store.keys 1000000 -timeout 1h
func TestManyClaimers(t *testing.T) {
	n := *adderKeys
	const claimers, batch = 64, 500
	w := onDisk(t)
	w.o = Options{ExpectedURLs: int64(n), MemoryBytes: 32 << 20, MaxClaims: n}
	w.memtableWords = max(n/100, 1000)
	s := w.open()
	all := keys(0, n)
	granted := make([]atomic.Uint32, n)
	seed := seeded(t).Uint64()
	var wg sync.WaitGroup
	for g := range claimers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(max(g/8-5, 0))))
			each := batch
			if g%8 == 7 {
				each = 1
			}
			claims, answers := make([]Claim, each), make([]Answer, each)
			for _, b := range rng.Perm((n + each - 1) / each) {
				lo, hi := b*each, min(b*each+each, n)
				if err := s.ClaimBatch(context.Background(), all[lo:hi], 0, claims[:hi-lo], answers[:hi-lo]); err != nil {
					t.Error(err)
					return
				}
				var commit []Claim
				for i := lo; i < hi; i++ {
					if answers[i-lo] != New {
						continue
					}
					granted[i].Add(1)
					if i%2 == 0 {
						commit = append(commit, claims[i-lo])
					}
				}
				if err := s.CommitBatch(context.Background(), commit, 0, make([]bool, len(commit))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range granted {
		if got := granted[i].Load(); got != 1 {
			t.Fatalf("%s was granted %d times", all[i], got)
		}
	}
	s.urls((n + 1) / 2)
	if got, want := s.Stats().Claims, (ClaimStats{Held: int64(n / 2), Granted: int64(n)}); got != want {
		t.Errorf("Stats: got %+v, want %+v", got, want)
	}
}

// TestClaimsAtOnce has claims, adds, freezes and flushes go for the same keys.
// Each key is made seen once, by an Add or a Commit.
func TestClaimsAtOnce(t *testing.T) {
	w, clock := clocked(inMemory(t))
	w.memtableWords, w.spanWords = 300, 1000
	s := w.open()
	const n, workers = 2000, 8
	made := make([]atomic.Uint32, n)
	seed := seeded(t).Uint64()
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for _, i := range rng.Perm(n) {
				if err := claimOrAdd(s, rng, clock, key(i), &made[i]); err != nil {
					t.Error(err)
					return
				}
				if rng.IntN(200) == 0 {
					if err := s.Flush(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	seen := 0
	for i := range made {
		got := made[i].Load()
		if got > 1 {
			t.Errorf("%s was made seen %d times", key(i), got)
		}
		has, err := s.Has(t.Context(), key(i))
		if err != nil || has != (got == 1) {
			t.Errorf("%s was made seen %d times, and Has says %v, %v", key(i), got, has, err)
		}
		seen += int(got)
	}
	s.urls(seen)
}

// claimOrAdd does one of the things that can be done to a key.
func claimOrAdd(s *testStore, rng *rand.Rand, clock *fakeClock, k string, made *atomic.Uint32) error {
	ctx := context.Background()
	if rng.IntN(3) == 0 {
		added, err := s.Add(ctx, k)
		if added {
			made.Add(1)
		}
		if errors.Is(err, ErrClaimed) {
			return nil
		}
		return err
	}
	c, a, err := s.Claim(ctx, k, time.Second)
	if err != nil || a != New {
		return err
	}
	switch rng.IntN(6) {
	case 0:
		err = c.Release()
	case 1:
		err = c.Extend(time.Minute)
	case 2:
		clock.pass(time.Second) // ends those of others too
	default:
		if err = c.Commit(ctx, 0); err == nil {
			made.Add(1)
		}
	}
	if errors.Is(err, ErrClaimLost) {
		return nil
	}
	return err
}
