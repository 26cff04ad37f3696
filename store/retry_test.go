package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"dedupstore/internal/crashfs"
)

// What a caller may do after an error, a test for each sentence: an error before
// the log is written has marked no member of the batch; one at or after it
// poisons; after a crash members that were logged and never answered may be
// seen; who claims is spared that.

// A marking is a verb that marks the keys of a batch, or claims them.
type marking struct {
	// begin is what has to come before: the claims of a commit.
	begin func(s *testStore, keys []string)
	// try calls the verb, and returns how many members it took as new. With an
	// error those it did not take must be unanswered.
	try func(ctx context.Context, s *testStore, keys []string) (taken int, err error)
}

// markings are the verbs that the log is written for. Each is for one test.
func markings() map[string]marking {
	var claims []Claim
	return map[string]marking{
		"add": {
			begin: func(*testStore, []string) {},
			try: func(ctx context.Context, s *testStore, keys []string) (int, error) {
				answers := make([]Answer, len(keys))
				err := s.AddBatch(ctx, keys, answers)
				return s.taken(answers, err)
			},
		},
		"commit": {
			begin: func(s *testStore, keys []string) {
				claims = make([]Claim, len(keys))
				must(s.w.t, s.ClaimBatch(context.Background(), keys, 0, claims, make([]Answer, len(keys))))
			},
			try: func(ctx context.Context, s *testStore, keys []string) (taken int, err error) {
				committed := make([]bool, len(keys))
				err = s.CommitBatch(ctx, claims, 0, committed)
				for _, c := range committed {
					if c {
						taken++
					}
				}
				return taken, err
			},
		},
	}
}

// claiming is the verb that nothing is written for.
func claiming() marking {
	return marking{
		begin: func(*testStore, []string) {},
		try: func(ctx context.Context, s *testStore, keys []string) (int, error) {
			answers := make([]Answer, len(keys))
			err := s.ClaimBatch(ctx, keys, 0, make([]Claim, len(keys)), answers)
			return s.taken(answers, err)
		},
	}
}

// taken counts the answers that are New.
func (s *testStore) taken(answers []Answer, err error) (n int, _ error) {
	s.w.t.Helper()
	for i, a := range answers {
		switch {
		case a == New:
			n++
		case err != nil && a != Unanswered:
			s.w.t.Errorf("member %d is %v, beside error %v", i, a, err)
		}
	}
	return n, err
}

// A refusal refuses batches before the log is written.
type refusal struct {
	want  error
	verbs []string // that it refuses
	// world prepares a world, and returns what brings the refusal about: it
	// returns the context of the batch, and what takes the refusal away.
	world func(t *testing.T, w *world) func(s *testStore) (context.Context, func() *testStore)
}

