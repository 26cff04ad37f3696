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
		note = r.makeLost(m, a.segment)
	case recordMade:
		id, row, err := decodeMade(rec.Payload)
		if err == nil && id >= r.nextSegment {
			note = r.closeLost(m, id, row.key())
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
	row := r.lostSegment()
	note := r.closeLost(m, id, row.key())
	r.nextSegment = id + 1
	r.setSegment(id, row)
	return strings.TrimPrefix(note+fmt.Sprintf("; the record that made segment %d is lost: made with what all have", id), "; ")
}

// lostSegment is a segment of which nothing is known: of the default namespace,
// and without an end, so that no word of it is new.
func (r *registry) lostSegment() segmentRow {
	return segmentRow{
		incarnation: r.namespaces[0].incarnation,
		spanKind:    spanSize, span: r.sizeSpan, state: segmentOpen, ends: forever,
	}
}

// closeLost closes the segments that were open for the same as the next one when
// that was made.
func (r *registry) closeLost(m *memtable, next segmentID, key segmentKey) (note string) {
	id, ok := r.taking[key]
	if !ok || id >= next {
		return ""
	}
	row := r.segments[id]
	row.state, row.closedIn = segmentClosed, m.file
	r.setSegment(id, row)
	return fmt.Sprintf("the record that closed segment %d is lost: closed", id)
}
