package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// A diary is the account of one goroutine that adds, forgets and lets expire
// keys that nobody else touches: what each answer may be, and what a store may
// know of a key after a crash at any moment.
//
// The log is one sequence, so what a crash leaves of it is the work up to some
// operation: at least to the last durable one, at most to the one on its way.
type diary struct {
	sync bool // adds are durable when they are answered

	mu    sync.Mutex
	pages map[diaryKey][]diaryEntry
	diaryMoment
}

// diaryMoment says how far a diary has come: the numbers of the last operation
// that had begun, was answered, and was durable.
type diaryMoment struct{ began, answered, durable int }

// diaryKey is a key in one of the namespaces.
type diaryKey struct{ space, key int }

// diaryEntry is a state of a key, from an operation on: it expires between from
// and by, ns of the clock, or is gone, if both are 0.
type diaryEntry struct {
	op       int
	from, by int64
	forgets  bool // durable when it is answered, whatever the level
	failed   bool // it is not known whether it was done
}

func newDiary(level Durability) *diary {
	return &diary{sync: level == Sync, pages: map[diaryKey][]diaryEntry{}}
}

// gone is the state of a key that was never added.
var gone diaryEntry

func (e *diaryEntry) maySeen(now int64) bool { return now < e.by }
func (e *diaryEntry) mayNew(now int64) bool  { return now >= e.from }

// begin notes what an operation may do to keys.
func (d *diary) begin(keys []diaryKey, e diaryEntry) (op int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began++
	e.op = d.began
	for _, k := range keys {
		d.pages[k] = append(d.pages[k], e)
	}
	return e.op
}

// end says that an operation was answered, and durably so.
func (d *diary) end(op int, durable bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answered = op
	if durable {
		d.durable = op
	}
}

// before are the states that a key may be in before an operation that touches
// it: one, but for those of operations that failed.
func (d *diary) before(k diaryKey, op int) (states []diaryEntry) {
	page := d.pages[k]
	if n := len(page); n > 0 && page[n-1].op == op {
		page = page[:n-1]
	}
	first := len(page) - 1
	for first >= 0 && page[first].failed {
		first--
	}
	if first < 0 {
		states = append(states, gone)
	}
	return append(states, page[max(first, 0):]...)
}

// added compares the answers of an add with what may be, and notes what follows.
func (d *diary) added(keys []diaryKey, op int, answers []Answer, begun, ended, ttl int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, k := range keys {
		if answers[i] == Unanswered {
			continue
		}
		if err := d.answer(k, op, answers[i], begun, ended, ttl); err != nil {
			return fmt.Errorf("add: %w", err)
		}
	}
	return nil
}

func (d *diary) answer(k diaryKey, op int, a Answer, begun, ended, ttl int64) error {
	states := d.before(k, op)
	seen := diaryEntry{op: op, from: forever}
	mayNew := false
	for _, e := range states {
		if e.maySeen(begun) {
			seen.from, seen.by = min(seen.from, e.from), max(seen.by, e.by)
		}
		mayNew = mayNew || e.mayNew(ended)
	}
	page := d.pages[k]
	if n := len(page); n > 0 && page[n-1].op == op {
		page = page[:n-1]
	}
	switch {
	case a == Seen && seen.by == 0, a == New && !mayNew, a != Seen && a != New:
		return fmt.Errorf("key %v is %v, from %d to %d, and may be %+v", k, a, begun, ended, states)
	case a == New:
		page = append(page, newLife(op, begun, ended, ttl))
	case len(states) > 1: // now it is known what has become of the failed ones
		page = append(page, seen)
	}
	d.pages[k] = page
	return nil
}

// newLife is the state of a key that was added.
func newLife(op int, begun, ended, ttl int64) diaryEntry {
	if ttl == forever {
		return diaryEntry{op: op, from: forever, by: forever}
	}
	return diaryEntry{op: op, from: begun + ttl, by: ended + ttl + max(int64(time.Second), ttl/spansOfTTL)}
}

// settle says that an operation has not been done to some keys, or that nobody
// knows.
func (d *diary) settle(keys []diaryKey, op int, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range keys {
		page := d.pages[k]
		n := len(page)
		if n == 0 || page[n-1].op != op {
			continue
		}
		if page[n-1].failed = failed; !failed {
			d.pages[k] = page[:n-1]
		}
	}
}

// looked compares the answers of a look.
func (d *diary) looked(keys []diaryKey, answers []Answer, begun, ended int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, k := range keys {
		states := d.before(k, -1)
		if !slices.ContainsFunc(states, func(e diaryEntry) bool {
			return answers[i] == Seen && e.maySeen(begun) || answers[i] == New && e.mayNew(ended)
		}) {
			return fmt.Errorf("has: key %v is %v, from %d to %d, and may be %+v", k, answers[i], begun, ended, states)
		}
	}
	return nil
}

