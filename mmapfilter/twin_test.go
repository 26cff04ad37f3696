package mmapfilter

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// TestCrash cuts the power at random moments of a filter's life, within a Sync
// too, and opens what is left: every bit of the ingests that its header claims
// is there, and the header claims no less than the last Sync that returned.
// Sums that are trusted, which they should not be after a crash, are still
// never wrong about a page; and where nothing was set since the last Sync, they
// are trusted, and all pages good.
func TestCrash(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("percent=%d", percent), func(t *testing.T) {
			for seed := range uint64(20) {
				testCrash(t, seed, percent)
			}
		})
	}
}

func testCrash(t *testing.T, seed uint64, percent int) {
	rng := rand.New(rand.NewPCG(seed, uint64(percent)))
	d := NewTwin()
	var ingests [][]uint64 // the words of ingest i+1
	synced := uint64(0)    // what the last Sync that returned said
	bodies := make(map[uint64][]uint64)
	clean := false // whether nothing was set since
	crashes := 0
	crash := func() {
		after := d.Crash(rng, percent)
		crashes++
		f, err := Open(after, "filter", testStore, false)
		if errors.Is(err, fs.ErrNotExist) && len(ingests) == 0 {
			return // within Create
		}
		if err != nil {
			t.Fatalf("seed %d, crash %d: %v", seed, crashes, err)
		}
		h := f.Header()
		checkCrashedSums(t, after, bodies[h.Ingest], clean)
		if h.Ingest < synced || h.Ingest > uint64(len(ingests)) {
			t.Fatalf("seed %d, crash %d: ingest number is %d, synced to %d of %d",
				seed, crashes, h.Ingest, synced, len(ingests))
		}
		for i, words := range ingests[:h.Ingest] {
			if n, first, _ := f.MissingSorted(words); n != 0 {
				t.Fatalf("seed %d, crash %d: %d words of ingest %d of %d are missing, the first is %#x",
					seed, crashes, n, i+1, h.Ingest, first)
			}
		}
		if ones, err := f.CountBits(t.Context()); err != nil || h.Ones > ones {
			t.Fatalf("seed %d, crash %d: the header counts %d bits of %d; error %v", seed, crashes, h.Ones, ones, err)
		}
		// What was lost is set again, as recovery would do it.
		for _, words := range ingests[h.Ingest:] {
			if err := f.SetSorted(words); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Sync(uint64(len(ingests))); err != nil {
			t.Fatal(err)
		}
		f, err = Open(after.Crash(rng, 0), "filter", testStore, true)
		if err != nil || f.Header().Ingest != uint64(len(ingests)) {
			t.Fatalf("seed %d, crash %d: healed: %v", seed, crashes, err)
		}
	}
	d.Fail = func(string, string) error { crash(); return nil }
	p := ParamsFor(5_000, seed)
	bodies[0] = make([]uint64, p.Blocks*blockWords)
	f, err := Create(d, "filter", Header{StoreID: testStore, Generation: 1, Params: p})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		for range rng.IntN(3) + 1 {
			words := sortedWords(rng, rng.IntN(300))
			ingests = append(ingests, words)
			clean = clean && len(words) == 0
			if err := f.SetSorted(words); err != nil {
				t.Fatal(err)
			}
			crash()
		}
		bodies[uint64(len(ingests))] = slices.Clone(f.body)
		if err := f.Sync(uint64(len(ingests))); err != nil {
			t.Fatal(err)
		}
		synced, clean = uint64(len(ingests)), true
		crash()
	}
}

// checkCrashedSums opens what a crash has left as if a clean close had. A page
// that is then found good has to be as it was at the Sync that the header is
// of, body. clean says that it was a clean close indeed.
func checkCrashedSums(t *testing.T, after *Twin, body []uint64, clean bool) {
	t.Helper()
	f, err := Open(after, "filter", testStore, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.TrustSums(); err != nil {
		if clean {
			t.Fatal(err)
		}
		return
	}
	checkAll(t, f)
	bad := f.BadPages()
	if clean && bad != nil {
		t.Fatalf("pages %d are bad", bad)
	}
	for page := range f.pageCount() {
		at := page * pageWords
		same := slices.Equal(f.body[at:at+pageWords], body[at:at+pageWords])
		if same == slices.Contains(bad, page) {
			t.Fatalf("page %d is as it was synced: %t, and bad: %t", page, same, !same)
		}
	}
}

// TestCrashBetweenSums cuts the power within the Syncs of a filter whose sums
// fill more than a page, so that some reach the disk and others do not.
func TestCrashBetweenSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	d := NewTwin()
	p := ParamsFor(3_000_000, 1)
	if p.Blocks < 2*pageWords*BlocksPerPage {
		t.Fatalf("the sums of %d blocks are too few", p.Blocks)
	}
	f, err := Create(d, "filter", Header{StoreID: testStore, Params: p})
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[uint64][]uint64{0: slices.Clone(f.body)}
	trusted, not := 0, 0
	d.Fail = func(op, _ string) error {
		for range 5 {
			after := d.Crash(rng, 50)
			f, err := Open(after, "filter", testStore, true)
			if err != nil {
				t.Fatal(err)
			}
			if f.TrustSums() == nil {
				trusted++
			} else {
				not++
			}
			checkCrashedSums(t, after, bodies[f.Header().Ingest], false)
		}
		return nil
	}
	for i := range uint64(3) {
		if err := f.SetSorted(sortedWords(rng, 5_000)); err != nil {
			t.Fatal(err)
		}
		bodies[i+1] = slices.Clone(f.body)
		if err := f.Sync(i + 1); err != nil {
			t.Fatal(err)
		}
	}
	if trusted == 0 || not == 0 {
		t.Errorf("the sums were trusted after %d crashes, and not after %d", trusted, not)
	}
}

