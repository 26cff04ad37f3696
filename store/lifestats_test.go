package store

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestLifeStats follows namespaces, spans and what leaves the store.
func TestLifeStats(t *testing.T) {
	w := inMemory(t)
	s, c := clockedStore(w)
	wantSpans := func(want ...SpanStats) {
		t.Helper()
		got := s.Stats().Spans
		if len(got) != len(want) {
			t.Fatalf("got spans %+v, want %+v", got, want)
		}
		for i, sp := range got {
			if sp != want[i] {
				t.Errorf("span %d: got %+v, want %+v", i, sp, want[i])
			}
		}
	}
	s.add(New, keys(0, 100)...)
	s.named("a", nil).add(New, keys(0, 50)...)
	s.named("b", &NamespaceOptions{TTL: time.Hour}).add(New, keys(0, 20)...)
	s.with(time.Hour).add(New, keys(100, 130)...)
	s.flush()
	if x := s.Stats(); x.Namespaces != 3 || x.TTL != Forever || x.Expiry != (ExpiryStats{}) {
		t.Errorf("got %d namespaces, TTL %v, %+v", x.Namespaces, x.TTL, x.Expiry)
	}
	width := 128 * time.Second // the largest power of two that is no more than 150 s
	ends := c.Wall().Add(time.Hour).Truncate(width)
	if ends.Before(c.Wall().Add(time.Hour)) {
		ends = ends.Add(width)
	}
	hour := SpanStats{Kind: "time", Ends: ends, Width: width, Segments: 2, URLs: 50}
	forGood := SpanStats{Kind: "size", Segments: 2, URLs: 150}
	wantSpans(hour, forGood)
	s.forget(2, key(0), key(1), "never added")
	must(t, s.DropNamespace(context.Background(), "a"))
	c.pass(ends.Sub(c.Wall()))
	eventually(t, "the drops", func() bool { s.kick(); return s.Stats().Expiry.DroppedURLs == 100 })
	if x := s.Stats(); x.Expiry != (ExpiryStats{DroppedURLs: 100, DroppedSegments: 3, Forgotten: 2}) || x.URLs != 98 {
		t.Errorf("got %+v, %d URLs", x.Expiry, x.URLs)
	}
	s.flush()
	wantSpans(SpanStats{Kind: "size", Segments: 1, URLs: 98})
}

// TestStatsOfAClockInDoubt warns of what is not dropped, and only where
// something expires.
func TestStatsOfAClockInDoubt(t *testing.T) {
	for _, expires := range []bool{false, true} {
		w := inMemory(t)
		s, c := clockedStore(w)
		s.with(map[bool]time.Duration{true: time.Hour, false: Forever}[expires]).add(New, keys(0, 10)...)
		s.close()
		c.reboot(2 * time.Hour)
		s = w.open()
		x := s.Stats()
		if got := strings.Contains(strings.Join(x.Warnings, "\n"), "nothing that has expired is dropped"); got != expires {
			t.Errorf("expires is %v, warnings %q", expires, x.Warnings)
		}
		due := int64(0)
		if expires {
			due = 10
		}
		if x.Clock.DropsAllowed || !x.Clock.Wall.Equal(c.Wall()) || x.Expiry.DueURLs != due || x.URLs != 10-due {
			t.Errorf("expires is %v: clock %+v, %d URLs due, %d URLs", expires, x.Clock, x.Expiry.DueURLs, x.URLs)
		}
		s.close()
	}
}

// TestNamespaceMustExist makes nothing that there is not, read-only or not.
func TestNamespaceMustExist(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.named("a", nil).add(New, "u")
	there := &NamespaceOptions{MustExist: true}
	_, err := s.OpenNamespace("b", there)
	is(t, "OpenNamespace of none", err, ErrNotExist)
	s.named("a", there).has(Seen, "u")
	if x := s.Stats(); x.Namespaces != 2 {
		t.Errorf("%d namespaces, want 2", x.Namespaces)
	}
	s.close()
	w.o.ReadOnly = true
	s = w.open()
	s.named("a", there).has(Seen, "u")
	_, err = s.OpenNamespace("b", there)
	is(t, "OpenNamespace of none, read-only", err, ErrNotExist)
}
