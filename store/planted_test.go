package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Each test of this file fails when one rule is taken out; the table of
// internal/planted/run says which one.

// TestFreezeIsOneHold tries to add a key between the log's switch to the next
// file and the memtable's. Its record and its word would part: a crash would
// count it twice.
func TestFreezeIsOneHold(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 64
	var s *testStore
	var armed atomic.Bool
	added := make(chan (<-chan struct{}), 1)
	w.point = func(name string) {
		if name == "freeze" && armed.CompareAndSwap(true, false) {
			done := start(func() {
				if ok, err := s.Add(context.Background(), "between"); !ok || err != nil {
					t.Errorf("Add: got %v, %v", ok, err)
				}
			})
			ended(done)
			added <- done
		}
	}
	s = w.open()
	s.add(New, keys(0, 40)...)
	armed.Store(true)
	s.flush()
	within(t, "Add", <-added)
	after := w.crash(seeded(t), 100).open()
	after.add(Seen, append(keys(0, 40), "between")...)
	after.urls(41)
}

// TestSecondLook has two goroutines look for a key before either adds it.
func TestSecondLook(t *testing.T) {
	w := inMemory(t)
	both := make(chan struct{})
	var looking atomic.Int32
	w.point = func(name string) {
		if name != "look-bitmap" {
			return
		}
		switch looking.Add(1) {
		case 2:
			close(both)
		case 1:
			<-both
		}
	}
	s := w.open()
	var news atomic.Int32
	add := func() {
		added, err := s.Add(context.Background(), key(1))
		if err != nil {
			t.Error(err)
		}
		if added {
			news.Add(1)
		}
	}
	one, other := start(add), start(add)
	within(t, "Add", one)
	within(t, "Add", other)
	if got := news.Load(); got != 1 {
		t.Errorf("the key was new %d times", got)
	}
	s.urls(1)
}

// TestEpochOfTheLook holds an Add up in its look, until another one has added
// the key and a flush has taken it out of the memtable.
func TestEpochOfTheLook(t *testing.T) {
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
	done := start(func() { added, err = s.Add(context.Background(), key(1)) })
	within(t, "the look", g.reached)
	s.add(New, key(1))
	s.flush()
	g.open()
	within(t, "Add", done)
	if added || err != nil {
		t.Errorf("the second Add of a key: got %v, %v", added, err)
	}
	s.urls(1)
}

// TestBitsBeforeRelease asks for the words of a memtable in the moment when it
// has been let go.
func TestBitsBeforeRelease(t *testing.T) {
	w := inMemory(t)
	var s *testStore
	w.point = func(name string) {
		if name != "released" {
			return
		}
		answers := make([]Answer, 200)
		if err := s.HasBatch(context.Background(), keys(0, 200), answers); err != nil {
			t.Error(err)
		}
		for i, a := range answers {
			if a != Seen {
				t.Errorf("%s: got %v", key(i), a)
				break
			}
		}
	}
	s = w.open()
	s.add(New, keys(0, 200)...)
	s.flush()
}

// logGate holds up the operations on log files that match, once armed.
func logGate(w *world, match func(errorfs.Op) bool) (g *gate, arm func()) {
	g = newGate(w.t)
	var armed atomic.Bool
	w.fault = func(op errorfs.Op) error {
		if isLog(op) && match(op) && armed.Load() {
			g.pass()
		}
		return nil
	}
	return g, func() { armed.Store(true) }
}

// asks starts a Has and an Add of a key that must wait, and returns what waits
// for their answers.
func asks(s *testStore, k string) (early func(what string), answered func()) {
	s.w.t.Helper()
	var has, added bool
	var hasErr, addErr error
	asked := start(func() { has, hasErr = s.Has(context.Background(), k) })
	again := start(func() { added, addErr = s.Add(context.Background(), k) })
	early = func(what string) {
		s.w.t.Helper()
		if ended(asked) || ended(again) {
			s.w.t.Errorf("%s is answered before its record is safe", what)
		}
	}
	answered = func() {
		s.w.t.Helper()
		within(s.w.t, "Has", asked)
		within(s.w.t, "Add", again)
		if !has || hasErr != nil {
			s.w.t.Errorf("Has: got %v, %v", has, hasErr)
		}
		if added || addErr != nil {
			s.w.t.Errorf("Add: got %v, %v", added, addErr)
		}
	}
	return early, answered
}

// levels runs a test with what must not be passed held up: a write, or a sync
// where that is what answers rest on.
func levels(t *testing.T, test func(t *testing.T, w *world, held func(errorfs.Op) bool)) {
	for d, held := range map[Durability]func(errorfs.Op) bool{Interval: isWrite, NoSync: isWrite, Sync: isSync} {
		t.Run(d.String(), func(t *testing.T) {
			w := inMemory(t)
			w.o.Durability = d
			test(t, w, held)
		})
	}
}

// TestSeenWaitsActive asks for a key whose record is on its way to the disk,
// and whose word is in the active memtable.
func TestSeenWaitsActive(t *testing.T) {
	levels(t, func(t *testing.T, w *world, held func(errorfs.Op) bool) {
		g, arm := logGate(w, held)
		s := w.open()
		s.add(New, keys(0, 10)...)
		arm()
		added := start(func() { s.add(New, "k") })
		within(t, "the write or sync", g.reached)
		early, answered := asks(s, "k")
		early("a word in the active memtable")
		g.open()
		within(t, "Add", added)
		answered()
	})
}