var refusals = map[string]refusal{
	"the context has ended": {context.Canceled, []string{"add", "commit", "claim"}, func(t *testing.T, w *world) func(*testStore) (context.Context, func() *testStore) {
		return func(s *testStore) (context.Context, func() *testStore) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, func() *testStore { return s }
		}
	}},
	"the context ends while the batch waits for room": {context.Canceled, []string{"add", "commit"}, func(t *testing.T, w *world) func(*testStore) (context.Context, func() *testStore) {
		w.memtableWords = 64
		flush := newGate(t)
		w.point = func(name string) {
			if name == "flush" {
				flush.pass()
			}
		}
		return func(s *testStore) (context.Context, func() *testStore) {
			fillUntilStalled(t, s, flush)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			stalls := s.Stats().Flush.Stalls
			start(func() {
				eventually(t, "a wait for room", func() bool { return s.Stats().Flush.Stalls > stalls })
				cancel()
			})
			return ctx, func() *testStore { flush.open(); return s }
		}
	}},
	"the memtable is full and cannot be flushed": {ErrDiskFull, []string{"add", "commit"}, func(t *testing.T, w *world) func(*testStore) (context.Context, func() *testStore) {
		w.memtableWords = 200
		return func(s *testStore) (context.Context, func() *testStore) {
			w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 10, TotalBytes: 1 << 30})
			addUntilFull(s)
			return t.Context(), func() *testStore {
				w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 29, TotalBytes: 1 << 30})
				s.flush()
				return s
			}
		}
	}},
	"the log cannot be preallocated": {ErrDiskFull, []string{"add", "commit"}, func(t *testing.T, w *world) func(*testStore) (context.Context, func() *testStore) {
		w.memtableWords = 200_000 // more than what is preallocated takes one by one
		var full atomic.Bool
		w.fault = func(op errorfs.Op) error {
			if full.Load() && isLog(op) && op.Kind == errorfs.OpFilePreallocate {
				return syscall.ENOSPC
			}
			return nil
		}
		return func(s *testStore) (context.Context, func() *testStore) {
			full.Store(true)
			addUntilFull(s)
			return t.Context(), func() *testStore { full.Store(false); return s }
		}
	}},
	"a table cannot be read": {errInjected, []string{"add", "claim"}, func(t *testing.T, w *world) func(*testStore) (context.Context, func() *testStore) {
		var armed atomic.Bool
		w.fault = func(op errorfs.Op) error {
			if armed.Load() && op.Kind == errorfs.OpFileReadAt && filepath.Ext(op.Path) == ".sst" {
				return errInjected
			}
			return nil
		}
		s := w.open()
		s.add(New, keys(0, 100)...)
		s.close() // so that no block of the table is cached
		return func(s *testStore) (context.Context, func() *testStore) {
			s.opts.seams.SelfCheckEvery = 1 // Pebble is asked for each word
			armed.Store(true)
			return t.Context(), func() *testStore { armed.Store(false); return s }
		}
	}},
	"the store is closed": {ErrClosed, []string{"add", "commit", "claim"}, func(t *testing.T, w *world) func(*testStore) (context.Context, func() *testStore) {
		return func(s *testStore) (context.Context, func() *testStore) {
			s.close()
			return t.Context(), func() *testStore { return w.open() }
		}
	}},
	"there are too many claims": {ErrTooManyClaims, []string{"claim"}, func(t *testing.T, w *world) func(*testStore) (context.Context, func() *testStore) {
		w.o.MaxClaims = 2 * retryKeys
		return func(s *testStore) (context.Context, func() *testStore) {
			held := make([]Claim, w.o.MaxClaims)
			for i := range held {
				held[i] = s.claim(New, key(i), 0)
			}
			return t.Context(), func() *testStore {
				for _, c := range held {
					must(t, c.Release())
				}
				return s
			}
		}
	}},
}

// retryKeys is the size of the batches: less than a part.
const retryKeys = 10

// addUntilFull adds keys one by one until that is refused.
func addUntilFull(s *testStore) {
	s.w.t.Helper()
	var err error
	for i := 0; i < 1e6 && err == nil; i++ {
		_, err = s.Add(context.Background(), key(i))
	}
	is(s.w.t, "Add", err, ErrDiskFull)
}

// TestErrorBeforeLog refuses batches in every way that there is before the log
// is written. No member is marked: once the refusal is over the same batch is
// taken, and each member is New.
func TestErrorBeforeLog(t *testing.T) {
	for why, r := range refusals {
		verbs := markings()
		verbs["claim"] = claiming()
		for _, name := range r.verbs {
			t.Run(why+"/"+name, func(t *testing.T) { r.test(t, verbs[name]) })
		}
	}
}

func (r refusal) test(t *testing.T, verb marking) {
	w := inMemory(t)
	cause := r.world(t, w)
	s := w.open()
	batch := keys(2_000_000, 2_000_000+retryKeys)
	verb.begin(s, batch)
	ctx, heal := cause(s)
	urls := s.Stats().URLs
	taken, err := verb.try(ctx, s, batch)
	is(t, "the batch", err, r.want)
	if taken != 0 || s.Stats().URLs != urls {
		t.Errorf("%d members were taken, %d URLs more are there", taken, s.Stats().URLs-urls)
	}
	if s.Err() != nil {
		t.Errorf("the store is poisoned: %v", s.Err())
	}
	after := heal()
	after.has(New, batch...)
	after.urls(int(urls))
	if after != s {
		verb.begin(after, batch) // a claim ends with its store
	}
	if taken, err = verb.try(t.Context(), after, batch); taken != retryKeys || err != nil {
		t.Errorf("the batch again: %d of %d members were taken, %v", taken, retryKeys, err)
	}
}

// TestErrorInTheMiddle refuses a batch between two of its parts: of its members
// those that were answered are marked, and the others are not.
func TestErrorInTheMiddle(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 200 // parts of 50
	s := w.open()
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 10, TotalBytes: 1 << 30})
	const n = 1000
	answers := make([]Answer, n)
	taken, err := s.taken(answers, s.AddBatch(t.Context(), keys(0, n), answers))
	is(t, "AddBatch", err, ErrDiskFull)
	if taken == 0 || taken == n {
		t.Fatalf("%d of %d members were taken", taken, n)
	}
	s.urls(taken)
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 29, TotalBytes: 1 << 30})
	s.flush()
	for i, a := range answers {
		want := Seen
		if a == Unanswered {
			want = New
		}
		s.add(want, key(i))
	}
	s.urls(n)
}

