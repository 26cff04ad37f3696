package store

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"
)

// claim claims a key, for which it must get the answer.
func (s *testStore) claim(want Answer, key string, lease time.Duration) Claim {
	s.w.t.Helper()
	c, got, err := s.Claim(context.Background(), key, lease)
	if got != want || err != nil || (c != Claim{}) != (want == New) {
		s.w.t.Fatalf("Claim of %s: got %+v, %v, %v, want %v", key, c, got, err, want)
	}
	return c
}

// claimed checks that a key is claimed by somebody, and not there.
func (s *testStore) claimed(key string) {
	s.w.t.Helper()
	s.has(New, key)
	s.add(Busy, key)
	added, err := s.Add(context.Background(), key)
	if added || !errors.Is(err, ErrClaimed) {
		s.w.t.Errorf("Add of %s, which is claimed: got %v, %v", key, added, err)
	}
	s.claim(Busy, key, 0)
}

// TestClaimLife lists what becomes of a claim on one key.
func TestClaimLife(t *testing.T) {
	const k = "k"
	for _, tc := range []struct {
		name string
		life func(t *testing.T, s *testStore, c Claim, clock *fakeClock)
		want Answer // of an Add at the end
		then error  // of a use of the claim at the end
	}{
		{"held", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) { s.claimed(k) }, Busy, nil},
		{"committed", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) {
			must(t, c.Commit(t.Context(), 0))
			s.has(Seen, k)
			s.claim(Seen, k, 0)
		}, Seen, ErrClaimLost},
		{"committed and flushed", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) {
			must(t, c.Commit(t.Context(), 0))
			s.flush()
			s.claim(Seen, k, 0)
		}, Seen, ErrClaimLost},
		{"committed twice", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) {
			must(t, c.Commit(t.Context(), 0))
			is(t, "Commit", c.Commit(t.Context(), 0), ErrClaimLost)
		}, Seen, ErrClaimLost},
		{"released", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) { must(t, c.Release()) }, New, ErrClaimLost},
		{"released and claimed", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) {
			must(t, c.Release())
			s.claim(New, k, 0)
		}, Busy, ErrClaimLost},
		{"released twice", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) {
			must(t, c.Release())
			is(t, "Release", c.Release(), ErrClaimLost)
		}, New, ErrClaimLost},
		{"just before its end", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease - 1)
			s.claimed(k)
		}, Busy, nil},
		{"at its end", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) { clock.pass(defaultLease) }, New, ErrClaimLost},
		{"at its end, committed", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease)
			is(t, "Commit", c.Commit(t.Context(), 0), ErrClaimLost)
		}, New, ErrClaimLost},
		{"at its end, claimed", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease)
			s.claim(New, k, 0)
		}, Busy, ErrClaimLost},
		{"at its end, added and committed", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease)
			s.add(New, k)
			is(t, "Commit", c.Commit(t.Context(), 0), ErrClaimLost)
		}, Seen, ErrClaimLost},
		{"at its end, added, flushed and committed", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease)
			s.add(New, k)
			s.flush()
			is(t, "Commit", c.Commit(t.Context(), 0), ErrClaimLost)
			s.urls(1)
		}, Seen, ErrClaimLost},
		{"extended", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease - 1)
			must(t, c.Extend(0))
			clock.pass(defaultLease - 1)
		}, Busy, nil},
		{"extended for ever", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			must(t, c.Extend(math.MaxInt64))
			clock.pass(1e6 * time.Hour)
		}, Busy, nil},
		{"extended too late", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease)
			is(t, "Extend", c.Extend(time.Hour), ErrClaimLost)
		}, New, ErrClaimLost},
		{"shortened", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			must(t, c.Extend(time.Second))
			clock.pass(time.Second)
		}, New, ErrClaimLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, clock := clocked(inMemory(t))
			s := w.open()
			c := s.claim(New, k, 0)
			tc.life(t, s, c, clock)
			s.add(tc.want, k)
			if err := c.Release(); !errors.Is(err, tc.then) {
				t.Errorf("Release at the end: got %v, want %v", err, tc.then)
			}
		})
	}
}

