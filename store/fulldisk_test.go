package store

import (
	"context"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
)

// The disk is full at one call of the file system, whichever, or from that one
// on. The store says so at once and in a type, costs nothing while it waits,
// closes, and has lost nothing: neither when there is space again nor after a
// reopen.

var fullCalls = flag.Bool("full.calls", false, "fail every call in TestDiskFullAtEveryCall, not one in fifteen, and wait for a second where the tests of full disks look at the time of the processor")

// fullWait is how long a full disk is waited on to see what that costs.
func fullWait() time.Duration {
	if *fullCalls {
		return time.Second
	}
	return 200 * time.Millisecond
}

// fullFree is what the disk says that it has free. It does not, but a quota is
// not told either.
const fullFree = 1 << 30

// A fullRun is one run of the script, and what came of it.
type fullRun struct {
	t         *testing.T
	disk      *crashfs.Disk
	s         *Store
	answered  []string // as new
	submitted int
	slowest   time.Duration
	slow      string // the call that it was
	errs      []error
}

// call makes a call of the store and notes what it says and how long it takes.
func (r *fullRun) call(name string, f func() error) error {
	r.t.Helper()
	start := time.Now()
	var err error
	crashWithin(r.t, name, func() { err = f() })
	if took := time.Since(start); took > r.slowest {
		r.slowest, r.slow = took, name
	}
	if err != nil {
		r.errs = append(r.errs, err)
		if !errors.Is(err, ErrDiskFull) {
			r.t.Errorf("%s: %v, want ErrDiskFull", name, err)
		}
	}
	return err
}

// add adds ten keys in one call.
func (r *fullRun) add() error {
	keys := make([]string, 10)
	for i := range keys {
		keys[i] = crashKey(r.submitted + i)
	}
	r.submitted += len(keys)
	answers := make([]Answer, len(keys))
	return r.call("add", func() error {
		err := r.s.AddBatch(r.t.Context(), keys, answers)
		for i, a := range answers {
			if a == New {
				r.answered = append(r.answered, keys[i])
			} else if err == nil {
				r.t.Errorf("%s is %v", keys[i], a)
			}
		}
		return err
	})
}

// script opens a store, adds, flushes, lets the bitmap grow, and compacts.
func (r *fullRun) script() (opened bool) {
	ctx := context.Background()
	err := r.call("open", func() (err error) {
		r.s, err = Open(crashDir, crashOptions(r.disk, Sync, 60, nil))
		return err
	})
	if err != nil {
		return false
	}
	for range 4 {
		for range 4 {
			_ = r.add()
		}
		_ = r.call("flush", func() error { return r.s.Flush(ctx) })
	}
	_ = r.call("compact", func() error { return r.s.Compact(ctx) })
	_ = r.add()
	_ = r.call("sync", func() error { return r.s.Sync(ctx) })
	r.look()
	return true
}

// look wants every answer again, or an error.
func (r *fullRun) look() {
	r.t.Helper()
	answers := make([]Answer, len(r.answered))
	if r.call("has", func() error { return r.s.HasBatch(context.Background(), r.answered, answers) }) != nil {
		return
	}
	for i, a := range answers {
		if a != Seen {
			r.t.Errorf("%s was answered, and is %v", r.answered[i], a)
		}
	}
}

