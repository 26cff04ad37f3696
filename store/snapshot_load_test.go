package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ownKey is the i-th key of an adder.
func ownKey(adder, i int) string { return fmt.Sprintf("https://%d.example.com/%d", adder, i) }

// TestSnapshotUnderLoad makes snapshots while goroutines add, each its own keys
// in order, through memtables that hold a twentieth of them. A copy must hold of
// each goroutine all keys up to one and none behind it: no fewer than were
// answered before the call, and no more than were begun when it returned. A
// longer run, of which the log tells the longest add:
//
//	go test ./store -run '^TestSnapshotUnderLoad$' -store.keys 5000000 -timeout 1h -v
func TestSnapshotUnderLoad(t *testing.T) {
	const adders, snapshots = 8, 4
	n := *adderKeys / adders
	w := onDisk(t)
	w.o = Options{ExpectedURLs: int64(*adderKeys), MemoryBytes: 32 << 20}
	w.memtableWords = max(*adderKeys/20, 1000)
	w.spanWords = int64(*adderKeys) / 3
	s := w.open()

	var begun, answered [adders]atomic.Int64
	var longest [adders]time.Duration
	due := make(chan struct{}, snapshots)
	var wg sync.WaitGroup
	for a := range adders {
		wg.Go(func() {
			if a == 0 {
				defer close(due)
			}
			for i := range n {
				if a == 0 && i%(n/snapshots) == 0 && i < n/snapshots*snapshots {
					due <- struct{}{}
				}
				start := time.Now()
				begun[a].Add(1)
				added, err := s.Add(context.Background(), ownKey(a, i))
				if err != nil || !added {
					t.Errorf("Add: got %v, %v", added, err)
					return
				}
				answered[a].Add(1)
				longest[a] = max(longest[a], time.Since(start))
			}
		})
	}
	type taken struct {
		w             *world
		before, after [adders]int64
	}
	var all []taken
	for range due {
		now := taken{w: w.restored(filepath.Join(filepath.Dir(w.dir), fmt.Sprint("copy", len(all))))}
		for a := range adders {
			now.before[a] = answered[a].Load()
		}
		must(t, s.Snapshot(t.Context(), now.w.dir))
		for a := range adders {
			now.after[a] = begun[a].Load()
		}
		x := s.Stats().Snapshots
		t.Logf("%d URLs in %v, flushes waited for %v", x.URLs, x.Time, x.FlushesHeld)
		all = append(all, now)
	}
	wg.Wait()
	t.Logf("the longest add took %v", slices.Max(longest[:]))
	s.urls(n * adders)
	for _, now := range all {
		now.w.verify()
		c := now.w.open()
		urls := 0
		for a := range adders {
			has, answers := make([]string, n), make([]Answer, n)
			for i := range has {
				has[i] = ownKey(a, i)
			}
			must(t, c.HasBatch(t.Context(), has, answers))
			end := 0
			for end < n && answers[end] == Seen {
				end++
			}
			for i := end; i < n; i++ {
				if answers[i] != New {
					t.Fatalf("%s: adder %d: key %d is there, and key %d is not", now.w.dir, a, i, end)
				}
			}
			if int64(end) < now.before[a] || int64(end) > now.after[a] {
				t.Errorf("%s: adder %d: %d keys are there, want %d to %d", now.w.dir, a, end, now.before[a], now.after[a])
			}
			urls += end
		}
		c.urls(urls)
		c.close()
	}
}

// BenchmarkAddDuringSnapshot adds batches of 1,000 while snapshots are made one
// after the other, and while none is. The figures are the longest batch's, and
// for how long a snapshot kept flushes waiting.
func BenchmarkAddDuringSnapshot(b *testing.B) {
	for _, snapshots := range []bool{false, true} {
		b.Run(fmt.Sprintf("snapshots=%v", snapshots), func(b *testing.B) {
			w := onDisk(b)
			w.o = Options{ExpectedURLs: 20_000_000, MemoryBytes: 256 << 20}
			s := mustOpen(b, w.dir, w.options())
			ctx, cancel := context.WithCancel(b.Context())
			var held time.Duration
			taken := start(func() {
				for i := 0; snapshots && ctx.Err() == nil; i++ {
					dir := fmt.Sprint(w.dir, ".copy", i)
					if err := s.Snapshot(ctx, dir); err == nil {
						held = max(held, s.Stats().Snapshots.FlushesHeld)
					}
					must(b, os.RemoveAll(dir))
				}
			})
			var longest time.Duration
			batch, answers := make([]string, 1000), make([]Answer, 1000)
			for n := 0; b.Loop(); n += len(batch) {
				for i := range batch {
					batch[i] = key(n + i)
				}
				began := time.Now()
				must(b, s.AddBatch(b.Context(), batch, answers))
				longest = max(longest, time.Since(began))
			}
			cancel()
			<-taken
			b.ReportMetric(float64(longest.Microseconds())/1e3, "ms/longest")
			b.ReportMetric(float64(held.Microseconds())/1e3, "ms/held")
			must(b, s.Close())
		})
	}
}
