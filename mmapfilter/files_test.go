package mmapfilter

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func dirOf(path string) string { return filepath.Dir(path) }

// TestAllocated looks for holes: the file has to have all its blocks before
// anything is stored, by fallocate as well as by writing zeros.
func TestAllocated(t *testing.T) {
	none := func(*os.File, int64) error { return errNoFallocate }
	for name, d := range map[string]Device{"fallocate": Files, "zeros": files{fallocate: none}} {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			const size = 5<<20 + 4096
			m, err := d.Create(path, size)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				t.Fatal(err)
			}
			if st.Size != size || st.Blocks*512 < size {
				t.Errorf("a file of %d bytes, of which %d are allocated, want %d", st.Size, st.Blocks*512, size)
			}
			if st.Mode&0o777 != 0o600 {
				t.Errorf("mode is %o", st.Mode&0o777)
			}
			for i, w := range m.Words() {
				if w != 0 {
					t.Fatalf("word %d is %#x", i, w)
				}
			}
		})
	}
}

// TestFullFileSystem creates filters that there is no room for: one that is
// larger than what is free, and one that the file system refuses half-way.
func TestFullFileSystem(t *testing.T) {
	path := tempPath(t)
	var st unix.Statfs_t
	if err := unix.Statfs(dirOf(path), &st); err != nil {
		t.Fatal(err)
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	partly := func(f *os.File, size int64) error {
		if err := f.Truncate(size / 2); err != nil {
			return err
		}
		return os.NewSyscallError("fallocate", syscall.ENOSPC)
	}
	// The file system must not be asked: it might hand out all there is before
	// it refuses. 10 % more than is free, in case that room is being made.
	asked := func(*os.File, int64) error { t.Error("asked for more than is free"); return syscall.ENOSPC }
	m, err := files{fallocate: asked}.Create(path, free+free/10+1<<30)
	if m != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("more than is free: error %v, want %v", err, syscall.ENOSPC)
	}
	f, err := Create(files{fallocate: partly}, path, Header{StoreID: testStore, Params: ParamsFor(1_000_000, 1)})
	if f != nil || !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("refused half-way: error %v, want %v", err, ErrNoSpace)
	}
	if names, err := Files.List(dirOf(path)); len(names) != 0 || err != nil {
		t.Errorf("left over: %q; error %v", names, err)
	}
}

// TestWrongSize cuts a filter's file and lengthens it.
func TestWrongSize(t *testing.T) {
	path := tempPath(t)
	f, err := Create(Files, path, Header{StoreID: testStore, Params: ParamsFor(10_000, 1)})
	if err != nil {
		t.Fatal(err)
	}
	size := f.Bytes()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{size + 4096, size + 1, size - 1, size - 4096, 4096, 4095, 104, 1, 0} {
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{false, true} {
			if _, err := Open(Files, path, testStore, readOnly); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d bytes instead of %d: error %v, want %v", n, size, err, ErrCorrupt)
			}
		}
	}
}

// TestFault cuts the file short under the mapping. Each call of the maintainer
// returns an error, and the process lives.
func TestFault(t *testing.T) {
	path := tempPath(t)
	f, err := Create(Files, path, Header{StoreID: testStore, Params: ParamsFor(100_000, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	words := sortedWords(rand.New(rand.NewPCG(1, 1)), 1000)
	if err := f.SetSorted(words); err != nil {
		t.Fatal(err)
	}
	const left = 8192 // the header, and one page of blocks
	if err := os.Truncate(path, left); err != nil {
		t.Fatal(err)
	}
	isFault := func(what string, err error) {
		t.Helper()
		var fault *FaultError
		if !errors.As(err, &fault) || !errors.Is(err, ErrFault) {
			t.Fatalf("%s: error %v, want %v", what, err, ErrFault)
		}
		if fault.Path != path || fault.Offset < left || fault.Offset >= f.Bytes() {
			t.Errorf("%s: fault in %s at %d", what, fault.Path, fault.Offset)
		}
	}
	_, _, err = f.MissingSorted(words)
	isFault("MissingSorted", err)
	_, err = f.CountBits(t.Context())
	isFault("CountBits", err)
	err = func() (err error) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { err = f.Fault(recover()) }()
		f.Has(words[len(words)-1])
		return nil
	}()
	isFault("Has", err)

	other := newTestFilter(t, Files, ParamsFor(1, 1))
	func() {
		defer func() {
			if other.Fault(recover()) != nil {
				t.Error("a fault in one mapping is taken for one in another")
			}
		}()
		err := other.guard(func() { f.Has(words[len(words)-1]) })
		t.Errorf("a fault in another mapping became the error %v", err)
	}()

	first := f.SetSorted(words)
	isFault("SetSorted", first)
	for _, err := range []error{f.SetSorted(nil), f.Sync(1)} {
		if err != first {
			t.Errorf("error %v, want the first one", err)
		}
	}
	if f.Fault("something else") != nil || f.Fault(nil) != nil {
		t.Error("Fault takes what is none for one")
	}
}

// TestReadOnlyMapping stores into a filter that was opened read-only, past the
// check.
func TestReadOnlyMapping(t *testing.T) {
	f, err := Open(Files, goldenFile, goldenHeader.StoreID, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.guard(func() { f.words[0] = 0 }); !errors.Is(err, ErrFault) {
		t.Errorf("error %v, want %v", err, ErrFault)
	}
}

func TestFilesOpenRefuses(t *testing.T) {
	for size, ok := range map[int64]bool{0: false, 7: false, 12: false, 8: true, 4104: true} {
		path := tempPath(t)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Files.Open(path, false)
		if (err == nil) != ok {
			t.Errorf("%d bytes: error %v", size, err)
		}
		if err == nil {
			if got := int64(len(m.Words())) * 8; got != size {
				t.Errorf("%d bytes: %d mapped", size, got)
			}
			if err := errors.Join(m.Close(), m.Close()); err != nil {
				t.Error(err)
			}
			if err := m.Sync(); !errors.Is(err, ErrClosed) {
				t.Errorf("sync of a closed mapping: error %v", err)
			}
		}
	}
}
