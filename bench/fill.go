package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"dedupstore/store"
)

// fillOptions are the flags of fill.
type fillOptions struct {
	dir      string
	n        int
	batch    int
	memory   int64
	expected int64
	keep     bool
	crash    bool
}

func fillCommand(args []string) error {
	var o fillOptions
	f := newFlags("fill")
	f.IntVar(&o.n, "n", 2_000_000, "distinct URLs to add")
	f.StringVar(&o.dir, "store", "", "directory of the store; empty: a temporary one")
	f.IntVar(&o.batch, "batch", 1000, "URLs in a batch")
	f.Int64Var(&o.memory, "memory", 0, "Options.MemoryBytes; 0: the default")
	f.Int64Var(&o.expected, "urls", 0, "Options.ExpectedURLs; 0: the default, and the bitmap grows")
	f.BoolVar(&o.keep, "keep", false, "keep the store")
	f.BoolVar(&o.crash, "crash", false, "end without Close, as kill -9 would, and keep the store")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.batch < 1 || o.n < 10*o.batch {
		return fmt.Errorf("%d URLs are not ten batches of %d", o.n, o.batch)
	}
	fmt.Println(machine())
	return o.fill()
}

// fill adds n distinct URLs and prints a line for each tenth.
func (o *fillOptions) fill() error {
	dir, clean, err := tempStore(o.dir)
	if err != nil {
		return err
	}
	defer clean()
	s, err := store.Open(dir, &store.Options{ExpectedURLs: o.expected, MemoryBytes: o.memory, MustCreate: true})
	if err != nil {
		return err
	}
	ctx := context.Background()
	keys, answers := make([]string, o.batch), make([]store.Answer, o.batch)
	var net, gen, last time.Duration
	start := time.Now()
	fmt.Printf("%12s %10s %10s %12s %10s\n", "URLs", "M/s", "M/s here", "anon MB", "L0")
	for i, tenth := 0, o.n/10; i < o.n; {
		t := time.Now()
		for j := range keys {
			keys[j] = url(i + j)
		}
		t2 := time.Now()
		gen += t2.Sub(t)
		if err := s.AddBatch(ctx, keys, answers); err != nil {
			return err
		}
		net += time.Since(t2)
		for _, a := range answers {
			if a != store.New {
				return fmt.Errorf("a new URL was answered %v", a)
			}
		}
		i += o.batch
		if i%tenth < o.batch {
			st := s.Stats()
			fmt.Printf("%12d %10.2f %10.2f %12.1f %10d\n", i, float64(i)/net.Seconds()/1e6,
				float64(tenth)/(net-last).Seconds()/1e6, float64(rssAnon())/1e6, st.Compaction.L0Sublevels)
			last = net
		}
	}
	fmt.Printf("added %d in %.1f s net of %.1f s for URLs: %.2f M/s; wall %.1f s\n", o.n, net.Seconds(), gen.Seconds(), float64(o.n)/net.Seconds()/1e6, time.Since(start).Seconds())
	st := s.Stats()
	fmt.Printf("stalls %d, flushes %d in %v, compactions %d of %d MB\n", st.Flush.Stalls, st.Flush.Flushes, st.Flush.Time, st.Compaction.Compactions, st.Compaction.BytesWritten>>20)
	if o.crash {
		return nil
	}
	t := time.Now()
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Printf("close %v\n", time.Since(t).Round(time.Millisecond))
	bytes, err := diskBytes(dir)
	if err != nil {
		return err
	}
	fmt.Printf("disk %.2f bytes a URL\n", float64(bytes)/float64(o.n))
	if o.keep {
		fmt.Println(dir)
		return nil
	}
	return os.RemoveAll(dir)
}
