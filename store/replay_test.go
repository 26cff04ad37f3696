package store

import (
	"errors"
	"strings"
	"testing"
)

// TestReplayNames has a log name what may not have that name: an open must say
// so, and not flush it and fail the next time.
func TestReplayNames(t *testing.T) {
	for name, test := range map[string]struct {
		row  namespaceRow
		id   uint32
		want string
	}{
		"taken":       {namespaceRow{incarnation: 9, ttl: 1, name: "a"}, 2, `gives namespace 2 the name of 1, "a"`},
		"the default": {namespaceRow{incarnation: 9, ttl: 1}, 2, `gives namespace 2 the name of 0, ""`},
		"another":     {namespaceRow{incarnation: 9, ttl: 1, name: "b"}, 1, `names namespace 1 "b", which is "a"`},
		"the same":    {namespaceRow{incarnation: 9, ttl: 1, name: "a"}, 1, ""},
		"new":         {namespaceRow{incarnation: 9, ttl: 1, name: "b"}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := inMemory(t)
			s := w.open()
			_, err := s.OpenNamespace("a", nil)
			must(t, err)
			s.mu.Lock()
			s.log.Append(recordNamed, appendNamed(nil, test.id, &test.row))
			last := s.log.Last()
			s.mu.Unlock()
			must(t, s.waitSynced(last))
			after := w.crash(seeded(t), 100)
			s.abandon()
			if test.want == "" {
				after.open()
				return
			}
			_, err = Open(after.dir, after.options())
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), test.want) || corrupt.Offset <= 0 {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