// TestClaimLost has a lease end and another one granted. The first caller then
// tries everything.
func TestClaimLost(t *testing.T) {
	w, clock := clocked(inMemory(t))
	s := w.open()
	first := s.claim(New, "k", time.Minute)
	clock.pass(time.Minute)
	second := s.claim(New, "k", time.Hour)
	for what, use := range map[string]func() error{
		"Release": first.Release,
		"Extend":  func() error { return first.Extend(time.Second) },
		"Commit":  func() error { return first.Commit(t.Context(), 0) },
		"CommitBatch": func() error {
			return s.CommitBatch(t.Context(), []Claim{first, first}, 0, make([]bool, 2))
		},
	} {
		is(t, what, use(), ErrClaimLost)
		s.has(New, "k")
		s.claim(Busy, "k", 0)
	}
	clock.pass(time.Hour - 1)
	must(t, second.Commit(t.Context(), 0))
	s.add(Seen, "k")
	if got, want := s.Stats().Claims, (ClaimStats{Granted: 2, Lost: 5, Expired: 1}); got != want {
		t.Errorf("Stats: got %+v, want %+v", got, want)
	}
}

// TestForeignClaims uses claims that this store has not granted.
func TestForeignClaims(t *testing.T) {
	s := inMemory(t).open()
	other := inMemory(t).open()
	c := s.claim(New, "k", 0)
	foreign := Claim{n: other.Namespace, incarnation: other.core.current.Load(), word: c.word, token: c.token}
	for name, claim := range map[string]Claim{"zero": {}, "foreign": foreign} {
		is(t, name+": Commit", claim.Commit(t.Context(), 0), ErrClaimLost)
		is(t, name+": Release", claim.Release(), ErrClaimLost)
		is(t, name+": Extend", claim.Extend(0), ErrClaimLost)
		is(t, name+": CommitBatch", s.CommitBatch(t.Context(), []Claim{claim}, 0, make([]bool, 1)), ErrClaimLost)
	}
	s.claimed("k")
}

func TestClaimBatch(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 400 // parts of 100
	s := w.open()
	s.add(New, "seen")
	asked := []string{"a", "seen", "a", "b"}
	claims, answers := make([]Claim, 4), make([]Answer, 4)
	must(t, s.ClaimBatch(t.Context(), asked, 0, claims, answers))
	if want := []Answer{New, Seen, Busy, New}; !slices.Equal(answers, want) {
		t.Errorf("ClaimBatch: got %v, want %v", answers, want)
	}
	// Of a claim that stands there twice the second does not hold any more.
	committed := make([]bool, 4)
	err := s.CommitBatch(t.Context(), []Claim{claims[0], claims[1], claims[0], claims[3]}, 0, committed)
	is(t, "CommitBatch", err, ErrClaimLost)
	if want := []bool{true, false, false, true}; !slices.Equal(committed, want) {
		t.Errorf("CommitBatch: got %v, want %v", committed, want)
	}
	s.add(Seen, "a", "b")
	s.urls(3)

	// Of several parts, through several memtables.
	const n = 1500
	twice := append(keys(0, n), keys(0, n)...)
	claims, answers = make([]Claim, 2*n), make([]Answer, 2*n)
	must(t, s.ClaimBatch(t.Context(), twice, 0, claims, answers))
	for i, a := range answers {
		if want := map[bool]Answer{true: New, false: Busy}[i < n]; a != want || (claims[i] != Claim{}) != (a == New) {
			t.Fatalf("member %d: got %v, %+v", i, a, claims[i])
		}
	}
	s.add(Busy, keys(0, n)...)
	must(t, s.CommitBatch(t.Context(), claims[:n], 0, make([]bool, n)))
	s.add(Seen, keys(0, n)...)
	s.urls(n + 3)
	x := s.Stats()
	if got, want := x.Claims, (ClaimStats{Granted: n + 2, Lost: 2}); got != want {
		t.Errorf("Stats: got %+v, want %+v", got, want)
	}
	if got, want := x.Answers.Busy, int64(2*n+1); got != want {
		t.Errorf("Stats: %d answers are busy, want %d", got, want)
	}
}

