package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// The whole of it:
//
//	go test ./store -run '^TestManyClaimers$' -claim.keys 1000000 -timeout 1h
var claimKeys = flag.Int("claim.keys", 20_000/damageThin, "keys of TestManyClaimers")

// A fakeClock is moved by the test.
type fakeClock struct{ ns atomic.Int64 }

func (c *fakeClock) now() time.Duration     { return time.Duration(c.ns.Load()) }
func (c *fakeClock) pass(d time.Duration)   { c.ns.Add(int64(d)) }
func clocked(w *world) (*world, *fakeClock) { c := &fakeClock{}; w.now = c.now; return w, c }

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
			must(t, c.Commit(t.Context()))
			s.has(Seen, k)
			s.claim(Seen, k, 0)
		}, Seen, ErrClaimLost},
		{"committed and flushed", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) {
			must(t, c.Commit(t.Context()))
			s.flush()
			s.claim(Seen, k, 0)
		}, Seen, ErrClaimLost},
		{"committed twice", func(t *testing.T, s *testStore, c Claim, _ *fakeClock) {
			must(t, c.Commit(t.Context()))
			is(t, "Commit", c.Commit(t.Context()), ErrClaimLost)
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
			is(t, "Commit", c.Commit(t.Context()), ErrClaimLost)
		}, New, ErrClaimLost},
		{"at its end, claimed", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease)
			s.claim(New, k, 0)
		}, Busy, ErrClaimLost},
		{"at its end, added and committed", func(t *testing.T, s *testStore, c Claim, clock *fakeClock) {
			clock.pass(defaultLease)
			s.add(New, k)
			is(t, "Commit", c.Commit(t.Context()), ErrClaimLost)
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
		"Commit":  func() error { return first.Commit(t.Context()) },
		"CommitBatch": func() error {
			return s.CommitBatch(t.Context(), []Claim{first, first}, make([]bool, 2))
		},
	} {
		is(t, what, use(), ErrClaimLost)
		s.has(New, "k")
		s.claim(Busy, "k", 0)
	}
	clock.pass(time.Hour - 1)
	must(t, second.Commit(t.Context()))
	s.add(Seen, "k")
	if got, want := s.Stats().Claims, (ClaimStats{Granted: 2, Lost: 5, Expired: 1}); got != want {
		t.Errorf("Stats: got %+v, want %+v", got, want)
	}
}

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
	must(t, c.Commit(t.Context()))
	s.urls(1)
}