// forgot compares how many of some keys were seen.
func (d *diary) forgot(keys []diaryKey, op, removed int, begun, ended int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	least, most := 0, 0
	for _, k := range keys {
		states := d.before(k, op)
		if slices.ContainsFunc(states, func(e diaryEntry) bool { return e.maySeen(begun) }) {
			most++
		}
		if !slices.ContainsFunc(states, func(e diaryEntry) bool { return e.mayNew(ended) }) {
			least++
		}
	}
	if removed < least || removed > most {
		return fmt.Errorf("forget: %d of %v were seen, and may be %d to %d", removed, keys, least, most)
	}
	return nil
}

// passing is called before time passes.
func (d *diary) passing(time.Duration) {}

func (d *diary) moment() diaryMoment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.diaryMoment
}

// A diaryCut is what a crash leaves of a diary: no less than what was durable at
// one moment, no more than what had begun at a later one.
type diaryCut struct {
	d        *diary
	from, to diaryMoment
	all      bool // what was answered is there, whatever the level
	crashed  bool // else all of the diary holds
}

// after are the states that a key may be in.
func (c *diaryCut) after(k diaryKey) (states []diaryEntry) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	states = append(states, gone)
	for _, e := range c.d.pages[k] {
		switch {
		case e.op > c.to.began:
			return states
		case !e.failed && (e.op <= c.from.durable || e.op <= c.from.answered && (c.all || c.d.sync || e.forgets)):
			states = states[:0]
		}
		states = append(states, e)
	}
	return states
}

// resolve is the diary of a store that was recovered: what it says of the keys
// holds from then on.
func (c *diaryCut) resolve(seen map[diaryKey]bool, now int64) (d *diary, err error) {
	d = &diary{sync: c.d.sync, pages: map[diaryKey][]diaryEntry{}}
	c.d.mu.Lock()
	keys := make([]diaryKey, 0, len(c.d.pages))
	for k := range c.d.pages {
		keys = append(keys, k)
	}
	c.d.mu.Unlock()
	for _, k := range keys {
		alive := diaryEntry{from: forever}
		mayNew := false
		states := c.after(k)
		for _, e := range states {
			if e.maySeen(now) {
				alive.from, alive.by = min(alive.from, e.from), max(alive.by, e.by)
			}
			mayNew = mayNew || e.mayNew(now)
		}
		switch {
		case seen[k] && alive.by == 0 || !seen[k] && !mayNew:
			return nil, fmt.Errorf("at %d key %v: seen is %v, and it may be %+v (%+v, %+v, all %v)",
				now, k, seen[k], states, c.from, c.to, c.all)
		case seen[k]:
			d.pages[k] = append(d.pages[k], alive)
		}
	}
	for k := range seen {
		if len(c.after(k)) == 1 && len(d.pages[k]) == 0 {
			return nil, fmt.Errorf("key %v is seen, and was never added", k)
		}
	}
	return d, nil
}

// An account is a diary, here or in another process.
type account interface {
	begin(keys []diaryKey, e diaryEntry) (op int)
	end(op int, durable bool)
	settle(keys []diaryKey, op int, failed bool)
	added(keys []diaryKey, op int, answers []Answer, begun, ended, ttl int64) error
	looked(keys []diaryKey, answers []Answer, begun, ended int64) error
	forgot(keys []diaryKey, op, removed int, begun, ended int64) error
	passing(d time.Duration)
}

// A diarist does at random what its diary can account for.
type diarist struct {
	account
	s      *Store
	clock  *fakeClock
	rng    *rand.Rand
	spaces []diarySpace
	prefix string // of the keys: those of the default namespace are shared
	keys   int
	// tolerates errors: then what has failed may have been done, or not.
	tolerant bool
}

// diarySpace is a namespace of a diarist, the first one the default one, which
// it never drops.
type diarySpace struct {
	name string
	ttl  time.Duration
}

func (w *diarist) name(k diaryKey) string {
	return fmt.Sprintf("https://%s.example/%d", w.prefix, k.key)
}

func (w *diarist) now() int64 { return w.clock.Wall().UnixNano() }

// open makes the namespaces.
func (w *diarist) open() error {
	for _, space := range w.spaces[1:] {
		if _, err := w.s.OpenNamespace(space.name, &NamespaceOptions{TTL: space.ttl}); err != nil {
			return err
		}
	}
	return nil
}

func (w *diarist) handle(space int, ttl time.Duration) (*Namespace, error) {
	n, err := w.s.OpenNamespace(w.spaces[space].name, nil)
	if err != nil {
		return nil, err
	}
	return n.With(WriteOptions{TTL: ttl}), nil
}

// ttl picks one; 0 is the namespace's.
func (w *diarist) ttl() time.Duration {
	switch w.rng.IntN(8) {
	case 0:
		return 1 + time.Duration(w.rng.Int64N(int64(10*time.Second)))
	case 1, 2:
		return 1 + time.Duration(w.rng.Int64N(int64(2*time.Hour)))
	case 3:
		return 1 + time.Duration(w.rng.Int64N(int64(24*time.Hour)))
	case 4:
		return 30 * day
	}
	return 0
}

// pick returns different keys of one namespace.
func (w *diarist) pick(most int) (space int, keys []diaryKey) {
	space = w.rng.IntN(len(w.spaces))
	n := min(1+w.rng.IntN(most), w.keys)
	for _, i := range w.rng.Perm(w.keys)[:n] {
		keys = append(keys, diaryKey{space, i})
	}
	return space, keys
}

