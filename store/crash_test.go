package store

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
	"dedupstore/wal"
)

// Power is cut while workers add, batch, look, sync and flush: an image of the
// disk is taken at a call of the file system or at a named point of the code,
// with none, half and all of what was not synced. What must be in it is noted
// before it is taken.

var (
	crashPoints = flag.Int("crash.points", 60, "moments at which TestPowerLoss cuts the power, each with 0, 50 and 100 % of the un-synced data")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the random crash tests; 0: of the clock")
)

const (
	crashDir       = "/s"
	crashPerRound  = 6
	crashKeySpace  = 4000
	crashWorkers   = 3
	crashBatchKeys = 60
)

func crashNewSeed(t testing.TB) uint64 {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: go test ./store -run '^%s$' -crash.seed=%d -crash.points=%d", t.Name(), seed, *crashPoints)
	return seed
}

func crashKey(i int) string { return fmt.Sprintf("http://host%d.example/%d", i%7, i) }

// crashUniverse is every key that a crash test ever adds, and some that it
// never does.
var crashUniverse = func() []string {
	keys := make([]string, crashKeySpace+200)
	for i := range keys {
		keys[i] = crashKey(i)
	}
	return keys
}()

func crashOptions(d *crashfs.Disk, level Durability, memtable int, point func(string)) *Options {
	o := &Options{
		Durability: level, SyncInterval: 3 * time.Millisecond,
		ExpectedURLs: crashKeySpace / 40, MemoryBytes: MinMemoryBytes, // so that bitmaps grow
	}
	seams := d.Seams()
	seams.MemtableWords = memtable
	seams.SpanWords = 900
	seams.Point = point
	SetSeams(o, seams)
	return o
}

// A crashWorld is one store whose power is cut several times.
type crashWorld struct {
	t        *testing.T
	disk     *crashfs.Disk
	s        *Store
	level    Durability
	memtable int

	events atomic.Int64
	target atomic.Int64
	done   atomic.Bool

	mu     sync.Mutex
	rng    *rand.Rand
	keys   map[string]*crashKeyState
	images []crashImage
}

type crashKeyState struct {
	answered bool
	durable  bool    // answered before a Sync or Flush that has returned
	lsn      wal.LSN // at or above its record's, as of its first answer
	news     int
}

type crashImage struct {
	disk    *crashfs.Disk
	percent int
	where   string
	must    []string // answered as durable before the power went
	may     map[string]bool
}

// event is called at everything that happens on the disk and at the points of
// the code.
func (w *crashWorld) event(where string) {
	n := w.events.Add(1)
	target := w.target.Load()
	if n < target || !w.target.CompareAndSwap(target, 1<<62) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	synced := w.s.log.Synced()
	var must, answered []string
	for key, k := range w.keys {
		if !k.answered {
			continue
		}
		answered = append(answered, key)
		if k.durable || w.level == Sync || k.lsn <= synced {
			must = append(must, key)
		}
	}
	for _, percent := range []int{0, 50, 100} {
		image := crashImage{disk: w.disk.Crash(w.rng, percent), percent: percent, where: where, must: must}
		if percent == 100 {
			image.must = answered // as after a kill -9, whatever the level
		}
		w.images = append(w.images, image)
	}
	if len(w.images) >= 3*crashPerRound {
		w.done.Store(true)
		return
	}
	w.target.Store(w.events.Load() + 1 + w.rng.Int64N(400))
}

// work adds until enough images were taken.
func (w *crashWorld) work(seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	ctx := w.t.Context()
	for !w.done.Load() {
		var err error
		switch p := rng.IntN(100); {
		case p < 3:
			err = w.barrier(func() error { return w.s.Flush(ctx) })
		case p < 8:
			err = w.barrier(func() error { return w.s.Sync(ctx) })
		case p < 40:
			keys := make([]string, 1+rng.IntN(crashBatchKeys))
			for i := range keys {
				keys[i] = crashKey(rng.IntN(crashKeySpace))
			}
			w.submit(keys)
			answers := make([]Answer, len(keys))
			if err = w.s.AddBatch(ctx, keys, answers); err == nil {
				w.answer(keys, answers)
			}
		default:
			keys, answers := []string{crashKey(rng.IntN(crashKeySpace))}, []Answer{Seen}
			w.submit(keys)
			var added bool
			if added, err = w.s.Add(ctx, keys[0]); added {
				answers[0] = New
			}
			if err == nil {
				w.answer(keys, answers)
			}
		}
		if err != nil {
			return err
		}
		if rng.IntN(4) == 0 {
			runtime.Gosched()
		}
	}
	return nil
}

