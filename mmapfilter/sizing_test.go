package mmapfilter

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParamsFor(t *testing.T) {
	const most = MaxBlocks * blockBits / BitsPerWord
	for _, c := range []struct{ capacity, wantCapacity, wantBlocks uint64 }{
		{0, 1, 64},
		{1, 1, 64},
		{64 * 512 / 12, 64 * 512 / 12, 64},
		{64*512/12 + 1, 64*512/12 + 1, 128},
		{100_000_000, 100_000_000, 2343808},
		{most, most, MaxBlocks},
		{math.MaxUint64, most, MaxBlocks},
	} {
		p := ParamsFor(c.capacity, 7)
		if p.Capacity != c.wantCapacity || p.Blocks != c.wantBlocks || p.Probes != DefaultProbes {
			t.Errorf("ParamsFor(%d) = %+v, want capacity %d in %d blocks", c.capacity, p, c.wantCapacity, c.wantBlocks)
		}
		if err := p.validate(); err != nil {
			t.Errorf("ParamsFor(%d): %v", c.capacity, err)
		}
	}
}

// TestRates holds the formulas to values computed apart from them, and the
// documentation to the formulas.
func TestRates(t *testing.T) {
	p := ParamsFor(64*512*1000/12, 1) // no rounding to speak of
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 0.002 {
			t.Errorf("%s is %.4g, want %.4g", what, got, want)
		}
	}
	at := func(probes uint32, load float64) float64 {
		p.Probes = probes
		return BlockedRate(p, uint64(load*float64(p.Capacity)))
	}
	near("5 probes at capacity", at(5, 1), 5.227e-3)
	near("6 probes at capacity", at(6, 1), 4.412e-3)
	near("7 probes at capacity", at(7, 1), 4.092e-3)
	near("8 probes at capacity", at(8, 1), 4.069e-3)
	near("9 probes at capacity", at(9, 1), 4.264e-3)
	near("7 probes at half", at(7, 0.5), 1.198e-4)
	near("7 probes at twice", at(7, 2), 7.679e-2)
	near("8 probes at twice", at(8, 2), 9.060e-2)

	// The number of probes is within 1 % of the best at capacity, and the
	// best of those that a multiplication gives.
	best := 1.0
	for k := range uint32(16) {
		best = min(best, at(k+1, 1))
	}
	if got := at(DefaultProbes, 1); got > 1.01*best {
		t.Errorf("%d probes have a rate of %g at capacity, the best number has %g", DefaultProbes, got, best)
	}
	for k := range uint32(MaxProbes) {
		if at(k+1, 1) < at(DefaultProbes, 1) {
			t.Errorf("%d probes beat %d", k+1, DefaultProbes)
		}
	}

	p.Probes = 7
	near("standard rate", StandardRate(p, p.Capacity), 3.294e-3)
	if got := BlockedRate(p, 0) + StandardRate(p, 0); got != 0 {
		t.Errorf("an empty filter has a rate of %g", got)
	}
	if got := BlockedRate(p, math.MaxUint64); got != 1 {
		t.Errorf("a full filter has a rate of %g", got)
	}
	if BlockedRate(p, p.Capacity) <= StandardRate(p, p.Capacity) {
		t.Error("the blocked rate is below the standard one")
	}
}

// falsePositives counts the answers "maybe" to n random words among those
// from w0 on, where span is the number of words there are (0: all).
func falsePositives(f *Filter, rng *rand.Rand, w0, span uint64, n int) int {
	count := 0
	for range n {
		w := rng.Uint64()
		if span != 0 {
			w = w0 + w%span
		}
		if f.Has(w) {
			count++
		}
	}
	return count
}

// TestMeasuredRate compares the measured rate with the formula at loads of 50,
// 100 and 200 %. Each sample is large enough for 450 hits, so that one standard
// deviation is below 5 % and the bound of 20 % is four of them.
func TestMeasuredRate(t *testing.T) {
	const capacity, tolerance = 1_000_000, 1.2
	p := ParamsFor(capacity, 1)
	rng := rand.New(rand.NewPCG(11, 12))
	f := newTestFilter(t, NewTwin(), p)
	set := uint64(0)
	for _, c := range []struct{ percent, sample int }{
		{50, 4_000_000},
		{100, 500_000},
		{200, 100_000},
	} {
		n := uint64(capacity * c.percent / 100)
		if err := f.SetSorted(sortedWords(rng, int(n-set))); err != nil {
			t.Fatal(err)
		}
		set = n
		got := falsePositives(f, rng, 0, 0, c.sample)
		want := BlockedRate(p, n) * float64(c.sample)
		t.Logf("load %d %%: %d false positives in %d, want %.0f", c.percent, got, c.sample, want)
		if want < 450 || float64(got) > want*tolerance || float64(got) < want/tolerance {
			t.Errorf("load %d %%: %d false positives in %d, want %.0f", c.percent, got, c.sample, want)
		}
	}
}

