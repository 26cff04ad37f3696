package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dedupstore/mmapfilter"
	"dedupstore/store"
)

// expirer keeps so many URLs live in a store in which they expire: time passes
// with the adds.
type expirer struct {
	dir       string
	live      int
	rotations int
	memory    int64
	sample    int
	namespace int // URLs of the namespace that is dropped
	batch     int
	ttl       time.Duration

	clock simulated
	s     *store.Store
	added int
}

// A simulated clock is moved by what it is to measure.
type simulated struct{ passed atomic.Int64 }

var simulatedStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *simulated) Wall() time.Time          { return simulatedStart.Add(c.Monotonic()) }
func (c *simulated) Monotonic() time.Duration { return time.Duration(c.passed.Load()) }
func (c *simulated) Boot() (time.Duration, [16]byte) {
	return c.Monotonic(), [16]byte{1}
}

// spanSeconds is the width of the time spans, and the TTL 24 of it.
const spanSeconds = 4096

func expireCommand(args []string) error {
	e := expirer{batch: 1000, ttl: 24 * spanSeconds * time.Second}
	f := newFlags("expire")
	f.IntVar(&e.live, "live", 10_000_000, "URLs that are live at a time, of a TTL of 24 spans")
	f.IntVar(&e.rotations, "rotations", 60, "spans that expire while as many URLs are added")
	f.IntVar(&e.sample, "sample", 1_000_000, "URLs that are asked for at the end, of those live, expired and never added")
	f.IntVar(&e.namespace, "namespace", 2_000_000, "URLs of a namespace that is dropped at the end")
	f.Int64Var(&e.memory, "memory", 0, "Options.MemoryBytes; 0: the default")
	f.StringVar(&e.dir, "store", "", "directory of the store; empty: a temporary one")
	if err := f.Parse(args); err != nil {
		return err
	}
	e.live -= e.live % (24 * e.batch)
	fmt.Println(machine())
	dir, clean, err := tempStore(e.dir)
	if err != nil {
		return err
	}
	defer clean()
	e.dir = dir
	return e.run()
}

func (e *expirer) run() error {
	total := e.live + e.rotations*e.live/24
	fmt.Printf("%d URLs live, %d added\n", e.live, total)
	never, err := e.fill("without TTL", store.Forever, total)
	if err != nil {
		return err
	}
	expiring, err := e.fill("with TTL", e.ttl, total)
	if err != nil {
		return err
	}
	fmt.Printf("adds with TTL / without: %.2f\n", never.Seconds()/expiring.Seconds())
	if err := e.atRest(); err != nil {
		return err
	}
	defer os.RemoveAll(e.dir)
	if err := e.check(); err != nil {
		return err
	}
	if err := e.dropBeside(); err != nil {
		return err
	}
	return e.s.Close()
}

// fill makes a store with so many URLs, one after the other. The last one that
// it makes stays.
func (e *expirer) fill(name string, ttl time.Duration, total int) (net time.Duration, err error) {
	if err := os.RemoveAll(e.dir); err != nil {
		return 0, err
	}
	e.clock.passed.Store(0)
	if e.s, err = e.open(ttl); err != nil {
		return 0, err
	}
	wrote := deviceBytes()
	keys, answers := make([]string, e.batch), make([]store.Answer, e.batch)
	step := time.Duration(int64(e.ttl) / int64(e.live/e.batch))
	fmt.Printf("%s:\n%12s %10s %12s %14s %14s %8s\n", name, "URLs", "M/s here", "live", "bytes a live", "bitmap for", "dead")
	var here time.Duration
	tenth := total / 10 / e.batch * e.batch
	for i := 0; i < total; i += e.batch {
		for j := range keys {
			keys[j] = url(i + j)
		}
		t := time.Now()
		if err := e.s.AddBatch(context.Background(), keys, answers); err != nil {
			return 0, err
		}
		here += time.Since(t)
		for j, a := range answers {
			if a != store.New {
				return 0, fmt.Errorf("URL %d was answered %v, want new", i+j, a)
			}
		}
		e.clock.passed.Add(int64(step))
		if (i+e.batch)%tenth == 0 {
			x := e.s.Stats()
			fmt.Printf("%12d %10.2f %12d %14.2f %14d %8.2f\n", i+e.batch, float64(tenth)/here.Seconds()/1e6,
				x.URLs, float64(x.Disk.Total)/float64(x.URLs), x.Bitmap.Capacity, float64(x.Bitmap.Dead)/float64(x.URLs))
			net, here = net+here, 0
		}
	}
	net += here
	e.added = total
	if err := e.s.Close(); err != nil {
		return 0, err
	}
	fmt.Printf("%d URLs in %v: %.2f M/s; %.1f device bytes a URL\n", total, net.Round(time.Millisecond),
		float64(total)/net.Seconds()/1e6, float64(deviceBytes()-wrote)/float64(total))
	return net, nil
}

func (e *expirer) open(ttl time.Duration) (*store.Store, error) {
	return store.Open(e.dir, &store.Options{TTL: ttl, Clock: &e.clock, MemoryBytes: e.memory})
}

func (e *expirer) atRest() error {
	bytes, err := diskBytes(e.dir)
	if err != nil {
		return err
	}
	if e.s, err = e.open(0); err != nil {
		return err
	}
	x := e.s.Stats()
	fmt.Printf("at rest: %d live URLs, %.2f bytes each; %d spans; bitmap for %d with %d words that have left\n",
		x.URLs, float64(bytes)/float64(x.URLs), len(x.Spans), x.Bitmap.Capacity, x.Bitmap.Dead)
	return nil
}

