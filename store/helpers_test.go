package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"dedupstore/internal/crashfs"
	"dedupstore/internal/seam"
	"dedupstore/mmapfilter"
)

// A world is what the stores of a test live in: a directory on a real or an
// in-memory file system, whose power can be cut, and the seams. Its fields are
// set before the first open.
//
// Whatever a test does, its stores are checked at its end: Verify of the open
// store, Close, and Verify of the directory.
type world struct {
	t    testing.TB
	dir  string
	o    Options
	mem  *crashfs.MemFS // nil in a directory of the real file system
	twin *mmapfilter.Twin
	disk *smallDisk // if not nil, instead of both

	memtableWords  int
	spanWords      int64
	exciseWords    int64
	buildWords     int
	selfCheckEvery int
	statusInterval time.Duration             // 0: no STATUS
	point          func(name string)         // see seam.Seams
	fault          func(op errorfs.Op) error // of each operation; may block
}

// onDisk is a world in a directory of its own.
func onDisk(t testing.TB) *world {
	return &world{t: t, dir: filepath.Join(t.TempDir(), "store"), o: smallOptions()}
}

// inMemory is a world that crash works in.
func inMemory(t testing.TB) *world {
	return &world{t: t, dir: "/store", o: smallOptions(), mem: crashfs.NewMem(), twin: mmapfilter.NewTwin()}
}

// smallOptions are those of a store for some thousand URLs.
func smallOptions() Options { return Options{ExpectedURLs: 20_000, MemoryBytes: MinMemoryBytes} }

func (w *world) options() *Options {
	o := w.o
	s := seam.Seams{
		Point: w.point, MemtableWords: w.memtableWords, SpanWords: w.spanWords, BuildWords: w.buildWords,
		ExciseWords: w.exciseWords, SelfCheckEvery: w.selfCheckEvery, StatusInterval: w.statusInterval,
	}
	switch {
	case w.disk != nil:
		s.FS, s.Device = w.disk, smallDevice{w.disk.twin, w.disk}
	case w.mem != nil:
		s.FS, s.Device = w.mem, w.twin
	default:
		s.FS = vfs.Default
	}
	if w.fault != nil {
		s.FS = errorfs.Wrap(s.FS, errorfs.InjectorFunc(w.fault))
	}
	SetSeams(&o, s)
	return &o
}

// A fakeClock is moved by the test, by any goroutine.
type fakeClock struct {
	mu         sync.Mutex
	wall       time.Time
	mono, boot time.Duration
	bootID     [16]byte
}

// newFakeClock is right, and an hour after a boot.
func newFakeClock() *fakeClock {
	return &fakeClock{
		wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), mono: time.Minute, boot: time.Hour, bootID: [16]byte{1},
	}
}

