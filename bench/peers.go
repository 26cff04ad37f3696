package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A set is what takes part: it tells for each key whether it is new, and
// remembers it.
type set interface {
	addBatch(keys []string, fresh []bool) error
	close() error
}

// A peer makes sets.
type peer struct {
	name  string
	exact string // as its authors have it
	kill  string // what a killed process has lost of its answers
	open  func(dir string, n int) (set, error)
}

func peersCommand(args []string) error {
	f := newFlags("peers")
	n := f.Int("n", 1_000_000, "distinct URLs")
	batch := f.Int("batch", 1000, "URLs in a batch")
	rounds := f.Int("rounds", 1, "times that each takes its turn; the median counts")
	only := f.String("only", "", "names of the peers, separated by commas; empty: all")
	if err := f.Parse(args); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	workloads := []workload{{batch: *batch, stride: 1}, {batch: *batch, stride: 5}}
	results := map[string]*result{}
	chosen := slices.DeleteFunc(slices.Clone(peers), func(p peer) bool {
		return *only != "" && !slices.Contains(strings.Split(*only, ","), p.name)
	})
	for range *rounds {
		for _, p := range chosen {
			r := results[p.name]
			if r == nil {
				r = &result{rates: make([][]float64, len(workloads))}
				results[p.name] = r
			}
			for i, w := range workloads {
				dir := filepath.Join(tmp, "set")
				if err := r.measure(p, dir, w, i, *n); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				if err := os.RemoveAll(dir); err != nil {
					return err
				}
			}
			fmt.Fprintf(os.Stderr, "%s %.2f\n", p.name, r.rates)
		}
	}
	printTable(chosen, results, *n, *batch, *rounds)
	return nil
}

// A result is what was measured of one peer.
type result struct {
	rates [][]float64 // by workload and round, in M/s
	lost  int         // new URLs that were answered seen, all new
	disk  float64     // bytes a URL after close, all new
}

// measure runs one workload on a new set.
func (r *result) measure(p peer, dir string, w workload, index, n int) error {
	s, err := p.open(dir, n)
	if err != nil {
		return err
	}
	keys, all := make([]string, w.batch), make([]bool, w.batch)
	var net time.Duration
	asked, isNew := 0, 0
	for i := 0; i*w.fresh() < n; i++ {
		keys = w.fill(keys, i)
		fresh := all[:len(keys)]
		start := time.Now()
		if err := s.addBatch(keys, fresh); err != nil {
			return err
		}
		net += time.Since(start)
		asked += len(keys)
		for _, f := range fresh {
			if f {
				isNew++
			}
		}
	}
	r.rates[index] = append(r.rates[index], float64(asked)/net.Seconds()/1e6)
	if err := s.close(); err != nil {
		return err
	}
	if w.stride > 1 {
		return nil
	}
	r.lost = asked - isNew
	bytes, err := diskBytes(dir)
	if os.IsNotExist(err) {
		return nil // in RAM only
	}
	r.disk = float64(bytes) / float64(n)
	return err
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

func printTable(chosen []peer, results map[string]*result, n, batch, rounds int) {
	fmt.Printf("%s\n\n%d distinct URLs, batches of %d, one goroutine, median of %d rounds, M/s net of making the URLs:\n\n",
		machine(), n, batch, rounds)
	fmt.Println("| | exact | answers lost by kill -9 | all new | 80 % seen | new URLs answered seen | disk, bytes a URL |")
	fmt.Println("|---|---|---|---:|---:|---:|---:|")
	for _, p := range chosen {
		r := results[p.name]
		disk := "-"
		if r.disk > 0 {
			disk = fmt.Sprintf("%.1f", r.disk)
		}
		fmt.Printf("| %s | %s | %s | %.2f | %.2f | %d | %s |\n",
			p.name, p.exact, p.kill, median(r.rates[0]), median(r.rates[1]), r.lost, disk)
	}
}