// TestErrorAtLog lets the write of a batch's record fail, and its sync at level
// Sync. That poisons: no member is answered, and nobody is any more who asks for
// something to be marked. What a reopen finds is marked whole.
func TestErrorAtLog(t *testing.T) {
	for _, d := range []Durability{Interval, NoSync, Sync} {
		for name, verb := range markings() {
			t.Run(d.String()+"/write/"+name, func(t *testing.T) { errorAtLog(t, d, isWrite, verb) })
			if d == Sync {
				t.Run(d.String()+"/sync/"+name, func(t *testing.T) { errorAtLog(t, d, isSync, verb) })
			}
		}
	}
}

func errorAtLog(t *testing.T, d Durability, match func(errorfs.Op) bool, verb marking) {
	w := inMemory(t)
	w.o.Durability = d
	arm, _ := failNth(w, 1, errInjected, func(op errorfs.Op) bool { return isLog(op) && match(op) })
	s := w.open()
	s.add(New, "before")
	batch := keys(0, retryKeys)
	verb.begin(s, batch)
	arm()
	taken, err := verb.try(t.Context(), s, batch)
	is(t, "the batch", err, ErrPoisoned, errInjected)
	if taken != 0 {
		t.Errorf("%d members are taken", taken)
	}
	_, err = s.Add(t.Context(), "after")
	is(t, "Add", err, ErrPoisoned, errInjected)
	_, _, err = s.Claim(t.Context(), "after", 0)
	is(t, "Claim", err, ErrPoisoned, errInjected)
	_, err = verb.try(t.Context(), s, batch)
	is(t, "the batch again", err, ErrPoisoned)
	s.abandon()

	after := w.crash(seeded(t), 100).open()
	after.has(Seen, "before")
	there := 0
	for _, k := range batch {
		has, err := after.Has(t.Context(), k)
		must(t, err)
		if has {
			there++
		}
	}
	if there != 0 && there != retryKeys {
		t.Errorf("%d of %d members are there", there, retryKeys)
	}
	verb.begin(after, batch)
	if taken, err := verb.try(t.Context(), after, batch); taken != retryKeys-there || err != nil && !errors.Is(err, ErrClaimLost) {
		t.Errorf("the batch again: %d of %d members were taken, %d were there, %v", taken, retryKeys, there, err)
	}
	after.has(Seen, batch...)
}

// TestSyncFailsLater lets a sync fail that no answer has waited for. It poisons
// all the same.
func TestSyncFailsLater(t *testing.T) {
	for _, d := range []Durability{Interval, NoSync} {
		t.Run(d.String(), func(t *testing.T) {
			w := inMemory(t)
			w.o.Durability = d
			arm, _ := failNth(w, 1, errInjected, func(op errorfs.Op) bool { return isLog(op) && isSync(op) })
			s := w.open()
			arm()
			_, _ = s.Add(t.Context(), "k") // its answer may or may not come before the sync
			is(t, "Sync", s.Sync(t.Context()), ErrPoisoned, errInjected)
			_, err := s.Add(t.Context(), "after")
			is(t, "Add", err, ErrPoisoned, errInjected)
			s.abandon()
		})
	}
}

// TestLoggedNeverAnswered kills the store in the middle of a batch, when its
// first part is logged and its caller has not been answered. Those members are
// seen: whoever asks again takes them for another's, and nobody has them.
func TestLoggedNeverAnswered(t *testing.T) {
	for _, d := range []Durability{Interval, NoSync, Sync} {
		t.Run(d.String(), func(t *testing.T) {
			w := inMemory(t)
			w.o.Durability = d
			w.memtableWords = 400 // parts of 100
			killed := killedBetweenParts(t, w, func(s *testStore) {
				answers := make([]Answer, 150)
				if err := s.AddBatch(context.Background(), keys(0, 150), answers); err != nil {
					t.Error(err)
				}
			})
			s := killed.open()
			s.has(Seen, keys(0, 100)...)
			s.add(Seen, keys(0, 100)...)
			s.add(New, keys(100, 150)...)
		})
	}
}

// killedBetweenParts runs a call of two parts, and returns what a kill between
// the two would leave; at level Sync, what a power loss would.
func killedBetweenParts(t *testing.T, w *world, call func(*testStore)) *world {
	t.Helper()
	percent := 100
	if w.o.Durability == Sync {
		percent = 0
	}
	var appends atomic.Int32
	var killed atomic.Pointer[world]
	rng := seeded(t)
	w.point = func(name string) {
		if name == "append" && appends.Add(1) == 2 {
			killed.Store(w.crash(rng, percent))
		}
	}
	s := w.open()
	call(s)
	s.close()
	if killed.Load() == nil {
		t.Fatal("the call has not come to its second part")
	}
	return killed.Load()
}

