package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVerifyRows has rows of the registry that cannot be together: Verify names
// them, and those without which the store is none do not open.
func TestVerifyRows(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		opens        bool
		change       func(r *registry)
	}{
		{"no default namespace", "there is no default namespace", false, func(r *registry) { delete(r.namespaces, 0) }},
		{"one name twice", `namespaces 1 and 2 have one name, "a"`, false, func(r *registry) { r.namespaces[2] = namespaceRow{9, 1, "a"} }},
		{"a segment of no namespace", "is of namespace 7, which there is not", false, func(r *registry) {
			row := r.segments[1]
			row.namespace = 7
			r.segments[1] = row
		}},
		{"a segment of a later incarnation", "is of incarnation 99 of namespace 0", false, func(r *registry) {
			row := r.segments[1]
			row.incarnation = 99
			r.segments[1] = row
		}},
		{"two open for the same", "are open for the same", false, func(r *registry) { r.segments[8] = r.segments[1] }},
		{"a time span that ends too late", "time span", false, func(r *registry) {
			for id, row := range r.segments {
				if row.spanKind == spanTime {
					row.ends++
					r.segments[id] = row
				}
			}
		}},
		{"a segment id that comes again", "the next id is", true, func(r *registry) { r.nextSegment = 1 }},
		{"a namespace id that comes again", "the next id is", true, func(r *registry) { r.nextNamespace = 1 }},
		{"an incarnation that comes again", "and the next is", true, func(r *registry) { r.nextIncarnation = 2 }},
		{"a segment that has fewer words", "its row says", true, func(r *registry) {
			row := r.segments[1]
			row.words++
			r.segments[1] = row
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := inMemory(t)
			s := &testStore{Store: mustOpen(t, w.dir, w.options()), w: w}
			s.add(New, keys(0, 10)...)
			s.with(time.Hour).add(New, keys(10, 20)...)
			s.named("a", nil).add(New, keys(0, 10)...)
			must(t, s.Store.Close())
			r := s.Store.mu.registry
			tc.change(r)
			rewriteRows(t, w, s.Store)
			report, err := verifyDir(t.Context(), w.dir, VerifyOptions{Deep: true}, w.options())
			must(t, err)
			if !slices.ContainsFunc(report.Faults, func(f Fault) bool { return strings.Contains(f.Reason, tc.reason) }) {
				t.Errorf("Verify says %+v, want %q", report.Faults, tc.reason)
			}
			if tc.opens {
				return
			}
			_, err = Open(w.dir, w.options())
			is(t, "Open", err, ErrCorrupt)
		})
	}
}

// rewriteRows ingests a closed store's registry as it is in memory.
func rewriteRows(t *testing.T, w *world, s *Store) {
	t.Helper()
	db, o, err := s.openPebble(false)
	must(t, err)
	s.db, s.pebble = db, o
	path := s.tmpTable(999, 0)
	table, err := s.newTable(path)
	must(t, err)
	none := appendRowKey(nil, rowNamespace, 0)
	must(t, s.mu.registry.rows(func(key, value []byte) error {
		if none != nil && bytes.Compare(key, none) > 0 {
			must(t, table.w.Delete(none))
		}
		if bytes.Compare(key, none) >= 0 {
			none = nil
		}
		return table.w.Set(key, value)
	}))
	_, err = table.finish()
	must(t, err)
	must(t, db.Ingest(context.Background(), []string{path}))
	must(t, db.Close())
}

// TestVerifyStray finds a word of a segment that was dropped, and one that was
// forgotten and is there.
func TestVerifyStray(t *testing.T) {
	for name, tc := range map[string]struct {
		put    func(s *testStore, words []word) []byte
		reason string
	}{
		"dropped":   {func(s *testStore, words []word) []byte { return appendWordKey(nil, 2, 7) }, "belongs to no segment"},
		"forgotten": {func(s *testStore, words []word) []byte { return appendWordKey(nil, 1, words[0]) }, "its row says"},
	} {
		t.Run(name, func(t *testing.T) {
			w := inMemory(t)
			s := &testStore{Store: mustOpen(t, w.dir, w.options()), w: w}
			s.add(New, keys(0, 10)...)
			s.named("a", nil).add(New, keys(0, 10)...)
			s.flush()
			words := []word{s.word(key(0))}
			s.forget(1, key(0))
			must(t, s.DropNamespace(t.Context(), "a"))
			_, err := s.Expire(t.Context(), ExpireOptions{})
			must(t, err)
			must(t, s.Store.Close())
			db, o, err := s.openPebble(false)
			must(t, err)
			s.Store.db, s.Store.pebble = db, o
			path := s.tmpTable(999, 0)
			table, err := s.newTable(path)
			must(t, err)
			must(t, table.w.Set(tc.put(s, words), nil))
			_, err = table.finish()
			must(t, err)
			must(t, db.Ingest(context.Background(), []string{path}))
			must(t, db.Close())
			report, err := verifyDir(t.Context(), w.dir, VerifyOptions{Deep: true}, w.options())
			must(t, err)
			if !slices.ContainsFunc(report.Faults, func(f Fault) bool { return strings.Contains(f.Reason, tc.reason) }) {
				t.Errorf("Verify says %+v, want %q", report.Faults, tc.reason)
			}
		})
	}
}

// TestVerifyForgets finds a record that forgets what is not there.
func TestVerifyForgets(t *testing.T) {
	l := newLogLife(t)
	s := l.segments[0]
	l.begin()
	l.log.Append(recordForgets, appendWord(beginAdds(nil, s.id), 12345))
	l.end()
	report, err := verifyDir(t.Context(), l.w.dir, VerifyOptions{Deep: true}, l.w.options())
	must(t, err)
	want := fmt.Sprintf("it forgets word %016x of segment %d", 12345, s.id)
	if len(report.Faults) != 1 || !strings.Contains(report.Faults[0].Reason, want) {
		t.Errorf("Verify says %+v, want %q", report.Faults, want)
	}
}
