package counting

import (
	"bytes"
	"errors"
	"io"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestModel sends random streams through passes that follow each other, and
// through the model.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := smallHeader(0)
		h.Blocks = BlocksPerPage * (1 + rng.Uint64N(3))
		h.Probes, h.Seed = 1+rng.Uint32N(MaxProbes), rng.Uint64()
		// Few words, so that the same ones come and go, and counters fill.
		universe := sortedWords(rng, 1+rng.IntN(300))
		some := func() []uint64 {
			words := make([]uint64, rng.IntN(1000))
			for i := range words {
				words[i] = universe[rng.IntN(len(universe))]
			}
			slices.Sort(words)
			return words
		}
		m := newModel(h.Geometry)
		var old *buffer
		for range 5 {
			h.Generation++
			plus, minus := some(), some()
			cut := rng.IntN(len(plus) + 1)
			file, set := new(buffer), []uint64(nil)
			j := Job{
				Header: h,
				// Two sources of which each is in order, in odd pieces.
				Plus:  []Words{inBatches(plus[:cut], 1+rng.IntN(9)), nil, inBatches(plus[cut:], 50)},
				Minus: []Words{SliceWords(minus)},
				New:   file,
				Bits:  collect(t, &set),
			}
			if old != nil {
				j.Old = old.reader(t)
			}
			s := runJob(t, j)
			m.pass(plus, minus)
			m.equal(t, s, file, set)
			old = file
		}
		if t.Failed() {
			t.Fatalf("at seed %d", seed)
		}
	}
}

// TestTransform is what a word does to the counts, case by case: it comes and
// goes in one pass or in two.
func TestTransform(t *testing.T) {
	const w = 0x123456789abcdef0
	g := smallHeader(0).Geometry
	times := func(n int) []uint64 { return slices.Repeat([]uint64{w}, n) }
	probes := uint64(len(newModel(g).bitsOf(w)))
	if probes != 7 {
		t.Fatalf("the word has %d bits", probes)
	}
	for _, c := range []struct {
		name               string
		before             int // times that it was added before
		plus, minus        int
		words, ones, fulls uint64
		underflows         uint64
	}{
		{name: "nothing"},
		{name: "comes", plus: 1, words: 1, ones: 7},
		{name: "comes twice", plus: 2, words: 2, ones: 7},
		{name: "stays", before: 1, words: 1, ones: 7},
		{name: "goes", before: 1, minus: 1},
		{name: "one of two goes", before: 2, minus: 1, words: 1, ones: 7},
		{name: "comes and goes at once", plus: 1, minus: 1},
		{name: "one comes and one goes", before: 1, plus: 1, minus: 1, words: 1, ones: 7},
		{name: "goes and was not there", minus: 1, underflows: 1},
		{name: "goes twice and was there once", before: 1, minus: 2, underflows: 1},
		{name: "14", before: 14, words: 14, ones: 7},
		{name: "14 go of 14", before: 14, minus: 14},
		{name: "15", before: 15, words: 15, ones: 7, fulls: 7},
		{name: "15 go of 15", before: 15, minus: 15, ones: 7, fulls: 7},
		{name: "16 go of 15", before: 15, minus: 16, ones: 7, fulls: 7},
		{name: "lifted to 15 and taken", before: 14, plus: 1, minus: 1, words: 14, ones: 7, fulls: 7},
		{name: "40", before: 20, plus: 20, words: 40, ones: 7, fulls: 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			var old buffer
			runJob(t, Job{Header: Header{Geometry: g, Generation: 1}, Plus: sources(times(c.before)), New: &old})
			s := runJob(t, Job{
				Old:    old.reader(t),
				Header: Header{Geometry: g, Generation: 2},
				Plus:   sources(times(c.plus)),
				Minus:  sources(times(c.minus)),
			})
			want := Stats{
				Counts:     Counts{Words: c.words, Ones: c.ones, Saturated: c.fulls},
				Plus:       uint64(c.plus),
				Minus:      uint64(c.minus) - c.underflows,
				Underflows: c.underflows,
			}
			if c.underflows > 0 {
				want.FirstUnderflow = w
			}
			if s != want {
				t.Errorf("stats are\n%+v, want\n%+v", s, want)
			}
		})
	}
}