// step does one thing. The error is one of the store's, in a diary that does not
// tolerate any, or says what is wrong with an answer.
func (w *diarist) step(ctx context.Context) error {
	switch x := w.rng.IntN(100); {
	case x < 45:
		return w.add(ctx)
	case x < 57:
		return w.forget(ctx)
	case x < 65:
		return w.has(ctx)
	case x < 76:
		w.pass(20 * time.Minute)
		return nil
	case x < 78:
		w.pass(20 * time.Hour)
		return nil
	case x < 88:
		return w.whole(func() error { return w.s.Flush(ctx) })
	case x < 91:
		return w.whole(func() error { return w.s.Sync(ctx) })
	case x < 95:
		return w.whole(func() error {
			_, err := w.s.Expire(ctx, ExpireOptions{})
			return err
		})
	default:
		return w.drop(ctx)
	}
}

func (w *diarist) pass(most time.Duration) {
	d := time.Duration(w.rng.Int64N(int64(most)))
	w.passing(d)
	w.clock.pass(d)
}

// failing says what becomes of an operation that failed.
func (w *diarist) failing(err error, keys []diaryKey, op int, undone bool) error {
	if len(keys) > 0 {
		w.settle(keys, op, !undone)
	}
	if w.tolerant {
		return nil
	}
	return err
}

func (w *diarist) add(ctx context.Context) error {
	space, keys := w.pick(30)
	ttl := w.ttl()
	n, err := w.handle(space, ttl)
	if err != nil {
		return w.failing(err, nil, 0, true)
	}
	if ttl == 0 {
		ttl = w.spaces[space].ttl
	}
	names, answers := w.names(keys)
	begun := w.now()
	life := newLife(0, begun, begun, int64(ttl))
	life.by = forever // until it is answered
	op := w.begin(keys, life)
	err = n.AddBatch(ctx, names, answers)
	ended := w.now()
	if err := w.added(keys, op, answers, begun, ended, int64(ttl)); err != nil {
		return err
	}
	w.end(op, false)
	if err != nil {
		var open []diaryKey
		for i, k := range keys {
			if answers[i] == Unanswered {
				open = append(open, k)
			}
		}
		return w.failing(err, open, op, !errors.Is(err, ErrPoisoned))
	}
	return nil
}

func (w *diarist) names(keys []diaryKey) (names []string, answers []Answer) {
	for _, k := range keys {
		names = append(names, w.name(k))
	}
	return names, make([]Answer, len(keys))
}

func (w *diarist) has(ctx context.Context) error {
	space, keys := w.pick(30)
	n, err := w.handle(space, 0)
	if err != nil {
		return w.failing(err, nil, 0, true)
	}
	names, answers := w.names(keys)
	begun := w.now()
	if err := n.HasBatch(ctx, names, answers); err != nil {
		return w.failing(err, nil, 0, true)
	}
	return w.looked(keys, answers, begun, w.now())
}

func (w *diarist) forget(ctx context.Context) error {
	space, keys := w.pick(10)
	n, err := w.handle(space, 0)
	if err != nil {
		return w.failing(err, nil, 0, true)
	}
	names, _ := w.names(keys)
	begun := w.now()
	op := w.begin(keys, diaryEntry{forgets: true})
	removed, err := n.Forget(ctx, names...)
	if err != nil {
		w.end(op, false)
		return w.failing(err, keys, op, false)
	}
	if err := w.forgot(keys, op, removed, begun, w.now()); err != nil {
		return err
	}
	w.end(op, removed > 0)
	return nil
}

func (w *diarist) drop(ctx context.Context) error {
	space := w.rng.IntN(len(w.spaces))
	if space == 0 {
		return nil
	}
	var keys []diaryKey
	for i := range w.keys {
		keys = append(keys, diaryKey{space, i})
	}
	op := w.begin(keys, diaryEntry{forgets: true})
	err := w.s.DropNamespace(ctx, w.spaces[space].name)
	w.end(op, err == nil)
	if err != nil {
		return w.failing(err, keys, op, !errors.Is(err, ErrPoisoned))
	}
	return nil
}

// whole does what makes everything durable that was answered before.
func (w *diarist) whole(call func() error) error {
	op := w.begin(nil, gone)
	err := call()
	w.end(op, err == nil)
	if err != nil {
		return w.failing(err, nil, 0, true)
	}
	return nil
}

// look asks for all keys of a diarist.
func (w *diarist) look(t testing.TB) map[diaryKey]bool {
	t.Helper()
	seen := map[diaryKey]bool{}
	for space := range w.spaces {
		n, err := w.handle(space, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys := make([]diaryKey, w.keys)
		for i := range keys {
			keys[i] = diaryKey{space, i}
		}
		names, answers := w.names(keys)
		if err := n.HasBatch(context.Background(), names, answers); err != nil {
			t.Fatal(err)
		}
		for i, k := range keys {
			if answers[i] == Seen {
				seen[k] = true
			}
		}
	}
	return seen
}
