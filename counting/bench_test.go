package counting

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// benchBlocks are those of a filter of 100 M words: 150 MB of bits and 600 MB
// of counters.
const benchBlocks = 2_343_936 // a multiple of 8 pages

// BenchmarkTransform adds words to nothing, and then adds and takes as many
// from what is there: 42 words a block (what a filter is made for), 10 (a
// quarter of it, which is when a pass is due), 1 and none. Its files are in
// memory, or nowhere.
func BenchmarkTransform(b *testing.B) {
	g := Geometry{Blocks: benchBlocks / 8, Probes: 7, Seed: 1}
	for _, perBlock := range []int{42, 10, 1, 0} {
		n := int(g.Blocks) * perBlock
		b.Run(fmt.Sprintf("add/%dperBlock", perBlock), func(b *testing.B) {
			for b.Loop() {
				runJob(b, benchJob(g, 1, n, 0))
			}
			report(b, g, n)
		})
		var old buffer
		first := benchJob(g, 1, n, 0)
		first.New = &old
		runJob(b, first)
		b.Run(fmt.Sprintf("addAndTake/%dperBlock", perBlock), func(b *testing.B) {
			for b.Loop() {
				j := benchJob(g, 2, n, n)
				j.Old = old.reader(b)
				if s := runJob(b, j); s.Underflows != 0 {
					b.Fatalf("%d underflows", s.Underflows)
				}
			}
			report(b, g, 2*n)
		})
	}
}

// BenchmarkFile is BenchmarkTransform at 100 M words, from file to file: all of
// them are added, and then a quarter comes and another goes.
func BenchmarkFile(b *testing.B) {
	g := Geometry{Blocks: benchBlocks, Probes: 7, Seed: 1}
	const all, quarter = 100_000_000, 25_000_000
	first, second := filepath.Join(b.TempDir(), "1"), filepath.Join(b.TempDir(), "2")
	toFile := func(b *testing.B, j Job, path string) {
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		j.New = f
		s := runJob(b, j)
		if err := errors.Join(f.Sync(), f.Close()); err != nil || s.Underflows != 0 {
			b.Fatalf("%+v, error %v", s, err)
		}
	}
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			toFile(b, benchJob(g, 1, all, 0), first)
		}
		report(b, g, all)
	})
	b.Run("quarter", func(b *testing.B) {
		for b.Loop() {
			f, err := os.Open(first)
			if err != nil {
				b.Fatal(err)
			}
			j := benchJob(g, 2, quarter, 0)
			if j.Old, err = NewReader(f, first, g.FileBytes()); err != nil {
				b.Fatal(err)
			}
			j.Minus = []Words{everyFourth(evenWords(all, 1))}
			toFile(b, j, second)
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		}
		report(b, g, 2*quarter)
	})
}

// benchJob adds words that depend on the generation, and takes those of the one
// before.
func benchJob(g Geometry, generation uint64, plus, minus int) Job {
	return Job{
		Header: Header{Generation: generation, Geometry: g},
		Plus:   []Words{evenWords(plus, generation)},
		Minus:  []Words{evenWords(minus, generation-1)},
		New:    io.Discard,
		Bits:   func(uint64, []uint64) error { return nil },
	}
}

func report(b *testing.B, g Geometry, words int) {
	b.SetBytes(g.FileBytes())
	if words > 0 {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(words), "ns/word")
	}
}

// everyFourth is a source of every fourth word of another.
func everyFourth(words Words) Words {
	return func() ([]uint64, error) {
		batch, err := words()
		n := 0
		for i := 0; i < len(batch); i += 4 {
			batch[n] = batch[i]
			n++
		}
		return batch[:n], err
	}
}

// evenWords is a source of n words, one at a random place of each n-th part of
// word space: ascending without having been sorted, so that they cost next to
// nothing. They come in batches of 4096.
func evenWords(n int, seed uint64) Words {
	rng := rand.NewPCG(seed, 1)
	part := math.MaxUint64 / uint64(max(n, 1))
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