func (w *crashWorld) submit(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if w.keys[key] == nil {
			w.keys[key] = &crashKeyState{}
		}
	}
}

func (w *crashWorld) answer(keys []string, answers []Answer) {
	last := w.s.log.Last()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, key := range keys {
		k := w.keys[key]
		if !k.answered {
			k.answered, k.lsn = true, last
		}
		if answers[i] == New {
			k.news++
		}
	}
}

// barrier makes durable what was answered before the call.
func (w *crashWorld) barrier(call func() error) error {
	w.mu.Lock()
	var before []*crashKeyState
	for _, k := range w.keys {
		if k.answered {
			before = append(before, k)
		}
	}
	w.mu.Unlock()
	if err := call(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range before {
		k.durable = true
	}
	return nil
}

func TestPowerLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(crashNewSeed(t), 1))
	levels := []Durability{Sync, Interval, NoSync}
	var points, recoveries, inRecovery int
	for round := 0; points < *crashPoints; round++ {
		w := &crashWorld{
			t: t, disk: crashfs.New(), level: levels[round%len(levels)],
			memtable: []int{16, 64, 300, 1500}[rng.IntN(4)],
			rng:      rand.New(rand.NewPCG(rng.Uint64(), 2)),
			keys:     make(map[string]*crashKeyState),
		}
		w.target.Store(1 << 62)
		var err error
		if w.s, err = Open(crashDir, crashOptions(w.disk, w.level, w.memtable, w.event)); err != nil {
			t.Fatal(err)
		}
		w.disk.SetHook(func(op crashfs.Op) error {
			if op.Changes() {
				w.event(op.Kind + " " + op.Path)
			}
			return nil
		})
		w.target.Store(1 + rng.Int64N(600))
		var wg sync.WaitGroup
		for range crashWorkers {
			seed := rng.Uint64()
			wg.Go(func() {
				if err := w.work(seed); err != nil {
					t.Error(err)
					w.done.Store(true)
				}
			})
		}
		wg.Wait()
		w.disk.SetHook(nil)
		if err := w.s.Close(); err != nil {
			t.Fatal(err)
		}
		may := make(map[string]bool, len(w.keys))
		for key, k := range w.keys {
			may[key] = true
			if k.news > 1 {
				t.Errorf("%s was new %d times", key, k.news)
			}
		}
		for _, image := range w.images {
			image.may = may
			inRecovery += w.recover(rng, image, 2)
			recoveries++
		}
		points += len(w.images) / 3
		if t.Failed() {
			t.Fatalf("round %d, level %v, memtables of %d words", round, w.level, w.memtable)
		}
	}
	t.Logf("%d points, %d recoveries, %d crashes in a recovery", points, recoveries, inRecovery)
}

// recover opens an image and checks all that must hold of it. With depth to
// spare, it cuts the power in the recovery too. It returns how often.
func (w *crashWorld) recover(rng *rand.Rand, image crashImage, depth int) (cuts int) {
	t := w.t
	t.Helper()
	fail := func(format string, args ...any) {
		t.Errorf("power cut at %q with %d %% of the un-synced data, depth %d, level %v: %s",
			image.where, image.percent, 3-depth, w.level, fmt.Sprintf(format, args...))
	}
	// Whatever an Open does, it does in fewer steps than this, most of the time.
	at, events := 1+rng.Int64N(70), atomic.Int64{}
	if depth == 0 {
		at = 0
	}
	var second *crashImage
	seed := rng.Uint64()
	event := func(where string) {
		if events.Add(1) != at {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 3))
		percent := []int{0, 50, 100}[rng.IntN(3)]
		second = &crashImage{
			disk: image.disk.Crash(rng, percent), percent: percent,
			where: image.where + ", then " + where, must: image.must, may: image.may,
		}
	}
	image.disk.SetHook(func(op crashfs.Op) error {
		if op.Changes() {
			event(op.Kind + " " + op.Path)
		}
		return nil
	})
	options := crashOptions(image.disk, w.level, w.memtable, func(name string) {
		if events.Load() < 1<<40 {
			event(name)
		}
	})
	s, err := Open(crashDir, options)
	image.disk.SetHook(nil)
	events.Store(1 << 41)
	if err != nil {
		fail("open: %v", err)
		return 0
	}
	first := crashLook(t, s)
	for _, key := range image.must {
		if !first[key] {
			fail("%s was answered and is lost", key)
			break
		}
	}
	for key := range first {
		if !image.may[key] {
			fail("%s was never added and is seen", key)
		}
	}
	if got := int(s.Stats().URLs); got != len(first) {
		fail("%d URLs, and %d keys are seen", got, len(first))
	}
	crashVerify(t, s, fail)
	// What is seen after a recovery must not be taken back by the next one.
	bare := image.disk.Crash(rng, 0)
	if err := s.Close(); err != nil {
		fail("close: %v", err)
	}
	for which, disk := range map[string]*crashfs.Disk{"closed": image.disk, "cut": bare} {
		s, err := Open(crashDir, crashOptions(disk, w.level, w.memtable, nil))
		if err != nil {
			fail("open again, %s: %v", which, err)
			continue
		}
		if again := crashLook(t, s); len(again) != len(first) {
			fail("%d keys are seen after another open, %s, %d before", len(again), which, len(first))
		}
		crashVerify(t, s, fail)
		if which == "closed" {
			crashGoOn(t, s, first, fail)
		}
		if err := s.Close(); err != nil {
			fail("close again: %v", err)
		}
	}
	if second != nil {
		return 1 + w.recover(rng, *second, depth-1)
	}
	return 0
}