// sparse is a Device whose files have holes, so that a filter can be large and
// only where it is used take space.
type sparse struct{ files }

func (d sparse) Create(path string, size int64) (Mapping, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return d.Open(path, false)
}

// TestMeasuredRateBeyond32Bits measures the rate of a filter of 2^33 bits in
// one 256th of it, the words of which are taken from one 256th of all and are
// as dense as at capacity. All its bits have numbers above 2^32.
func TestMeasuredRateBeyond32Bits(t *testing.T) {
	p := Params{Blocks: 1 << 24, Probes: DefaultProbes, Seed: 99, Capacity: (1 << 33) / BitsPerWord}
	f := newTestFilter(t, sparse{}, p)
	const w0, span = 3 << 62, 1 << 56
	rng := rand.New(rand.NewPCG(21, 22))
	words := sortedWords(rng, int(p.Capacity/256))
	for i, w := range words {
		words[i] = w0 + w>>8
	}
	if b := p.Block(words[0]); b*blockBits <= math.MaxUint32 {
		t.Fatalf("bits of the first word begin at %d", b*blockBits)
	}
	if err := f.SetSorted(words); err != nil {
		t.Fatal(err)
	}
	if missing, first, err := f.MissingSorted(words); missing != 0 || err != nil {
		t.Fatalf("%d words are missing, the first is %#x; error %v", missing, first, err)
	}
	const sample = 1_000_000
	got, want := falsePositives(f, rng, w0, span, sample), BlockedRate(p, p.Capacity)*sample
	t.Logf("%d false positives in %d, want %.0f", got, sample, want)
	if float64(got) > 1.2*want || float64(got) < want/1.2 {
		t.Errorf("%d false positives in %d, want %.0f", got, sample, want)
	}
	// Bit numbers cut to 32 bits would be those of this window.
	if got := falsePositives(f, rng, w0-1<<63, span, sample); got != 0 {
		t.Errorf("%d words are found 2^32 bits below where they were set", got)
	}
}

// TestSeeds asks two filters of neighbouring seeds that hold the same words.
// A word that one is wrong about must not be likelier than any to mislead the
// other, the load of the block aside, which they have in common.
func TestSeeds(t *testing.T) {
	const capacity, sample = 500_000, 1_000_000
	rng := rand.New(rand.NewPCG(31, 32))
	a, b := ParamsFor(capacity, 1), ParamsFor(capacity, 2)
	fa, fb := newTestFilter(t, NewTwin(), a), newTestFilter(t, NewTwin(), b)
	words := sortedWords(rng, 2*capacity)
	for _, f := range []*Filter{fa, fb} {
		if err := f.SetSorted(words); err != nil {
			t.Fatal(err)
		}
	}
	both := 0
	for range sample {
		if w := rng.Uint64(); fa.Has(w) && fb.Has(w) {
			both++
		}
	}
	lambda, want := float64(len(words))/float64(a.Blocks), 0.0
	for i := range 1000 {
		lgamma, _ := math.Lgamma(float64(i) + 1)
		rate := inBlockRate(float64(i), DefaultProbes)
		want += math.Exp(float64(i)*math.Log(lambda)-lambda-lgamma) * rate * rate * sample
	}
	t.Logf("%d words in %d mislead both, want %.0f", both, sample, want)
	if float64(both) > 1.1*want || float64(both) < want/1.1 {
		t.Errorf("%d words in %d mislead both filters, want %.0f", both, sample, want)
	}
}

