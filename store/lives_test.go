package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
)

// The power goes, or the disk fails, while keys are added, forgotten, dropped
// with their namespaces, and expire. What must be there then is in diaries.

// livesWorld is a store, its disk and its clock, and those who work on it.
type livesWorld struct {
	t        *testing.T
	disk     *crashfs.Disk
	clock    *fakeClock
	level    Durability
	memtable int
	excise   int64
	counters bool
	s        *Store

	mu     sync.Mutex
	rng    *rand.Rand
	cuts   []diaryCut // what the diaries are, as of the last crash
	images []livesImage
	passed map[string]int
}

// livesImage is what a crash has left.
type livesImage struct {
	disk    *crashfs.Disk
	clock   *fakeClock
	cuts    []diaryCut
	where   string
	percent int
}

// clone is a clock that goes on by itself.
func (c *fakeClock) clone() *fakeClock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &fakeClock{wall: c.wall, mono: c.mono, boot: c.boot, bootID: c.bootID}
}

// excisions are the ways in which all drops are made: by excisions, and by range
// tombstones.
var excisions = map[string]int64{"excised": 1, "tombstones": 1 << 40}

func (w *livesWorld) options(point func(string)) *Options {
	o := crashOptions(w.disk, w.level, w.memtable, point)
	o.Clock = w.clock
	o.Counters = w.counters
	o.seams.SpanWords, o.seams.BuildWords, o.seams.ExciseWords = 200, 100, w.excise
	return o
}

// livesSpaces are the namespaces of one diarist.
func livesSpaces(i int) []diarySpace {
	return []diarySpace{{"", Forever}, {fmt.Sprint("a", i), Forever}, {fmt.Sprint("b", i), time.Hour}}
}

// diarist is the i-th one. Its diary says what the last crash has left.
func (w *livesWorld) diarist(i int, d *diary) *diarist {
	return &diarist{
		account: d, s: w.s, clock: w.clock, rng: rand.New(rand.NewPCG(w.rng.Uint64(), uint64(i))),
		spaces: livesSpaces(i), prefix: fmt.Sprint("host", i), keys: 60,
	}
}

// begin makes the diaries.
func (w *livesWorld) begin(n int) {
	for range n {
		w.cuts = append(w.cuts, diaryCut{d: newDiary(w.level)})
	}
}

// cut takes images of what a crash at this moment leaves.
func (w *livesWorld) cut(where string, percents ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, percent := range percents {
		image := livesImage{where: where, percent: percent, cuts: slices.Clone(w.cuts)}
		fresh := make([]bool, len(w.cuts))
		for i := range image.cuts {
			c := &image.cuts[i]
			if fresh[i] = !c.crashed; fresh[i] { // else the last crash has left it
				c.from, c.all, c.crashed = c.d.moment(), percent == 100, true
			}
		}
		image.disk = w.disk.Crash(w.rng, percent)
		image.clock = w.clock.clone() // not before: it never goes back
		for i := range image.cuts {
			if fresh[i] {
				image.cuts[i].to = image.cuts[i].d.moment()
			}
		}
		w.images = append(w.images, image)
	}
}

// atSteps cuts the power at the steps that the maintainer passes: the first of
// each name, and some more.
func (w *livesWorld) atSteps(percent int) func(string) {
	w.passed = map[string]int{}
	return func(name string) {
		if !slices.Contains(steps, name) && !slices.Contains(countSteps, name) && name != "append" {
			return
		}
		w.mu.Lock()
		n := w.passed[name]
		w.passed[name]++
		w.mu.Unlock()
		if n&(n-1) == 0 && n < cutsOfStep() {
			w.cut(name, percent)
		}
	}
}

// recover opens what a crash has left, compares it with the diaries, and goes on
// for a while. It is cut again by what point is given. Whatever it is at the
// end, it is again after a Close.
func (image *livesImage) recover(w *livesWorld, point func(*livesWorld) func(string)) (again []livesImage) {
	t := w.t
	t.Helper()
	after := &livesWorld{
		t: t, disk: image.disk, clock: image.clock, level: w.level, memtable: w.memtable, excise: w.excise, counters: w.counters,
		rng: w.rng, cuts: image.cuts,
	}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("cut at %s, %d %%: %s", image.where, image.percent, fmt.Sprintf(format, args...))
	}
	if w.rng.IntN(3) == 0 {
		image.clock.reboot(time.Minute)
	}
	o := after.options(nil)
	if point != nil {
		o.seams.Point = point(after)
	}
	var err error
	if after.s, err = Open(crashDir, o); err != nil {
		fail("open: %v", err)
		return nil
	}
	after.check(fail)
	for i := range after.cuts {
		d := after.diarist(i, after.cuts[i].d)
		for range 15 {
			if err := d.step(context.Background()); err != nil {
				fail("goes on: %v", err)
				return nil
			}
		}
	}
	after.check(fail)
	if err := after.s.Close(); err != nil {
		fail("close: %v", err)
		return nil
	}
	bare := after.disk.Crash(w.rng, 0)
	if point == nil {
		after.disk = bare // one of the two is enough
	}
	for range 2 {
		if r, err := verifyDir(t.Context(), crashDir, VerifyOptions{Deep: true}, after.options(nil)); err != nil || !r.OK() {
			fail("verify after close: %v, %+v", err, r)
		}
		if after.s, err = Open(crashDir, after.options(nil)); err != nil {
			fail("open again: %v", err)
			return nil
		}
		after.check(fail)
		if err := after.s.Close(); err != nil {
			fail("close again: %v", err)
		}
		if after.disk == bare {
			break
		}
		after.disk = bare
	}
	return after.images
}

