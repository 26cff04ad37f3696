package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dedupstore/store"
)

// grower fills a store of default options and watches what its growth costs.
type grower struct {
	dir    string
	n      int
	step   int // URLs between two measurements of the disk
	after  int // URLs before the first of them
	batch  int
	sample int // URLs of the check at the end
	s      *store.Store

	added    atomic.Int64
	building atomic.Bool // a bitmap is being built

	latencies [2][]time.Duration // of lookups without and with a build of the bitmap
	windows   []window
}

// A window is the time that some batches took.
type window struct {
	rate  float64 // URLs a second
	build bool    // of a bitmap, at its beginning or its end
}

const windowURLs = 200_000

func growCommand(args []string) error {
	g := grower{batch: 1000}
	f := newFlags("grow")
	f.IntVar(&g.n, "n", 20_000_000, "distinct URLs to add")
	f.IntVar(&g.step, "step", 10_000_000, "URLs between two looks at the disk, each after a Close")
	f.IntVar(&g.after, "after", 10_000_000, "URLs before the first of them")
	f.IntVar(&g.sample, "sample", 1_000_000, "URLs that are asked for at the end, and as many that were never added")
	f.StringVar(&g.dir, "store", "", "directory of the store; empty: a temporary one")
	if err := f.Parse(args); err != nil {
		return err
	}
	if g.n < g.step || g.step < windowURLs {
		return fmt.Errorf("%d URLs in steps of %d", g.n, g.step)
	}
	fmt.Println(machine())
	dir, clean, err := tempStore(g.dir)
	if err != nil {
		return err
	}
	defer clean()
	g.dir = dir
	return g.run()
}

func (g *grower) run() error {
	fmt.Printf("%12s %10s %12s %12s %12s\n", "URLs", "M/s here", "bytes a URL", "peak so far", "bitmap for")
	var peak float64
	for lo := 0; lo < g.n; lo += g.step {
		s, err := store.Open(g.dir, nil)
		if err != nil {
			return err
		}
		g.s = s
		stop := make(chan struct{})
		var watchers sync.WaitGroup
		watchers.Go(func() { g.watchBuilds(stop) })
		watchers.Go(func() { g.lookUp(stop) })
		watchers.Go(func() { peak = max(peak, g.watchDisk(stop)) })
		hi := min(lo+g.step, g.n)
		net, err := g.add(lo, hi)
		close(stop)
		watchers.Wait()
		if err != nil {
			return err
		}
		capacity := s.Stats().Bitmap.Capacity
		if err := s.Close(); err != nil {
			return err
		}
		bytes, err := diskBytes(g.dir)
		if err != nil {
			return err
		}
		fmt.Printf("%12d %10.2f %12.2f %12.2f %12d\n", hi, float64(hi-lo)/net.Seconds()/1e6,
			float64(bytes)/float64(hi), peak, capacity)
	}
	g.printLatencies()
	g.printRates()
	if err := g.check(); err != nil {
		return err
	}
	return os.RemoveAll(g.dir)
}

// add adds the URLs from lo to hi, and returns the time it took.
func (g *grower) add(lo, hi int) (net time.Duration, err error) {
	keys, answers := make([]string, g.batch), make([]store.Answer, g.batch)
	var inWindow time.Duration
	count, build := 0, g.building.Load()
	for i := lo; i < hi; i += g.batch {
		for j := range keys {
			keys[j] = url(i + j)
		}
		t := time.Now()
		if err := g.s.AddBatch(context.Background(), keys, answers); err != nil {
			return net, err
		}
		took := time.Since(t)
		net, inWindow = net+took, inWindow+took
		for j, a := range answers {
			if a != store.New {
				return net, fmt.Errorf("URL %d was answered %v, want new", i+j, a)
			}
		}
		g.added.Store(int64(i + g.batch))
		if count += g.batch; count >= windowURLs {
			build = build || g.building.Load()
			g.windows = append(g.windows, window{float64(count) / inWindow.Seconds(), build})
			count, inWindow, build = 0, 0, g.building.Load()
		}
	}
	return net, nil
}