// TestSaturated takes from a counter of 15 everything that was added to it and
// more: no word that is still there may lose its bit.
func TestSaturated(t *testing.T) {
	h := smallHeader(1)
	h.Probes = 1
	const stays = 0x4000000000000000
	goes := sharing(t, h.Geometry, stays, 20)
	var first, second, third buffer
	runJob(t, Job{Header: h, Plus: sources(goes[:10], []uint64{stays}, goes[10:]), New: &first})
	h.Generation = 2
	s := runJob(t, Job{Old: first.reader(t), Header: h, Minus: sources(goes), New: &second})
	if s.Saturated != 1 || s.Minus != 20 || s.Underflows != 0 || s.Words != 1 {
		t.Errorf("%+v", s)
	}
	h.Generation = 3
	var set []uint64
	s = runJob(t, Job{Old: second.reader(t), Header: h, Minus: sources(goes), New: &third, Bits: collect(t, &set)})
	if s.Saturated != 1 || s.Words != 0 {
		t.Errorf("%+v", s)
	}
	for bit := range newModel(h.Geometry).bitsOf(stays) {
		if set[bit/64]>>(bit%64)&1 == 0 {
			t.Errorf("bit %d of a word that is there is lost", bit)
		}
	}
}

// sharing returns n ascending words that share the bits of w, of which there is
// one.
func sharing(t *testing.T, g Geometry, w uint64, n int) []uint64 {
	t.Helper()
	m := newModel(g)
	want := m.bitsOf(w)
	var found []uint64
	for x := w + 1; len(found) < n; x++ {
		for bit := range m.bitsOf(x) {
			if want[bit] > 0 {
				found = append(found, x)
			}
		}
		if x > w+1<<20 {
			t.Fatal("not enough words share a bit")
		}
	}
	return found
}

// TestUnderflow takes words that were never there: those that are keep all of
// their counters, and the first one is named.
func TestUnderflow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := smallHeader(1)
	there := sortedWords(rng, 128) // one in a block: they cannot hide many
	never := sortedWords(rng, 128)
	m := newModel(h.Geometry)
	m.pass(there, nil)
	for _, w := range never {
		m.take(w)
	}
	if m.Underflows != 128 {
		t.Fatalf("%d of the words underflow, want all of them: another seed", m.Underflows)
	}
	var old, file buffer
	runJob(t, Job{Header: h, Plus: sources(there), New: &old})
	h.Generation = 2
	s := runJob(t, Job{Old: old.reader(t), Header: h, Minus: sources(never), New: &file})
	if s.Underflows != 128 || s.FirstUnderflow != m.FirstUnderflow || s.Minus != 0 || s.Words != 128 {
		t.Errorf("%+v, want 128 underflows, the first %#x", s, m.FirstUnderflow)
	}
	d, err := Compare(t.Context(), file.reader(t), sources(there))
	if err != nil || d.Low != 0 || d.High != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestOrder wants ascending words, within a batch and from one to the next.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		words func() Words
	}{
		{"within a batch", func() Words { return SliceWords([]uint64{1, 3, 2}) }},
		{"batches", func() Words { return inBatches([]uint64{1, 3, 2}, 2) }},
		{"pages", func() Words { return inBatches([]uint64{1 << 63, 0}, 1) }},
		{"at the end", func() Words { return SliceWords([]uint64{1 << 63, 1<<64 - 1, 1<<64 - 2}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, j := range []Job{{Plus: []Words{c.words()}}, {Minus: []Words{c.words()}}} {
				j.Header, j.New = smallHeader(1), io.Discard
				if _, err := Transform(t.Context(), j); !errors.Is(err, ErrOrder) {
					t.Errorf("error %v, want %v", err, ErrOrder)
				}
			}
		})
	}
	runJob(t, Job{Header: smallHeader(1), Plus: sources([]uint64{0, 0, 1<<64 - 1, 1<<64 - 1})})
}

// TestPageEnds counts the first and the last word of every page, and of word
// space.
func TestPageEnds(t *testing.T) {
	for pages := range uint64(7) {
		h := smallHeader(1)
		h.Blocks = (pages + 1) * BlocksPerPage
		var words []uint64
		for n := range h.pages() {
			words = append(words, h.firstWord(n), h.lastWord(n))
		}
		var file buffer
		var set []uint64
		m := newModel(h.Geometry)
		s := runJob(t, Job{Header: h, Plus: []Words{inBatches(words, 3)}, Minus: sources(words[:pages]), New: &file, Bits: collect(t, &set)})
		m.pass(words, words[:pages])
		m.equal(t, s, &file, set)
	}
}

