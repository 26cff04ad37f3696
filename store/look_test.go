package store

import (
	"errors"
	"os"
	"testing"
)

// TestBitmapFault takes the bitmap's pages away under a store, as a disk does
// that cannot read them any more: what needs them is an error, and the process
// lives.
func TestBitmapFault(t *testing.T) {
	w := onDisk(t)
	s := mustOpen(t, w.dir, w.options())
	defer s.Close() // cannot sync what is not there
	answers := make([]Answer, 100)
	if err := s.AddBatch(t.Context(), keys(0, 100), answers); err != nil {
		t.Fatal(err)
	}
	path := s.bitmapPath(s.mu.registry)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	_, err := s.Has(t.Context(), "not added")
	is(t, "Has", err, ErrCorrupt)
	if c, ok := errors.AsType[*CorruptError](err); !ok || c.Path != path || c.Offset < 4096 {
		t.Errorf("Has: got %+v, want the place of the fault", err)
	}
	_, err = s.Add(t.Context(), "not added")
	is(t, "Add", err, ErrCorrupt)
	is(t, "AddBatch", s.AddBatch(t.Context(), keys(200, 300), answers), ErrCorrupt)
	for i, a := range answers {
		if a != Unanswered {
			t.Errorf("member %d: got %v of a batch that failed", i, a)
		}
	}
	// The words in the memtable need no page of the bitmap but for the touch
	// of a batch.
	if has, err := s.Has(t.Context(), key(0)); err != nil || !has {
		t.Errorf("Has of a key in the memtable: got %v, %v", has, err)
	}
}
