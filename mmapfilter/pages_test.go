package mmapfilter

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
)

// leftInOrder makes a file of several pages that a Sync was the last to touch,
// and returns its path and the words in it.
func leftInOrder(t *testing.T) (path string, words []uint64) {
	t.Helper()
	path = tempPath(t)
	f, err := Create(Files, path, Header{StoreID: testStore, Generation: 1, Params: ParamsFor(10_000, 5)})
	if err != nil {
		t.Fatal(err)
	}
	words = sortedWords(rand.New(rand.NewPCG(1, 2)), 5000)
	if err := errors.Join(f.SetSorted(words), f.Sync(1), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path, words
}

// trusted opens a file and trusts its sums.
func trusted(t testing.TB, path string) *Filter {
	t.Helper()
	f, err := Open(Files, path, testStore, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.TrustSums(); err != nil {
		t.Fatal(err)
	}
	return f
}

func checkAll(t testing.TB, f *Filter) {
	t.Helper()
	for more, err := true, error(nil); more; {
		if more, err = f.CheckPages(1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTrustSums finds all pages good of a file that was left in order, on each
// of the ways to check one.
func TestTrustSums(t *testing.T) {
	path, words := leftInOrder(t)
	f := trusted(t, path)
	n := int(f.pageCount())
	if n < 3 || f.Unchecked() != n {
		t.Fatalf("%d of %d pages are unchecked", f.Unchecked(), n)
	}
	if !f.Sure(words[0]) || f.Unchecked() != n-1 {
		t.Errorf("after the first touch %d of %d pages are unchecked", f.Unchecked(), n)
	}
	if err := f.SetSorted([]uint64{^uint64(0) - 5}); err != nil {
		t.Fatal(err)
	}
	if f.Unchecked() != n-2 {
		t.Errorf("after a change %d of %d pages are unchecked", f.Unchecked(), n)
	}
	checkAll(t, f)
	if f.Unchecked() != 0 || len(f.BadPages()) != 0 || f.pages.doubtful.Load() != 0 {
		t.Errorf("%d pages are unchecked, %v bad", f.Unchecked(), f.BadPages())
	}
	if err := f.Sync(2); err != nil {
		t.Fatal(err)
	}
	again := trusted(t, path)
	checkAll(t, again)
	if bad := again.BadPages(); len(bad) != 0 {
		t.Errorf("after a Sync pages %v are bad", bad)
	}
}

// TestFlips flips each bit behind the header: one in a page makes this page
// bad, whoever looks first; one in the sums has them not count.
func TestFlips(t *testing.T) {
	path, words := leftInOrder(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		bit := rng.IntN((len(whole)-pageBytes)*8) + pageBytes*8
		if rng.IntN(4) == 0 {
			bit = len(whole)*8 - 1 - rng.IntN(64) // within the sums
		}
		b := slices.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(Files, path, testStore, false)
		if err != nil {
			t.Fatal(err)
		}
		err = f.TrustSums()
		page := uint64(bit/8/pageBytes) - 1
		if page >= f.pageCount() {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("bit %d of the sums: error %v", bit, err)
			}
		} else {
			if err != nil {
				t.Fatal(err)
			}
			testBadPage(t, f, page, words)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// testBadPage checks that one page is found bad, stays so on disk, and is good
// when its words were set again.
func testBadPage(t *testing.T, f *Filter, page uint64, words []uint64) {
	t.Helper()
	first, last := f.PageRange(page)
	if f.Sure(first) || f.Sure(last) || !f.Sure(words[0]) && f.pageOf(words[0]) != page {
		t.Fatalf("page %d: sure of %t, %t", page, f.Sure(first), f.Sure(last))
	}
	checkAll(t, f)
	if bad := f.BadPages(); !slices.Equal(bad, []uint64{page}) {
		t.Fatalf("pages %v are bad, want %d", bad, page)
	}
	lo, _ := slices.BinarySearch(words, first)
	hi, found := slices.BinarySearch(words, last)
	if found {
		hi++
	}
	// A change and a Sync do not make it good.
	if err := errors.Join(f.SetSorted(words[lo:lo+1]), f.Sync(1)); err != nil {
		t.Fatal(err)
	}
	again := trusted(t, f.path)
	if again.Sure(first) {
		t.Fatalf("page %d is good after a Sync", page)
	}
	if err := errors.Join(f.SetSorted(words[lo:hi])); err != nil {
		t.Fatal(err)
	}
	f.Healed(page)
	f.Healed(page)
	if !f.Sure(first) || f.BadPages() != nil || f.pages.doubtful.Load() != 0 {
		t.Fatalf("page %d is not good when it was healed", page)
	}
	if n, w, err := f.MissingSorted(words); n != 0 || err != nil {
		t.Fatalf("page %d: %d words are missing, the first is %x; %v", page, n, w, err)
	}
	if err := f.Sync(1); err != nil {
		t.Fatal(err)
	}
	again = trusted(t, f.path)
	if !again.Sure(first) {
		t.Fatalf("page %d is bad again when it was healed and synced", page)
	}
}

// TestUnverified keeps a file that a crash has left apart for its whole life.
func TestUnverified(t *testing.T) {
	path, words := leftInOrder(t)
	f, err := Open(Files, path, testStore, false)
	if err != nil {
		t.Fatal(err)
	}
	f.MarkUnverified()
	if f.Header().Unverified {
		t.Error("it counts before a Sync")
	}
	if err := errors.Join(f.SetSorted(words[:1]), f.Sync(2), f.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h, _, err := ReadHeader(Files, path)
		if err != nil || !h.Unverified {
			t.Errorf("header is %+v, %v", h, err)
		}
		f, err := Open(Files, path, testStore, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.TrustSums(); !errors.Is(err, ErrUnverified) {
			t.Errorf("TrustSums: %v", err)
		}
		if !f.Header().Unverified || !f.Sure(1) {
			t.Error("what it says is not what counts")
		}
		if err := errors.Join(f.Sync(3), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMarkBad has a page bad that was found good.
func TestMarkBad(t *testing.T) {
	path, words := leftInOrder(t)
	f := trusted(t, path)
	f.MarkBad(words[0])
	f.MarkBad(words[0])
	page := f.pageOf(words[0])
	if f.Sure(words[0]) || !slices.Equal(f.BadPages(), []uint64{page}) {
		t.Errorf("pages %v are bad, want %d", f.BadPages(), page)
	}
	checkAll(t, f)
	f.Healed(page)
	if f.pages.doubtful.Load() != 0 || !f.Sure(words[0]) {
		t.Errorf("%d pages are in doubt", f.pages.doubtful.Load())
	}
}

// TestPageRange is the inverse of pageOf, at the borders.
func TestPageRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		pages := 1 + rng.Uint64N(1<<rng.UintN(27))
		f := &Filter{blocks: pages * BlocksPerPage}
		page := rng.Uint64N(pages)
		first, last := f.PageRange(page)
		if f.pageOf(first) != page || f.pageOf(last) != page {
			t.Fatalf("%d pages: the words of page %d are in %d and %d", pages, page, f.pageOf(first), f.pageOf(last))
		}
		if first > 0 && f.pageOf(first-1) != page-1 || first == 0 && page != 0 {
			t.Fatalf("%d pages: %x is not the first of page %d", pages, first, page)
		}
		if last < ^uint64(0) && f.pageOf(last+1) != page+1 || last == ^uint64(0) && page != pages-1 {
			t.Fatalf("%d pages: %x is not the last of page %d", pages, last, page)
		}
	}
}

// TestCheckWhileChanged sets bits while readers check the pages that they are
// set in: none is taken for bad.
func TestCheckWhileChanged(t *testing.T) {
	for seed := range uint64(30) {
		path, _ := leftInOrder(t)
		f := trusted(t, path)
		words := sortedWords(rand.New(rand.NewPCG(seed, 7)), 2000)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for _, w := range words {
					if !f.Sure(w) {
						t.Errorf("seed %d: a good page is bad", seed)
						return
					}
				}
			})
		}
		for _, w := range words {
			if err := f.SetSorted([]uint64{w}); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		if bad := f.BadPages(); bad != nil {
			t.Errorf("seed %d: pages %v are bad", seed, bad)
		}
	}
}

// TestLinked follows a file that is renamed, removed and replaced.
func TestLinked(t *testing.T) {
	for name, d := range map[string]Device{"files": Files, "twin": NewTwin()} {
		path := tempPath(t)
		f, err := Create(d, path, Header{StoreID: testStore, Params: ParamsFor(1000, 1)})
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, want bool) {
			t.Helper()
			if got, err := f.Linked(); got != want || err != nil {
				t.Errorf("%s, %s: %t, %v", name, what, got, err)
			}
		}
		check("new", true)
		if err := d.Rename(path, path+".bad"); err != nil {
			t.Fatal(err)
		}
		check("renamed", false)
		other, err := Create(d, path, Header{StoreID: testStore, Params: ParamsFor(1000, 1)})
		if err != nil {
			t.Fatal(err)
		}
		check("replaced", false)
		if err := errors.Join(d.Remove(path), d.Rename(path+".bad", path)); err != nil {
			t.Fatal(err)
		}
		check("back", true)
		if err := errors.Join(other.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Linked(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s, closed: %v", name, err)
		}
	}
}

// lose clears a bit of a word, as damage does.
func lose(f *Filter, word uint64) {
	h := probesOf(word, f.seed, f.probes)
	f.body[f.Header().Block(word)*blockWords+h>>6%blockWords] &^= 1 << (h % 64)
}

// TestBadStaysBad closes a filter with bad pages: one that its sum tells, one
// whose bit was lost before its sum was made, and both after further changes.
func TestBadStaysBad(t *testing.T) {
	for _, change := range []bool{false, true} {
		path, words := leftInOrder(t)
		f := trusted(t, path)
		first, last := words[0], words[len(words)-1]
		lose(f, first)
		f.MarkBad(last)
		checkAll(t, f)
		want := []uint64{f.pageOf(first), f.pageOf(last)}
		for ingest := range uint64(2) {
			if change {
				if err := f.SetSorted([]uint64{words[1], last - ingest}); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Sync(ingest + 2); err != nil {
				t.Fatal(err)
			}
		}
		again := trusted(t, path)
		checkAll(t, again)
		if bad := again.BadPages(); !slices.Equal(bad, want) {
			t.Errorf("changed %t: pages %v are bad, want %v", change, bad, want)
		}
		for _, page := range want {
			again.Healed(page)
		}
		if err := again.Sync(4); err != nil {
			t.Fatal(err)
		}
		again = trusted(t, path)
		checkAll(t, again)
		if bad := again.BadPages(); bad != nil {
			t.Errorf("changed %t: pages %v are bad after they were healed", change, bad)
		}
	}
}

// TestDamageMeanwhile damages a page that was checked, and one that was set and
// synced by this process. The next change finds it, and no sum is made of it.
func TestDamageMeanwhile(t *testing.T) {
	path, words := leftInOrder(t)
	f := trusted(t, path)
	checkAll(t, f)
	change := func(w uint64) {
		t.Helper()
		if err := errors.Join(f.SetSorted([]uint64{w + 1}), f.Sync(2)); err != nil {
			t.Fatal(err)
		}
	}
	first, last := words[0], words[len(words)-1]
	lose(f, first)
	change(first)
	change(last)
	lose(f, last)
	change(last)
	want := []uint64{f.pageOf(first), f.pageOf(last)}
	if bad := f.BadPages(); !slices.Equal(bad, want) {
		t.Errorf("pages %v are bad, want %v", bad, want)
	}
	again := trusted(t, path)
	checkAll(t, again)
	if bad := again.BadPages(); !slices.Equal(bad, want) {
		t.Errorf("pages %v are bad after a Sync, want %v", bad, want)
	}
}

// TestUnverifiedChanges: the sums of an unverified filter are not made, and
// must not be compared with what is set.
func TestUnverifiedChanges(t *testing.T) {
	path, words := leftInOrder(t)
	f, err := Open(Files, path, testStore, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.MarkUnverified()
	for ingest := range uint64(3) {
		if err := errors.Join(f.SetSorted([]uint64{words[0] + ingest}), f.Sync(ingest+2)); err != nil {
			t.Fatal(err)
		}
	}
	if bad := f.BadPages(); bad != nil {
		t.Errorf("pages %v are bad", bad)
	}
}

// TestOnesBounded: bits that were lost and set again count twice, and the header
// must not say more than there are.
func TestOnesBounded(t *testing.T) {
	path, _ := leftInOrder(t)
	f := trusted(t, path)
	f.ones.Store(f.fixed.Bits() + 1)
	if err := f.Sync(2); err != nil {
		t.Fatal(err)
	}
	if h, torn, err := ReadHeader(Files, path); err != nil || torn || h.Ones != h.Bits() {
		t.Errorf("header %+v, torn %t, error %v", h, torn, err)
	}
}
