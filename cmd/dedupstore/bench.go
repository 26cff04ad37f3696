package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const benchUsage = `Usage: dedupstore bench [FILE]

Measure a store on this machine, with the lines of FILE, plain, gzip or zstd,
"-" for standard input, or with made-up URLs of 70 bytes: how many a second are
added, added again, checked, and checked that were never added, how long a
batch of 1000 takes and how long a single call, and what the store takes of
disk and memory. The URLs are held in memory. The store is a new one and removed
at the end; no other is touched. After the adds it is closed and opened again:
"add again" reads tables, with empty caches, and "check" finds them full. They
ask for the first two million URLs.

    --urls N              URLs to make up, or lines of FILE to take: 1e6, 20M,
                          1_000_000 (default: 2 million, or all of FILE). Fewer
                          than the memory holds tell little of a large store
    --workers W           goroutines that ask for batches at the same time
                          (default: one for each CPU)
    --memory SIZE         memory of the store (default: 256MiB)
    --dir DIR             make the store below DIR (default: the working
                          directory)
    --json                print one JSON object
    --store DIR           does nothing here
    --quiet               say nothing on stderr but errors

Examples:

    dedupstore bench
    dedupstore bench --urls 20M --dir /mnt/disk
    dedupstore bench --workers 8 --json links.txt.zst
`

const (
	// benchURLs are made up if nothing else is said, and so many at most are
	// asked for again: a hundred million would take a quarter of an hour.
	benchURLs = 2_000_000
	// benchBatch is what most callers that have batches would take.
	benchBatch = 1000
	// maxSingles is how many calls with one URL are made: enough for a 99th
	// percentile, and done in a second on any disk.
	maxSingles = 20_000
	// maxWorkers keeps a slip of the finger from making a million goroutines.
	maxWorkers = 1 << 12
)

// A bench is one run of the verb.
type bench struct {
	dir     string
	urls    int64
	workers int
	options store.Options
	json    bool
}

func newBench(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "bench [FILE]", Long: benchUsage, Args: cobra.MaximumNArgs(1)}
	b := bench{dir: ".", workers: runtime.GOMAXPROCS(0)}
	cmd.Flags().Var(newValue(&b.urls, "", "N", parseCount), "urls", "")
	cmd.Flags().Var(newValue(&b.workers, "", "W", parseWorkers), "workers", "")
	memoryFlag(cmd, &b.options)
	cmd.Flags().Var(newValue(&b.dir, "", "DIR", parseDir), "dir", "")
	jsonFlag(cmd, &b.json)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		l, err := b.load(cmd.Context(), p, files)
		if err != nil {
			return err
		}
		r, err := b.run(cmd.Context(), p, l)
		switch {
		case err != nil:
			return err
		case b.json:
			return p.printJSON(r)
		}
		return p.printBench(r)
	}
	return cmd
}

func parseWorkers(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxWorkers {
		return 0, fmt.Errorf("want a whole number from 1 to %d", maxWorkers)
	}
	return n, nil
}

func (b *bench) load(ctx context.Context, p *program, files []string) (*load, error) {
	if len(files) == 0 {
		if b.urls == 0 {
			return generateLoad(benchURLs), nil
		}
		return generateLoad(b.urls), nil
	}
	n := b.urls
	if n == 0 {
		n = store.MaxExpectedURLs
	}
	return p.readLoad(ctx, files[0], n)
}

// benchReport is what bench prints.
type benchReport struct {
	Source  string            `json:"source"`
	URLs    int64             `json:"urls"` // distinct ones
	Workers int               `json:"workers"`
	Batch   int               `json:"batch"`
	Phases  []phase           `json:"phases"`
	Close   time.Duration     `json:"close_ns"` // behind the adds: they are flushed
	Open    time.Duration     `json:"open_ns"`  // behind that
	Memory  store.MemoryStats `json:"memory"`   // at the end
	// DiskBytes is what all files take after Close.
	DiskBytes int64   `json:"disk_bytes"`
	PerURL    float64 `json:"disk_bytes_per_url"`
}

