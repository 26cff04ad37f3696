package store

import "dedupstore/internal/planted"

// Segments: made at their first add, closed when they are large enough.

const (
	// minSpanWords is the smallest size span: below it, segments would only
	// be more questions. A segment's tables are merged among themselves, so
	// that what a flush costs does not grow with the store.
	minSpanWords = 32 << 20
	// spanShare keeps the spans of a store of any size few: a span holds at
	// least one word in so many.
	spanShare = 16
)

// spanWordsOf is the size at which a segment is closed, in a store of so many
// words.
func (s *Store) spanWordsOf(words uint64) uint64 {
	if n := s.opts.seams.SpanWords; n > 0 {
		return uint64(n)
	}
	return max(minSpanWords, words/spanShare)
}

// beginRecordLocked sees to it that the memtable has a segment, before the
// first record that names it. A new one's record is appended here: it stands
// before that record in the log, and usually in the same write.
func (s *Store) beginRecordLocked(m *memtable) {
	if m.segment != 0 {
		return
	}
	r := s.mu.registry
	id, ok := r.open()
	if !ok {
		id = r.nextSegment
		if !planted.SegmentIDReused {
			r.nextSegment++
		}
		r.setSegment(id, segmentRow{
			incarnation: r.namespaces[0].incarnation,
			spanKind:    spanSize, span: uint64(id), state: segmentOpen,
		})
		if !planted.SegmentRecordLate {
			s.logMadeLocked(id)
		}
	}
	m.segment = id
	r.setSegment(id, r.segments[id]) // its words will change
}

func (s *Store) logMadeLocked(id segmentID) {
	row := s.mu.registry.segments[id]
	s.log.Append(recordMade, appendMade(nil, id, &row))
}

// closeFullLocked closes the active memtable's segment if it has reached its
// span. It is part of a freeze: a memtable's words belong to one segment.
func (s *Store) closeFullLocked(m *memtable) {
	r := s.mu.registry
	row, ok := r.segments[m.segment]
	if !ok || row.words+uint64(m.count.Load()) < s.spanWordsOf(r.words()) {
		return
	}
	row.state, row.closedIn = segmentClosed, m.file
	r.setSegment(m.segment, row)
	s.log.Append(recordClosed, appendClosed(nil, m.segment))
}
