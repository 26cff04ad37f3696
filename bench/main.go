// Command bench measures the store with generated URLs: distinct ones, all
// new, from one goroutine in batches, as a crawler's frontier sends them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"dedupstore/store"
)

func main() {
	n := flag.Int("n", 20_000_000, "distinct URLs to add")
	dir := flag.String("store", "", "directory of the store; empty: a temporary one")
	batch := flag.Int("batch", 1000, "URLs in a batch")
	memory := flag.Int64("memory", 0, "Options.MemoryBytes")
	keep := flag.Bool("keep", false, "keep the store")
	skipClose := flag.Bool("crash", false, "end without Close, as kill -9 would")
	flag.Parse()
	if err := fill(*dir, *n, *batch, *memory, *keep, *skipClose); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// fill adds n distinct URLs and prints a line for each tenth.
func fill(dir string, n, batch int, memory int64, keep, crash bool) error {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		dir = filepath.Join(tmp, "store")
	}
	s, err := store.Open(dir, &store.Options{ExpectedURLs: int64(n), MemoryBytes: memory, MustCreate: true})
	if err != nil {
		return err
	}
	ctx := context.Background()
	keys, answers := make([]string, batch), make([]store.Answer, batch)
	var net, gen, last time.Duration
	start := time.Now()
	fmt.Printf("%12s %10s %10s %12s %10s\n", "URLs", "M/s", "M/s here", "anon MB", "L0")
	for i, tenth := 0, n/10; i < n; {
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
		i += batch
		if i%tenth < batch {
			st := s.Stats()
			fmt.Printf("%12d %10.2f %10.2f %12.1f %10d\n", i, float64(i)/net.Seconds()/1e6,
				float64(tenth)/(net-last).Seconds()/1e6, float64(rssAnon())/1e6, st.Compaction.L0Sublevels)
			last = net
		}
	}
	fmt.Printf("added %d in %.1f s net of %.1f s for URLs: %.2f M/s; wall %.1f s\n", n, net.Seconds(), gen.Seconds(), float64(n)/net.Seconds()/1e6, time.Since(start).Seconds())
	st := s.Stats()
	fmt.Printf("stalls %d, flushes %d in %v, compactions %d of %d MB\n", st.Flush.Stalls, st.Flush.Flushes, st.Flush.Time, st.Compaction.Compactions, st.Compaction.BytesWritten>>20)
	if crash {
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
	fmt.Printf("disk %.2f bytes a URL\n", float64(bytes)/float64(n))
	if keep {
		fmt.Println(dir)
		return nil
	}
	return os.RemoveAll(dir)
}

// url makes the i-th of a sequence of distinct URLs, 60 to 75 bytes long.
func url(i int) string {
	x := uint64(i) * 0x9e3779b97f4a7c15
	b := make([]byte, 0, 80)
	b = append(b, "https://www.example-"...)
	b = strconv.AppendUint(b, x%9973, 10)
	b = append(b, ".org/articles/"...)
	b = strconv.AppendUint(b, x>>40, 36)
	b = append(b, "/page?id="...)
	b = strconv.AppendUint(b, uint64(i), 10)
	return string(append(b, "&ref=list"...))
}

func diskBytes(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// rssAnon is the process's anonymous memory, 0 where the kernel does not tell.
func rssAnon() int64 {
	runtime.GC()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}
