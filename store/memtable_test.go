package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// insert puts words into a memtable until one does not fit, and returns those
// that are in.
func insert(m *memtable, words []word) (in []word) {
	n, _ := m.addSegment(4, forever)
	for _, w := range words {
		slot, found := m.find(w)
		if found {
			continue
		}
		if m.full(slot) {
			break
		}
		m.put(slot, w, n)
		in = append(in, w)
	}
	slices.Sort(in)
	return in
}

// has reports whether the table has a live word, of a segment without an end.
func (m *memtable) has(w word) bool { return m.look(w, 0) == present }

func mustMemtable(t testing.TB, limit int) *memtable {
	t.Helper()
	m, err := newMemtable(limit)
	must(t, err)
	t.Cleanup(func() { must(t, m.free()) })
	return m
}

func randomWords(rng *rand.Rand, n int) []word {
	words := make([]word, n)
	for i := range words {
		words[i] = rng.Uint64() | 1 // not 0
	}
	return words
}

// shapes are sets of words that are easy or hard on a table in word order.
func shapes(rng *rand.Rand, n int) map[string][]word {
	s := map[string][]word{
		"none":    nil,
		"one":     {42},
		"extreme": {1, ^word(0), 1 << 63, 1<<63 - 1, 2, ^word(0) - 1},
		"uniform": randomWords(rng, n),
	}
	ascending, descending, clustered := []word{}, []word{}, []word{}
	for i := range n {
		ascending = append(ascending, word(i+1))          // one run from the first home
		descending = append(descending, ^word(0)-word(i)) // all in the last home
		clustered = append(clustered, 1<<62+word(rng.IntN(n*4)))
	}
	slices.Reverse(ascending)
	s["one run from the left"] = ascending
	s["one run in the slack"] = descending
	s["one run in the middle"] = clustered
	return s
}

// TestMemtableSorted reads each shape back in order, in parts of several
// sizes.
func TestMemtableSorted(t *testing.T) {
	rng := seeded(t)
	for name, words := range shapes(rng, 3000) {
		t.Run(name, func(t *testing.T) {
			m := mustMemtable(t, 6000)
			want := insert(m, words)
			for _, w := range words {
				if _, in := slices.BinarySearch(want, w); m.has(w) != in {
					t.Fatalf("has(%x): got %v, want %v", w, !in, in)
				}
			}
			if m.has(12345678901234567) {
				t.Error("it has a word that was never put")
			}
			for _, part := range []int{1, 7, 500, 100_000} {
				var got []word
				must(t, m.sorted(part, nil, func(words []word) error {
					got = append(got, words...)
					return nil
				}))
				if !slices.Equal(got, want) {
					t.Errorf("parts of %d: got %d words, want %d in ascending order", part, len(got), len(want))
				}
			}
		})
	}
}

func TestMemtableSortedError(t *testing.T) {
	m := mustMemtable(t, 2000)
	insert(m, randomWords(seeded(t), 1000))
	calls := 0
	err := m.sorted(100, nil, func([]word) error { calls++; return errInjected })
	if !errors.Is(err, errInjected) || calls != 1 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

// TestMemtableFull fills the slack behind the last home. The last slot stays
// empty, so that a look for what is not there ends.
func TestMemtableFull(t *testing.T) {
	m := mustMemtable(t, 10_000)
	number, _ := m.addSegment(1, forever)
	last := uint64(len(m.slots)) - 1
	n := 0
	for ; ; n++ {
		w := ^word(0) - word(n)
		slot, found := m.find(w)
		if found {
			t.Fatalf("word %d was there", n)
		}
		if m.full(slot) {
			break
		}
		m.put(slot, w, number)
	}
	if n != slackSlots { // the last home, and the slack but for one slot
		t.Errorf("%d words went behind the last home, want %d", n, slackSlots)
	}
	if m.slots[last] != 0 || m.has(^word(0)-word(n)) || !m.has(^word(0)-word(n-1)) {
		t.Error("the last slot is taken, or a look goes wrong there")
	}
	if slot, _ := m.find(5); m.full(slot) {
		t.Error("there is no room elsewhere")
	}
}

// TestMemtableReuse empties tables of several shapes and uses them again.
func TestMemtableReuse(t *testing.T) {
	rng := seeded(t)
	m := mustMemtable(t, 20_000)
	for range 3 {
		for name, words := range shapes(rng, 5000) {
			want := insert(m, words)
			m.cover(7)
			m.filled, m.file = true, 3
			n := 0
			must(t, m.sorted(sortedPart, nil, func(words []word) error { n += len(words); return nil }))
			if n != len(want) {
				t.Errorf("%s: got %d words, want %d", name, n, len(want))
			}
			m.clear()
			if i := slices.IndexFunc(m.slots, func(w word) bool { return w != 0 }); i >= 0 {
				t.Fatalf("%s: slot %d is not empty", name, i)
			}
			if m.count.Load() != 0 || m.lsn.Load() != 0 || m.file != 0 || len(m.segments) != 0 || !m.takes(m.limit) || m.takes(m.limit+1) {
				t.Fatalf("%s: something is left of it: %+v", name, m)
			}
		}
	}
}

// TestMemtableWords checks that a table of so many words takes no more than
// the bytes it was to take.
func TestMemtableWords(t *testing.T) {
	for _, bytes := range []int64{64 << 10, 256 << 10, 1 << 20, 64 << 20} {
		got := int64(len(mustMemtable(t, memtableWords(bytes)).slots)) * 8
		if got > bytes || got < bytes*9/10 {
			t.Errorf("%d bytes become a table of %d", bytes, got)
		}
	}
}