// watchBuilds notes whether a bitmap is being built. Stats asks Pebble too: not
// something for each batch.
func (g *grower) watchBuilds(stop <-chan struct{}) {
	for {
		g.building.Store(strings.Contains(g.s.Stats().Build.Building, "bitmap-"))
		select {
		case <-stop:
			g.building.Store(false)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lookUp asks for one URL after the other, added or not, with a pause after
// some of them, and notes how long each took. A wrong answer ends the program.
func (g *grower) lookUp(stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(1, uint64(g.added.Load())))
	var build bool
	for i := 0; ; i++ {
		if i%64 == 0 {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			build = g.building.Load()
		}
		n := int(g.added.Load())
		if n == 0 {
			continue
		}
		which, want := rng.IntN(n), true
		if i%2 == 0 {
			which, want = g.n+rng.IntN(1<<40), false
		}
		key := url(which)
		t := time.Now()
		seen, err := g.s.Has(context.Background(), key)
		took := time.Since(t)
		if err != nil || seen != want {
			fmt.Printf("URL %d: seen is %v, want %v; error %v\n", which, seen, want, err)
			os.Exit(1)
		}
		with := 0
		if build {
			with = 1
		}
		g.latencies[with] = append(g.latencies[with], took)
	}
}

// watchDisk returns the most bytes a URL that the directory took.
func (g *grower) watchDisk(stop <-chan struct{}) (peak float64) {
	for {
		select {
		case <-stop:
			return peak
		case <-time.After(200 * time.Millisecond):
		}
		n := g.added.Load()
		bytes, err := diskBytes(g.dir)
		if err == nil && n >= int64(g.after) { // a file may be gone between two looks
			peak = max(peak, float64(bytes)/float64(n))
		}
	}
}

func (g *grower) printLatencies() {
	for with, name := range []string{"without", "with"} {
		l := g.latencies[with]
		if len(l) == 0 {
			continue
		}
		slices.Sort(l)
		at := func(q float64) time.Duration { return l[min(len(l)-1, int(q*float64(len(l))))] }
		fmt.Printf("lookups %s a build of the bitmap: %d; median %v, p99 %v, p99.99 %v, maximum %v\n",
			name, len(l), at(0.5), at(0.99), at(0.9999), l[len(l)-1])
	}
}

// printRates compares each stretch of windows with a build with as many windows
// before it.
func (g *grower) printRates() {
	median := func(ws []window) float64 {
		rates := make([]float64, len(ws))
		for i, w := range ws {
			rates[i] = w.rate
		}
		slices.Sort(rates)
		return rates[len(rates)/2]
	}
	fmt.Printf("%12s %12s %12s %12s %10s\n", "growth at", "URLs in it", "M/s before", "M/s in it", "ratio")
	for i := 0; i < len(g.windows); i++ {
		if !g.windows[i].build {
			continue
		}
		from := i
		for i < len(g.windows) && g.windows[i].build {
			i++
		}
		var before []window
		for j := from - 1; j >= 0 && !g.windows[j].build && len(before) < max(i-from, 20); j-- {
			before = append(before, g.windows[j])
		}
		if len(before) == 0 {
			continue
		}
		was, is := median(before), median(g.windows[from:i])
		fmt.Printf("%12d %12d %12.2f %12.2f %10.2f\n", from*windowURLs, (i-from)*windowURLs, was/1e6, is/1e6, is/was)
	}
}

// check asks for URLs that were added and for some that were not.
func (g *grower) check() error {
	s, err := store.Open(g.dir, nil)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(7, 7))
	wrong := 0
	keys, answers := make([]string, g.batch), make([]store.Answer, g.batch)
	for _, want := range []store.Answer{store.Seen, store.New} {
		for i := 0; i < g.sample; i += g.batch {
			for j := range keys {
				k := rng.IntN(g.n)
				if want == store.New {
					k += g.n
				}
				keys[j] = url(k)
			}
			if err := s.HasBatch(context.Background(), keys, answers); err != nil {
				return err
			}
			for _, a := range answers {
				if a != want {
					wrong++
				}
			}
		}
	}
	st := s.Stats()
	fmt.Printf("the bitmap is for %d URLs\n%d URLs; of %d sampled ones, and as many never added, %d were answered wrong\n", st.Bitmap.Capacity, st.URLs, g.sample, wrong)
	if err := s.Close(); err != nil {
		return err
	}
	if wrong > 0 || st.URLs != int64(g.n) {
		return fmt.Errorf("%d wrong answers, %d URLs of %d", wrong, st.URLs, g.n)
	}
	return nil
}
