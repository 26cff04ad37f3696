package mmapfilter

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// A synced filter on a Twin, and what was set in it.
type synced struct {
	d     *Twin
	words []uint64
}

// newSynced makes a filter of some pages with words in each, synced and closed.
func newSynced(tb testing.TB, capacity uint64) synced {
	tb.Helper()
	s := synced{NewTwin(), sortedWords(rand.New(rand.NewPCG(1, 2)), int(capacity))}
	f, err := Create(s.d, "filter", Header{StoreID: testStore, Params: ParamsFor(capacity, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(f.SetSorted(s.words), f.Sync(1), f.Close()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// open opens the filter without trusting it.
func (s synced) open(tb testing.TB) *Filter {
	tb.Helper()
	f, err := Open(s.d, "filter", testStore, false)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// trusted opens the filter as one that was left by a clean close.
func (s synced) trusted(tb testing.TB) *Filter {
	tb.Helper()
	f := s.open(tb)
	if !f.TrustSums() {
		tb.Fatal("the sums are not trusted")
	}
	return f
}

// checkAll checks all pages and returns the bad ones.
func checkAll(tb testing.TB, f *Filter) []uint64 {
	tb.Helper()
	for {
		switch more, err := f.CheckPages(3); {
		case err != nil:
			tb.Fatal(err)
		case !more:
			return f.BadPages()
		}
	}
}

// inPage returns those of words that lie in a page.
func inPage(f *Filter, words []uint64, page uint64) []uint64 {
	first, last := f.PageRange(page)
	return slices.DeleteFunc(slices.Clone(words), func(w uint64) bool { return w < first || w > last })
}

// damage clears a bit of a word, as damage at rest does.
func damage(f *Filter, word uint64) {
	block := f.body[blockOf(word, f.blocks)*blockWords:][:blockWords]
	h := probesOf(word, f.seed, f.probes)
	block[h>>6%blockWords] &^= 1 << (h % 64)
}

// wantPages compares what a filter says of its pages.
func wantPages(tb testing.TB, f *Filter, unchecked int, bad ...uint64) {
	tb.Helper()
	if got := f.Unchecked(); got != unchecked {
		tb.Errorf("%d pages are unchecked, want %d", got, unchecked)
	}
	if got := f.BadPages(); !slices.Equal(got, bad) {
		tb.Errorf("pages %d are bad, want %d", got, bad)
	}
	if all := unchecked == 0 && len(bad) == 0; f.AllSure() != all {
		tb.Errorf("AllSure is %t, want %t", !all, all)
	}
}

// TestFresh: a new filter is good as it is, and still after a crash that comes
// before its first Sync.
func TestFresh(t *testing.T) {
	d := NewTwin()
	h := Header{StoreID: testStore, Params: ParamsFor(10_000, 1), Unverified: true}
	f, err := Create(d, "filter", h)
	if err != nil {
		t.Fatal(err)
	}
	wantPages(t, f, 0)
	if f.Header().Unverified {
		t.Error("a new filter is unverified")
	}
	if bad, sums, err := f.VerifySums(t.Context()); bad != nil || !sums || err != nil {
		t.Errorf("pages %d are bad, sums %t, error %v", bad, sums, err)
	}
	for page, sum := range f.sums {
		h := xxhash.NewWithSeed(uint64(page))
		_, _ = h.Write(make([]byte, 4096))
		if sum != h.Sum64() {
			t.Errorf("sum of page %d is %016x, want %016x", page, sum, h.Sum64())
		}
	}
	f, err = Open(d.Crash(rand.New(rand.NewPCG(1, 1)), 0), "filter", testStore, true)
	if err != nil {
		t.Fatal(err)
	}
	if !f.TrustSums() {
		t.Fatal("the sums are not trusted")
	}
	wantPages(t, f, int(h.Pages()))
	if bad := checkAll(t, f); bad != nil {
		t.Errorf("pages %d are bad", bad)
	}
	wantPages(t, f, 0)
}

// TestUntrusted opens a filter as one left by a crash: it has nothing to check
// against, and its first Sync makes the sums of all pages.
func TestUntrusted(t *testing.T) {
	s := newSynced(t, 10_000)
	f := s.open(t)
	damage(f, s.words[0])
	wantPages(t, f, 0)
	if more, err := f.CheckPages(1); more || err != nil || !f.Sure(s.words[0]) {
		t.Errorf("something was checked: more %t, error %v", more, err)
	}
	if bad, _, _ := f.VerifySums(t.Context()); !slices.Equal(bad, []uint64{0}) {
		t.Errorf("pages %d are bad, want the first", bad)
	}
	if err := f.Sync(1); err != nil {
		t.Fatal(err)
	}
	if bad := checkAll(t, s.trusted(t)); bad != nil {
		t.Errorf("pages %d are bad after a Sync", bad)
	}
}

// TestFirstTouch follows a damaged page from the lookup that finds it, or the
// maintainer's check, to the Sync of what healed it.
func TestFirstTouch(t *testing.T) {
	for _, touch := range []bool{true, false} {
		t.Run(fmt.Sprintf("touch=%t", touch), func(t *testing.T) {
			s := newSynced(t, 10_000)
			f := s.trusted(t)
			pages := int(f.fixed.Pages())
			if pages < 4 {
				t.Fatalf("%d pages are too few", pages)
			}
			const page = 2
			mine := inPage(f, s.words, page)
			damage(f, mine[0])
			wantPages(t, f, pages)
			if touch {
				if f.Sure(mine[1]) || !f.Sure(s.words[0]) {
					t.Error("the damaged page is sure, or the first is not")
				}
				wantPages(t, f, pages-2, page)
			}
			if !touch {
				if more, err := f.CheckPages(2); !more || err != nil {
					t.Errorf("two pages checked: more %t, error %v", more, err)
				}
				wantPages(t, f, pages-2)
			}
			if bad := checkAll(t, f); !slices.Equal(bad, []uint64{page}) {
				t.Errorf("pages %d are bad", bad)
			}
			wantPages(t, f, 0, page)
			if f.Has(mine[0]) || f.Sure(mine[0]) || !f.Sure(s.words[0]) {
				t.Error("the page is not as expected")
			}

			// A Sync of other changes, and of changes to it, does not make it good.
			if err := errors.Join(f.SetSorted([]uint64{mine[1], mine[1] + 1}), f.Sync(2)); err != nil {
				t.Fatal(err)
			}
			wantPages(t, f, 0, page)
			if bad := checkAll(t, s.trusted(t)); !slices.Equal(bad, []uint64{page}) {
				t.Errorf("pages %d are bad after a Sync", bad)
			}

			if err := f.SetSorted(mine); err != nil {
				t.Fatal(err)
			}
			f.Healed(page)
			wantPages(t, f, 0)
			if !f.Sure(mine[0]) {
				t.Error("the healed page is not sure")
			}
			if err := f.Sync(3); err != nil {
				t.Fatal(err)
			}
			f = s.trusted(t)
			if bad := checkAll(t, f); bad != nil {
				t.Errorf("pages %d are bad after they were healed", bad)
			}
			if n, first, err := f.MissingSorted(s.words); n != 0 || err != nil {
				t.Errorf("%d words are missing, the first is %#x; error %v", n, first, err)
			}
		})
	}
}

// TestMarkBad: the sum of a page knows nothing of a bit that was lost before it
// was made. The page has to be bad after a Sync and a reopen none the less.
func TestMarkBad(t *testing.T) {
	s := newSynced(t, 10_000)
	f := s.trusted(t)
	w := inPage(f, s.words, 1)[0]
	for i := range 3 {
		if news := f.MarkBad(w); news != (i == 0) {
			t.Errorf("call %d: news %t", i, news)
		}
	}
	wantPages(t, f, int(f.fixed.Pages())-1, 1)
	checkAll(t, f)
	last := s.words[len(s.words)-1]
	if !f.MarkBad(last) {
		t.Error("a good page cannot be marked")
	}
	bad := []uint64{1, f.fixed.Page(last)}
	wantPages(t, f, 0, bad...)
	for i := range uint64(2) {
		if err := f.Sync(i + 2); err != nil {
			t.Fatal(err)
		}
	}
	wantPages(t, f, 0, bad...)
	f = s.trusted(t)
	if got := checkAll(t, f); !slices.Equal(got, bad) {
		t.Errorf("pages %d are bad, want %d", got, bad)
	}
	f.Healed(bad[0])
	f.Healed(bad[1])
	if err := f.Sync(4); err != nil {
		t.Fatal(err)
	}
	if got := checkAll(t, s.trusted(t)); got != nil {
		t.Errorf("pages %d are bad after they were healed", got)
	}
}

// TestDamageMeanwhile damages a page that was checked, or set by this process
// and synced. The next change finds it; the next Sync must not bless it.
func TestDamageMeanwhile(t *testing.T) {
	s := newSynced(t, 10_000)
	f := s.trusted(t)
	checkAll(t, f)
	set := func(page uint64) (first uint64) {
		t.Helper()
		first = inPage(f, s.words, page)[0]
		if err := errors.Join(f.SetSorted([]uint64{first + 1}), f.Sync(2)); err != nil {
			t.Fatal(err)
		}
		return first
	}
	damage(f, inPage(f, s.words, 0)[0]) // checked
	set(0)
	damage(f, set(1)) // set and synced
	set(1)
	wantPages(t, f, 0, 0, 1)
	if got := checkAll(t, s.trusted(t)); !slices.Equal(got, []uint64{0, 1}) {
		t.Errorf("pages %d are bad after a Sync, want 0 and 1", got)
	}
}

// TestEveryFlip flips every bit of the golden file's blocks and sums. Of the
// blocks the page is found bad, of the sums none is trusted.
func TestEveryFlip(t *testing.T) {
	d := NewTwin()
	f, err := Create(d, "filter", goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.SetSorted(goldenWords), f.Sync(41)); err != nil {
		t.Fatal(err)
	}
	open := func() *Filter {
		t.Helper()
		f, err := Open(d, "filter", goldenHeader.StoreID, true)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for bit := range len(f.body) * 64 {
		f.body[bit/64] ^= 1 << (bit % 64)
		if bad, sums, err := f.VerifySums(t.Context()); len(bad) != 1 || !sums || err != nil {
			t.Fatalf("bit %d: pages %d are bad, sums %t, error %v", bit, bad, sums, err)
		}
		if bit%61 == 0 { // 61: no multiple of it is one of 64 soon
			if f := open(); !f.TrustSums() || f.Sure(0) || f.Unchecked() != 0 {
				t.Fatalf("bit %d: a lookup takes the page for good", bit)
			}
		}
		f.body[bit/64] ^= 1 << (bit % 64)
	}
	for bit := range len(f.sums) * 64 {
		f.sums[bit/64] ^= 1 << (bit % 64)
		if bad, sums, err := f.VerifySums(t.Context()); bad != nil || sums || err != nil {
			t.Fatalf("bit %d of the sums: pages %d are bad, sums %t, error %v", bit, bad, sums, err)
		}
		f := open()
		if f.TrustSums() {
			t.Fatalf("bit %d of the sums: they are trusted", bit)
		}
		wantPages(t, f, 0)
		if f.dirty.Count() != 1 {
			t.Fatal("a page is not dirty any more")
		}
		f.sums[bit/64] ^= 1 << (bit % 64)
	}
	// A header that is damaged is not read. The other one is of another Sync,
	// and of other sums, if it is the older one.
	for bit := range pageBytes * 8 {
		if bit/8%slotBytes >= headerBytes {
			continue
		}
		f.words[bit/64] ^= 1 << (bit % 64)
		if got, want := open().TrustSums(), bit/8 >= slotBytes; got != want {
			t.Fatalf("bit %d of the header: the sums are trusted: %t, want %t", bit, got, want)
		}
		f.words[bit/64] ^= 1 << (bit % 64)
	}
}

// TestSwappedPages swaps two pages, which have the bits of each other's sums.
func TestSwappedPages(t *testing.T) {
	s := newSynced(t, 10_000)
	f := s.trusted(t)
	a, b := f.body[:pageWords], f.body[pageWords:2*pageWords]
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
	if bad := checkAll(t, f); !slices.Equal(bad, []uint64{0, 1}) {
		t.Errorf("pages %d are bad, want the two", bad)
	}
	clear(a) // as if it had never been written
	clear(b)
	if bad := checkAll(t, s.trusted(t)); !slices.Equal(bad, []uint64{0, 1}) {
		t.Errorf("pages %d are bad, want the two", bad)
	}
}

// TestOnesBounded: bits that were lost and set again count twice, and the header
// must not say more than there are.
func TestOnesBounded(t *testing.T) {
	s := newSynced(t, 10_000)
	f := s.open(t)
	f.ones.Store(f.fixed.Bits() + 1)
	if err := f.Sync(2); err != nil {
		t.Fatal(err)
	}
	if h, torn, err := ReadHeader(s.d, "filter"); err != nil || torn || h.Ones != h.Bits() {
		t.Errorf("header %+v, torn %t, error %v", h, torn, err)
	}
}

// TestMarkUnverified: the mark is in the header from the next Sync on, and
// stays.
func TestMarkUnverified(t *testing.T) {
	s := newSynced(t, 10_000)
	f := s.open(t)
	f.MarkUnverified()
	if f.Header().Unverified || !s.open(t).TrustSums() {
		t.Error("the mark is there before a Sync")
	}
	for i := range uint64(3) {
		if err := f.Sync(i + 1); err != nil {
			t.Fatal(err)
		}
		if h, _, err := ReadHeader(s.d, "filter"); err != nil || !h.Unverified || h != f.Header() {
			t.Errorf("header %+v, want %+v; error %v", h, f.Header(), err)
		}
		f = s.open(t)
		if f.TrustSums() {
			t.Error("the sums of an unverified filter are trusted")
		}
		if bad, sums, err := f.VerifySums(t.Context()); bad != nil || !sums || err != nil {
			t.Errorf("pages %d are bad, sums %t, error %v", bad, sums, err)
		}
	}
}

// TestChangeWhileChecked changes a page in the middle of a lookup's check of
// it. The lookup finds bits that do not fit the sum, and must not call the page
// bad for it. Without the maintainer's check it does, which shows that the test
// can fail.
func TestChangeWhileChecked(t *testing.T) {
	for _, unsafe := range []bool{false, true} {
		s := newSynced(t, 10_000)
		f := s.trusted(t)
		f.hooks.uncheckedChanges = unsafe
		calls := 0
		f.hooks.checking = func(page uint64) {
			calls++
			if err := f.SetSorted([]uint64{s.words[0] + 1, s.words[0] + 2}); err != nil {
				t.Error(err)
			}
		}
		if sure := f.Sure(s.words[0]); sure == unsafe || calls != 1 {
			t.Errorf("maintainer checks first %t: page is good %t after %d checks", !unsafe, sure, calls)
		}
		// And with a Sync, which makes the sum anew.
		s = newSynced(t, 10_000)
		f = s.trusted(t)
		f.hooks.checking = func(uint64) {
			if err := errors.Join(f.SetSorted([]uint64{s.words[0] + 3}), f.Sync(2)); err != nil {
				t.Error(err)
			}
		}
		if !unsafe && !f.Sure(s.words[0]) {
			t.Error("a Sync between two loads makes the page bad")
		}
	}
}

// TestChecksRace lets lookups check pages while the maintainer changes, checks
// and syncs them. None is bad, and none is found bad. It is for the race
// detector too.
func TestChecksRace(t *testing.T) {
	found := func(unchecked bool) int64 {
		s := newSynced(t, 200_000)
		f := s.trusted(t)
		f.hooks.uncheckedChanges = unchecked
		changed := sortedWords(rand.New(rand.NewPCG(3, 4)), 20_000)
		var unsure atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		for g := range 3 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(5, uint64(g)))
				<-start
				for range 5_000 {
					w := s.words[rng.IntN(len(s.words))]
					sure := f.Sure(w)
					if !f.Has(w) || !sure {
						unsure.Add(1)
					}
				}
			})
		}
		for i, part := range slices.Collect(slices.Chunk(changed, 500)) {
			if i == 1 { // so that there is one page at least that lookups come late to
				close(start)
			}
			if err := f.SetSorted(part); err != nil {
				t.Error(err)
			}
			if i%4 == 0 {
				if _, err := f.CheckPages(1); err != nil {
					t.Error(err)
				}
				if err := f.Sync(uint64(i + 1)); err != nil {
					t.Error(err)
				}
			}
		}
		wg.Wait()
		for _, w := range s.words { // what chance has left out
			if !f.Sure(w) {
				unsure.Add(1)
			}
		}
		return unsure.Load()
	}
	if n := found(false); n != 0 {
		t.Errorf("%d lookups were unsure of a sound filter", n)
	}
	if n := found(true); n == 0 {
		t.Error("the test does not notice that the maintainer changes unchecked pages")
	}
}

// TestCountsNeverTooLow marks and heals a page from several goroutines: while
// another page is bad, AllSure is false.
func TestCountsNeverTooLow(t *testing.T) {
	s := newSynced(t, 100_000)
	f := s.open(t)
	f.MarkBad(0) // for all the time
	other := s.words[len(s.words)/2]
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				f.MarkBad(other)
				if f.AllSure() || f.Sure(0) {
					t.Error("sure, and the first page is bad")
					return
				}
			}
		})
	}
	for range 200_000 {
		f.Healed(f.fixed.Page(other))
		if f.AllSure() {
			t.Error("all sure, and the first page is bad")
			break
		}
	}
	close(stop)
	wg.Wait()
	for _, page := range f.BadPages() {
		f.Healed(page)
	}
	wantPages(t, f, 0)
}

