package counting

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"
)

// benchBlocks are those of a filter of 100 M words: 150 MB of bits and 600 MB
// of counters.
const benchBlocks = 2_343_808

// BenchmarkTransform adds words to nothing, and then adds and takes as many
// from what is there, at 42 words a block (what a filter is made for), at 10 (a
// quarter of it, which is when a pass is due) and at 1. Its files are in
// memory, or nowhere.
func BenchmarkTransform(b *testing.B) {
	const blocks = benchBlocks / 8 / BlocksPerPage * BlocksPerPage
	for _, perBlock := range []int{42, 10, 1} {
		g := Geometry{Blocks: blocks, Probes: 7, Seed: 1}
		n := blocks * perBlock
		job := func() Job {
			return Job{
				Header: Header{Generation: 1, Geometry: g},
				Plus:   []Words{evenWords(n, 1)},
				New:    io.Discard,
				Bits:   func(uint64, []uint64) error { return nil },
			}
		}
		b.Run(fmt.Sprintf("add/%dperBlock", perBlock), func(b *testing.B) {
			for b.Loop() {
				runJob(b, job())
			}
			report(b, g, n)
		})
		var old buffer
		first := job()
		first.New = &old
		runJob(b, first)
		b.Run(fmt.Sprintf("addAndTake/%dperBlock", perBlock), func(b *testing.B) {
			for b.Loop() {
				j := job()
				j.Header.Generation = 2
				j.Old = old.reader(b)
				j.Plus = []Words{evenWords(n, 2)}
				j.Minus = []Words{evenWords(n, 1)}
				if s := runJob(b, j); s.Underflows != 0 {
					b.Fatalf("%d underflows", s.Underflows)
				}
			}
			report(b, g, 2*n)
		})
	}
}

func report(b *testing.B, g Geometry, words int) {
	b.SetBytes(g.FileBytes())
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(words), "ns/word")
}

// evenWords is a source of n words, one at a random place of each n-th part of
// word space: ascending without having been sorted, so that they cost next to
// nothing. They come in batches of 4096.
func evenWords(n int, seed uint64) Words {
	rng := rand.NewPCG(seed, 1)
	part := math.MaxUint64 / uint64(n)
	batch := make([]uint64, 4096)
	at := 0
	return func() ([]uint64, error) {
		if at == n {
			return nil, io.EOF
		}
		m := min(n-at, len(batch))
		for i := range m {
			batch[i] = uint64(at)*part + rng.Uint64()%part
			at++
		}
		return batch[:m], nil
	}
}

// BenchmarkWords is what the words of the other benchmarks cost themselves.
func BenchmarkWords(b *testing.B) {
	const n = 10_000_000
	for b.Loop() {
		for next := evenWords(n, 1); ; {
			if _, err := next(); err != nil {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/word")
}

// BenchmarkCheck reads and verifies.
func BenchmarkCheck(b *testing.B) {
	g := Geometry{Blocks: 1 << 18, Probes: 7, Seed: 1}
	var f buffer
	runJob(b, Job{Header: Header{Geometry: g}, New: &f})
	b.SetBytes(g.FileBytes())
	for b.Loop() {
		if _, err := f.reader(b).Check(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPage is what a page of 64 blocks costs beside its words.
func BenchmarkPage(b *testing.B) {
	p, bits := new(page), new([pageBlocks * blockWords]uint64)
	out := make([]byte, 0, pageBytes+sumBytes)
	b.Run("bits", func(b *testing.B) {
		b.SetBytes(pageBytes)
		for b.Loop() {
			p.bits(bits)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(pageBytes)
		for b.Loop() {
			appendPage(out, p, 1)
		}
	})
	src := [pageBytes + sumBytes]byte(appendPage(out, p, 1))
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(pageBytes)
		for b.Loop() {
			if _, err := decodePage(p, &src, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
}
