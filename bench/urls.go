package main

import (
	"math/rand/v2"
	"strconv"
)

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

// A workload makes the batches of a stream. Batch i holds distinct URLs that
// no other batch holds as new ones, and, of every stride URLs, all but one are
// drawn from those that are new in batches before it.
type workload struct {
	batch  int
	stride int     // 1: all new; 5: four of five seen before
	hot    float64 // share of the draws that go to the first hotURLs
}

const hotURLs = 50_000

// fresh is the number of new URLs in a batch.
func (w workload) fresh() int { return w.batch / w.stride }

// fill makes batch i in keys and returns it. The draws are the same in every
// run. The first batch has nothing to draw from and is shorter.
func (w workload) fill(keys []string, i int) []string {
	before := i * w.fresh()
	keys = keys[:w.batch]
	if before == 0 {
		keys = keys[:w.fresh()]
	}
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	next := before
	for j := range keys {
		if j%w.stride == 0 || before == 0 {
			keys[j] = url(next)
			next++
			continue
		}
		from := before
		if w.hot > 0 && rng.Float64() < w.hot {
			from = min(before, hotURLs)
		}
		keys[j] = url(rng.IntN(from))
	}
	return keys
}
