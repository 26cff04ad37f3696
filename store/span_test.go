package store

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// spanned makes a world whose spans are of 300 words, so that there soon are
// several.
func (w *world) spanned() *world {
	w.memtableWords, w.spanWords, w.buildWords = 200, 300, 150
	return w
}

// healthy waits until every filter is there and believed.
func (s *testStore) healthy() {
	s.w.t.Helper()
	eventually(s.w.t, "the filters are there and believed", func() bool {
		s.kick()
		x := s.Stats()
		return len(x.Degraded) == 0 && len(x.Unverified) == 0 && x.Filters.PagesUnchecked == 0 && x.Bitmap.Load <= 1
	})
}

// files are the names in the world's directory that a test asks for.
func (w *world) files(fits func(name string) bool) []string {
	w.t.Helper()
	names, err := w.options().withDefaults().seams.Device.List(w.dir)
	must(w.t, err)
	return slices.DeleteFunc(names, func(n string) bool { return !fits(n) })
}

func isSpanFilterName(name string) bool {
	_, _, ok := parseSpanFilterName(name)
	return ok
}

func TestSpanFilterName(t *testing.T) {
	for _, id := range []spanID{{spanSize, 0, 1}, {spanSize, 63, 1 << 63}, {255, 255, ^uint64(0)}} {
		for _, generation := range []uint64{1, 12345678901, ^uint64(0)} {
			name := spanFilterName(id, generation)
			got, g, ok := parseSpanFilterName(name)
			if !ok || got != id || g != generation {
				t.Errorf("%s: got %v, generation %d, %v", name, got, g, ok)
			}
			for _, other := range []string{name + ".bad", name + ".tmp", name[1:], strings.ToUpper(name), "", bitmapName(1)} {
				if _, _, ok := parseSpanFilterName(other); ok {
					t.Errorf("%q is a filter's name", other)
				}
			}
		}
	}
}

// TestSpanFilters finds words in many spans, and asks Pebble for one segment
// each.
func TestSpanFilters(t *testing.T) {
	for _, w := range []*world{onDisk(t).spanned(), inMemory(t).spanned()} {
		s := w.open()
		const n = 5000
		for i := 0; i < n; i += 100 {
			s.add(New, keys(i, i+100)...)
			s.flush()
		}
		for range 2 {
			s.healthy()
			x := s.Stats()
			spans := len(s.current.Load().spans)
			if spans < 15 || x.Filters.Filters != spans || len(x.Spans) != spans {
				t.Errorf("%d spans, %d filters, %d in Stats", spans, x.Filters.Filters, len(x.Spans))
			}
			if got := w.files(isSpanFilterName); len(got) != spans {
				t.Errorf("%d spans, and the files %q", spans, got)
			}
			s.has(Seen, keys(0, n)...)
			s.has(New, keys(n, 2*n)...)
			y := s.Stats()
			// One segment for each that is seen, and little more.
			if gets := y.Cache.Gets - x.Cache.Gets + y.Cache.Hits - x.Cache.Hits; gets < n || gets > n*11/10 {
				t.Errorf("%d lookups asked Pebble, or the cache, %d times", 2*n, gets)
			}
			s.urls(n)
			s.close()
			s = w.open()
		}
	}
}

// TestFirstSpanHasNoFilter keeps small stores small: one span needs none.
func TestFirstSpanHasNoFilter(t *testing.T) {
	w := inMemory(t).spanned()
	s := w.open()
	s.add(New, keys(0, 200)...)
	s.flush()
	s.healthy()
	if got := w.files(isSpanFilterName); len(got) != 0 {
		t.Errorf("one span, and the files %q", got)
	}
}

// TestSpanFilterDoubles has a span outgrow its filter.
func TestSpanFilterDoubles(t *testing.T) {
	w := inMemory(t).spanned()
	s := w.open()
	s.add(New, keys(0, 500)...)
	s.flush()
	s.healthy()
	s.close()
	w.spanWords = 5000
	s = w.open()
	for i := 500; i < 4000; i += 100 {
		s.add(New, keys(i, i+100)...)
	}
	s.flush()
	s.healthy()
	eventually(t, "the open span's filter has the size", func() bool {
		sp := s.current.Load().spans[0]
		return float64(sp.filter.header().Capacity)*maxFilterLoad >= 3000
	})
	if got := w.files(isSpanFilterName); len(got) != 2 {
		t.Errorf("two spans, and the files %q", got)
	}
	s.has(Seen, keys(0, 4000)...)
}

// TestLeftoverSpanFilters finds files of builds and flushes that did not end.
func TestLeftoverSpanFilters(t *testing.T) {
	w := onDisk(t).spanned()
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.flush()
	s.healthy()
	s.close()
	names := w.files(isSpanFilterName)
	id, generation, _ := parseSpanFilterName(names[0])
	whole, err := os.ReadFile(filepath.Join(w.dir, names[0]))
	must(t, err)
	left := []string{spanFilterName(id, generation+1) + ".tmp", bitmapName(77), bitmapName(78) + ".tmp"}
	for _, name := range left {
		must(t, os.WriteFile(filepath.Join(w.dir, name), whole, 0o600))
	}
	s = w.open()
	if got := s.Stats().Recovery.Removed; len(got) != len(left) {
		t.Errorf("removed %q, want %q", got, left)
	}
	if got := w.files(isSpanFilterName); !slices.Equal(got, names) {
		t.Errorf("got files %q, want %q", got, names)
	}
	s.has(Seen, keys(0, 1000)...)
}