// crashLook returns the keys of the universe that the store has seen.
func crashLook(t *testing.T, s *Store) map[string]bool {
	t.Helper()
	answers := make([]Answer, len(crashUniverse))
	if err := s.HasBatch(t.Context(), crashUniverse, answers); err != nil {
		t.Error(err)
	}
	seen := make(map[string]bool)
	for i, a := range answers {
		if a == Seen {
			seen[crashUniverse[i]] = true
		}
	}
	return seen
}

func crashVerify(t *testing.T, s *Store, fail func(string, ...any)) {
	t.Helper()
	r, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
	if err != nil {
		fail("verify: %v", err)
	} else if !r.OK() {
		fail("verify: %+v", r.Faults)
	}
}

// crashGoOn adds to a recovered store: what is there is seen, the rest new,
// once.
func crashGoOn(t *testing.T, s *Store, there map[string]bool, fail func(string, ...any)) {
	t.Helper()
	keys := crashUniverse[:300]
	for _, again := range []bool{false, true} {
		answers := make([]Answer, len(keys))
		if err := s.AddBatch(t.Context(), keys, answers); err != nil {
			fail("add after recovery: %v", err)
			return
		}
		for i, key := range keys {
			if want := again || there[key]; (answers[i] == Seen) != want {
				fail("%s is %v after recovery, again=%v, there=%v", key, answers[i], again, there[key])
				return
			}
		}
	}
}

