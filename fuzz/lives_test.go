package fuzz

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
	"dedupstore/store"
)

// The operations of FuzzLives: what a key meets from its add to its end.
const (
	lifeAdd     = iota // in one of the namespaces, with one of the TTLs
	lifeForget         // some keys
	lifeDrop           // a namespace
	lifePass           // of time
	lifeCommit         // claims, with a TTL
	lifeHas            // looks
	lifeTTL            // of a namespace is changed
	lifeFlush          //
	lifeSync           //
	lifeExpire         //
	lifeReopen         //
	lifeReboot         // closes, boots and opens
	lifeWrong          // the same, with a wrong clock, which is then set right
	lifeVerify         //
	lifeCrash          //
	lifeCrashIn        // the next operation
	lifeCount

	lifeSpaces = 3
	lifeKeys   = 80
)

// lifeTTLs are those that a byte chooses. 0 is the namespace's.
var lifeTTLs = []time.Duration{
	0, store.Forever, time.Second, 90 * time.Second, time.Hour, 10 * time.Hour, 30 * 24 * time.Hour, time.Nanosecond,
}

var lifeNames = [lifeSpaces]string{"", "a", "b"}

// life is a state of a key: it ends between from and by, ns by the wall clock,
// when that is right. The zero value is a key that is not there.
type life struct{ from, by int64 }

// page is what the model knows of a key: its states since the last one that was
// durable, in order. No page is a key that was never there.
type page []life

type pages [lifeSpaces][lifeKeys]page

func (p page) now() life {
	if len(p) == 0 {
		return life{}
	}
	return p[len(p)-1]
}

// lives is a store, its disk, its clock, and the model of them.
type lives struct {
	tb     testing.TB
	level  store.Durability
	words  int
	span   int64
	excise int64
	disk   *crashfs.Disk
	clock  *clock
	s      *store.Store
	model  pages
	ttls   [lifeSpaces]time.Duration
	rng    *rand.Rand
	inputs []byte
}

func FuzzLives(f *testing.F) {
	f.Fuzz(func(t *testing.T, input []byte) {
		within(60*time.Second, "the input", func() { runLives(t, input) })
	})
}

func runLives(tb testing.TB, input []byte) {
	w := &lives{
		tb: tb, disk: crashfs.New(), inputs: input, rng: rand.New(rand.NewPCG(uint64(len(input)), 9)),
		clock: &clock{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), mono: time.Minute, boot: time.Hour},
	}
	w.level = levels[w.next()%len(levels)]
	w.words = []int{4, 16, 50, 400}[w.next()%4]
	w.span = []int64{10, 60, 1 << 30}[w.next()%3]
	w.excise = []int64{1, 20, 1 << 40}[w.next()%3]
	for i := range w.ttls {
		w.ttls[i] = store.Forever
	}
	w.s = create(tb, w.disk, 1, w.options())
	for n := 0; n < maxOps && len(w.inputs) > 0; n++ {
		w.op(w.next() % lifeCount)
	}
	w.check()
	w.reopen(func() {})
	w.check()
	w.close()
}

func (w *lives) next() int {
	if len(w.inputs) == 0 {
		return 0
	}
	b := w.inputs[0]
	w.inputs = w.inputs[1:]
	return int(b)
}

func (w *lives) options() *store.Options {
	o := options(w.disk, w.level, w.words, w.span)
	o.Clock = w.clock
	seams := w.disk.Seams()
	seams.MemtableWords, seams.SpanWords, seams.ExciseWords, seams.BuildWords = w.words, w.span, w.excise, 30
	store.SetSeams(o, seams)
	return o
}

func (w *lives) open() {
	w.tb.Helper()
	var err error
	if w.s, err = store.Open(dir, w.options()); err != nil {
		w.tb.Fatalf("open: %v", err)
	}
}

func (w *lives) close() {
	w.tb.Helper()
	if err := w.s.Close(); err != nil {
		w.tb.Fatalf("close: %v", err)
	}
	w.durable()
}

func (w *lives) reopen(meanwhile func()) {
	w.tb.Helper()
	w.close()
	meanwhile()
	w.open()
}

// durable says that all states of now are.
func (w *lives) durable() {
	for i := range w.model {
		for k, p := range w.model[i] {
			if len(p) > 0 {
				w.model[i][k] = page{p.now()}
			}
		}
	}
}

func (w *lives) now() int64 { return w.clock.Wall().UnixNano() }

func (w *lives) space(i int) *store.Namespace {
	w.tb.Helper()
	n, err := w.s.OpenNamespace(lifeNames[i], &store.NamespaceOptions{TTL: w.ttls[i]})
	if err != nil {
		w.tb.Fatalf("namespace %q: %v", lifeNames[i], err)
	}
	return n
}

// keys are some of a namespace's, each once.
func (w *lives) keys(most int) (space int, keys []int) {
	space, first, n, step := w.next()%lifeSpaces, w.next(), 1+w.next()%most, 1+w.next()%3
	for i := range n {
		keys = append(keys, (first+i*step)%lifeKeys)
	}
	return space, keys
}

