package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"dedupstore/store"
)

func seenCommand(args []string) error {
	f := newFlags("seen")
	n := f.Int("n", 1_000_000, "distinct URLs; five times as many are asked")
	dir := f.String("store", "", "directory of the store; empty: a temporary one")
	batch := f.Int("batch", 1000, "URLs in a batch")
	memory := f.Int64("memory", 0, "Options.MemoryBytes; 0: the default")
	workers := f.Int("goroutines", 2, "callers of AddBatch")
	hot := f.Float64("hot", 0, "share of the seen URLs that are among the first 50,000; the others are drawn evenly")
	if err := f.Parse(args); err != nil {
		return err
	}
	path, clean, err := tempStore(*dir)
	if err != nil {
		return err
	}
	defer clean()
	s, err := store.Open(path, &store.Options{ExpectedURLs: int64(*n), MemoryBytes: *memory, MustCreate: true})
	if err != nil {
		return err
	}
	fmt.Println(machine())
	w := workload{batch: *batch, stride: 5, hot: *hot}
	if err := seenRun(s, w, *n, *workers); err != nil {
		return err
	}
	return s.Close()
}

// seenRun asks 5n URLs of which n are new, and prints the rate.
func seenRun(s *store.Store, w workload, n, workers int) error {
	var next, fresh, asked, netNanos atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			keys, answers := make([]string, w.batch), make([]store.Answer, w.batch)
			for {
				i := int(next.Add(1)) - 1
				if i*w.fresh() >= n {
					return
				}
				keys = w.fill(keys, i)
				answers := answers[:len(keys)]
				start := time.Now()
				if errs[g] = s.AddBatch(context.Background(), keys, answers); errs[g] != nil {
					return
				}
				netNanos.Add(int64(time.Since(start)))
				asked.Add(int64(len(keys)))
				for _, a := range answers {
					if a == store.New {
						fresh.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if want := int64(next.Load()-int64(workers)) * int64(w.fresh()); fresh.Load() != want {
		return fmt.Errorf("%d URLs were answered new, want %d", fresh.Load(), want)
	}
	net := float64(netNanos.Load()) / float64(workers) / 1e9
	st := s.Stats()
	fmt.Printf("asked %d, new %d, by %d goroutines: %.2f M/s\n", asked.Load(), fresh.Load(), workers, float64(asked.Load())/net/1e6)
	fmt.Printf("answered by the cache %d, Gets %d, maybes that were none %d, stalls %d\n",
		st.Cache.Hits, st.Cache.Gets, st.Bitmap.FalseMaybes, st.Flush.Stalls)
	return nil
}