// TestClaimsSpared claims, works and commits, and cuts the power at many changes
// of the disk. A key that was only claimed is new again, whenever that is, and
// whatever the disk has kept. Only one whose commit was on its way may be seen.
func TestClaimsSpared(t *testing.T) {
	for _, d := range []Durability{Interval, NoSync, Sync} {
		t.Run(d.String(), func(t *testing.T) {
			r := &sparedRun{level: d, disk: crashfs.New(), rng: rand.New(rand.NewPCG(crashNewSeed(t), 8))}
			r.run(t)
			unanswered := 0
			for _, cut := range r.cuts {
				unanswered += cut.check(t, d)
			}
			t.Logf("%d cuts; after them %d keys are seen whose commit was not answered", len(r.cuts), unanswered)
			if unanswered == 0 && damageThin == 1 {
				t.Error("no key is seen whose commit was not answered")
			}
		})
	}
}

const (
	sparedMemtable = 64
	sparedBatch    = 20 // of two parts
	sparedRounds   = 2 + 28/damageThin
)

// A sparedRun claims keys in order, and commits them in order behind that.
type sparedRun struct {
	level Durability
	disk  *crashfs.Disk

	// Of the keys those below committed were answered, those below committing
	// handed to CommitBatch, and the others claimed or nothing.
	committed, committing atomic.Int64

	mu   sync.Mutex
	rng  *rand.Rand
	cuts []sparedCut
}

type sparedCut struct {
	disk                  *crashfs.Disk
	percent               int
	where                 string
	committed, committing int
}

func (r *sparedRun) run(t *testing.T) {
	s, err := Open(crashDir, crashOptions(r.disk, r.level, sparedMemtable, nil))
	must(t, err)
	r.disk.SetHook(func(op crashfs.Op) error {
		if op.Changes() {
			r.cut(op.Kind + " " + op.Path)
		}
		return nil
	})
	ctx := t.Context()
	var held []Claim
	for round := range sparedRounds {
		claims, answers := make([]Claim, sparedBatch), make([]Answer, sparedBatch)
		from := round * sparedBatch
		must(t, s.ClaimBatch(ctx, keys(from, from+sparedBatch), 0, claims, answers))
		held = append(held, claims...)
		_, err := s.Add(ctx, fmt.Sprint("another ", round)) // by somebody who does not claim
		must(t, err)
		if round%5 == 4 {
			must(t, s.Flush(ctx))
		}
		if round < 2 {
			continue
		}
		r.committing.Add(sparedBatch)
		must(t, s.CommitBatch(ctx, held[:sparedBatch], 0, make([]bool, sparedBatch)))
		r.committed.Add(sparedBatch)
		held = held[sparedBatch:]
	}
	r.disk.SetHook(nil)
	must(t, s.Close())
}

// cut cuts the power in each commit, and now and then elsewhere.
func (r *sparedRun) cut(where string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	idle := r.committed.Load() == r.committing.Load()
	if idle && !*crashAllCalls && r.rng.IntN(6) > 0 {
		return
	}
	c := sparedCut{percent: []int{0, 50, 100}[r.rng.IntN(3)], where: where, committed: int(r.committed.Load())}
	c.disk = r.disk.Crash(r.rng, c.percent)
	c.committing = int(r.committing.Load())
	r.cuts = append(r.cuts, c)
}

// check opens what was left. It returns how many keys are seen whose commit was
// not answered.
func (c *sparedCut) check(t *testing.T, level Durability) (unanswered int) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Errorf("cut at %s, %d %%: %s", c.where, c.percent, fmt.Sprintf(format, args...))
	}
	s, err := Open(crashDir, crashOptions(c.disk, level, sparedMemtable, nil))
	must(t, err)
	const n = sparedRounds * sparedBatch
	claims, answers := make([]Claim, n), make([]Answer, n)
	must(t, s.ClaimBatch(t.Context(), keys(0, n), 0, claims, answers))
	for i, a := range answers {
		switch {
		case i >= c.committing && a != New:
			fail("%s was only claimed, and is %v", key(i), a)
		case i < c.committed && a != Seen && (level == Sync || c.percent == 100):
			fail("%s was committed, and is %v", key(i), a)
		case i >= c.committed && i < c.committing && a == Seen:
			unanswered++
		}
	}
	crashVerify(t, s, fail)
	must(t, s.Close())
	return unanswered
}
