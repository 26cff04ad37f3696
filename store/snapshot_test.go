package store

import (
	"testing"
)

// restored is the world of a snapshot.
func (w *world) restored(dir string) *world {
	r := *w
	r.dir, r.point, r.fault = dir, nil, nil
	return &r
}

// snapshot makes a snapshot that must be well, unopened.
func (s *testStore) snapshot(dir string) *world {
	s.w.t.Helper()
	must(s.w.t, s.Snapshot(s.w.t.Context(), dir))
	r := s.w.restored(dir)
	r.verify()
	return r
}

func TestSnapshot(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.flush()
	s.add(New, keys(1000, 1500)...)
	copied := s.snapshot("/copy")
	s.add(New, keys(1500, 1600)...)

	c := copied.open()
	c.urls(1500)
	c.has(Seen, keys(0, 1500)...)
	c.has(New, keys(1500, 1600)...)
	c.add(New, keys(1500, 2000)...)
	s.has(New, keys(1600, 2000)...)
	s.has(Seen, keys(0, 1600)...)
}
