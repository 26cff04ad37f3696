package counting

import (
	"bytes"
	"io"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

var testStore = [16]byte{'a', ' ', 's', 't', 'o', 'r', 'e'}

// smallHeader is of two pages.
func smallHeader(generation uint64) Header {
	return Header{
		StoreID:    testStore,
		Generation: generation,
		Geometry:   Geometry{Blocks: 2 * BlocksPerPage, Probes: 7, Seed: 0x0123456789abcdef},
	}
}

// A buffer is a counter file in memory.
type buffer struct{ bytes.Buffer }

func (b *buffer) reader(tb testing.TB) *Reader {
	tb.Helper()
	r, err := NewReader(bytes.NewReader(b.Bytes()), "mem", int64(b.Len()))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// runJob does a job that has to succeed.
func runJob(tb testing.TB, j Job) Stats {
	tb.Helper()
	if j.New == nil {
		j.New = io.Discard
	}
	s, err := Transform(tb.Context(), j)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// sources makes a source of each list.
func sources(lists ...[]uint64) []Words {
	var s []Words
	for _, l := range lists {
		s = append(s, SliceWords(l))
	}
	return s
}

// inBatches is a source that gives n words at a time, and an empty batch before
// each.
func inBatches(words []uint64, n int) Words {
	empty := false
	return func() ([]uint64, error) {
		if empty = !empty; empty {
			return nil, nil
		}
		if len(words) == 0 {
			return nil, io.EOF
		}
		batch := slices.Clone(words[:min(n, len(words))])
		words = words[len(batch):]
		return batch, nil
	}
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

// A model is a counting filter that is as plain as can be: a map from bit to
// count, which takes no pages and no nibbles.
type model struct {
	g      Geometry
	counts map[uint64]int
	Stats
}

func newModel(g Geometry) *model { return &model{g: g, counts: map[uint64]int{}} }

// bitsOf returns the bits of a word, and how often it has each.
func (m *model) bitsOf(word uint64) map[uint64]int {
	block, _ := bits.Mul64(word, m.g.Blocks)
	hi, lo := bits.Mul64(word^m.g.Seed, 0x9e3779b97f4a7c15)
	set := map[uint64]int{}
	for i := range m.g.Probes {
		set[block*512+(hi^lo)>>(9*i)%512]++
	}
	return set
}

// pass adds and takes, page by page as a pass does.
func (m *model) pass(plus, minus []uint64) {
	m.Plus, m.Minus, m.Underflows, m.FirstUnderflow = 0, 0, 0, 0
	for _, w := range plus {
		for bit, n := range m.bitsOf(w) {
			m.counts[bit] = min(15, m.counts[bit]+n)
		}
		m.Plus++
	}
	for _, w := range minus {
		m.take(w)
	}
	m.Words = m.Words + m.Plus - min(m.Minus, m.Words+m.Plus)
	m.Ones, m.Saturated = 0, 0
	for _, n := range m.counts {
		if n > 0 {
			m.Ones++
		}
		if n == 15 {
			m.Saturated++
		}
	}
}

func (m *model) take(w uint64) {
	set := m.bitsOf(w)
	for bit, n := range set {
		if c := m.counts[bit]; c < n && c != 15 {
			if m.Underflows == 0 {
				m.FirstUnderflow = w
			}
			m.Underflows++
			return
		}
	}
	for bit, n := range set {
		if m.counts[bit] != 15 {
			m.counts[bit] -= n
		}
	}
	m.Minus++
}

// collect returns a Bits that puts the bits of all blocks together, and wants
// them in order.
func collect(tb testing.TB, dst *[]uint64) func(uint64, []uint64) error {
	return func(first uint64, bits []uint64) error {
		if first*8 != uint64(len(*dst)) {
			tb.Errorf("bits from block %d, behind those of %d blocks", first, len(*dst)/8)
		}
		*dst = append(*dst, bits...)
		return nil
	}
}

// equal compares what a pass made with the model.
func (m *model) equal(tb testing.TB, s Stats, file *buffer, set []uint64) {
	tb.Helper()
	if s != m.Stats {
		tb.Errorf("stats are\n%+v, want\n%+v", s, m.Stats)
	}
	if int64(file.Len()) != m.g.FileBytes() || uint64(len(set)) != m.g.Blocks*8 {
		tb.Fatalf("a file of %d bytes and %d words of bits, for %+v", file.Len(), len(set), m.g)
	}
	r := file.reader(tb)
	var p page
	for n := range m.g.pages() {
		if err := r.read(&p); err != nil {
			tb.Fatal(err)
		}
		for i := range uint64(pageBlocks * blockBits) {
			bit := n*pageBlocks*blockBits + i
			j, k, nibble := i/64, i%4, i%64/4
			if got, want := int(p[4*j+k]>>(4*nibble)&15), m.counts[bit]; got != want {
				tb.Errorf("counter %d is %d, want %d", bit, got, want)
			}
			if got, want := set[bit/64]>>(bit%64)&1 == 1, m.counts[bit] > 0; got != want {
				tb.Errorf("bit %d is %t, want %t", bit, got, want)
			}
		}
	}
	if c, err := r.readTrailer(); err != nil || c != m.Counts {
		tb.Errorf("counts are %+v, want %+v; %v", c, m.Counts, err)
	}
}
