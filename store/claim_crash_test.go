package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

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
			must(t, s.CommitBatch(t.Context(), claims[:n/2], 0, make([]bool, n/2)))
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

// claimChildBatch is how many keys the child claims at once. Of each batch it
// commits the first half.
const claimChildBatch = 1000

// TestClaimChild is a process that commits some claims and dies with the others
// open. Without its environment it does nothing.
func TestClaimChild(t *testing.T) {
	dir := os.Getenv(claimChildEnv)
	if dir == "" {
		return
	}
	s := mustOpen(t, dir, killOptions(Interval))
	var wg sync.WaitGroup
	for g := range claimChildren {
		wg.Go(func() {
			claims, answers := make([]Claim, claimChildBatch), make([]Answer, claimChildBatch)
			for b := g; b < claimChildBatches(); b += claimChildren {
				batch := keys(b*claimChildBatch, (b+1)*claimChildBatch)
				err := s.ClaimBatch(t.Context(), batch, 0, claims, answers)
				if half := claims[:claimChildBatch/2]; err == nil {
					err = s.CommitBatch(t.Context(), half, 0, make([]bool, len(half)))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if !t.Failed() {
		must(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {} // until the signal is there
	}
}

// claimChildren is how many goroutines of the child claim.
const claimChildren = 4

func claimChildBatches() int { return max(*adderKeys/claimChildBatch, 5) }

// TestClaimsKilled kills a process with open claims: all of them are new after
// that, and none is of those that were committed. The whole of it:
//
//	go test ./store -run '^TestClaimsKilled$' -store.keys 1000000 -timeout 1h
func TestClaimsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestClaimChild$",
		fmt.Sprintf("-store.keys=%d", *adderKeys))
	child.Env = append(os.Environ(), claimChildEnv+"="+dir)
	out, err := child.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child: %v\n%s", err, out)
	}
	s := mustOpen(t, dir, killOptions(Interval))
	n := claimChildBatches() * claimChildBatch
	claims, answers := make([]Claim, n), make([]Answer, n)
	must(t, s.ClaimBatch(t.Context(), keys(0, n), 0, claims, answers))
	for i, a := range answers {
		if want := map[bool]Answer{true: Seen, false: New}[i%claimChildBatch < claimChildBatch/2]; a != want {
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
	is(t, "CommitBatch", s.CommitBatch(t.Context(), claims, 0, committed), ErrDiskFull)
	refused := slices.Index(committed, false)
	if refused < 0 || slices.Contains(committed[refused:], true) {
		t.Fatalf("committed are %v", committed)
	}
	s.has(Seen, keys(0, refused)...)
	s.has(New, keys(refused, n)...)
	s.claim(Busy, key(refused), 0)
	is(t, "Commit", claims[n-1].Commit(t.Context(), 0), ErrDiskFull)
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 29, TotalBytes: 1 << 30})
	s.flush()
	must(t, s.CommitBatch(t.Context(), claims[refused:], 0, committed[refused:]))
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
		done := start(func() { err = c.Commit(context.Background(), 0) })
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
	is(t, "CommitBatch", s.CommitBatch(t.Context(), claims[:1], 0, committed), ErrPoisoned)
	if committed[0] {
		t.Error("a commit that failed counts as committed")
	}
	_, a, err := s.Claim(t.Context(), key(7), 0)
	is(t, "Claim", err, ErrPoisoned)
	if a != Unanswered {
		t.Errorf("Claim: got %v", a)
	}
	is(t, "Commit", claims[1].Commit(t.Context(), 0), ErrPoisoned)
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
