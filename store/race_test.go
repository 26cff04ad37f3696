package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// README's test command runs a small number of what these ask for, and fewer
// under the race detector, where each table that Pebble opens costs a stack
// trace. The whole of it:
//
//	go test ./store -run '^TestManyAdders$' -store.runs 20 -store.keys 1000000 -timeout 1h
//	go test -race ./store -run '^TestManyAdders$' -store.runs 3 -store.keys 1000000 -timeout 1h
var (
	adderRuns = flag.Int("store.runs", 2, "runs of TestManyAdders")
	adderKeys = flag.Int("store.keys", 100_000/damageThin, "keys of each run of TestManyAdders, and of TestManyClaimers and TestClaimsKilled")
)

// TestManyAdders lets 64 goroutines add the same keys, most in batches of 1,000
// and some one by one, through memtables that hold a hundredth of them. Each
// key must be new exactly once.
func TestManyAdders(t *testing.T) {
	for run := range *adderRuns {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			w := onDisk(t)
			w.o = Options{ExpectedURLs: int64(*adderKeys), MemoryBytes: 32 << 20} // a cache for most of them
			w.memtableWords = max(*adderKeys/100, 1000)
			w.spanWords = int64(*adderKeys) / 3 // several segments
			s := w.open()
			began := time.Now()
			manyAdders(t, s, *adderKeys, seeded(t).Uint64())
			x := s.Stats()
			t.Logf("%v; %d flushes, %d stalls, %d spans", time.Since(began).Round(time.Millisecond),
				x.Flush.Flushes, x.Flush.Stalls, len(x.Spans))
			s.urls(*adderKeys)
			if x.Answers.New != int64(*adderKeys) {
				t.Errorf("Stats: %d answers are new, want %d", x.Answers.New, *adderKeys)
			}
		})
	}
}

// manyAdders adds n keys from each of 64 goroutines, of which every eighth adds
// them one by one.
func manyAdders(t *testing.T, s *testStore, n int, seed uint64) {
	const adders, batch = 64, 1000
	all := keys(0, n)
	news := make([]atomic.Uint32, n)
	count := func(i int, a Answer) bool {
		switch a {
		case New:
			news[i].Add(1)
		case Unanswered:
			t.Errorf("key %d is unanswered", i)
			return false
		}
		return true
	}
	// They go over the keys in blocks of a batch, six of eight in one order, so
	// that they keep meeting, and the others ahead of them in orders of their
	// own.
	var wg sync.WaitGroup
	for g := range adders {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(max(g/8-5, 0))))
			blocks := rng.Perm((n + batch - 1) / batch)
			single := g%8 == 7
			answers := make([]Answer, batch)
			for _, b := range blocks {
				lo, hi := b*batch, min(b*batch+batch, n)
				if single {
					for i := lo; i < hi; i++ {
						added, err := s.Add(context.Background(), all[i])
						if err != nil {
							t.Error(err)
							return
						}
						if added {
							news[i].Add(1)
						}
					}
					continue
				}
				if err := s.AddBatch(context.Background(), all[lo:hi], answers[:hi-lo]); err != nil {
					t.Error(err)
					return
				}
				for i := lo; i < hi; i++ {
					if !count(i, answers[i-lo]) {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	wrong := 0
	for i := range news {
		if got := news[i].Load(); got != 1 {
			if wrong++; wrong <= 10 {
				t.Errorf("%s was new %d times", all[i], got)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d keys were not new exactly once", wrong, n)
	}
}

// TestEverythingAtOnce has adders, askers, flushes, syncs, Stats, Verify and,
// in the end, two Closes at the same time.
func TestEverythingAtOnce(t *testing.T) {
	for _, d := range []Durability{Interval, Sync, NoSync} {
		t.Run(d.String(), func(t *testing.T) {
			w := inMemory(t)
			w.memtableWords, w.spanWords = 300, 1000
			w.o.Durability = d
			s := w.open()
			ctx := t.Context()
			var answered atomic.Int64 // keys below it are answered
			var wg sync.WaitGroup
			stop := make(chan struct{})
			forever := func(fn func() error) {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(200 * time.Microsecond): // leaves some to others
						}
						if err := fn(); err != nil && !errors.Is(err, ErrClosed) {
							t.Error(err)
							return
						}
					}
				})
			}
			forever(func() error { return s.Flush(ctx) })
			forever(func() error { return s.Sync(ctx) })
			forever(func() error { _ = s.Stats(); return nil })
			forever(func() error {
				r, err := s.Verify(ctx, VerifyOptions{Deep: true})
				if err == nil && !r.OK() {
					err = fmt.Errorf("%+v", r.Faults)
				}
				return err
			})
			for range 4 {
				forever(func() error {
					n := answered.Load()
					if n == 0 {
						return nil
					}
					has, err := s.Has(ctx, key(int(rand.Int64N(n))))
					if err == nil && !has {
						err = errors.New("an answered key is not there")
					}
					return err
				})
			}
			forever(func() error {
				c, a, err := s.Claim(ctx, fmt.Sprint("claimed ", rand.IntN(10)), 0)
				if err != nil || a != New {
					return err
				}
				return c.Release()
			})
			forever(func() error { // nobody adds these
				has, err := s.Has(ctx, key(-1-rand.IntN(1000)))
				if err == nil && has {
					err = errors.New("a key that was not added is there")
				}
				return err
			})
			const rounds, each = 60, 60
			for i := range rounds {
				s.add(New, keys(i*each, i*each+each)...)
				answered.Store(int64(i*each + each))
			}
			s.urls(rounds * each)
			s.close() // while they are all at it
			close(stop)
			wg.Wait()
		})
	}
}