// check compares a store that nobody works on with the diaries, verifies it and
// counts. What it has after a crash is not taken back by another one: from then
// on the diaries say that.
func (w *livesWorld) check(fail func(string, ...any)) {
	w.t.Helper()
	want := map[string]int64{}
	resolved := slices.Clone(w.cuts)
	for i, c := range w.cuts {
		if !c.crashed {
			c.from = c.d.moment()
			c.to, c.all = c.from, true
		}
		who := w.diarist(i, c.d)
		if err := who.open(); err != nil {
			fail("open a namespace: %v", err)
			return
		}
		seen := who.look(w.t)
		for k := range seen {
			want[who.spaces[k.space].name]++
		}
		d, err := c.resolve(seen, who.now())
		if err != nil {
			fail("diarist %d: %v", i, err)
			return
		}
		if c.crashed {
			resolved[i] = diaryCut{d: d}
		}
	}
	w.mu.Lock()
	w.cuts = resolved
	w.mu.Unlock()
	var urls int64
	for n := range w.s.Namespaces() {
		urls += n.URLs
		if n.URLs != want[n.Name] {
			fail("namespace %q has %d URLs, and %d are seen", n.Name, n.URLs, want[n.Name])
		}
	}
	if got := w.s.Stats().URLs; got != urls {
		fail("%d URLs, and %d in the namespaces", got, urls)
	}
	crashVerify(w.t, w.s, fail)
}

