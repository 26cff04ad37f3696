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
	// maxShut is how many time spans are closed in a freeze: what is kept free
	// in the log file has room for so many records.
	maxShut = 32
)

// spanWordsOf is the size at which a segment is closed, in a store of so many
// words.
func (s *Store) spanWordsOf(words uint64) uint64 {
	if n := s.opts.seams.SpanWords; n > 0 {
		return uint64(n)
	}
	return max(minSpanWords, words/spanShare)
}

// segment is where a part's words go.
type segment struct {
	id     segmentID
	number uint16 // in the memtable
	made   bool   // just now
}

// segmentFor returns the segment that takes the words of a part, before the
// first record that names it. A new one's record is appended here: it stands
// before that record in the log, and usually in the same write. It reports
// false if the memtable has words of too many segments.
func (s *Store) segmentFor(m *memtable, p *part) (in segment, ok bool) {
	r := s.mu.registry
	key := segmentKey{p.incarnation.number, s.spanLocked(p)}
	id, ok := r.taking[key]
	if ok {
		in.id = id
		in.number, ok = m.numbers[id]
		if ok {
			return in, true
		}
	}
	if len(m.segments) == maxMemSegments {
		return in, false
	}
	if in.id == 0 {
		in.id, in.made = r.nextSegment, true
		if !planted.SegmentIDReused {
			r.nextSegment++
		}
		r.segments[in.id] = segmentRow{
			namespace: p.n.core.id, incarnation: p.incarnation.number, state: segmentOpen,
			spanKind: key.span.kind, spanLog2: key.span.log2, span: key.span.number, ends: key.span.end(),
		}
		if !planted.SegmentRecordLate {
			s.logMadeLocked(in.id)
		}
	}
	row := r.segments[in.id]
	r.setSegment(in.id, row) // its words will change
	if row.ends != forever {
		s.expires.Store(true)
	}
	in.number, ok = m.addSegment(in.id, row.ends)
	return in, ok
}

// spanLocked is the span that a part's words go to.
func (s *Store) spanLocked(p *part) spanID {
	r := s.mu.registry
	ttl := int64(p.n.write.TTL)
	if ttl == 0 {
		ttl = r.namespaces[p.n.core.id].ttl
	}
	if ttl != forever {
		if id, ok := timeSpan(s.time.now(), ttl); ok {
			return id
		}
	}
	return spanID{kind: spanSize, number: r.sizeSpan}
}

func (s *Store) logMadeLocked(id segmentID) {
	row := s.mu.registry.segments[id]
	s.log.Append(recordMade, appendMade(nil, id, &row))
}

// shutSpansLocked closes the segments of the spans that are full, or that no
// TTL leads to any more. It is part of a freeze.
func (s *Store) shutSpansLocked(m *memtable) {
	r := s.mu.registry
	size := spanID{kind: spanSize, number: r.sizeSpan}
	var words uint64
	over := map[spanID]struct{}{}
	now := s.time.now()
	for key, id := range r.taking {
		switch {
		case key.span == size:
			words += r.segments[id].words + uint64(m.wordsOf(id))
		case len(over) < maxShut && key.span.end()-key.span.shortestTTL() < now:
			over[key.span] = struct{}{}
		}
	}
	if words >= s.spanWordsOf(r.words()) {
		over[size] = struct{}{}
	}
	for id := range over {
		s.log.Append(recordShut, appendShut(nil, id))
		r.shut(id, m.file)
	}
}

// shut closes the segments of a span by a record of the given log file.
func (r *registry) shut(span spanID, file uint64) {
	for key, id := range r.taking {
		if key.span == span {
			row := r.segments[id]
			row.state, row.closedIn = segmentClosed, file
			r.setSegment(id, row)
		}
	}
	if span.kind == spanSize {
		r.sizeSpan = max(r.sizeSpan, span.number+1)
	}
}