// TestPageRange takes the borders of pages apart, for many sizes.
func TestPageRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	sizes := []uint64{1, 2, 3, 5, 7, 1 << 10, 1<<20 - 1, MaxBlocks / 64, MaxBlocks/64 - 1}
	for range 200 {
		sizes = append(sizes, rng.Uint64N(MaxBlocks/64)+1)
	}
	for _, pages := range sizes {
		p := Params{Blocks: pages * BlocksPerPage, Probes: 7, Capacity: 1}
		if p.Pages() != pages || p.FileBytes() != int64(4096+pages*4096+pages*8) {
			t.Fatalf("%d pages, %d bytes, want %d pages", p.Pages(), p.FileBytes(), pages)
		}
		for _, page := range []uint64{0, 1, pages / 3, pages / 2, pages - 2, pages - 1, rng.Uint64N(pages)} {
			if page >= pages {
				continue
			}
			first, last := p.PageRange(page)
			if p.Page(first) != page || p.Page(last) != page || first > last {
				t.Fatalf("page %d of %d: from %#x in %d to %#x in %d",
					page, pages, first, p.Page(first), last, p.Page(last))
			}
			if page == 0 && first != 0 || page > 0 && p.Page(first-1) != page-1 {
				t.Fatalf("page %d of %d: %#x is not its first word", page, pages, first)
			}
			if page == pages-1 && last != math.MaxUint64 || page < pages-1 && p.Page(last+1) != page+1 {
				t.Fatalf("page %d of %d: %#x is not its last word", page, pages, last)
			}
		}
	}
}