// TestFlushWhileFilling asks for flushes while an Add fills the memtable, in
// some of the moments before the maintainer freezes it.
func TestFlushWhileFilling(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 100
	var s *testStore
	var n atomic.Int64
	var adding atomic.Bool
	w.point = func(name string) {
		// In the maintainer's step, on its own goroutine and without a lock:
		// fill the memtable, which an Add then freezes.
		if name != "step" || !adding.Load() || rand.IntN(3) > 0 {
			return
		}
		if st := s.current.Load(); st.frozen != nil || !s.log.Prepared() {
			return
		}
		for s.current.Load().frozen == nil {
			i := int(n.Add(1))
			if added, err := s.Add(context.Background(), key(i)); !added || err != nil {
				t.Errorf("Add: got %v, %v", added, err)
				return
			}
		}
	}
	s = w.open()
	adding.Store(true)
	for range 50 {
		s.add(New, key(int(n.Add(1))))
		s.flush()
	}
	adding.Store(false)
	s.urls(int(n.Load()))
}

// TestFreezeInStep has an Add freeze the memtable between the maintainer's
// look at what there is to do and what it does.
func TestFreezeInStep(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 16
	s := w.open()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = s.Flush(context.Background())
			}
		}
	})
	const n = 3000
	for i := range n {
		s.add(New, key(i))
	}
	close(stop)
	wg.Wait()
	s.urls(n)
}

// TestAddWaitsForRoom holds a flush up until an Add waits for it, and ends the
// wait in each way that there is.
func TestAddWaitsForRoom(t *testing.T) {
	for _, how := range []string{"flush", "cancel", "close", "poison"} {
		t.Run(how, func(t *testing.T) {
			w := inMemory(t)
			w.memtableWords = 64
			g := newGate(t)
			w.point = func(name string) {
				if name == "flush" {
					g.pass()
				}
			}
			s := w.open()
			n := fillUntilStalled(t, s, g)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var added bool
			var err error
			done := start(func() { added, err = s.Add(ctx, key(n)) })
			if ended(done) {
				t.Fatalf("an Add does not wait for room: %v, %v", added, err)
			}
			// Nobody waits inside the lock: everything else goes on.
			within(t, "Stats, Has and Add of a seen key", start(func() {
				_ = s.Stats()
				s.has(Seen, keys(0, n)...)
				s.add(Seen, keys(0, n)...)
			}))
			var want error
			switch how {
			case "flush":
				g.open()
			case "cancel":
				cancel()
				want = context.Canceled
			case "close":
				closed := start(func() {
					s.once.Do(func() { must(t, s.Close()) })
				})
				within(t, "the Add that waits while the store is closed", done)
				g.open()
				within(t, "Close", closed)
				w.verify()
				want = ErrClosed
			case "poison":
				s.poison(errors.New("as a test wants it"))
				want = ErrPoisoned
				s.abandon()
			}
			within(t, "the Add that waits", done)
			if !errors.Is(err, want) || added != (want == nil) {
				t.Errorf("got %v, %v, want error %v", added, err, want)
			}
			g.open()
		})
	}
}

// fillUntilStalled adds keys until the next Add has to wait for a flush that
// the gate holds up, and returns how many it added.
func fillUntilStalled(t *testing.T, s *testStore, g *gate) (n int) {
	t.Helper()
	room := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		st := s.current.Load()
		return st.active.takes(1) || st.frozen == nil
	}
	for ; room(); n++ {
		if s.current.Load().frozen == nil && n > s.w.memtableWords*3/4 {
			eventually(t, "the next log file", s.log.Prepared)
		}
		s.add(New, key(n))
	}
	within(t, "the flush", g.reached)
	return n
}

// TestSlackFull fills the few slots behind the last home of a memtable, which
// counts as full then, whatever its count.
func TestSlackFull(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 1000
	s := w.open()
	m := s.current.Load().active
	m.slots = m.slots[:m.homes+1]
	const n = 5000
	within(t, "adds", start(func() {
		for i := 0; i < n; i += 50 {
			s.add(New, keys(i, i+50)...)
			s.add(Seen, keys(i, i+50)...)
		}
	}))
	s.has(Seen, keys(0, n)...)
	s.urls(n)
}

// TestSlackFullThenError marks a part of a batch and cannot go on: what it has
// marked is answered all the same.
func TestSlackFullThenError(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 4000
	s := w.open()
	m := s.current.Load().active
	m.slots = m.slots[:m.homes+1]
	batch := keys(0, 100)
	for i := 100; len(batch) < 104; i++ { // more than there is room for at the end
		if fastrange(s.word(key(i)), m.homes) == m.homes-1 {
			batch = append(batch, key(i))
		}
	}
	batch = append(batch, "another")
	s.mu.Lock()
	spare := s.mu.spare
	s.mu.spare = nil // no freeze for want of one
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make([]Answer, len(batch))
	var err error
	done := start(func() { err = s.AddBatch(ctx, batch, answers) })
	if ended(done) {
		t.Errorf("AddBatch: got %v, %v", answers, err)
	}
	cancel()
	within(t, "AddBatch", done)
	is(t, "AddBatch", err, context.Canceled)
	s.mu.Lock()
	s.mu.spare = spare
	s.wakeLocked()
	s.mu.Unlock()
	marked := slices.Index(answers, Unanswered)
	if marked < 1 {
		t.Errorf("not some of them are answered: %v", answers)
	}
	for i, a := range answers {
		if a == New {
			s.add(Seen, batch[i])
		} else {
			s.add(New, batch[i])
		}
	}
	s.urls(len(batch))
}
