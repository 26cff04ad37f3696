package mmapfilter

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// devices are the ways in which a filter is stored.
func devices() map[string]Device {
	return map[string]Device{"files": Files, "twin": NewTwin()}
}

func TestCreateOpen(t *testing.T) {
	for name, d := range devices() {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			h := Header{StoreID: testStore, Generation: 5, Ingest: 9, Params: ParamsFor(1_000_000, 1)}
			given := h
			given.Ones = 77 // ignored
			f, err := Create(d, path, given)
			if err != nil {
				t.Fatal(err)
			}
			if f.Header() != h || f.Bytes() != h.FileBytes() || f.Fill() != 0 {
				t.Errorf("header %+v, %d bytes, fill %g", f.Header(), f.Bytes(), f.Fill())
			}
			if _, err := Create(d, path, h); !errors.Is(err, fs.ErrExist) {
				t.Errorf("second Create: error %v, want %v", err, fs.ErrExist)
			}
			words := sortedWords(rand.New(rand.NewPCG(1, 1)), 1_000_000)
			missing := func(when string, f *Filter) {
				t.Helper()
				if n, first, err := f.MissingSorted(words); n != 0 || err != nil {
					t.Fatalf("%s: %d words are missing, the first is %#x; error %v", when, n, first, err)
				}
			}
			if n, first, err := f.MissingSorted(words); n != len(words) || first != words[0] || err != nil {
				t.Errorf("empty: %d words are missing, the first is %#x; error %v", n, first, err)
			}
			if err := f.SetSorted(words); err != nil {
				t.Fatal(err)
			}
			missing("set", f)
			if got := f.Header(); got != h {
				t.Errorf("the header changed before the first Sync: %+v", got)
			}
			for _, ingest := range []uint64{9, 12, 12, 13} {
				if err := f.Sync(ingest); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Sync(12); err == nil {
				t.Error("the ingest number went back")
			}
			want := f.Header()
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}

			for _, readOnly := range []bool{false, true} {
				f, err := Open(d, path, testStore, readOnly)
				if err != nil {
					t.Fatal(err)
				}
				missing("opened", f)
				ones, err := f.CountBits(t.Context())
				if got := f.Header(); err != nil || got != want || got.Ingest != 13 || got.Ones != ones {
					t.Errorf("header %+v, want %+v with %d ones; error %v", got, want, ones, err)
				}
				if fill := f.Fill(); fill != float64(ones)/float64(h.Bits()) {
					t.Errorf("fill is %g", fill)
				}
				if readOnly {
					for _, err := range []error{f.SetSorted(words), f.Sync(14), f.OrBlocks(0, nil)} {
						if !errors.Is(err, ErrReadOnly) {
							t.Errorf("change of a read-only filter: error %v", err)
						}
					}
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if h, torn, err := ReadHeader(d, path); h != want || torn || err != nil {
				t.Errorf("ReadHeader: %+v, torn %t, error %v", h, torn, err)
			}
			if names, err := d.List(dirOf(path)); !slices.Equal(names, []string{"filter"}) || err != nil {
				t.Errorf("files %q, error %v", names, err)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, d := range devices() {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			if _, err := Open(d, path, testStore, false); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("no file: error %v", err)
			}
			f, err := Create(d, path, Header{StoreID: testStore, Params: ParamsFor(1, 1)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(d, path, [16]byte{1}, false); !errors.Is(err, ErrForeign) || errors.Is(err, ErrCorrupt) {
				t.Errorf("another store's file: error %v", err)
			}
			for i := range 2 {
				f.words[i*slotBytes/8+1]++ // version
			}
			if _, err := Open(d, path, testStore, false); !errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) {
				t.Errorf("another version: error %v", err)
			}
			clear(f.words)
			_, err = Open(d, path, testStore, false)
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.Path != path {
				t.Errorf("zeros: error %v", err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestCreateRefusesParams(t *testing.T) {
	for _, p := range []Params{
		{},
		{Blocks: 63, Probes: 7, Capacity: 1},
		{Blocks: MaxBlocks + 64, Probes: 7, Capacity: 1},
		{Blocks: 64, Probes: 0, Capacity: 1},
		{Blocks: 64, Probes: 8, Capacity: 1},
		{Blocks: 64, Probes: 7, Capacity: 0},
	} {
		if f, err := Create(NewTwin(), "filter", Header{Params: p}); f != nil || !errors.Is(err, ErrParams) {
			t.Errorf("Create with %+v: error %v", p, err)
		}
	}
}

// TestFailedCreate makes each operation of a Create fail in turn. Nothing is
// left, and the next Create works.
func TestFailedCreate(t *testing.T) {
	for op, cause := range map[string]error{"create": syscall.ENOSPC, "sync": syscall.EIO, "rename": syscall.EIO} {
		t.Run(op, func(t *testing.T) {
			d := NewTwin()
			failing := true
			d.Fail = func(o, _ string) error {
				if failing && o == op {
					return cause
				}
				return nil
			}
			h := Header{StoreID: testStore, Params: ParamsFor(1, 1)}
			f, err := Create(d, "dir/filter", h)
			if f != nil || !errors.Is(err, cause) {
				t.Errorf("error %v, want %v", err, cause)
			}
			if errors.Is(err, ErrNoSpace) != (cause == syscall.ENOSPC) {
				t.Errorf("error %v is ErrNoSpace, or should be", err)
			}
			if names, err := d.List("dir"); len(names) != 0 || err != nil {
				t.Errorf("left over: %q; error %v", names, err)
			}
			failing = false
			if _, err := Create(d, "dir/filter", h); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFailedSyncSticks lets one Sync fail, before the bits are durable or
// before the header is. It must not be possible to get a nil afterwards.
func TestFailedSyncSticks(t *testing.T) {
	for nth := range 2 {
		d := NewTwin()
		f, err := Create(d, "filter", Header{StoreID: testStore, Params: ParamsFor(1000, 1)})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		d.Fail = func(op, _ string) error {
			if op != "sync" {
				return nil
			}
			n++
			if n-1 == nth {
				return syscall.EIO
			}
			return nil
		}
		words := []uint64{1, 2, 3}
		if err := f.SetSorted(words); err != nil {
			t.Fatal(err)
		}
		first := f.Sync(1)
		if !errors.Is(first, syscall.EIO) {
			t.Fatalf("error %v, want EIO", first)
		}
		calls := n
		for _, err := range []error{f.Sync(1), f.Sync(2), f.SetSorted(words), f.OrBlocks(0, make([]uint64, 8))} {
			if err != first {
				t.Errorf("error %v, want the first one", err)
			}
		}
		if n != calls {
			t.Error("a failed sync was tried again")
		}
		if f.Header().Ingest != 0 {
			t.Errorf("ingest number is %d after a Sync that failed", f.Header().Ingest)
		}
		if !f.Has(1) {
			t.Error("lookups stopped")
		}

		// Another process opens it, sets the words again, and its Sync holds.
		f, err = Open(d, "filter", testStore, false)
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().Ingest != 0 {
			t.Errorf("sync %d failed: opened with the header that was lost: %+v", nth, f.Header())
		}
		if err := errors.Join(f.SetSorted(words), f.Sync(1)); err != nil {
			t.Fatal(err)
		}
		f, err = Open(d.Crash(rand.New(rand.NewPCG(1, 2)), 0), "filter", testStore, true)
		if err != nil {
			t.Fatal(err)
		}
		if n, _, err := f.MissingSorted(words); n != 0 || err != nil || f.Header().Ingest != 1 {
			t.Errorf("sync %d failed: %d words are missing, error %v, %+v", nth, n, err, f.Header())
		}
	}
}

func TestCountBits(t *testing.T) {
	f := newTestFilter(t, NewTwin(), ParamsFor(10_000_000, 1)) // 15 MB: several steps
	f.body[0], f.body[len(f.body)-1] = 7, 1<<63
	f.body[len(f.body)/2] = 1
	if f.Fill() != 0 {
		t.Error("bits that were not set through the filter are counted")
	}
	if ones, err := f.CountBits(t.Context()); ones != 5 || err != nil {
		t.Errorf("%d bits, want 5; error %v", ones, err)
	}
	if got := f.Fill() * float64(f.fixed.Bits()); got != 5 {
		t.Errorf("Fill stands for %g bits after the count, want 5", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.CountBits(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestClosed(t *testing.T) {
	f := newTestFilter(t, NewTwin(), ParamsFor(1, 1))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, missing := f.MissingSorted([]uint64{1})
	_, count := f.CountBits(t.Context())
	for i, err := range []error{f.SetSorted(nil), f.Sync(1), missing, count} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("call %d: error %v, want %v", i, err, ErrClosed)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a lookup in a closed filter did not panic")
		}
	}()
	f.Has(1)
}

// TestConcurrentLookups looks words up while others are set and synced. What
// was set is found at any time, and what has been found is never lost again.
func TestConcurrentLookups(t *testing.T) {
	for name, d := range devices() {
		t.Run(name, func(t *testing.T) {
			f := newTestFilter(t, d, ParamsFor(100_000, 1))
			const rounds, perRound = 20, 5_000
			rng := rand.New(rand.NewPCG(5, 6))
			sets := make([][]uint64, rounds)
			for i := range sets {
				sets[i] = sortedWords(rng, perRound)
			}
			var set atomic.Int64 // sets below it are in the filter
			var wg sync.WaitGroup
			for g := range 2 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(7, uint64(g)))
					found := make(map[uint64]bool)
					for done := int64(0); done < rounds; {
						done = set.Load()
						for range 1000 {
							i := rng.Int64N(rounds)
							w := sets[i][rng.IntN(perRound)]
							_ = f.Touch(w)
							has := f.Has(w)
							if !has && (i < done || found[w]) {
								t.Errorf("word %#x of set %d is not found, %d are set", w, i, done)
								return
							}
							found[w] = has
						}
						_, _, _ = f.Fill(), f.Header(), f.Bytes()
					}
				})
			}
			for i, words := range sets {
				if err := f.SetSorted(words); err != nil {
					t.Error(err)
				}
				set.Store(int64(i + 1))
				if err := f.Sync(uint64(i)); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
			}
			wg.Wait()
		})
	}
}

func TestNoAllocation(t *testing.T) {
	f := newTestFilter(t, Files, ParamsFor(10_000, 1))
	words := sortedWords(rand.New(rand.NewPCG(1, 2)), 1000)
	var sum uint64
	for name, call := range map[string]func(){
		"Has":           func() { f.Has(words[0]) },
		"Touch":         func() { sum += f.Touch(words[0]) },
		"SetSorted":     func() { _ = f.SetSorted(words) },
		"MissingSorted": func() { _, _, _ = f.MissingSorted(words) },
		"CountBits":     func() { _, _ = f.CountBits(context.Background()) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s allocates %g times", name, n)
		}
	}
}

// TestGuard lets panics through that are not the mapping's, and restores the
// goroutine's setting in any case.
func TestGuard(t *testing.T) {
	f := newTestFilter(t, Files, ParamsFor(1, 1))
	var nowhere *int
	for name, access := range map[string]func(){
		"value": func() { panic("ours") },
		"index": func() { _ = f.body[len(f.body):][0] },
		"nil":   func() { *nowhere++ },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic was swallowed", name)
				}
			}()
			err := f.guard(access)
			t.Errorf("%s: guard returned %v", name, err)
		}()
	}
	if debug.SetPanicOnFault(false) {
		t.Error("the setting was not restored")
	}
}