// TestSeenWaitsFrozen does so after the memtable was frozen.
func TestSeenWaitsFrozen(t *testing.T) {
	levels(t, func(t *testing.T, w *world, held func(errorfs.Op) bool) {
		w.memtableWords = 8
		flush := newGate(t)
		w.point = func(name string) {
			if name == "flush" {
				flush.pass()
			}
		}
		g, arm := logGate(w, held)
		s := w.open()
		s.add(New, keys(0, 6)...)
		eventually(t, "the next log file", s.log.Prepared)
		arm()
		added := start(func() { s.add(New, "k") })
		within(t, "the write or sync", g.reached)
		others := start(func() {
			for i := range 2 {
				s.add(New, key(100+i))
			}
		})
		another := start(func() { s.add(New, keys(200, 202)...) })
		eventually(t, "the freeze", func() bool { return s.current.Load().frozen != nil })
		early, answered := asks(s, "k")
		early("a word in the frozen memtable")
		g.open()
		flush.open()
		for _, done := range []<-chan struct{}{added, others, another} {
			within(t, "Add", done)
		}
		answered()
		s.urls(11)
	})
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// TestMemtableWordsNotCached asks twice for a word that is in the memtable and
// not written: the cache holds words that nobody has to wait for.
func TestMemtableWordsNotCached(t *testing.T) {
	w := inMemory(t)
	g, arm := logGate(w, isWrite)
	s := w.open()
	arm()
	added := start(func() { s.add(New, "k") })
	within(t, "the write", g.reached)
	early, answered := asks(s, "k")
	early("a word in the memtable")
	early2, answered2 := asks(s, "k")
	early2("a word asked for twice")
	if s.cache.has(s.word("k"), 0) {
		t.Error("the cache holds a word of the memtable")
	}
	g.open()
	within(t, "Add", added)
	answered()
	answered2()
}

// TestSyncBeforeAnswer cuts the power right after each answer at level Sync.
func TestSyncBeforeAnswer(t *testing.T) {
	w := inMemory(t)
	w.o.Durability = Sync
	s := w.open()
	rng := seeded(t)
	for i := range 5 {
		s.add(New, key(i))
		after := w.crash(rng, 0).open()
		after.has(Seen, keys(0, i+1)...)
		after.close()
	}
}

// TestIngestOnRecordBeforeUnlink cuts the power when a flushed log file has
// been unlinked.
func TestIngestOnRecordBeforeUnlink(t *testing.T) {
	w := inMemory(t)
	w.o.Durability = NoSync
	rng := seeded(t)
	crashed := make(chan *world, 1)
	w.point = func(name string) {
		if name == "unlinked" {
			select {
			case crashed <- w.crash(rng, 0):
			default:
			}
		}
	}
	s := w.open()
	s.add(New, keys(0, 100)...)
	s.flush()
	after := (<-crashed).open()
	after.has(Seen, keys(0, 100)...)
	after.urls(100)
}

// TestBitsAtOpen cuts the power when a flush's bits were not synced.
func TestBitsAtOpen(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, keys(0, 4000)...)
	s.flush() // a quarter or more of all words: its bits are synced
	s.add(New, keys(4000, 4100)...)
	s.flush()
	after := w.crash(seeded(t), 0).open()
	if x := after.Stats(); x.Recovery.BitsSetAgain == 0 {
		t.Error("no bits had to be set again")
	}
	after.add(Seen, keys(0, 4100)...)
	after.urls(4100)
}

// TestSegmentIDs makes segment after segment, and kills the store at each.
func TestSegmentIDs(t *testing.T) {
	w := inMemory(t)
	w.memtableWords, w.spanWords = 200, 100
	s := w.open()
	rng := seeded(t)
	const segments = 4
	for i := range segments {
		s.add(New, keys(i*100, i*100+100)...)
		killed := w.crash(rng, 100)
		s.flush()
		for _, after := range []*testStore{killed.open(), w.crash(rng, 100).open()} {
			after.add(Seen, keys(0, i*100+100)...)
			after.add(New, "another")
			after.urls(i*100 + 101)
			after.close()
		}
	}
	ids := map[uint32]bool{}
	for _, x := range s.Stats().Segments {
		ids[x.ID] = true
	}
	if len(ids) != segments {
		t.Errorf("got segments %v, want %d", ids, segments)
	}
	s.urls(segments * 100)
}

// TestSegmentRecordFirst kills a store whose log makes a segment and adds to
// it.
func TestSegmentRecordFirst(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, key(1))
	after := w.crash(seeded(t), 100).open()
	after.has(Seen, key(1))
	after.urls(1)
}

// TestNobodyWaitsInside has an Add wait for room, and takes the lock.
func TestNobodyWaitsInside(t *testing.T) {
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
	waiting := start(func() { _, _ = s.Add(ctx, key(n)) })
	if ended(waiting) {
		t.Fatal("an Add does not wait for room")
	}
	select {
	case <-start(func() { s.add(Seen, keys(0, n)...); _ = s.Stats() }):
	case <-time.After(5 * time.Second):
		t.Error("the lock is held by an Add that waits for room")
	}
	g.open()
	if !t.Failed() {
		within(t, "the Add that waits", waiting)
	}
}
