//go:build !race

// Under the race detector an atomic store runs in its C code, where a fault
// cannot become an error. (A fault of a load can: it is tried before.)

package mmapfilter

import (
	"errors"
	"testing"
)

// TestSetAgain takes a mapping that cannot be stored to for a writable one, so
// that every store is noticed: bits that are set already are stored from Open
// to the first Sync, and not otherwise.
func TestSetAgain(t *testing.T) {
	f, err := Open(Files, goldenFile, goldenHeader.StoreID, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.readOnly = false
	if err := f.SetSorted(goldenWords); !errors.Is(err, ErrFault) {
		t.Errorf("after Open: error %v, want %v, since all is stored again", err, ErrFault)
	}
	f.err, f.again = nil, false
	if err := f.SetSorted(goldenWords); err != nil {
		t.Errorf("after Sync: error %v, since bits were stored again", err)
	}
	if f.Fill() != 21.0/(64*512) {
		t.Errorf("fill is %g", f.Fill())
	}

	f = newTestFilter(t, Files, ParamsFor(1, 1))
	if f.again {
		t.Error("a new file is stored to again")
	}
	again, err := Open(Files, f.path, testStore, false)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := errors.Join(again.SetSorted(goldenWords), again.Sync(1)); err != nil || again.again {
		t.Errorf("after a Sync: again is %t, error %v", again.again, err)
	}
}