// run measures in a directory of its own, which it removes.
func (b *bench) run(ctx context.Context, p *program, l *load) (r benchReport, err error) {
	dir, err := os.MkdirTemp(b.dir, "dedupstore-bench-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p.note("measuring %s URLs (%s) in %s", humanize.Comma(int64(len(l.keys))), l.source, dir)
	r = benchReport{Source: l.source, Workers: b.workers, Batch: benchBatch}
	path := filepath.Join(dir, "store")

	s, err := store.Open(path, &b.options)
	if err != nil {
		return r, err
	}
	err = b.measure(ctx, &r, "add", adder(s), l.keys)
	r.URLs = s.Stats().URLs
	began := time.Now()
	if err = closeStore(s, err); err != nil {
		return r, err
	}
	r.Close = time.Since(began)
	if r.DiskBytes, err = dirBytes(path); err != nil {
		return r, err
	}
	r.PerURL = float64(r.DiskBytes) / float64(r.URLs)

	began = time.Now()
	if s, err = store.Open(path, &b.options); err != nil {
		return r, err
	}
	r.Open = time.Since(began)
	known := l.keys[:min(len(l.keys), benchURLs)]
	err = b.measure(ctx, &r, "add again", adder(s), known)
	if err == nil {
		err = b.measure(ctx, &r, "check", checker(s), known)
	}
	if err == nil {
		err = b.measure(ctx, &r, "check, never added", checker(s), l.unknown)
	}
	r.Memory = s.Stats().Memory
	return r, closeStore(s, err)
}

// dirBytes is the size of all files below dir.
func dirBytes(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
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

// An asker asks the store, of many URLs or of one.
type asker struct {
	many func(ctx context.Context, keys []string, answers []store.Answer) error
	one  func(ctx context.Context, key string) error
}

func adder(s *store.Store) asker {
	return asker{s.AddBatch, func(ctx context.Context, key string) error {
		_, err := s.Add(ctx, key)
		return err
	}}
}

func checker(s *store.Store) asker {
	return asker{s.HasBatch, func(ctx context.Context, key string) error {
		_, err := s.Has(ctx, key)
		return err
	}}
}

// A phase is what was measured of one verb.
type phase struct {
	Name    string    `json:"name"`
	URLs    int64     `json:"urls"` // in batches
	Seconds float64   `json:"seconds"`
	Rate    float64   `json:"urls_per_second"`
	Batches latencies `json:"batches"`
	Singles latencies `json:"singles"` // one after the other, by one goroutine
}

// measure asks for the last tenth of the keys, or 20,000, one by one, after all
// others in batches.
func (b *bench) measure(ctx context.Context, r *benchReport, name string, ask asker, keys []string) error {
	singles := min(len(keys)/10, maxSingles)
	many, ones := keys[:len(keys)-singles], keys[len(keys)-singles:]
	ph := phase{Name: name, URLs: int64(len(many))}
	began := time.Now()
	batches, err := b.batches(ctx, ask, many)
	if err != nil {
		return err
	}
	ph.Seconds = time.Since(began).Seconds()
	ph.Rate = float64(ph.URLs) / ph.Seconds
	ph.Batches = latenciesOf(batches)
	took := make([]time.Duration, 0, len(ones))
	for _, key := range ones {
		if ctx.Err() != nil {
			return errInterrupted
		}
		t := time.Now()
		if err := ask.one(context.WithoutCancel(ctx), key); err != nil {
			return err
		}
		took = append(took, time.Since(t))
	}
	ph.Singles = latenciesOf(took)
	r.Phases = append(r.Phases, ph)
	return nil
}

// batches has workers take the next batch of the keys, each as soon as it is done
// with the last one, and returns how long each batch took.
func (b *bench) batches(ctx context.Context, ask asker, keys []string) ([]time.Duration, error) {
	var next atomic.Int64
	took := make([][]time.Duration, b.workers)
	errs := make([]error, b.workers)
	calls := context.WithoutCancel(ctx)
	var workers sync.WaitGroup
	for w := range b.workers {
		workers.Go(func() {
			answers := make([]store.Answer, benchBatch)
			for errs[w] == nil {
				lo := int(next.Add(benchBatch)) - benchBatch
				if lo >= len(keys) {
					return
				}
				part := keys[lo:min(lo+benchBatch, len(keys))]
				if ctx.Err() != nil {
					errs[w] = errInterrupted
					return
				}
				t := time.Now()
				errs[w] = ask.many(calls, part, answers[:len(part)])
				took[w] = append(took[w], time.Since(t))
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err // of several workers the same one, most likely
		}
	}
	return slices.Concat(took...), nil
}

// latencies are the quantiles of how long calls took, exact ones.
type latencies struct {
	Calls  int           `json:"calls"`
	Median time.Duration `json:"p50_ns"`
	P99    time.Duration `json:"p99_ns"`
	Max    time.Duration `json:"max_ns"`
}

// latenciesOf sorts what it is given.
func latenciesOf(took []time.Duration) latencies {
	n := len(took)
	if n == 0 {
		return latencies{}
	}
	slices.Sort(took)
	return latencies{Calls: n, Median: took[(n-1)/2], P99: took[(n-1)*99/100], Max: took[n-1]}
}

func (l latencies) String() string {
	return fmt.Sprintf("%s\t%s\t%s", short(l.Median), short(l.P99), short(l.Max))
}

// short is a time with three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func (p *program) printBench(r benchReport) error {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tURLs a second\tbatch p50\tp99\tmax\tsingle p50\tp99\tmax\t\n")
	for _, ph := range r.Phases {
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t\n", ph.Name, humanize.Comma(int64(ph.Rate)), ph.Batches, ph.Singles)
	}
	w.Flush()
	out.WriteByte('\n')
	if err := writeOut(p.stdout, out.Bytes()); err != nil {
		return err
	}
	m := r.Memory
	return p.printTable([]row{
		{"URLs", fmt.Sprintf("%s distinct, %s", humanize.Comma(r.URLs), r.Source)},
		{"asked by", fmt.Sprintf("%d workers, in batches of %d", r.Workers, r.Batch)},
		{"closing", fmt.Sprintf("%s, with the flush; opening %s", short(r.Close), short(r.Open))},
		{"disk", fmt.Sprintf("%s, %.1f bytes a URL", size(r.DiskBytes), r.PerURL)},
		{"memory", fmt.Sprintf("%s anonymous, %s of mapped files", size(m.Anonymous), size(m.FileBacked))},
	})
}
