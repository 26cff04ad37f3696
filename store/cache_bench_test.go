package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// BenchmarkCache asks for words and adds them, in a cache that a processor
// core's own caches hold and in a store's default one; one operation is one
// word. "batch" touches 256 words before it asks for them, as a look does.
func BenchmarkCache(b *testing.B) {
	for _, size := range []int64{256 << 10, 64 << 20} {
		c, err := newCache(size, 0)
		must(b, err)
		rng := rand.New(rand.NewPCG(1, 0))
		const n = 1 << 18
		for range 4 * c.bytes() / 8 {
			c.add(rng.Uint64()|1, forever)
		}
		others := randomWords(rng, n)
		there := make([]word, 0, n) // what the last of them displace is missed
		for range cap(there) {
			w := rng.Uint64() | 1
			c.add(w, forever)
			there = append(there, w)
		}
		there = slices.DeleteFunc(there, func(w word) bool { return !c.has(w, 0) })
		name := fmt.Sprintf("%dKiB", size>>10)
		for _, w := range []struct {
			name  string
			words []word
		}{{"hit", there}, {"miss", others}} {
			b.Run(name+"/"+w.name, func(b *testing.B) { benchCacheHas(b, c, w.words, 1) })
			b.Run(name+"/batch/"+w.name, func(b *testing.B) { benchCacheHas(b, c, w.words, 256) })
		}
		b.Run(name+"/add", func(b *testing.B) {
			for i := range b.N {
				c.add(others[i%n], forever)
			}
		})
		must(b, c.free())
	}
}

func benchCacheHas(b *testing.B, c *cache, words []word, batch int) {
	var sum uint64
	hits := 0
	for i := 0; i < b.N; i += batch {
		part := words[i%(len(words)-batch):][:batch]
		if batch > 1 {
			for _, w := range part {
				sum += c.touch(w)
			}
		}
		for _, w := range part {
			if c.has(w, 0) {
				hits++
			}
		}
	}
	if sum == 1 {
		touched.Store(sum)
	}
	b.ReportMetric(float64(hits)/float64(b.N), "hits/op")
}