func names(keys []int) (names []string) {
	for _, k := range keys {
		names = append(names, key(k))
	}
	return names
}

func (w *lives) op(op int) {
	ctx := context.Background()
	ok := func(err error) {
		w.tb.Helper()
		if err != nil {
			w.tb.Fatalf("operation %d: %v", op, err)
		}
	}
	switch op {
	case lifeAdd:
		space, keys := w.keys(25)
		w.add(space, keys, lifeTTLs[w.next()%len(lifeTTLs)])
	case lifeCommit:
		space, keys := w.keys(6)
		w.commit(space, keys, lifeTTLs[w.next()%len(lifeTTLs)])
	case lifeForget:
		space, keys := w.keys(12)
		w.forget(space, keys)
	case lifeDrop:
		space := w.next() % lifeSpaces
		w.space(space)
		ok(w.s.DropNamespace(ctx, lifeNames[space]))
		for k, p := range w.model[space] {
			if len(p) > 0 {
				w.model[space][k] = append(p[:len(p):len(p)], life{})
			}
		}
		w.durable()
	case lifePass:
		w.clock.pass([]time.Duration{time.Millisecond, time.Second, 2 * time.Minute, 20 * time.Minute, time.Hour, 7 * time.Hour, 31 * 24 * time.Hour}[w.next()%7])
	case lifeHas:
		w.look()
	case lifeTTL:
		space, ttl := w.next()%lifeSpaces, lifeTTLs[w.next()%len(lifeTTLs)]
		_, err := w.s.OpenNamespace(lifeNames[space], &store.NamespaceOptions{TTL: ttl})
		ok(err)
		if ttl != 0 {
			w.ttls[space] = ttl
		}
	case lifeFlush:
		ok(w.s.Flush(ctx))
		w.durable()
	case lifeSync:
		ok(w.s.Sync(ctx))
		w.durable()
	case lifeExpire:
		_, err := w.s.Expire(ctx, store.ExpireOptions{})
		ok(err)
		w.durable()
	case lifeReopen:
		w.reopen(func() {})
	case lifeReboot:
		w.reopen(func() { w.clock.reboot(0) })
	case lifeWrong:
		by := []time.Duration{400 * 24 * time.Hour, -400 * 24 * time.Hour}[w.next()%2]
		w.reopen(func() { w.clock.reboot(by) })
		w.reopen(func() { w.clock.set(-by) })
	case lifeVerify:
		verify(w.tb, w.s)
	case lifeCrash:
		p := percents[w.next()%percent]
		w.crash(w.disk.Crash(w.rng, p), p, w.model, w.model)
	case lifeCrashIn:
		w.crashIn(1+w.next(), percents[w.next()%percent], w.next()%lifeCrash)
	}
}

// born notes that a key was added.
func (w *lives) born(space, k int, ttl time.Duration) {
	if ttl == 0 {
		ttl = w.ttls[space]
	}
	l := life{math.MaxInt64, math.MaxInt64}
	if ttl != store.Forever {
		l.from = w.now() + int64(ttl)
		l.by = l.from + max(int64(time.Second), int64(ttl)/24)
	}
	w.model[space][k] = append(w.model[space][k][:len(w.model[space][k]):len(w.model[space][k])], l)
	if len(w.model[space][k]) == 1 {
		w.model[space][k] = page{life{}, l}
	}
	if w.level == store.Sync {
		w.model[space][k] = page{l}
	}
}

// told compares an answer with the model.
func (w *lives) told(what string, space, k int, a store.Answer) {
	w.tb.Helper()
	l := w.model[space][k].now()
	if a == store.Seen && w.now() < l.by || a == store.New && w.now() >= l.from {
		return
	}
	w.tb.Fatalf("%s: key %d of %q is %v at %d, the model says %+v", what, k, lifeNames[space], a, w.now(), l)
}

func (w *lives) add(space int, keys []int, ttl time.Duration) {
	answers := make([]store.Answer, len(keys))
	n := w.space(space).With(store.WriteOptions{TTL: ttl})
	if err := n.AddBatch(context.Background(), names(keys), answers); err != nil {
		w.tb.Fatalf("add: %v", err)
	}
	for i, k := range keys {
		w.told("add", space, k, answers[i])
		if answers[i] == store.New {
			w.born(space, k, ttl)
		}
	}
}

