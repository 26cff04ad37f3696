package mmapfilter

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
)

// benchSizes are capacities whose filters lie within the second-level cache,
// and far outside of all: 0.4 MB and 150 MB.
var benchSizes = []uint64{250_000, 100_000_000}

func BenchmarkHas(b *testing.B) {
	for _, capacity := range benchSizes {
		f := newTestFilter(b, Files, ParamsFor(capacity, 1))
		b.Logf("%d MB", f.Bytes()/1e6)
		rng := rand.New(rand.NewPCG(1, 2))
		set := sortedWords(rng, int(capacity))
		if err := f.SetSorted(set); err != nil {
			b.Fatal(err)
		}
		const n = 1 << 20
		hit, miss := make([]uint64, n), make([]uint64, n)
		for i := range n {
			hit[i], miss[i] = set[rng.IntN(len(set))], rng.Uint64()
		}
		for _, c := range []struct {
			name  string
			words []uint64
		}{{"hit", hit}, {"miss", miss}} {
			b.Run(fmt.Sprintf("%dMB/%s", f.Bytes()>>20, c.name), func(b *testing.B) {
				i, n := 0, 0
				for b.Loop() {
					if f.Has(c.words[i%len(c.words)]) {
						n++
					}
					i++
				}
				_ = n
			})
			b.Run(fmt.Sprintf("%dMB/%s-touched", f.Bytes()>>20, c.name), func(b *testing.B) {
				const batch = 256
				var n int
				var sum uint64
				for i := 0; i < b.N; i += batch {
					part := c.words[i%len(c.words):][:batch]
					for _, w := range part {
						sum += f.Touch(w)
					}
					for _, w := range part {
						if f.Has(w) {
							n++
						}
					}
				}
				_ = sum
			})
		}
	}
}

// BenchmarkSetSorted sets words in one pass over a filter of 12.5 M words, as
// many for a block as a flush of that share of the capacity has.
func BenchmarkSetSorted(b *testing.B) {
	for _, perBlock := range []float64{0.25, 3.5, 42} {
		b.Run(fmt.Sprintf("%gperBlock", perBlock), func(b *testing.B) {
			p := ParamsFor(12_500_000, 1)
			f := newTestFilter(b, Files, p)
			rng := rand.New(rand.NewPCG(1, 2))
			n := int(perBlock * float64(p.Blocks))
			sets := make([][]uint64, 4)
			for i := range sets {
				sets[i] = sortedWords(rng, n)
			}
			// Once, so that no page is touched for the first time.
			if err := f.SetSorted(sets[3]); err != nil {
				b.Fatal(err)
			}
			i := 0
			for b.Loop() {
				if i%3 == 0 {
					b.StopTimer()
					clear(f.body)
					b.StartTimer()
				}
				if err := f.SetSorted(sets[i%3]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/word")
		})
	}
}

func BenchmarkCountBits(b *testing.B) {
	f := newTestFilter(b, Files, ParamsFor(benchSizes[1], 1))
	b.SetBytes(f.Bytes())
	for b.Loop() {
		if _, err := f.CountBits(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGuard is the price of turning faults into errors.
func BenchmarkGuard(b *testing.B) {
	f := newTestFilter(b, Files, ParamsFor(1, 1))
	b.Run("guard", func(b *testing.B) {
		for b.Loop() {
			_ = f.guard(func() {})
		}
	})
	b.Run("SetPanicOnFault", func(b *testing.B) {
		for b.Loop() {
			debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		}
	})
}

// sortedWords returns n ascending random words.
func sortedWords(rng *rand.Rand, n int) []uint64 {
	words := make([]uint64, n)
	for i := range words {
		words[i] = rng.Uint64()
	}
	slices.Sort(words)
	return words
}

// newTestFilter creates a filter that is closed with the test.
func newTestFilter(tb testing.TB, d Device, p Params) *Filter {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "filter")
	f, err := Create(d, path, Header{StoreID: testStore, Generation: 1, Params: p})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	return f
}

var testStore = [16]byte{'a', ' ', 's', 't', 'o', 'r', 'e'}
