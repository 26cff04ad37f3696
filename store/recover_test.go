package store

import (
	"testing"

	"dedupstore/wal"
)

// TestOpenBadRecord opens stores whose log holds a good frame with a record
// that the store cannot take: an error with a place, and nothing else happens.
func TestOpenBadRecord(t *testing.T) {
	made := &segmentRow{incarnation: 1, spanKind: spanSize, span: 7, state: segmentOpen, ends: forever}
	for _, tc := range []struct {
		name    string
		kind    wal.Kind
		payload []byte
		want    error
	}{
		{"a kind of a later version", recordGone + 1, nil, ErrVersion},
		{"words for a segment never made", recordAdds, appendWord(beginAdds(nil, 9), 1), ErrCorrupt},
		{"words that are cut short", recordAdds, beginAdds(nil, 1), ErrCorrupt},
		{"word 0", recordAdds, appendWord(beginAdds(nil, 1), 0), ErrCorrupt},
		{"a segment made twice", recordMade, appendMade(nil, 1, made), ErrCorrupt},
		{"an end of what is not there", recordClosed, appendClosed(nil, 9), ErrCorrupt},
		{"an ingest of half a record", recordIngest, make([]byte, 8), ErrCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := inMemory(t)
			s := w.open()
			s.add(New, keys(0, 10)...)
			s.flush()
			s.add(New, key(10)) // makes the memtable's segment known
			must(t, s.waitSynced(s.log.Append(tc.kind, tc.payload)))
			after := w.crash(seeded(t), 100)
			s.abandon()
			for _, readOnly := range []bool{false, true} {
				after.o.ReadOnly = readOnly
				opened, err := Open(after.dir, after.options())
				is(t, "Open", err, tc.want)
				if err == nil {
					must(t, opened.Close())
				}
			}
		})
	}
}

// TestReadOnlyAfterIngest reads what a kill leaves between an ingest and the
// next write of the log: no log file has anything that is not in Pebble.
func TestReadOnlyAfterIngest(t *testing.T) {
	w := inMemory(t)
	var killed *world
	w.point = func(name string) {
		if name == "ingested" && killed == nil {
			killed = w.crash(seeded(t), 100)
		}
	}
	s := w.open()
	s.add(New, keys(0, 100)...)
	s.flush()
	killed.o.ReadOnly = true
	r := killed.open()
	r.has(Seen, keys(0, 100)...)
	r.has(New, keys(100, 200)...)
	r.urls(100)
}