// commit claims keys, releases one in three and commits the others.
func (w *lives) commit(space int, keys []int, ttl time.Duration) {
	ctx := context.Background()
	granted, answers := make([]store.Claim, len(keys)), make([]store.Answer, len(keys))
	if err := w.space(space).ClaimBatch(ctx, names(keys), 0, granted, answers); err != nil {
		w.tb.Fatalf("claim: %v", err)
	}
	var held []store.Claim
	var of []int
	for i, k := range keys {
		if answers[i] == store.Busy {
			continue // it stands in the batch twice
		}
		w.told("claim", space, k, answers[i])
		switch {
		case answers[i] != store.New:
		case i%3 == 2:
			if err := granted[i].Release(); err != nil {
				w.tb.Fatalf("release: %v", err)
			}
		default:
			held, of = append(held, granted[i]), append(of, k)
		}
	}
	if err := w.s.CommitBatch(ctx, held, ttl, make([]bool, len(held))); err != nil {
		w.tb.Fatalf("commit: %v", err)
	}
	for _, k := range of {
		w.born(space, k, ttl)
	}
}

func (w *lives) forget(space int, keys []int) {
	removed, err := w.space(space).Forget(context.Background(), names(keys)...)
	if err != nil {
		w.tb.Fatalf("forget: %v", err)
	}
	least, most := 0, 0
	for _, k := range keys {
		l := w.model[space][k].now()
		if w.now() < l.from {
			least++
		}
		if w.now() < l.by {
			most++
		}
		if p := w.model[space][k]; len(p) > 0 {
			w.model[space][k] = append(p[:len(p):len(p)], life{})
		}
	}
	if removed < least || removed > most {
		w.tb.Fatalf("forget: %d were seen, the model says %d to %d", removed, least, most)
	}
	if removed > 0 {
		w.durable() // the log is a sequence
	}
	for _, k := range keys {
		if len(w.model[space][k]) > 0 {
			w.model[space][k] = page{life{}}
		}
	}
}

// crashIn does an operation and cuts the power before the given step of it.
// Without so many steps nothing is cut.
func (w *lives) crashIn(step, percent, op int) {
	before := w.model
	cut := w.disk.CutIn(func() { w.op(op) }, step, w.rng, percent)
	if cut != nil {
		w.crash(cut, percent, before, w.model)
	}
}

// crash goes on with an image of the disk, which was taken in an operation
// between two models, and brings the model up to what is there.
func (w *lives) crash(image *crashfs.Disk, percent int, before, after pages) {
	w.close()
	w.disk = image
	w.open()
	for space := range w.model {
		// What a namespace had for TTL may have been taken back.
		for n := range w.s.Namespaces() {
			if n.Name == lifeNames[space] {
				w.ttls[space] = n.TTL
			}
		}
	}
	now := w.now()
	for space, seen := range w.seen() {
		for k := range seen {
			states := before[space][k]
			if percent == 100 || len(states) == 0 {
				states = page{states.now()}
			}
			states = append(states[:len(states):len(states)], after[space][k]...)
			alive, mayNew := life{from: math.MaxInt64}, false
			for _, l := range states {
				if now < l.by {
					alive.from, alive.by = min(alive.from, l.from), max(alive.by, l.by)
				}
				mayNew = mayNew || now >= l.from
			}
			if seen[k] && alive.by == 0 || !seen[k] && !mayNew {
				w.tb.Fatalf("key %d of %q: seen is %v at %d after a crash with %d %% of the un-synced data, and it may be %+v",
					k, lifeNames[space], seen[k], now, percent, states)
			}
			w.model[space][k] = nil
			if seen[k] {
				w.model[space][k] = page{alive} // an answer of a recovered store is never taken back
			}
		}
	}
	w.check()
	// A recovery over again, after a cut that leaves what is synced, or after
	// a close, must come to the same.
	bare := w.disk.Crash(w.rng, 0)
	w.close()
	if percent == 50 {
		w.disk = bare
	}
	w.open()
	w.check()
}

// seen asks for all keys.
func (w *lives) seen() (seen [lifeSpaces][lifeKeys]bool) {
	w.tb.Helper()
	var all []int
	for k := range lifeKeys {
		all = append(all, k)
	}
	answers := make([]store.Answer, lifeKeys)
	for space := range seen {
		if err := w.space(space).HasBatch(context.Background(), names(all), answers); err != nil {
			w.tb.Fatalf("has: %v", err)
		}
		for k, a := range answers {
			seen[space][k] = a == store.Seen
		}
	}
	return seen
}

// look compares all keys, and their numbers, with the model.
func (w *lives) look() {
	w.tb.Helper()
	urls, all := map[string]int64{}, int64(0)
	for space, seen := range w.seen() {
		for k, is := range seen {
			a := store.New
			if is {
				a = store.Seen
				urls[lifeNames[space]]++
				all++
			}
			w.told("has", space, k, a)
		}
	}
	for n := range w.s.Namespaces() {
		if n.URLs != urls[n.Name] {
			w.tb.Fatalf("namespace %q has %d URLs, and %d are seen", n.Name, n.URLs, urls[n.Name])
		}
	}
	if got := w.s.Stats().URLs; got != all {
		w.tb.Fatalf("%d URLs, want %d", got, all)
	}
}

func (w *lives) check() {
	w.tb.Helper()
	w.look()
	verify(w.tb, w.s)
}