// TestLivesAtEachStep cuts the power at every step of closes, flushes, drops,
// builds and switches, with none, half and all of what was not synced, and again
// at every step of the recoveries and of what follows them.
func TestLivesAtEachStep(t *testing.T) {
	for how, excise := range excisions {
		for _, percent := range []int{0, 50, 100} {
			t.Run(fmt.Sprint(how, percent), func(t *testing.T) {
				t.Parallel()
				rng := lockedRand(crashNewSeed(t), uint64(percent))
				w := &livesWorld{
					counters: rng.IntN(2) == 0,
					t:        t, disk: crashfs.New(), clock: newFakeClock(), excise: excise, memtable: 40, rng: rng,
					level: []Durability{Sync, Interval, NoSync}[rng.IntN(3)],
				}
				w.begin(1)
				var err error
				w.s, err = Open(crashDir, w.options(w.atSteps(percent)))
				must(t, err)
				d := w.diarist(0, w.cuts[0].d)
				must(t, d.open())
				for range 300 {
					if err := d.step(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				must(t, w.s.Close())
				passed, again := map[string]int{}, 0
				for _, first := range w.images {
					passed[first.where]++
					for _, second := range first.recover(w, func(w *livesWorld) func(string) { return w.atSteps(percent) }) {
						if passed[second.where]++; passed[second.where] > cutsOfStep() {
							continue
						}
						again++
						second.where = first.where + ", then " + second.where
						second.recover(w, nil)
					}
					if t.Failed() {
						return
					}
				}
				for _, step := range slices.Concat([]string{"append"}, steps, dropSteps) {
					if passed[step] == 0 && step != "pages-checked" {
						t.Errorf("nothing was cut at %q", step)
					}
				}
				t.Logf("%v: %d cuts, and %d of their recoveries: %v", w.level, len(w.images), again, passed)
			})
		}
	}
}

// TestLivesAndPowerLoss cuts the power while three work at once, before calls of
// the file system.
func TestLivesAndPowerLoss(t *testing.T) {
	rng := lockedRand(crashNewSeed(t), 11)
	levels := []Durability{Sync, Interval, NoSync}
	recoveries, again := 0, 0
	for round := 0; recoveries < 3**crashPoints/2; round++ {
		w := &livesWorld{
			counters: rng.IntN(2) == 0,
			t:        t, disk: crashfs.New(), clock: newFakeClock(), level: levels[round%3],
			memtable: []int{16, 60, 300}[rng.IntN(3)], excise: []int64{1, 30, 1 << 40}[rng.IntN(3)],
			rng: lockedRand(rng.Uint64(), 2),
		}
		w.begin(3)
		var err error
		w.s, err = Open(crashDir, w.options(nil))
		must(t, err)
		var events, target, done atomic.Int64
		target.Store(1 + rng.Int64N(600))
		w.disk.SetHook(func(op crashfs.Op) error {
			at := target.Load()
			if !op.Changes() || events.Add(1) < at || !target.CompareAndSwap(at, 1<<62) {
				return nil
			}
			w.cut(op.Kind+" "+op.Path, 0, 50, 100)
			if done.Add(1) < 3 {
				target.Store(events.Load() + 1 + int64(op.Path[0]) + events.Load()%300)
			}
			return nil
		})
		var wg sync.WaitGroup
		for i := range w.cuts {
			d := w.diarist(i, w.cuts[i].d)
			wg.Go(func() {
				if err := d.open(); err != nil {
					t.Error(err)
				}
				for n := 0; n < 2000 && done.Load() < 3 && !t.Failed(); n++ {
					if err := d.step(t.Context()); err != nil {
						t.Errorf("diarist %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		w.disk.SetHook(nil)
		must(t, w.s.Close())
		for _, image := range w.images {
			recoveries++
			n := rng.Int64N(70)
			var passed atomic.Int64
			disk := image.disk
			seconds := image.recover(w, func(after *livesWorld) func(string) {
				disk.SetHook(func(op crashfs.Op) error {
					if op.Changes() && passed.Add(1) == n {
						after.cut(op.Kind+" "+op.Path, 50)
					}
					return nil
				})
				return nil
			})
			disk.SetHook(nil)
			for _, second := range seconds {
				again++
				second.where = image.where + ", then " + second.where
				second.recover(w, nil)
			}
		}
		if t.Failed() {
			t.Fatalf("round %d, level %v, memtables of %d words, excisions of %d", round, w.level, w.memtable, w.excise)
		}
	}
	t.Logf("%d recoveries, %d crashes in a recovery", recoveries, again)
}

// TestEveryCallFailsInLives fails the n-th call of the file system, for every n:
// with a full disk and with an error of the disk, once and from then on.
func TestEveryCallFailsInLives(t *testing.T) {
	rng := lockedRand(crashNewSeed(t), 12)
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for _, sticky := range []bool{false, true} {
			counts := map[string]int{}
			for n := int64(1); ; n++ {
				if !*crashAllCalls {
					n += rng.Int64N(40)
				}
				if done := livesFail(t, rng, errno, sticky, n, counts); done || t.Failed() {
					t.Logf("%v, sticky %v: %d calls: %v", errno, sticky, n-1, counts)
					break
				}
			}
		}
	}
}

// livesFail fails one call. It reports that there are not so many.
func livesFail(t *testing.T, rng *rand.Rand, errno syscall.Errno, sticky bool, n int64, counts map[string]int) (done bool) {
	w := &livesWorld{
		t: t, disk: crashfs.New(), clock: newFakeClock(), level: Sync, memtable: 40,
		excise: []int64{1, 1 << 40}[n%2], counters: n%4 < 2, rng: rng,
	}
	w.begin(1)
	f := &crashfs.Failures{Err: errno, N: n, Sticky: sticky, Can: func(op crashfs.Op) bool { return crashCanFail(op, errno) }}
	w.disk.Fail(f)
	what := fmt.Sprintf("%v at call %d, sticky %v", errno, n, sticky)
	crashWithin(t, what, func() {
		var err error
		if w.s, err = Open(crashDir, w.options(nil)); err != nil {
			counts["open fails"]++
			return
		}
		d := w.diarist(0, w.cuts[0].d)
		d.tolerant = true
		if err := d.open(); err != nil {
			counts["open fails"]++
			w.s.Close()
			return
		}
		d.rng = rand.New(rand.NewPCG(uint64(n), 3))
		ctx, cancel := context.WithTimeout(t.Context(), crashDeadline)
		defer cancel()
		for range 80 {
			if err := d.step(ctx); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		err = w.s.Close()
		switch {
		case err == nil:
			counts["unnoticed"]++
		case errors.Is(err, ErrPoisoned):
			counts["poisoned"]++
		case errors.Is(err, ErrDiskFull):
			counts["disk full"]++
		case crashTyped(err, errno):
			counts["close fails"]++
		default:
			t.Errorf("%s: close: %v", what, err)
		}
	})
	if f.Calls() < n {
		return true
	}
	w.disk.SetHook(nil)
	what += " (" + f.Where() + ")"
	if !crashHasStore(w.disk) {
		return false
	}
	for _, percent := range []int{0, 100} {
		w.cut(what, percent)
	}
	crashWithin(t, what+": reopen", func() {
		for _, image := range w.images {
			image.recover(w, nil)
		}
	})
	return false
}