// chiSquare fails the test if the counts are not those of a uniform choice,
// by a test of which a good generator fails one in 50,000 on either side: the
// Wilson-Hilferty approximation has to lie within 4.1 deviations.
func chiSquare(t *testing.T, what string, counts []int) {
	t.Helper()
	total := 0
	for _, c := range counts {
		total += c
	}
	expected, sum := float64(total)/float64(len(counts)), 0.0
	for _, c := range counts {
		sum += (float64(c) - expected) * (float64(c) - expected) / expected
	}
	df := float64(len(counts) - 1)
	z := (math.Cbrt(sum/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
	if math.Abs(z) > 4.1 {
		t.Errorf("%s: chi-square is %.1f at %.0f degrees of freedom, %.1f deviations off", what, sum, df, z)
	}
}

// TestUniform looks at the blocks of random words, and at the positions within
// a single block, whose words differ in their low 43 bits only: one by one and
// in pairs, whole and with the low bits of one against the high bits of the
// other.
func TestUniform(t *testing.T) {
	const n = 1_000_000
	rng := rand.New(rand.NewPCG(41, 42))
	p := Params{Blocks: 1 << 21, Probes: MaxProbes, Seed: 5, Capacity: 1}
	blocks := make([]int, 1024)
	for range n {
		blocks[p.Block(rng.Uint64())*1024/p.Blocks]++
	}
	chiSquare(t, "blocks", blocks)

	const shared = 0xabcde << 43
	single := make([][]int, MaxProbes)
	pairs := make([][]int, MaxProbes*MaxProbes)
	for i := range single {
		single[i] = make([]int, blockBits)
	}
	for i := range pairs {
		pairs[i] = make([]int, 1024)
	}
	want := p.Block(shared)
	for range n {
		w := shared | rng.Uint64()>>21
		if p.Block(w) != want {
			t.Fatalf("word %#x is in block %d, want %d", w, p.Block(w), want)
		}
		h := p.Positions(w)
		for i := range MaxProbes {
			a := h >> (9 * i) % blockBits
			single[i][a]++
			for j := range MaxProbes {
				if i != j {
					b := h >> (9 * j) % blockBits
					pairs[i*MaxProbes+j][a%32*32+b/16]++
				}
			}
		}
	}
	for i := range MaxProbes {
		chiSquare(t, fmt.Sprintf("position %d", i), single[i])
		for j := range MaxProbes {
			if i != j {
				chiSquare(t, fmt.Sprintf("positions %d and %d", i, j), pairs[i*MaxProbes+j])
			}
		}
	}
}

// bitsOf is a second opinion on which bits a word has, in arithmetic of any
// length: the numbers of the words of the file's body, and the bits in them.
func bitsOf(p Params, word uint64) map[[2]uint64]bool {
	u := func(x uint64) *big.Int { return new(big.Int).SetUint64(x) }
	block := new(big.Int).Rsh(new(big.Int).Mul(u(word), u(p.Blocks)), 64).Uint64()
	product := new(big.Int).Mul(u(word^p.Seed), u(11400714819323198485))
	low := new(big.Int).And(product, u(math.MaxUint64)).Uint64()
	h := new(big.Int).Rsh(product, 64).Uint64() ^ low
	set := make(map[[2]uint64]bool)
	for i := range p.Probes {
		at := h >> (9 * i) & 511
		set[[2]uint64{block*8 + at/64, at % 64}] = true
	}
	return set
}

// TestBits compares SetSorted with the second opinion, for each number of
// probes: word by word and all at once are the same file.
func TestBits(t *testing.T) {
	for probes := range uint32(MaxProbes) {
		p := ParamsFor(5000, 3)
		p.Probes = probes + 1
		one, all := newTestFilter(t, NewTwin(), p), newTestFilter(t, NewTwin(), p)
		want := make([]uint64, len(one.body))
		words := sortedWords(rand.New(rand.NewPCG(1, uint64(probes))), 1000)
		words = append(words, 0, 1, math.MaxUint64, math.MaxUint64) // not in order, and twice
		for _, w := range words {
			for at := range bitsOf(p, w) {
				want[at[0]] |= 1 << at[1]
			}
			if err := one.SetSorted([]uint64{w}); err != nil {
				t.Fatal(err)
			}
		}
		if err := all.SetSorted(words); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(one.body, want) {
			t.Errorf("%d probes: bits set word by word differ from those of the formula", p.Probes)
		}
		if !slices.Equal(all.body, want) {
			t.Errorf("%d probes: bits set at once differ from those of the formula", p.Probes)
		}
		blocks := newTestFilter(t, NewTwin(), p)
		if err := blocks.OrBlocks(0, want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(blocks.body, want) || blocks.Fill() != all.Fill() || one.Fill() != all.Fill() {
			t.Errorf("%d probes: bits set by blocks differ", p.Probes)
		}
		// Has agrees with the formula for words that were not set too.
		rng := rand.New(rand.NewPCG(2, uint64(probes)))
		for range 1000 {
			w, has := rng.Uint64(), true
			for at := range bitsOf(p, w) {
				has = has && want[at[0]]>>at[1]&1 != 0
			}
			if all.Has(w) != has {
				t.Errorf("%d probes: Has(%#x) = %t", p.Probes, w, !has)
			}
		}
	}
}

func TestOrBlocksBounds(t *testing.T) {
	f := newTestFilter(t, NewTwin(), ParamsFor(1, 1)) // 64 blocks
	for _, c := range []struct {
		first uint64
		words int
		ok    bool
	}{
		{0, 0, true},
		{0, 64 * 8, true},
		{63, 8, true},
		{64, 0, true},
		{63, 16, false},
		{64, 8, false},
		{65, 0, false},
		{math.MaxUint64, 8, false},
		{0, 7, false},
	} {
		if err := f.OrBlocks(c.first, make([]uint64, c.words)); (err == nil) != c.ok {
			t.Errorf("OrBlocks(%d, %d words): error %v", c.first, c.words, err)
		}
	}
	if err := f.SetSorted([]uint64{1}); err != nil {
		t.Errorf("a refused OrBlocks stopped the filter: %v", err)
	}
}

// tempPath returns the path of a file that is not there yet.
func tempPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "filter")
}