// TestForeignClaims uses claims that this store has not granted.
func TestForeignClaims(t *testing.T) {
	s := inMemory(t).open()
	other := inMemory(t).open()
	c := s.claim(New, "k", 0)
	foreign := Claim{s: other.Store, word: c.word, token: c.token}
	for name, claim := range map[string]Claim{"zero": {}, "foreign": foreign} {
		is(t, name+": Commit", claim.Commit(t.Context()), ErrClaimLost)
		is(t, name+": Release", claim.Release(), ErrClaimLost)
		is(t, name+": Extend", claim.Extend(0), ErrClaimLost)
		is(t, name+": CommitBatch", s.CommitBatch(t.Context(), []Claim{claim}, make([]bool, 1)), ErrClaimLost)
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
	err := s.CommitBatch(t.Context(), []Claim{claims[0], claims[1], claims[0], claims[3]}, committed)
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
	must(t, s.CommitBatch(t.Context(), claims[:n], make([]bool, n)))
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
	is(t, "Commit, cancelled", held.Commit(cancelled), context.Canceled)
	if err := s.CommitBatch(t.Context(), []Claim{held}, nil); err == nil {
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
	is(t, "Commit after Close", held.Commit(t.Context()), ErrClosed)
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
	must(t, claims[0].Commit(t.Context()))
	s.claim(New, key(5), 0)
	s.urls(2)
}

// TestManyClaimers lets 64 goroutines claim the same keys in batches and one by
// one. Each key must be granted once; half of them are committed.
func TestManyClaimers(t *testing.T) {
	n := *claimKeys
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
				if err := s.CommitBatch(context.Background(), commit, make([]bool, len(commit))); err != nil {
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
		if err = c.Commit(ctx); err == nil {
			made.Add(1)
		}
	}
	if errors.Is(err, ErrClaimLost) {
		return nil
	}
	return err
}

// TestClaimsCrash kills a store, and closes it, with claims of all kinds.
func TestClaimsCrash(t *testing.T) {
	for _, d := range []Durability{Interval, Sync, NoSync} {
		t.Run(d.String(), func(t *testing.T) {
			w := inMemory(t)
			w.o.Durability = d
			w.memtableWords = 300
			s := w.open()
			const n = 1000
			claims, answers := make([]Claim, n), make([]Answer, n)
			must(t, s.ClaimBatch(t.Context(), keys(0, n), 0, claims, answers))
			must(t, s.CommitBatch(t.Context(), claims[:n/2], make([]bool, n/2)))
			for _, c := range claims[n/2 : n/2+100] {
				must(t, c.Release())
			}
			percent := 100 // kill -9
			if d == Sync {
				percent = 0 // power loss
			}
			killed := w.crash(seeded(t), percent)
			s.close()
			for _, after := range []*testStore{killed.open(), w.open()} {
				after.has(Seen, keys(0, n/2)...)
				after.urls(n / 2)
				if got := after.Stats().Claims; got != (ClaimStats{}) {
					t.Errorf("Stats: got %+v", got)
				}
				must(t, after.ClaimBatch(t.Context(), keys(0, n), 0, claims, answers))
				for i, a := range answers {
					if want := map[bool]Answer{true: Seen, false: New}[i < n/2]; a != want {
						t.Fatalf("%s: got %v, want %v", key(i), a, want)
					}
				}
				after.close()
			}
		})
	}
}

// claimChildEnv is where TestClaimChild has its store.
const claimChildEnv = "DEDUPSTORE_TEST_CLAIM_CHILD"

// TestClaimChild is a process that commits some claims and dies with the others
// open. Without its environment it does nothing.
func TestClaimChild(t *testing.T) {
	dir := os.Getenv(claimChildEnv)
	if dir == "" {
		return
	}
	s := mustOpen(t, dir, killOptions(Interval))
	claims, answers := make([]Claim, claimChildKeys), make([]Answer, claimChildKeys)
	must(t, s.ClaimBatch(t.Context(), keys(0, claimChildKeys), 0, claims, answers))
	must(t, s.CommitBatch(t.Context(), claims[:claimChildKeys/2], make([]bool, claimChildKeys/2)))
	must(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	select {} // until the signal is there
}

const claimChildKeys = 5000 // more than two memtables

// TestClaimsKilled kills a process with open claims.
func TestClaimsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestClaimChild$")
	child.Env = append(os.Environ(), claimChildEnv+"="+dir)
	out, err := child.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child: %v\n%s", err, out)
	}
	s := mustOpen(t, dir, killOptions(Interval))
	claims, answers := make([]Claim, claimChildKeys), make([]Answer, claimChildKeys)
	must(t, s.ClaimBatch(t.Context(), keys(0, claimChildKeys), 0, claims, answers))
	for i, a := range answers {
		if want := map[bool]Answer{true: Seen, false: New}[i < claimChildKeys/2]; a != want {
			t.Fatalf("%s: got %v, want %v", key(i), a, want)
		}
	}
	must(t, s.Close())
}

// TestCommitDiskFull commits on a full disk until that is refused. What was
// refused is claimed as before, and committed when there is space.
func TestCommitDiskFull(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 200
	s := w.open()
	const n = 1000
	claims, answers := make([]Claim, n), make([]Answer, n)
	must(t, s.ClaimBatch(t.Context(), keys(0, n), 0, claims, answers))
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 10, TotalBytes: 1 << 30})
	committed := make([]bool, n)
	is(t, "CommitBatch", s.CommitBatch(t.Context(), claims, committed), ErrDiskFull)
	refused := slices.Index(committed, false)
	if refused < 0 || slices.Contains(committed[refused:], true) {
		t.Fatalf("committed are %v", committed)
	}
	s.has(Seen, keys(0, refused)...)
	s.has(New, keys(refused, n)...)
	s.claim(Busy, key(refused), 0)
	is(t, "Commit", claims[n-1].Commit(t.Context()), ErrDiskFull)
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 29, TotalBytes: 1 << 30})
	s.flush()
	must(t, s.CommitBatch(t.Context(), claims[refused:], committed[refused:]))
	s.add(Seen, keys(0, n)...)
	s.urls(n)
}