func (c *fakeClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *fakeClock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

func (c *fakeClock) Boot() (time.Duration, [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot, c.bootID
}

// pass lets time pass.
func (c *fakeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono, c.boot = c.wall.Add(d), c.mono+d, c.boot+d
}

// sleep lets the machine sleep.
func (c *fakeClock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.boot = c.wall.Add(d), c.boot+d
}

// step sets the wall clock forward, or back.
func (c *fakeClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// reboot lets the machine boot again, which takes a while.
func (c *fakeClock) reboot(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono, c.boot = c.wall.Add(d), 0, 0
	if c.bootID != [16]byte{} { // zeros: a machine that does not know
		c.bootID[0]++
		c.bootID[1] = 1
	}
}

// clocked puts a clock into a world.
func clocked(w *world) (*world, *fakeClock) {
	c := newFakeClock()
	w.o.Clock = c
	return w, c
}

// open opens the world's store. It is checked at the end of the test, unless
// close or abandon was called before.
func (w *world) open() *testStore {
	w.t.Helper()
	s := &testStore{Store: mustOpen(w.t, w.dir, w.options()), w: w}
	w.t.Cleanup(s.close)
	return s
}

// verify checks the directory.
func (w *world) verify() {
	w.t.Helper()
	r, err := verifyDir(context.Background(), w.dir, VerifyOptions{Deep: true}, w.plainOptions())
	noFaults(w.t, "after Close", r, err)
}

// plainOptions are those without the test's faults and points.
func (w *world) plainOptions() *Options {
	plain := *w
	plain.point, plain.fault = nil, nil
	return plain.options()
}

// crash returns the world after a power loss at this moment, in which the
// given share of what was not synced is there.
func (w *world) crash(rng *rand.Rand, percent int) *world {
	after := *w
	after.point, after.fault = nil, nil
	// The bitmap first: it may be older than the rest, never newer.
	after.twin = w.twin.Crash(rng, percent)
	after.mem = w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	return &after
}

// A testStore is a Store that is checked when it is closed.
type testStore struct {
	*Store
	w    *world
	once sync.Once
}

// close checks the store, closes it, and checks what is on disk.
func (s *testStore) close() {
	s.w.t.Helper()
	s.once.Do(func() {
		if s.w.t.Failed() {
			go s.Store.Close() // whatever it was, it may hang
			return
		}
		r, err := s.Verify(context.Background(), VerifyOptions{Deep: true})
		noFaults(s.w.t, "before Close", r, err)
		if err := s.Store.Close(); err != nil {
			s.w.t.Errorf("Close: %v", err)
		}
		s.w.verify()
	})
}

// abandon gives a store up: it was killed, or is expected not to close well.
func (s *testStore) abandon() { s.once.Do(func() { go s.Store.Close() }) }

func noFaults(t testing.TB, when string, r *Report, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("Verify %s: %v", when, err)
		return
	}
	for _, f := range r.Faults {
		t.Errorf("Verify %s: %s at %d: %s (%s)", when, f.Path, f.Offset, f.Reason, f.Consequence)
	}
}

// mustOpen opens a store that the caller closes.
func mustOpen(t testing.TB, dir string, o *Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key is the i-th key of a test.
func key(i int) string { return fmt.Sprintf("https://example.com/%d", i) }

// keys are those from lo on, before hi.
func keys(lo, hi int) []string {
	k := make([]string, 0, hi-lo)
	for i := lo; i < hi; i++ {
		k = append(k, key(i))
	}
	return k
}

// A testHandle is a handle whose answers are checked.
type testHandle struct {
	*Namespace
	t testing.TB
}

// with is a handle that adds with a TTL.
func (s *testStore) with(ttl time.Duration) testHandle {
	return testHandle{s.With(WriteOptions{TTL: ttl}), s.w.t}
}

// named is a handle to a namespace, which is made if there is none.
func (s *testStore) named(name string, o *NamespaceOptions) testHandle {
	s.w.t.Helper()
	n, err := s.OpenNamespace(name, o)
	must(s.w.t, err)
	return testHandle{n, s.w.t}
}

// add adds keys, each of which must get the answer.
func (s *testStore) add(want Answer, keys ...string) {
	s.w.t.Helper()
	testHandle{s.Namespace, s.w.t}.add(want, keys...)
}

func (n testHandle) add(want Answer, keys ...string) {
	n.t.Helper()
	answers := make([]Answer, len(keys))
	if err := n.AddBatch(context.Background(), keys, answers); err != nil {
		n.t.Fatalf("AddBatch: %v", err)
	}
	for i, got := range answers {
		if got != want {
			n.t.Fatalf("Add of %s: got %v, want %v", keys[i], got, want)
		}
	}
}

// has asks for keys, each of which must get the answer.
func (s *testStore) has(want Answer, keys ...string) {
	s.w.t.Helper()
	testHandle{s.Namespace, s.w.t}.has(want, keys...)
}

func (n testHandle) has(want Answer, keys ...string) {
	n.t.Helper()
	answers := make([]Answer, len(keys))
	if err := n.HasBatch(context.Background(), keys, answers); err != nil {
		n.t.Fatalf("HasBatch: %v", err)
	}
	for i, got := range answers {
		if got != want {
			n.t.Fatalf("Has of %s: got %v, want %v", keys[i], got, want)
		}
	}
}

// forget forgets keys, so many of which must have been seen.
func (n testHandle) forget(want int, keys ...string) {
	n.t.Helper()
	if got, err := n.Forget(context.Background(), keys...); got != want || err != nil {
		n.t.Fatalf("Forget: got %d, %v, want %d", got, err, want)
	}
}

func (s *testStore) forget(want int, keys ...string) {
	s.w.t.Helper()
	testHandle{s.Namespace, s.w.t}.forget(want, keys...)
}

// urls checks the number of URLs.
func (s *testStore) urls(want int) {
	s.w.t.Helper()
	if got := s.Stats().URLs; got != int64(want) {
		s.w.t.Errorf("Stats: got %d URLs, want %d", got, want)
	}
}

func (s *testStore) flush() {
	s.w.t.Helper()
	must(s.w.t, s.Flush(context.Background()))
}

// A gate is a point where a test holds somebody up, and lets go.
type gate struct {
	reached chan struct{} // closed when somebody is there
	opened  chan struct{}
	once    sync.Once
	open    func()
}

// newGate makes a gate that is open at the latest when the test ends.
func newGate(t testing.TB) *gate {
	g := &gate{reached: make(chan struct{}), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	t.Cleanup(g.open)
	return g
}

// pass waits at the gate.
func (g *gate) pass() {
	g.once.Do(func() { close(g.reached) })
	<-g.opened
}

// patience is how long a test waits for what must happen. shortly is how long
// it waits for what must not.
const (
	patience = 20 * time.Second
	shortly  = 50 * time.Millisecond
)

// within fails the test unless done is closed in time.
func within(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not in %v", what, patience)
	}
}

// start runs fn, and returns a channel that is closed when it has ended.
func start(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	return done
}

// ended reports whether done is closed, or will be shortly.
func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(shortly):
		return false
	}
}

// is checks that err is each of the targets.
func is(t testing.TB, what string, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s: got error %v, want %v", what, err, target)
		}
	}
}

// seeded is a random number generator whose seed stands in the test's log.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A lockedSource may be used by several goroutines at once.
type lockedSource struct {
	mu  sync.Mutex
	pcg *rand.PCG
}

func lockedRand(seed, stream uint64) *rand.Rand {
	return rand.New(&lockedSource{pcg: rand.NewPCG(seed, stream)})
}

func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}

// isLog reports whether the operation is one on a log file. The file may have
// been opened under another name than it has by now.
func isLog(op errorfs.Op) bool { return filepath.Base(filepath.Dir(op.Path)) == logDir }

func isWrite(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite }

func isSync(op errorfs.Op) bool {
	return slices.Contains([]errorfs.OpKind{
		errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo,
	}, op.Kind)
}

func defaultOptions() *Options {
	o := (*Options)(nil).withDefaults()
	return &o
}