// TestCrashWhileInUse takes crash images while bits are set and looked up.
func TestCrashWhileInUse(t *testing.T) {
	d := NewTwin()
	f := newTestFilter(t, d, ParamsFor(50_000, 1))
	paths := f.path
	sets := make([][]uint64, 30)
	rng := rand.New(rand.NewPCG(8, 9))
	for i := range sets {
		sets[i] = sortedWords(rng, 2000)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for stop := false; !stop; {
			select {
			case <-done:
				stop = true
			default:
			}
			after, err := Open(d.Crash(rng, 50), paths, testStore, true)
			if err != nil {
				t.Error(err)
				return
			}
			for _, words := range sets[:after.Header().Ingest] {
				if n, _, _ := after.MissingSorted(words); n != 0 {
					t.Errorf("%d synced words are missing at ingest number %d", n, after.Header().Ingest)
				}
			}
			f.Has(rng.Uint64())
		}
	})
	for i, words := range sets {
		if err := errors.Join(f.SetSorted(words), f.Sync(uint64(i+1))); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
}

// TestTwinPages stores to each of many pages and looks at which survive.
func TestTwinPages(t *testing.T) {
	const pages = 1000
	d := NewTwin()
	m, err := d.Create("file", pages*pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	words := m.Words()
	survivors := func(percent int) (n int) {
		after, err := d.Crash(rand.New(rand.NewPCG(3, 4)), percent).Open("file", true)
		if err != nil {
			t.Fatal(err)
		}
		got := after.Words()
		for at := 0; at < len(got); at += pageWords {
			page := got[at : at+pageWords]
			switch {
			case slices.Equal(page, words[at:at+pageWords]):
				n++
			case slices.ContainsFunc(page, func(w uint64) bool { return w != 0 }):
				t.Errorf("page %d is neither old nor new", at/pageWords)
			}
		}
		return n
	}
	for i := range words {
		words[i] = uint64(i) + 1
	}
	if got := survivors(0); got != 0 {
		t.Errorf("%d pages survive at 0 %%", got)
	}
	if got := survivors(50); got < 400 || got > 600 {
		t.Errorf("%d of %d pages survive at 50 %%", got, pages)
	}
	if got := survivors(100); got != pages {
		t.Errorf("%d of %d pages survive at 100 %%", got, pages)
	}

	// A Sync that fails loses the pages for good, and one that works keeps
	// those that were stored to again.
	fail := error(syscall.EIO)
	d.Fail = func(op, _ string) error {
		if op == "sync" {
			return fail
		}
		return nil
	}
	if err := m.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v, want EIO", err)
	}
	fail = nil
	words[5*pageWords]++
	if err := m.Sync(); err != nil {
		t.Error(err)
	}
	if got := survivors(100); got != 1 {
		t.Errorf("%d pages survive a sync that failed, want the one stored to since", got)
	}
}

// TestTwinNames holds the Twin to what the real Device does with names.
func TestTwinNames(t *testing.T) {
	for name, d := range devices() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			is := func(what string, err, want error) {
				t.Helper()
				if !errors.Is(err, want) {
					t.Errorf("%s: error %v, want %v", what, err, want)
				}
			}
			a, b := dir+"/a", dir+"/b"
			m, err := d.Create(a, 8192)
			is("create", err, nil)
			_, err = d.Create(a, 8192)
			is("create again", err, fs.ErrExist)
			m2, err := d.Create(b, 4096)
			is("create another", err, nil)
			is("rename onto another", d.Rename(a, b), fs.ErrExist)
			is("rename nothing", d.Rename(dir+"/c", dir+"/d"), fs.ErrNotExist)
			is("remove", d.Remove(b), nil)
			is("remove again", d.Remove(b), fs.ErrNotExist)
			is("rename", d.Rename(a, b), nil)
			_, err = d.Open(a, true)
			is("open the old name", err, fs.ErrNotExist)
			_, _, err = d.Peek(a, nil)
			is("peek at the old name", err, fs.ErrNotExist)
			m.Words()[0] = 0x0807060504030201
			p := make([]byte, 10)
			n, size, err := d.Peek(b, p)
			is("peek", err, nil)
			if n != 10 || size != 8192 || p[0] != 1 || p[7] != 8 || p[8] != 0 {
				t.Errorf("peek: %d of %d bytes, % x", n, size, p)
			}
			n, _, err = d.Peek(b, make([]byte, 10000))
			is("peek beyond", err, nil)
			if n != 8192 {
				t.Errorf("peek beyond: %d bytes", n)
			}
			names, err := d.List(dir)
			is("list", err, nil)
			if !slices.Equal(names, []string{"b"}) {
				t.Errorf("names are %q", names)
			}
			is("sync of a renamed file", m.Sync(), nil)
			is("sync of a removed file", m2.Sync(), nil)
			is("close", errors.Join(m.Close(), m2.Close(), m.Close()), nil)
		})
	}
}