// heals wants a store that is not poisoned to take keys again, by itself.
func (r *fullRun) heals() {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for r.s.Err() == nil {
		added, err := r.s.Add(context.Background(), "after all")
		if err == nil {
			if !added {
				r.t.Error("a key that was refused is seen")
			}
			r.answered = append(r.answered, "after all")
			r.submitted++
			break
		}
		if !errors.Is(err, ErrDiskFull) {
			r.t.Errorf("add: %v", err)
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("with space it still says %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if r.s.Err() == nil {
		if err := r.s.Flush(context.Background()); err != nil {
			r.t.Errorf("flush with space: %v", err)
		}
	}
	r.look()
}

// reopens opens what is left, with space, and wants all of it.
func (r *fullRun) reopens(percent int) {
	r.t.Helper()
	image := r.disk.Crash(rand.New(rand.NewPCG(1, 1)), percent)
	crashWithin(r.t, "reopen", func() {
		s, err := Open(crashDir, crashOptions(image, Sync, 60, nil))
		if err != nil {
			r.t.Errorf("reopen: %v", err)
			return
		}
		for _, key := range r.answered {
			if has, err := s.Has(context.Background(), key); err != nil || !has {
				r.t.Errorf("reopen: %s is lost: %v, %v", key, has, err)
				break
			}
		}
		urls := s.Stats().URLs
		exact := !slices.ContainsFunc(r.errs, func(err error) bool { return errors.Is(err, ErrPoisoned) })
		if urls < int64(len(r.answered)) || urls > int64(r.submitted) || exact && urls != int64(len(r.answered)) {
			r.t.Errorf("reopen: %d URLs, %d were answered of %d", urls, len(r.answered), r.submitted)
		}
		crashVerify(r.t, s, r.t.Errorf)
		if err := s.Close(); err != nil {
			r.t.Errorf("reopen: close: %v", err)
		}
	})
}

// cpuShare is which part of one processor this process takes while f runs.
func cpuShare(t *testing.T, f func()) float64 {
	var before, after syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	start := time.Now()
	f()
	took := time.Since(start)
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	busy := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	return float64(busy) / float64(took)
}

// maxWaitingShare is far more than a store that waits for space takes, and far
// less than one that spins.
const maxWaitingShare = 0.5

// fullModes are the ways in which calls fail. From a call on, either every one
// that can say ENOSPC does, syncs too, or what a full disk does: the calls that
// take space, of which records in what was preallocated are none.
var fullModes = []struct {
	name   string
	sticky bool
	fails  func(crashfs.Op) bool
}{
	{"once", false, fullSays},
	{"every call from then on", true, fullSays},
	{"a full disk from then on", true, fullTakes},
}

func fullSays(op crashfs.Op) bool { return crashCanFail(op, syscall.ENOSPC) }

func fullTakes(op crashfs.Op) bool {
	switch op.Kind {
	case "create", "link", "mkdir", "preallocate", "map-create":
		return true
	case "write":
		return !isIn(op.Path, logDir)
	}
	return false
}

// A fullTally is what came of the runs of one mode.
type fullTally struct {
	ends            map[string]int
	poisons         map[string]int // by their text
	slowest, closed time.Duration
	slow            string
	busiest         float64 // share of a processor while waiting
}

// TestDiskFullAtEveryCall runs the script with the n-th call failing, for
// every n.
func TestDiskFullAtEveryCall(t *testing.T) {
	rng := rand.New(rand.NewPCG(crashNewSeed(t), 7))
	for _, mode := range fullModes {
		sum := fullTally{ends: map[string]int{}, poisons: map[string]int{}, busiest: -1}
		n := int64(0)
		for reached := true; reached; {
			if n++; !*fullCalls {
				n += rng.Int64N(30)
			}
			// The fault is there before the disk says so, and goes away again.
			var calls atomic.Int64
			var where atomic.Pointer[string]
			r := &fullRun{t: t, disk: crashfs.New()}
			r.disk.SetFree(fullFree)
			r.disk.SetHook(func(op crashfs.Op) error {
				if !mode.fails(op) {
					return nil
				}
				at := calls.Add(1)
				if at == n {
					kind := op.Kind + " " + op.Path
					where.Store(&kind)
				}
				if at == n || mode.sticky && at > n {
					return syscall.ENOSPC
				}
				return nil
			})
			r.run(&sum, n%2 == 0, mode.sticky && (sum.busiest < 0 || n%40 == 0), func() bool { return where.Load() != nil })
			reached = where.Load() != nil
			if t.Failed() {
				t.Fatalf("stopped at call %d, %s", n, mode.name)
			}
			if !reached && calls.Load() > 400 {
				t.Errorf("the script makes %d calls, want at most 400", calls.Load())
			}
		}
		t.Logf("%s: %d calls: %v; slowest call %v (%s), slowest close %v, %.1f %% of a processor while waiting", mode.name,
			n-1, sum.ends, sum.slowest.Round(time.Millisecond), sum.slow, sum.closed.Round(time.Millisecond), 100*max(0, sum.busiest))
		for _, text := range slices.Sorted(maps.Keys(sum.poisons)) {
			t.Logf("poisoned %d times: %s", sum.poisons[text], text)
		}
		if sum.busiest > maxWaitingShare {
			t.Errorf("waiting takes %.0f %% of a processor", 100*sum.busiest)
		}
	}
}

// run is a run from the open to the reopen: with space again before the close,
// or after it.
func (r *fullRun) run(sum *fullTally, heal, measure bool, reached func() bool) {
	opened := r.script()
	if opened {
		if measure && reached() && r.s.Err() == nil {
			sum.busiest = max(sum.busiest, cpuShare(r.t, func() { time.Sleep(fullWait()) }))
		}
		if heal {
			r.disk.SetHook(nil)
			r.heals()
		}
		start := time.Now()
		_ = r.call("close", r.s.Close)
		sum.closed = max(sum.closed, time.Since(start))
	}
	r.disk.SetHook(nil)
	switch {
	case !reached():
		sum.ends["not reached"]++
	case !opened:
		sum.ends["does not open"]++
	case r.s.Err() != nil:
		sum.ends["poisoned"]++
		sum.poisons[strings.Map(dropDigits, r.s.Err().Error())]++
	case len(r.errs) > 0:
		sum.ends["disk full"]++
	default:
		sum.ends["unnoticed"]++
	}
	if r.slowest > sum.slowest {
		sum.slowest, sum.slow = r.slowest, r.slow
	}
	for _, percent := range []int{100, 0} {
		if opened || crashHasStore(r.disk) {
			r.reopens(percent)
		}
	}
}

func dropDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}