// TestPowerLossInCreate cuts the power before every step of the creation of a
// store. What is left opens, as a store or as a place to make one, and nothing
// stands in the way.
func TestPowerLossInCreate(t *testing.T) {
	rng := rand.New(rand.NewPCG(crashNewSeed(t), 4))
	for _, percent := range []int{0, 50, 100} {
		for n := 1; ; n++ {
			disk := crashfs.New()
			var image *crashfs.Disk
			var where string
			events := 0
			var mu sync.Mutex
			disk.SetHook(func(op crashfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if !op.Changes() {
					return nil
				}
				if events++; events == n {
					image, where = disk.Crash(rng, percent), op.Kind+" "+op.Path
				}
				return nil
			})
			s, err := Open(crashDir, crashOptions(disk, Sync, 64, nil))
			disk.SetHook(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if image == nil {
				t.Logf("%d %%: %d steps", percent, n-1)
				break
			}
			s, err = Open(crashDir, crashOptions(image, Sync, 64, nil))
			if err != nil {
				t.Errorf("cut at step %d (%s) of the creation, %d %%: %v", n, where, percent, err)
				continue
			}
			if added, err := s.Add(t.Context(), "a"); err != nil || !added {
				t.Errorf("step %d: add: %v, %v", n, added, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if r, err := verifyDir(t.Context(), crashDir, VerifyOptions{Deep: true}, crashOptions(image, Sync, 64, nil)); err != nil || !r.OK() || r.URLs != 1 {
				t.Errorf("step %d: verify: %+v, %v", n, r, err)
			}
		}
	}
}

// TestPowerLossInEachStepOfRecovery cuts the power before every step of the
// recoveries from chosen moments of a flush: what is answered then must be
// there after the next one.
func TestPowerLossInEachStepOfRecovery(t *testing.T) {
	rng := rand.New(rand.NewPCG(crashNewSeed(t), 5))
	ctx := t.Context()
	for _, point := range []string{"flush", "ingested", "released"} {
		for _, percent := range []int{0, 100} {
			disk := crashfs.New()
			var image atomic.Pointer[crashfs.Disk]
			s, err := Open(crashDir, crashOptions(disk, NoSync, 64, func(name string) {
				if name == point && image.Load() == nil {
					image.Store(disk.Crash(rand.New(rand.NewPCG(1, 1)), percent))
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if _, err := s.Add(ctx, crashKey(i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			must := 0
			if percent == 100 || point != "flush" {
				must = 20
			}
			step := 1
			for ; crashAtStep(t, rng, image.Load(), step, must); step++ {
			}
			t.Logf("%s, %d %%: %d steps", point, percent, step-1)
		}
	}
}

// crashAtStep recovers a copy of the image, cuts the power before the given
// step, and recovers again. It reports false if there are fewer steps.
func crashAtStep(t *testing.T, rng *rand.Rand, image *crashfs.Disk, step, must int) bool {
	t.Helper()
	disk := image.Clone()
	percent := []int{0, 50, 100}[rng.IntN(3)]
	var mu sync.Mutex
	var cut *crashfs.Disk
	var where string
	left := step
	disk.SetHook(func(op crashfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Changes() {
			if left--; left == 0 {
				cut, where = disk.Crash(rng, percent), op.Kind+" "+op.Path
			}
		}
		return nil
	})
	s, err := Open(crashDir, crashOptions(disk, NoSync, 64, nil))
	disk.SetHook(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if cut == nil {
		return false
	}
	fail := func(format string, args ...any) {
		t.Errorf("cut before step %d of the recovery (%s), %d %%: %s", step, where, percent, fmt.Sprintf(format, args...))
	}
	if s, err = Open(crashDir, crashOptions(cut, NoSync, 64, nil)); err != nil {
		fail("%v", err)
		return true
	}
	if n := len(crashLook(t, s)); n < must || n != int(s.Stats().URLs) {
		fail("%d keys are seen of %d URLs, want %d or more", n, s.Stats().URLs, must)
	}
	crashVerify(t, s, fail)
	if err := s.Close(); err != nil {
		fail("close: %v", err)
	}
	return true
}

// TestFileBehindTornTail recovers a log whose last file has records and stands
// wholly behind a torn tail: it is put aside, and its number is free again.
func TestFileBehindTornTail(t *testing.T) {
	disk := crashfs.New()
	hold, held := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(held) })
	s, err := Open(crashDir, crashOptions(disk, NoSync, 64, func(name string) {
		if name == "flush" {
			once()
			<-hold
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // 64 in the first log file, the others in the second
		if _, err := s.Add(t.Context(), crashKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	<-held
	image := disk.Clone()
	close(hold)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	var logs []string
	for path, b := range image.Contents(crashDir + "/log") {
		if len(b) > 1000 {
			logs = append(logs, path)
		}
	}
	slices.Sort(logs)
	if len(logs) != 2 {
		t.Fatalf("log files are %v, want two with records", logs)
	}
	if err := image.Write(logs[0], image.Read(logs[0])[:500]); err != nil {
		t.Fatal(err)
	}
	s, err = Open(crashDir, crashOptions(image, NoSync, 64, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seen := crashLook(t, s)
	for i := range len(seen) {
		if !seen[crashKey(i)] {
			t.Errorf("key %d of the first %d is lost", i, len(seen))
		}
	}
	if n := len(seen); n == 0 || n >= 64 {
		t.Errorf("%d keys are seen, want some of the first 64", n)
	}
	crashVerify(t, s, t.Errorf)
	if image.Read(logs[1]+".bad") == nil {
		t.Errorf("%s was not put aside: %v", logs[1], image.Contents(crashDir+"/log"))
	}
	// The file that has its number now is a sound one, and goes as such.
	for range 2 {
		if _, err := s.Add(t.Context(), fmt.Sprint(time.Now())); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(damageFiles(image, logDir, hasSuffix(".bad"))); n != 2 {
		t.Errorf("%d files were put aside, want 2", n)
	}
}
