package store

import (
	"fmt"
	"testing"
)

func mustOpen(t testing.TB, dir string, o *Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFirst(t *testing.T) {
	dir := t.TempDir() + "/s"
	s := mustOpen(t, dir, nil)
	ctx := t.Context()
	for round := range 2 {
		for i := range 10000 {
			added, err := s.Add(ctx, fmt.Sprint("http://a/", i))
			if err != nil {
				t.Fatal(err)
			}
			if added != (round == 0) {
				t.Fatalf("round %d: key %d: added=%v", round, i, added)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, nil)
	for i := range 10000 {
		has, err := s.Has(ctx, fmt.Sprint("http://a/", i))
		if err != nil || !has {
			t.Fatal(i, has, err)
		}
	}
	r, err := s.Verify(ctx, VerifyOptions{Deep: true})
	if err != nil || !r.OK() {
		t.Fatal(r, err)
	}
	t.Logf("%+v", s.Stats())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err = Verify(ctx, dir, VerifyOptions{Deep: true})
	if err != nil || !r.OK() {
		t.Fatal(r, err)
	}
}
