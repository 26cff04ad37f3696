package store

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
)

// TestLivesAtOnce has diarists, who add, forget, drop namespaces, let time pass,
// expire and flush, and others who add and forget the same few keys, and look at
// everything, at once. Each answer of a diarist is checked; of the shared keys
// each is new once more than it was forgotten, or as often.
func TestLivesAtOnce(t *testing.T) {
	const shared = 40
	for how, excise := range excisions {
		t.Run(how, func(t *testing.T) {
			w := &livesWorld{
				t: t, disk: crashfs.New(), clock: newFakeClock(), level: Interval, memtable: 100, excise: excise, rng: seeded(t),
			}
			w.begin(3)
			var err error
			w.s, err = Open(crashDir, w.options(nil))
			must(t, err)
			n, err := w.s.OpenNamespace("shared", nil)
			must(t, err)
			var live [shared]atomic.Int64
			ctx := t.Context()
			stop := make(chan struct{})
			var work, watch sync.WaitGroup
			for i := range w.cuts {
				d := w.diarist(i, w.cuts[i].d)
				work.Go(func() {
					if err := d.open(); err != nil {
						t.Error(err)
					}
					for range 600 / damageThin {
						if err := d.step(ctx); err != nil {
							t.Errorf("diarist %d: %v", i, err)
							return
						}
					}
				})
			}
			for range 3 {
				rng := rand.New(rand.NewPCG(w.rng.Uint64(), 1))
				work.Go(func() {
					for range 3000 / damageThin {
						runtime.Gosched() // leave some to others
						i := rng.IntN(shared)
						if rng.IntN(3) > 0 {
							added, err := n.Add(ctx, key(i))
							if err != nil {
								t.Error(err)
								return
							}
							if added {
								live[i].Add(1)
							}
							continue
						}
						removed, err := n.Forget(ctx, key(i))
						if err != nil {
							t.Error(err)
							return
						}
						live[i].Add(-int64(removed))
					}
				})
			}
			watch.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
					}
					for x := range w.s.Namespaces() {
						if x.URLs < 0 || x.Name == "shared" && x.URLs > shared {
							t.Errorf("namespace %q has %d URLs", x.Name, x.URLs)
						}
					}
					crashVerify(t, w.s, t.Errorf)
				}
			})
			work.Wait()
			close(stop)
			watch.Wait()
			if t.Failed() {
				return
			}
			urls := int64(0)
			for i := range live {
				seen, err := n.Has(ctx, key(i))
				must(t, err)
				if got := live[i].Load(); got != 0 && got != 1 || seen != (got == 1) {
					t.Errorf("key %d was new %d times more than forgotten, and seen is %v", i, got, seen)
				}
				urls += live[i].Load()
			}
			for x := range w.s.Namespaces() {
				if x.Name == "shared" && x.URLs != urls {
					t.Errorf("%d URLs are shared, want %d", x.URLs, urls)
				}
			}
			must(t, w.s.DropNamespace(ctx, "shared"))
			w.check(t.Errorf)
			must(t, w.s.Close())
			if r, err := verifyDir(ctx, crashDir, VerifyOptions{Deep: true}, w.options(nil)); err != nil || !r.OK() {
				t.Errorf("verify: %v, %+v", err, r)
			}
		})
	}
}
