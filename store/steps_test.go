package store

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// steps are the points that the maintainer passes in a close, a flush, a build
// and a switch, and a recovery.
var steps = []string{
	"freeze", "flush", "filter-made", "ingested", "released", "unlinked",
	"build-begun", "build-step", "build-synced", "build-switched", "build-removed",
	"pages-checked", "recovered-file",
}

// dropSteps are those of a drop.
var dropSteps = []string{"drop", "dropped", "drop-removed"}

// countSteps are those that builds with counters pass besides.
var countSteps = append([]string{
	"build-counted", "counters-synced", "counters-renamed", "counters-removed", "uncounted",
}, dropSteps...)

// A cut is a world as a power loss at a step has left it, and how many keys
// were answered before it was taken, and after.
type cut struct {
	w               *world
	answered, after int64
	at              string
}

// cutter cuts the power at the steps that a world's stores pass: the first of
// each name, and some more.
type cutter struct {
	rng      *rand.Rand
	percent  int
	passages int // see cutsOfStep; 0: so many
	answered atomic.Int64

	mu     sync.Mutex // an Add freezes too
	passed map[string]int
	cuts   []cut
}

// cutsOfStep returns up to which passage of a step the power is cut: at the
// 1st, 2nd, 4th and so on below it.
func cutsOfStep() int {
	if *crashAllCalls {
		return 1 << 3
	}
	return 2
}

// watch has the cutter at each step.
func (c *cutter) watch(w *world) {
	c.passed = map[string]int{}
	w.point = func(name string) {
		if !slices.Contains(steps, name) && !slices.Contains(countSteps, name) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		n := c.passed[name]
		c.passed[name]++
		if n&(n-1) != 0 || n >= cmp.Or(c.passages, cutsOfStep()) {
			return
		}
		now := cut{at: name, answered: c.answered.Load()}
		now.w = w.crash(c.rng, c.percent)
		now.after = c.answered.Load()
		c.cuts = append(c.cuts, now)
	}
}

// TestCrashAtEachStep cuts the power at every step of closes, flushes, builds
// and switches, with none, half and all of what was not synced, and again at
// every step of the recoveries. All of it is what kill -9 leaves too. Each time
// the store opens, has exactly what was answered, or that and what was on its
// way, and comes to its end.
func TestCrashAtEachStep(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			const n, batch = 3000, 100
			c := &cutter{rng: seeded(t), percent: percent}
			w := inMemory(t).spanned()
			w.o.ExpectedURLs, w.o.Durability = 100, Sync
			c.watch(w)
			s := w.open()
			for i := 0; i < n; i += batch {
				s.add(New, keys(i, i+batch)...)
				c.answered.Add(batch)
			}
			s.flush()
			s.healthy()
			s.close()
			passed := map[string]int{}
			again := 0
			for _, first := range c.cuts {
				passed[first.at]++
				r := &cutter{rng: c.rng, percent: percent}
				r.answered.Store(first.answered)
				r.watch(first.w)
				finish(t, first, batch, 10_000)
				for _, second := range r.cuts {
					passed[second.at]++
					again++
					// It may have what finish has added to the first.
					second.w.point, second.after = nil, first.after+batch
					finish(t, second, batch, 20_000)
				}
			}
			for _, step := range steps {
				if passed[step] == 0 {
					t.Errorf("nothing was cut at %q", step)
				}
			}
			t.Logf("%d cuts, and %d of their recoveries: %v", len(c.cuts), again, passed)
		})
	}
}

// finish opens what a cut has left, counts, adds a batch of fresh keys and
// closes. Up to a batch was on its way.
func finish(t *testing.T, c cut, batch, fresh int) {
	t.Helper()
	s := c.w.open()
	urls := s.Stats().URLs
	if urls < c.answered || urls > c.after+int64(batch) {
		t.Errorf("cut at %s: %d URLs, %d were answered", c.at, urls, c.answered)
	}
	s.has(Seen, keys(0, int(c.answered))...)
	s.healthy()
	s.add(Seen, keys(0, int(c.answered))...)
	s.has(New, keys(fresh, fresh+batch)...)
	s.add(New, keys(fresh, fresh+batch)...)
	s.urls(int(urls) + batch)
	s.close()
}

// TestCrashAtEachCountStep does so with builds from counters: words come, expire
// and are subtracted, and the counters are made, made again, and let go.
func TestCrashAtEachCountStep(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			const n, day, live = 300, 24 * time.Hour, 4
			cuts := &cutter{rng: seeded(t), percent: percent, passages: 2 * cutsOfStep()}
			w, c := counted(inMemory(t))
			w.o.Durability = Sync
			cuts.watch(w)
			s := w.open()
			for i := range 10 {
				s.with(live*day).add(New, keys(i*n, i*n+n)...)
				cuts.answered.Store(int64(i + 1))
				s.flush()
				c.pass(day)
				s.expire()
			}
			s.close()
			w.o.Counters = false
			s = w.open()
			s.idle()
			s.close()
			passed := map[string]int{}
			for _, cut := range cuts.cuts {
				passed[cut.at]++
				finishCounted(t, cut, n, live)
			}
			for _, step := range countSteps {
				if passed[step] == 0 {
					t.Errorf("nothing was cut at %q", step)
				}
			}
			t.Logf("%d cuts: %v", len(cuts.cuts), passed)
		})
	}
}

// finishCounted opens what a cut has left, on the last day, and goes on. The
// count of what was answered is in days.
func finishCounted(t *testing.T, c cut, n, live int) {
	t.Helper()
	s := c.w.open()
	days := int(c.answered)
	s.has(New, keys(0, max(0, 10-live)*n)...)
	s.has(Seen, keys(min(days, 10-live+1)*n, days*n)...)
	s.healthy()
	s.expire()
	s.has(Seen, keys(min(days, 10-live+1)*n, days*n)...)
	s.with(time.Hour).add(New, keys(10_000, 10_100)...)
	s.idle()
	s.close()
}
