package fuzz

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
	"dedupstore/store"
)

// The operations of FuzzStore: a byte chooses one, and the bytes behind it are
// its arguments.
const (
	opAdd = iota
	opBatch
	opHas
	opSync
	opFlush
	opReopen
	opCrash
	opCrashNext // cut the power in the middle of the next operation
	opVerify
	opClaim
	opCommit
	opRelease
	opExtend
	opCount

	maxOps  = 60
	keys    = 300 // those that operations name
	noKeys  = 40  // behind them, those that none does
	percent = 3   // ways to treat what was not synced
	slots   = 6   // places for claims
)

// cutOps are the operations that the power may be cut in.
var cutOps = []int{
	opAdd, opBatch, opHas, opSync, opFlush, opReopen, opBatch,
	opClaim, opCommit, opRelease, opExtend,
}

var percents = [percent]int{0, 50, 100}

// What the model knows of a key.
type keyState uint8

const (
	absent   keyState = iota // it must be new
	answered                 // it was answered, and a power cut may take it back
	durable                  // it was answered, and nothing may take it back
)

// world is a store, its disk, and the model of both.
type world struct {
	tb     testing.TB
	level  store.Durability
	words  int
	span   int64
	disk   *crashfs.Disk
	s      *store.Store
	model  [keys + noKeys]keyState
	claims claims
	rng    *rand.Rand
	all    []string
	inputs []byte
}

func (w *world) next() int {
	if len(w.inputs) == 0 {
		return 0
	}
	b := w.inputs[0]
	w.inputs = w.inputs[1:]
	return int(b)
}

func FuzzStore(f *testing.F) {
	f.Fuzz(func(t *testing.T, input []byte) {
		within(60*time.Second, "the input", func() { run(t, input) })
	})
}

func run(tb testing.TB, input []byte) {
	w := &world{
		tb: tb, disk: crashfs.New(), inputs: input,
		rng: rand.New(rand.NewPCG(uint64(len(input)), 9)),
	}
	for i := range w.model {
		w.all = append(w.all, key(i))
	}
	w.level = levels[w.next()%len(levels)]
	w.words = []int{4, 16, 50, 400}[w.next()%4]
	w.span = []int64{10, 60, 1 << 30}[w.next()%3]
	w.s = create(tb, w.disk, 1, w.options())
	for n := 0; n < maxOps && len(w.inputs) > 0; n++ {
		w.op(w.next() % opCount)
	}
	w.check()
	w.close()
	w.open()
	w.check()
	w.close()
}

func (w *world) options() *store.Options { return options(w.disk, w.level, w.words, w.span) }

func (w *world) open() {
	w.tb.Helper()
	var err error
	if w.s, err = store.Open(dir, w.options()); err != nil {
		w.tb.Fatalf("open: %v", err)
	}
}

func (w *world) close() {
	w.tb.Helper()
	if err := w.s.Close(); err != nil {
		w.tb.Fatalf("close: %v", err)
	}
	w.synced() // everything is
	w.claims.end()
}

// synced makes durable what was answered.
func (w *world) synced() {
	for i, k := range w.model {
		if k == answered {
			w.model[i] = durable
		}
	}
}

func (w *world) op(op int) {
	ctx := context.Background()
	switch op {
	case opAdd:
		w.add([]int{w.next()})
	case opBatch:
		first, n, step := w.next(), 1+w.next()%120, 1+w.next()%3
		var batch []int
		for i := range n {
			batch = append(batch, (first+i*step)%keys)
		}
		w.add(batch)
	case opHas:
		i := (w.next() + w.next()) % len(w.model)
		seen, err := w.s.Has(ctx, w.all[i])
		if err != nil || seen != (w.model[i] != absent) {
			w.tb.Fatalf("has key %d: %v, %v; the model says %v", i, seen, err, w.model[i])
		}
	case opSync:
		if err := w.s.Sync(ctx); err != nil {
			w.tb.Fatalf("sync: %v", err)
		}
		w.synced()
	case opFlush:
		if err := w.s.Flush(ctx); err != nil {
			w.tb.Fatalf("flush: %v", err)
		}
		w.synced()
	case opReopen:
		w.close()
		w.open()
	case opCrash:
		p := percents[w.next()%percent]
		w.crash(w.disk.Crash(w.rng, p), p, w.model, nil)
	case opCrashNext:
		w.crashIn(1+w.next(), percents[w.next()%percent], cutOps[w.next()%len(cutOps)])
	case opVerify:
		verify(w.tb, w.s)
	case opClaim:
		w.claim(w.next(), w.next(), 1+w.next()%slots, w.next()%3)
	case opCommit:
		w.commit(w.next())
	case opRelease:
		w.use("release", w.next(), store.Claim.Release, true)
	case opExtend:
		w.use("extend", w.next(), func(c store.Claim) error { return c.Extend(time.Hour) }, false)
	}
}