// TestCommitWaits holds the log's write up: a commit is not answered before its
// record is as safe as the level says, nor is "seen" of its key.
func TestCommitWaits(t *testing.T) {
	levels(t, func(t *testing.T, w *world, held func(op errorfs.Op) bool) {
		g, arm := logGate(w, held)
		s := w.open()
		c := s.claim(New, "k", 0)
		arm()
		var err error
		done := start(func() { err = c.Commit(context.Background()) })
		within(t, "the write or sync", g.reached)
		if ended(done) {
			t.Error("Commit is answered before its record is safe")
		}
		early, answered := asks(s, "k")
		early("a word that was committed")
		g.open()
		within(t, "Commit", done)
		must(t, err)
		answered()
	})
}

// TestCommitFails poisons the store at a commit's record.
func TestCommitFails(t *testing.T) {
	w := inMemory(t)
	var armed atomic.Bool
	w.fault = func(op errorfs.Op) error {
		if armed.Load() && isLog(op) && isWrite(op) {
			return errors.New("no")
		}
		return nil
	}
	s := w.open()
	claims, answers := make([]Claim, 2), make([]Answer, 2)
	must(t, s.ClaimBatch(t.Context(), keys(0, 2), 0, claims, answers))
	armed.Store(true)
	committed := make([]bool, 1)
	is(t, "CommitBatch", s.CommitBatch(t.Context(), claims[:1], committed), ErrPoisoned)
	if committed[0] {
		t.Error("a commit that failed counts as committed")
	}
	_, a, err := s.Claim(t.Context(), key(7), 0)
	is(t, "Claim", err, ErrPoisoned)
	if a != Unanswered {
		t.Errorf("Claim: got %v", a)
	}
	is(t, "Commit", claims[1].Commit(t.Context()), ErrPoisoned)
	must(t, claims[1].Release())
	s.abandon()
}

// TestClaimReadOnly claims in a store that must not write.
func TestClaimReadOnly(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, "k")
	s.close()
	w.o.ReadOnly = true
	s = w.open()
	_, a, err := s.Claim(t.Context(), "k", 0)
	is(t, "Claim", err, ErrReadOnly)
	if a != Unanswered {
		t.Errorf("Claim: got %v", a)
	}
}

// BenchmarkClaim claims and commits new URLs in batches of 1,000; one operation
// is one URL.
func BenchmarkClaim(b *testing.B) {
	s := benchOpen(b)
	const batch = 1000
	keys, claims, answers := make([]string, batch), make([]Claim, batch), make([]Answer, batch)
	committed := make([]bool, batch)
	b.ReportAllocs()
	for i := 0; i < b.N; i += batch {
		b.StopTimer()
		for j := range keys {
			keys[j] = benchURL(i + j)
		}
		b.StartTimer()
		if err := s.ClaimBatch(b.Context(), keys, 0, claims, answers); err != nil {
			b.Fatal(err)
		}
		if err := s.CommitBatch(b.Context(), claims, committed); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClaimTable fills the table to several sizes, and reports what a claim
// takes and how long a full table is searched.
func BenchmarkClaimTable(b *testing.B) {
	for _, n := range []int{100_000, 500_000, 700_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var bytes, search float64
			for b.Loop() {
				s := &Store{}
				s.opts.seams.Now = monotonic
				before := heapBytes()
				s.mu.claims.held = map[word]heldClaim{}
				for i := range n {
					s.mu.claims.held[rand.Uint64()] = heldClaim{token: uint64(i), ends: math.MaxInt64}
				}
				bytes = float64(heapBytes()-before) / float64(n)
				began := time.Now()
				s.purgeClaimsLocked()
				search = time.Since(began).Seconds() * 1e3
			}
			b.ReportMetric(bytes, "B/claim")
			b.ReportMetric(search, "ms/search")
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