// check asks for URLs that are live, that have expired, and that were never
// added, and compares the bitmap with a fresh one.
func (e *expirer) check() error {
	span := e.live / 24
	for _, c := range []struct {
		name   string
		lo, hi int
		want   store.Answer
	}{
		{"live", e.added - e.live + e.batch, e.added, store.Seen},
		{"expired", 0, e.added - e.live - span - e.batch, store.New},
		{"never added", e.added, e.added + 1<<40, store.New},
	} {
		before := e.s.Stats().Bitmap
		wrong, err := e.ask(c.lo, c.hi, c.want)
		if err != nil {
			return err
		}
		after := e.s.Stats().Bitmap
		fmt.Printf("%d sampled of those %s: %d answered wrong\n", e.sample, c.name, wrong)
		if wrong > 0 {
			return fmt.Errorf("%d wrong answers", wrong)
		}
		if c.name == "never added" {
			false1, negative := after.FalseMaybes-before.FalseMaybes, after.Negatives-before.Negatives
			rate := float64(false1) / float64(false1+negative)
			words := e.s.Stats().URLs + after.Dead
			fresh, err := freshRate(filepath.Dir(e.dir), uint64(after.Capacity), int(words))
			if err != nil {
				return err
			}
			fmt.Printf("the bitmap lets %.4f %% of them through, a fresh one of its size with %d words %.4f %%: ratio %.2f\n",
				100*rate, words, 100*fresh, rate/fresh)
		}
	}
	return nil
}

func (e *expirer) ask(lo, hi int, want store.Answer) (wrong int, err error) {
	rng := rand.New(rand.NewPCG(7, 7))
	keys, answers := make([]string, e.batch), make([]store.Answer, e.batch)
	for i := 0; i < e.sample; i += e.batch {
		for j := range keys {
			keys[j] = url(lo + rng.IntN(hi-lo))
		}
		if err := e.s.HasBatch(context.Background(), keys, answers); err != nil {
			return 0, err
		}
		for _, a := range answers {
			if a != want {
				wrong++
			}
		}
	}
	return wrong, nil
}

// freshRate measures how much a new bitmap of so many words lets through.
func freshRate(dir string, capacity uint64, words int) (float64, error) {
	path := filepath.Join(dir, "fresh")
	f, err := mmapfilter.Create(mmapfilter.Files, path, mmapfilter.Header{Generation: 1, Params: mmapfilter.ParamsFor(capacity, 1)})
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	defer f.Close()
	all := make([]uint64, words)
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range all {
		all[i] = rng.Uint64()
	}
	slices.Sort(all)
	if err := f.SetSorted(all); err != nil {
		return 0, err
	}
	const asked = 10_000_000
	maybes := 0
	for range asked {
		if f.Has(rng.Uint64()) {
			maybes++
		}
	}
	return float64(maybes) / asked, nil
}

// dropBeside measures lookups without and beside drops: of 10 million URLs, or
// a quarter, that expire at once, and of a namespace.
func (e *expirer) dropBeside() error {
	ctx := context.Background()
	n, err := e.s.OpenNamespace("dropped", &store.NamespaceOptions{TTL: store.Forever})
	if err != nil {
		return err
	}
	keys, answers := make([]string, e.batch), make([]store.Answer, e.batch)
	for i := 0; i < e.namespace; i += e.batch {
		for j := range keys {
			keys[j] = url(i + j)
		}
		if err := n.AddBatch(ctx, keys, answers); err != nil {
			return err
		}
	}
	if _, err := e.s.Expire(ctx, store.ExpireOptions{}); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"alone", func() error { time.Sleep(5 * time.Second); return nil }},
		{"while URLs expire and are dropped", func() error {
			share := min(10_000_000, e.live/4)
			e.clock.passed.Add(int64(float64(e.ttl) * float64(share) / float64(e.live)))
			return nil
		}},
		{"while a namespace is dropped", func() error { return e.s.DropNamespace(ctx, "dropped") }},
	} {
		before := e.s.Stats().URLs
		stop := make(chan struct{})
		var l []time.Duration
		var lookups sync.WaitGroup
		lookups.Go(func() { l = e.lookUp(stop) })
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		err := c.do()
		if err == nil {
			_, err = e.s.Expire(ctx, store.ExpireOptions{})
		}
		took := time.Since(began)
		time.Sleep(100 * time.Millisecond)
		close(stop)
		lookups.Wait()
		if err != nil {
			return err
		}
		slices.Sort(l)
		at := func(q float64) time.Duration { return l[min(len(l)-1, int(q*float64(len(l))))] }
		fmt.Printf("lookups %s (%d URLs, %v): %d; median %v, p99 %v, p99.99 %v, maximum %v\n", c.name,
			before-e.s.Stats().URLs, took.Round(time.Millisecond), len(l), at(0.5), at(0.99), at(0.9999), l[len(l)-1])
	}
	return nil
}

// lookUp asks for one URL after the other, seen, expired or never added, with a
// pause after some of them, and returns how long each took.
func (e *expirer) lookUp(stop <-chan struct{}) (l []time.Duration) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; ; i++ {
		if i%64 == 0 {
			select {
			case <-stop:
				return l
			case <-time.After(time.Millisecond):
			}
		}
		which := rng.IntN(e.added)
		if i%2 == 0 {
			which = e.added + rng.IntN(1<<40)
		}
		key := url(which)
		t := time.Now()
		if _, err := e.s.Has(context.Background(), key); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return l
		}
		l = append(l, time.Since(t))
	}
}

// deviceBytes is how many bytes this process has had written to devices, 0
// where the kernel does not tell.
func deviceBytes() (n int64) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			fmt.Sscan(v, &n)
		}
	}
	return n
}
