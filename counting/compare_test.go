package counting

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCompare finds what a file has too little and too much.
func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	h := smallHeader(1)
	words := sortedWords(rng, 3000)
	full := slices.Repeat([]uint64{1 << 63}, 20) // 15 hides what is behind it
	var file buffer
	runJob(t, Job{Header: h, Plus: sources(words, full), New: &file})
	const block = 100
	inBlock := func(w uint64) bool { b, _ := bits.Mul64(w, h.Blocks); return b == block }
	extra := words[slices.IndexFunc(words, inBlock)]
	for _, c := range []struct {
		name      string
		words     []Words
		low, high uint64
	}{
		{"equal", sources(words, full), 0, 0},
		{"fewer of 15", sources(words, full[:3]), 0, 0},
		{"one that the file lacks", sources(words, full, []uint64{extra}), 7, 0},
		{"two that the file lacks", sources(words, full, []uint64{extra, words[2999]}), 14, 0},
		{"one that it has too much", sources(slices.DeleteFunc(slices.Clone(words), func(w uint64) bool { return w == extra }), full), 0, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Compare(t.Context(), file.reader(t), c.words)
			if err != nil || d.Low != c.low || d.High != c.high || d.Words != 3020 {
				t.Errorf("%+v, want %d low and %d high; %v", d, c.low, c.high, err)
			}
			if d.Low > 0 && d.FirstLow != block {
				t.Errorf("the first is in block %d, want %d", d.FirstLow, block)
			}
		})
	}
	if _, err := Compare(t.Context(), file.reader(t), sources([]uint64{2, 1})); !errors.Is(err, ErrOrder) {
		t.Errorf("error %v, want %v", err, ErrOrder)
	}
}
