package store

import (
	"errors"
	"fmt"
	"strings"

	"dedupstore/wal"
)

// How records are replayed when others before them are lost.

// replaySalvaged is replay of a record that others before it may be missing
// of. It makes up for those that said something of segments, and says so. What
// makes no sense is left out. An error is of a version not known.
func (r *registry) replaySalvaged(m *memtable, rec wal.Record) (note string, err error) {
	switch rec.Kind {
	case recordAdds:
		a, err := decodeAdds(rec.Payload)
		if err != nil {
			return "left out: " + err.Error(), nil
		}
		if m.segment != 0 && m.segment != a.segment {
			return fmt.Sprintf("left out, with %d words: it adds to segment %d, and its file to %d", a.len(), a.segment, m.segment), nil
		}
		note = r.makeLost(m, a.segment)
	case recordMade:
		id, _, err := decodeMade(rec.Payload)
		if err == nil && id >= r.nextSegment {
			note = r.closeLost(m, id)
		}
	case recordClosed:
		if id, err := decodeClosed(rec.Payload); err == nil {
			note = r.makeLost(m, id)
		}
	}
	if err := r.replay(m, rec); errors.Is(err, ErrVersion) {
		return note, err
	} else if err != nil {
		note = strings.TrimPrefix(note+"; left out: "+err.Error(), "; ")
	}
	return note, nil
}

// makeLost makes a segment whose record is lost, as records make them.
func (r *registry) makeLost(m *memtable, id segmentID) string {
	if id < r.nextSegment {
		return ""
	}
	note := r.closeLost(m, id)
	r.nextSegment = id + 1
	r.setSegment(id, segmentRow{
		incarnation: r.namespaces[0].incarnation,
		spanKind:    spanSize, span: uint64(id), state: segmentOpen,
	})
	return strings.TrimPrefix(note+fmt.Sprintf("; the record that made segment %d is lost: made with what all have", id), "; ")
}

// closeLost closes the segments that were open when the next one was made.
func (r *registry) closeLost(m *memtable, next segmentID) (note string) {
	for _, id := range r.ids() {
		if row := r.segments[id]; row.state == segmentOpen && id < next {
			row.state, row.closedIn = segmentClosed, m.file
			r.setSegment(id, row)
			note += fmt.Sprintf("; the record that closed segment %d is lost: closed", id)
		}
	}
	return strings.TrimPrefix(note, "; ")
}