// TestPageStates holds the packed states to a plain array.
func TestPageStates(t *testing.T) {
	const pages = 3*statesInWord + 5
	rng := rand.New(rand.NewPCG(9, 10))
	s, want := newPageStates(pages), make([]pageState, pages)
	for range 20_000 {
		page := rng.Uint64N(pages)
		from, to := pageState(rng.IntN(3)), pageState(rng.IntN(3))
		if moved := s.move(page, from, to); moved != (want[page] == from) {
			t.Fatalf("page %d is %d: moved from %d to %d: %t", page, want[page], from, to, moved)
		}
		if want[page] == from {
			want[page] = to
		}
		for page, state := range want {
			if got := s.get(uint64(page)); got != state {
				t.Fatalf("page %d is %d, want %d", page, got, state)
			}
		}
		at, state := rng.IntN(pages), pageState(1+rng.IntN(2))
		next := slices.Index(want[at:], state)
		got, ok := s.next(uint64(at), state)
		if ok != (next >= 0) || ok && got != uint64(at+next) {
			t.Fatalf("next page of state %d from %d is %d, %t, want %d behind", state, at, got, ok, next)
		}
	}
}

// TestLinked takes the file away from under its name.
func TestLinked(t *testing.T) {
	for name, d := range devices() {
		t.Run(name, func(t *testing.T) {
			f := newTestFilter(t, d, ParamsFor(1, 1))
			is := func(what string, want bool) {
				t.Helper()
				if linked, err := f.Linked(); linked != want || err != nil {
					t.Errorf("%s: linked %t, error %v", what, linked, err)
				}
			}
			is("created", true)
			if err := d.Rename(f.path, f.path+".away"); err != nil {
				t.Fatal(err)
			}
			is("renamed", false)
			if _, err := Create(d, f.path, Header{StoreID: testStore, Params: ParamsFor(1, 1)}); err != nil {
				t.Fatal(err)
			}
			is("replaced", false)
			if err := errors.Join(d.Remove(f.path), d.Rename(f.path+".away", f.path)); err != nil {
				t.Fatal(err)
			}
			is("back", true)
			if err := d.Remove(f.path); err != nil {
				t.Fatal(err)
			}
			is("removed", false)
			if err := os.RemoveAll(dirOf(f.path)); err != nil {
				t.Fatal(err)
			}
			is("without its directory", false)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Linked(); !errors.Is(err, ErrClosed) {
				t.Errorf("closed: error %v", err)
			}
		})
	}
	d := NewTwin()
	f := newTestFilter(t, d, ParamsFor(1, 1))
	d.Fail = func(op, _ string) error {
		if op == "linked" {
			return fs.ErrPermission
		}
		return nil
	}
	if linked, err := f.Linked(); linked || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("linked %t, error %v", linked, err)
	}
}