// TestNet has a trailer that says 0 words rather than 2^64, and the reverse.
func TestNet(t *testing.T) {
	const most = 1<<64 - 1
	for _, c := range []struct{ words, plus, minus, want uint64 }{
		{0, 0, 0, 0}, {5, 3, 1, 7}, {5, 3, 8, 0}, {5, 3, 9, 0}, {most, 0, 1, most - 1}, {most, 1, 0, most}, {most - 1, 1, 0, most},
	} {
		if got := net(c.words, c.plus, c.minus); got != c.want {
			t.Errorf("%d + %d - %d is %d, want %d", c.words, c.plus, c.minus, got, c.want)
		}
	}
}

// TestPrecedes wants old counters that the new ones can be made from.
func TestPrecedes(t *testing.T) {
	h := smallHeader(5)
	h.Forget = 7
	var file buffer
	runJob(t, Job{Header: h, New: &file})
	for _, c := range []struct {
		name   string
		change func(*Header)
		want   error
	}{
		{"next", func(*Header) {}, nil},
		{"later", func(h *Header) { h.Generation, h.Forget = 100, 100 }, nil},
		{"store", func(h *Header) { h.StoreID[0]++ }, ErrForeign},
		{"blocks", func(h *Header) { h.Blocks *= 2 }, ErrMismatch},
		{"probes", func(h *Header) { h.Probes-- }, ErrMismatch},
		{"seed", func(h *Header) { h.Seed++ }, ErrMismatch},
		{"generation", func(h *Header) { h.Generation-- }, ErrMismatch},
		{"forget", func(h *Header) { h.Forget-- }, ErrMismatch},
		{"no blocks", func(h *Header) { h.Blocks = 0 }, ErrParams},
		{"part of a page", func(h *Header) { h.Blocks++ }, ErrParams},
		{"too many blocks", func(h *Header) { h.Blocks = MaxBlocks + BlocksPerPage }, ErrParams},
		{"no probes", func(h *Header) { h.Probes = 0 }, ErrParams},
		{"too many probes", func(h *Header) { h.Probes = 8 }, ErrParams},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := h
			next.Generation++
			c.change(&next)
			var out buffer
			_, err := NewPass(Job{Old: file.reader(t), Header: next, New: &out})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if err != nil && out.Len() > 0 {
				t.Errorf("%d bytes were written", out.Len())
			}
		})
	}
	r := file.reader(t)
	if err := r.read(new(page)); err != nil {
		t.Fatal(err)
	}
	h.Generation++
	if _, err := NewPass(Job{Old: r, Header: h, New: io.Discard}); !errors.Is(err, ErrMismatch) {
		t.Errorf("old counters that were begun: error %v", err)
	}
}

// TestSteps does a pass in steps of every size: the file is the same, and From
// goes through word space.
func TestSteps(t *testing.T) {
	words := sortedWords(rand.New(rand.NewPCG(1, 1)), 2000)
	h := smallHeader(1)
	h.Blocks = 5 * BlocksPerPage
	var want buffer
	runJob(t, Job{Header: h, Plus: sources(words), New: &want})
	for n := 1; n <= 6; n++ {
		var file buffer
		p, err := NewPass(Job{Header: h, Plus: sources(words), New: &file})
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		for done := false; !done; steps++ {
			from, ok := p.From()
			block, _ := bits.Mul64(from, h.Blocks)
			before, _ := bits.Mul64(from-1, h.Blocks)
			if page := uint64(steps * n); !ok || block != page*BlocksPerPage || page > 0 && before != block-1 {
				t.Errorf("step %d of %d pages is from %#x, in block %d behind %d; %t", steps, n, from, block, before, ok)
			}
			if done, err = p.Step(n); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok := p.From(); ok || steps != (5+n-1)/n {
			t.Errorf("%d steps of %d pages; there is a next one: %t", steps, n, ok)
		}
		if done, err := p.Step(n); !done || err != nil {
			t.Errorf("a step behind the end: %t, %v", done, err)
		}
		if !bytes.Equal(file.Bytes(), want.Bytes()) {
			t.Errorf("steps of %d make another file", n)
		}
	}
}

// TestNothingAllocated holds that neither a word nor a page allocates.
func TestNothingAllocated(t *testing.T) {
	h := smallHeader(1)
	h.Blocks = 200 * BlocksPerPage
	var old buffer
	words := sortedWords(rand.New(rand.NewPCG(1, 1)), 100_000)
	runJob(t, Job{Header: h, Plus: sources(words), New: &old})
	h.Generation++
	p, err := NewPass(Job{
		Old: old.reader(t), Header: h, New: io.Discard,
		Plus: sources(words), Minus: sources(words),
		Bits: func(uint64, []uint64) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(50, func() {
		if _, err := p.Step(1); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a page", n)
	}
}
