package store

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

var deadBits = flag.Int("deadbits", 400_000, "live words of BenchmarkDeadBits")

// used is what the process has used.
type used struct {
	cpu, wall time.Duration
	written   int64 // bytes of pages that were made dirty
	read      int64 // bytes, by system calls
	fetched   int64 // bytes of those that the page cache did not have
}

func usedSoFar(b *testing.B) (u used) {
	var r syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	u.wall = time.Duration(time.Now().UnixNano())
	f, err := os.Open("/proc/self/io")
	must(b, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n int64
		name, value, _ := strings.Cut(lines.Text(), ": ")
		fmt.Sscan(value, &n)
		switch name {
		case "write_bytes":
			u.written = n
		case "rchar":
			u.read = n
		case "read_bytes":
			u.fetched = n
		}
	}
	return u
}

// BenchmarkDeadBits has a quarter of the words of one store come and a quarter
// go, and then a 24th, three times each, and builds the bitmap each time from
// counters and from Pebble.
func BenchmarkDeadBits(b *testing.B) {
	n := *deadBits
	w := onDisk(b)
	clock := newFakeClock()
	w.o = Options{Clock: clock, Counters: true, ExpectedURLs: int64(n) * 5 / 4, Durability: NoSync}
	s := mustOpen(b, w.dir, w.options())
	defer func() { must(b, s.Close()) }()
	s.maintainer.mu.Lock()
	s.maintainer.noBuildBefore = time.Now().Add(24 * time.Hour)
	s.maintainer.mu.Unlock()
	next := 0
	batch, answers := make([]string, 4000), make([]Answer, 4000)
	pass := func(spans int) { // of four hours each, 24 are a TTL
		for range spans {
			for end := next + n/24; next < end; {
				m := min(len(batch), end-next)
				for i := range m {
					batch[i] = key(next + i)
				}
				must(b, s.With(WriteOptions{TTL: 4 * 24 * time.Hour}).AddBatch(b.Context(), batch[:m], answers[:m]))
				next += m
			}
			must(b, s.Flush(b.Context()))
			clock.pass(4 * time.Hour)
		}
	}
	pass(24)
	clock.pass(-4 * time.Hour) // the first span is not over
	build := func(what string, c counterUse) {
		s.maintainer.mu.Lock()
		defer s.maintainer.mu.Unlock()
		before := usedSoFar(b)
		must(b, s.beginBuild(buildTarget{capacity: s.current.Load().bitmap.header().Capacity, counters: c}))
		for s.maintainer.build != nil {
			must(b, s.stepBuild(s.maintainer.build))
		}
		u := usedSoFar(b)
		per := func(x int64) float64 { return float64(x) / float64(n) }
		fmt.Printf("%-14s cpu %6.2f s  wall %6.2f s  written %5.2f B  read %5.2f B  fetched %5.2f B  at rest: bitmap %.2f B, counters %.2f B, all a live word\n",
			what, (u.cpu - before.cpu).Seconds(), (u.wall - before.wall).Seconds(), per(u.written-before.written),
			per(u.read-before.read), per(u.fetched-before.fetched),
			per(s.current.Load().bitmap.bytes()), per(s.counters.counterBytes.Load()))
	}
	for b.Loop() {
		build("new counters", newCounters)
		for _, spans := range []int{6, 6, 6, 1, 1, 1} {
			clock.pass(4 * time.Hour)
			pass(spans)
			clock.pass(-4 * time.Hour)
			fmt.Printf("%d of %d words gone, as many come\n", spans*n/24, n)
			build("from counters", oldCounters)
			build("from Pebble", keepCounters)
		}
	}
}