// add adds keys by their numbers; several in one batch.
func (w *world) add(batch []int) {
	ctx := context.Background()
	names := make([]string, len(batch))
	answers := make([]store.Answer, len(batch))
	for i, n := range batch {
		names[i] = w.all[n]
	}
	var err error
	if len(batch) == 1 {
		answers[0], err = addOne(ctx, w.s, names[0])
	} else {
		err = w.s.AddBatch(ctx, names, answers)
	}
	if err != nil {
		w.tb.Fatalf("add: %v", err)
	}
	for i, n := range batch {
		want := w.answer(n)
		if want == store.New {
			w.mark(n)
		}
		if answers[i] != want {
			w.tb.Fatalf("key %d is %v, want %v", n, answers[i], want)
		}
	}
}

// addOne is an Add that answers as a batch does.
func addOne(ctx context.Context, s *store.Store, key string) (store.Answer, error) {
	added, err := s.Add(ctx, key)
	switch {
	case added:
		return store.New, err
	case errors.Is(err, store.ErrClaimed):
		return store.Busy, nil
	}
	return store.Seen, err
}

// answer is what the model says to a key that is added or claimed.
func (w *world) answer(n int) store.Answer {
	switch {
	case w.model[n] != absent:
		return store.Seen
	case w.claims.claimed[n]:
		return store.Busy
	}
	return store.New
}

// mark notes that a key was answered.
func (w *world) mark(n int) {
	w.model[n] = answered
	if w.level == store.Sync {
		w.model[n] = durable
	}
}

// crashIn does an operation and cuts the power before the given step of it.
// Without so many steps nothing is cut.
func (w *world) crashIn(step, percent, op int) {
	before := w.model
	cut := w.disk.CutIn(func() { w.op(op) }, step, w.rng, percent)
	if cut == nil {
		return
	}
	inFlight := make(map[int]bool)
	for i := range w.model {
		if before[i] == absent && w.model[i] != absent {
			inFlight[i] = true
		}
	}
	w.crash(cut, percent, before, inFlight)
}

// crash goes on with an image of the disk, and brings the model up to what is
// there.
func (w *world) crash(image *crashfs.Disk, percent int, before [keys + noKeys]keyState, inFlight map[int]bool) {
	w.close()
	w.disk, w.model = image, before
	w.open()
	seen := w.look()
	for i, k := range w.model {
		switch {
		case seen[i] && k == absent && !inFlight[i]:
			w.tb.Fatalf("key %d was never added and is seen after a crash", i)
		case !seen[i] && k == durable:
			w.tb.Fatalf("key %d was durable and is lost, with %d %% of the un-synced data", i, percent)
		case !seen[i] && k == answered && percent == 100:
			w.tb.Fatalf("key %d was answered and is lost, though everything written is there", i)
		}
		w.model[i] = absent
		if seen[i] {
			w.model[i] = durable // an answer of a recovered store is never taken back
		}
	}
	w.check()
	// A recovery over again, after a cut that leaves what is synced, or after
	// a close, must come to the same.
	if bare := w.disk.Crash(w.rng, 0); percent == 50 {
		w.close()
		w.disk = bare
	} else {
		w.close()
	}
	w.open()
	w.check()
}

// look asks for all keys.
func (w *world) look() []bool {
	answers := make([]store.Answer, len(w.all))
	if err := w.s.HasBatch(context.Background(), w.all, answers); err != nil {
		w.tb.Fatalf("has: %v", err)
	}
	seen := make([]bool, len(w.all))
	for i, a := range answers {
		seen[i] = a == store.Seen
	}
	return seen
}

// check compares the store with the model, and with itself.
func (w *world) check() {
	w.tb.Helper()
	n := int64(0)
	for i, seen := range w.look() {
		if seen != (w.model[i] != absent) {
			w.tb.Fatalf("key %d: seen is %v, the model says %v", i, seen, w.model[i])
		}
		if seen {
			n++
		}
	}
	st := w.s.Stats()
	if st.URLs != n || st.Claims.Held != int64(len(w.claims.claimed)) {
		w.tb.Fatalf("%d URLs and %d claims, want %d and %d", st.URLs, st.Claims.Held, n, len(w.claims.claimed))
	}
	verify(w.tb, w.s)
}