// TestClaimRefused lists errors before the log is written. They claim and mark
// nothing.
func TestClaimRefused(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	held := s.claim(New, "held", 0)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name            string
		ctx             context.Context
		keys            []string
		lease           time.Duration
		claims, answers int
		want            error // nil: any
	}{
		{"empty key", t.Context(), []string{"a", ""}, 0, 2, 2, ErrEmptyKey},
		{"long key", t.Context(), []string{"a", string(make([]byte, MaxKeyBytes+1))}, 0, 2, 2, ErrKeyTooLong},
		{"fewer answers", t.Context(), []string{"a", "b"}, 0, 2, 1, nil},
		{"fewer claims", t.Context(), []string{"a", "b"}, 0, 1, 2, nil},
		{"negative lease", t.Context(), []string{"a"}, -1, 1, 1, nil},
		{"cancelled", cancelled, []string{"a"}, 0, 1, 1, context.Canceled},
	} {
		claims, answers := make([]Claim, tc.claims), make([]Answer, tc.answers)
		err := s.ClaimBatch(tc.ctx, tc.keys, tc.lease, claims, answers)
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: got error %v, want %v", tc.name, err, tc.want)
		}
		if slices.ContainsFunc(answers, func(a Answer) bool { return a != Unanswered }) {
			t.Errorf("%s: got answers %v", tc.name, answers)
		}
	}
	is(t, "Commit, cancelled", held.Commit(cancelled, 0), context.Canceled)
	if err := s.CommitBatch(t.Context(), []Claim{held}, 0, nil); err == nil {
		t.Error("CommitBatch without a place for what is committed: no error")
	}
	if err := held.Extend(-1); err == nil {
		t.Error("Extend by a negative lease: no error")
	}
	s.claimed("held")
	s.add(New, "a", "b")
	if got := s.Stats().Claims; got != (ClaimStats{Held: 1, Granted: 1}) {
		t.Errorf("Stats: got %+v", got)
	}
	s.close()
	_, _, err := s.Claim(t.Context(), "c", 0)
	is(t, "Claim after Close", err, ErrClosed)
	is(t, "Commit after Close", held.Commit(t.Context(), 0), ErrClosed)
	is(t, "Release after Close", held.Release(), ErrClosed)
	is(t, "Extend after Close", held.Extend(0), ErrClosed)
}

func TestMaxClaims(t *testing.T) {
	w, clock := clocked(inMemory(t))
	w.o.MaxClaims = 3
	s := w.open()
	s.add(New, "seen")
	first := s.claim(New, key(0), time.Minute)
	claims, answers := make([]Claim, 4), make([]Answer, 4)
	err := s.ClaimBatch(t.Context(), []string{key(1), key(2), key(3), "seen"}, time.Hour, claims, answers)
	is(t, "ClaimBatch", err, ErrTooManyClaims)
	if want := []Answer{New, New, Unanswered, Unanswered}; !slices.Equal(answers, want) {
		t.Errorf("ClaimBatch: got %v, want %v", answers, want)
	}
	s.claim(Seen, "seen", 0)
	s.claim(Busy, key(1), 0)
	must(t, first.Release())
	s.claim(New, key(3), time.Minute)
	clock.pass(time.Minute) // it has expired, and nobody asks for it
	s.claim(New, key(4), time.Hour)
	_, _, err = s.Claim(t.Context(), key(5), 0)
	is(t, "Claim", err, ErrTooManyClaims)
	if got, want := s.Stats().Claims, (ClaimStats{Held: 3, Granted: 5, Expired: 1}); got != want {
		t.Errorf("Stats: got %+v, want %+v", got, want)
	}
	must(t, claims[0].Commit(t.Context(), 0))
	s.claim(New, key(5), 0)
	s.urls(2)
}

// TestClaimMemory compares what Stats counts for claims with what the heap
// grows by, while they are held and when they are not any more. It does so in a
// process of its own: elsewhere the heap shrinks by what other tests have left.
func TestClaimMemory(t *testing.T) {
	const alone = "DEDUPSTORE_TEST_CLAIM_MEMORY"
	if os.Getenv(alone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClaimMemory$")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	s := inMemory(t).open()
	const n = 200_000
	before := s.Stats().Memory
	if before.Claims != 0 {
		t.Errorf("without claims: %d bytes", before.Claims)
	}
	claims, answers, all := make([]Claim, n), make([]Answer, n), keys(0, n)
	heap := heapBytes()
	must(t, s.ClaimBatch(t.Context(), all, 0, claims, answers))
	took := int64(heapBytes() - heap)
	runtime.KeepAlive(all)
	counted := s.Stats().Memory
	if counted.Claims != n*claimBytes || counted.Claims < took || counted.Claims > 2*took {
		t.Errorf("%d claims take %d bytes, and count as %d", n, took, counted.Claims)
	}
	if sum := counted.Memtables + counted.Cache + counted.BlockCache + counted.Log + counted.Claims; counted.Anonymous != sum {
		t.Errorf("anonymous memory is %d, and its parts are %d", counted.Anonymous, sum)
	}
	for _, c := range claims {
		must(t, c.Release())
	}
	if got := s.Stats().Memory.Claims; got != counted.Claims {
		t.Errorf("when all are released they count as %d, want %d", got, counted.Claims)
	}
	s.close()
	if got := s.Stats().Memory.Claims; got != 0 {
		t.Errorf("after Close they count as %d", got)
	}
}
