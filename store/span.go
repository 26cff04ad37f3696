package store

import (
	"fmt"
	"slices"
	"strings"
)

// A spanID names a span: of expiry time, or, without expiry, of size. The
// segments of one span share a segment filter.
type spanID struct {
	kind   spanKind
	log2   uint8 // width of a time span: 2^log2 s
	number uint64
}

func (r *segmentRow) spanID() spanID { return spanID{r.spanKind, r.spanLog2, r.span} }

// span is one span of a state.
type span struct {
	id     spanID
	filter *filter
	// segments are those with words in Pebble, newest first.
	segments []segmentID
}

// spans groups the segments that have words in Pebble, newest first: a page is
// most likely linked again soon after it was seen first.
func (r *registry) spans(filters map[spanID]*filter) (spans []span) {
	for _, id := range r.newestFirst() {
		row := r.segments[id]
		i := slices.IndexFunc(spans, func(s span) bool { return s.id == row.spanID() })
		if i < 0 {
			i = len(spans)
			f := filters[row.spanID()]
			if f == nil {
				f = new(filter)
			}
			spans = append(spans, span{id: row.spanID(), filter: f})
		}
		spans[i].segments = append(spans[i].segments, id)
	}
	return spans
}

// wordsIn is how many words segments have in Pebble.
func (r *registry) wordsIn(ids []segmentID) (n uint64) {
	for _, id := range ids {
		n += r.segments[id].words
	}
	return n
}

// ingestOf is the number of the last ingest that touched any of the segments.
func (r *registry) ingestOf(ids []segmentID) (n uint64) {
	for _, id := range ids {
		n = max(n, r.segments[id].ingest)
	}
	return n
}

// closed reports that none of the segments takes words any more.
func (r *registry) closed(ids []segmentID) bool {
	return !slices.ContainsFunc(ids, func(id segmentID) bool { return r.segments[id].state == segmentOpen })
}

// seed salts the filter of a span. Each has its own, so that one in another's
// place is noticed.
func (id spanID) seed(h *hasher) uint64 {
	return mix64(mix64(h.mix^uint64(id.kind)<<8^uint64(id.log2)) + id.number*0x9e3779b97f4a7c15)
}

const spanFilterPrefix = "filter-"

// spanFilterName is the name of a span's filter's file.
func spanFilterName(id spanID, generation uint64) string {
	return fmt.Sprintf(spanFilterPrefix+"%02x%02x-%016x-%010d", uint8(id.kind), id.log2, id.number, generation)
}

// parseSpanFilterName reports whether spanFilterName makes such a name.
func parseSpanFilterName(name string) (id spanID, generation uint64, ok bool) {
	var kind uint8
	rest := strings.TrimPrefix(name, spanFilterPrefix)
	if _, err := fmt.Sscanf(rest, "%02x%02x-%016x-%d", &kind, &id.log2, &id.number, &generation); err != nil {
		return id, 0, false
	}
	id.kind = spanKind(kind)
	return id, generation, spanFilterName(id, generation) == name
}
