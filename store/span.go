package store

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// A spanID names a span: of expiry time, or, without expiry, of size. The
// segments of one span share a segment filter.
type spanID struct {
	kind   spanKind
	log2   uint8 // width of a time span: 2^log2 s
	number uint64
}

func (r *segmentRow) spanID() spanID { return spanID{r.spanKind, r.spanLog2, r.span} }

// end is when the words of a time span expire, in ns of store time: never
// before their time, and later by less than the span's width.
func (id spanID) end() int64 {
	if id.kind != spanTime {
		return forever
	}
	return int64(id.number<<id.log2) * int64(time.Second)
}

// forever is later than any time.
const forever int64 = math.MaxInt64

const (
	// spansOfTTL is how many spans a TTL has at least: what expires is late by
	// up to a 24th of its TTL.
	spansOfTTL  = 24
	maxSpanLog2 = 33
)

// maxSpanNumber is the last time span that ends before forever.
func maxSpanNumber(log2 uint8) uint64 { return uint64(forever/int64(time.Second)) >> log2 }

// timeSpan is the span of the words that are added now with a TTL: its width is
// the largest power of two seconds that is no more than a 24th of the TTL, or
// one second. A TTL of centuries is for ever, and has no time span.
func timeSpan(now, ttl int64) (id spanID, ok bool) {
	if ttl == forever || now > forever-ttl-int64(time.Second) {
		return spanID{}, false
	}
	id.kind = spanTime
	if s := uint64(ttl / int64(time.Second) / spansOfTTL); s > 0 {
		id.log2 = uint8(bits.Len64(s) - 1)
	}
	width := int64(time.Second) << id.log2
	expiry := now + ttl
	id.number = uint64(expiry / width)
	if expiry%width != 0 {
		id.number++
	}
	return id, id.number <= maxSpanNumber(id.log2)
}

// longestTTL is what a TTL of the span's width is less than, in ns.
func (id spanID) longestTTL() int64 { return int64(2*spansOfTTL*time.Second) << id.log2 }

// shortestTTL is the least that a TTL of the span's width is, in ns.
func (id spanID) shortestTTL() int64 {
	if id.log2 == 0 {
		return 0
	}
	return int64(spansOfTTL*time.Second) << id.log2
}

// checkTTL refuses what is no TTL.
func checkTTL(ttl int64) error {
	if ttl <= 0 {
		return fmt.Errorf("a TTL of %v", time.Duration(ttl))
	}
	return nil
}

// span is one span of a state.
type span struct {
	id     spanID
	filter *filter
	// segments are those with words in Pebble, in the order of their
	// incarnations, each incarnation's newest first.
	segments []spanSegment
}

// spanSegment is a segment as a look needs it.
type spanSegment struct {
	incarnation uint64
	id          segmentID
	ends        int64
}

// is reports whether words of an incarnation may be in the segment.
func (s *spanSegment) is(in *incarnation) bool {
	return s.incarnation == in.number || s.incarnation == anyIncarnation
}

// of returns the segments of an incarnation, and maybe others.
func (sp *span) of(incarnation uint64) []spanSegment {
	if sp.segments[0].incarnation == anyIncarnation {
		return sp.segments
	}
	if len(sp.segments) == 1 {
		if sp.segments[0].incarnation != incarnation {
			return nil
		}
		return sp.segments
	}
	first, _ := slices.BinarySearchFunc(sp.segments, incarnation, spanSegment.compare)
	n := first
	for n < len(sp.segments) && sp.segments[n].incarnation == incarnation {
		n++
	}
	return sp.segments[first:n]
}

func (s spanSegment) compare(incarnation uint64) int { return cmp.Compare(s.incarnation, incarnation) }

// ids are those of the segments.
func (sp *span) ids() (ids []segmentID) {
	for _, s := range sp.segments {
		ids = append(ids, s.id)
	}
	return ids
}

// spans groups the segments that have words in Pebble, newest first: a page is
// most likely linked again soon after it was seen first.
func (r *registry) spans(filters map[spanID]*filter) (spans []span) {
	at := map[spanID]int{}
	for _, id := range slices.Backward(r.ids()) {
		row := r.segments[id]
		if row.words == 0 || row.state == segmentSubtracted {
			continue
		}
		i, ok := at[row.spanID()]
		if !ok {
			i = len(spans)
			at[row.spanID()] = i
			f := filters[row.spanID()]
			if f == nil {
				f = new(filter)
			}
			spans = append(spans, span{id: row.spanID(), filter: f})
		}
		spans[i].segments = append(spans[i].segments, spanSegment{row.incarnation, id, row.ends})
	}
	for _, sp := range spans {
		slices.SortStableFunc(sp.segments, func(a, b spanSegment) int { return a.compare(b.incarnation) })
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

// ingests are, by span, the numbers of the last ingests that touched a segment
// of it, also one that has no words any more; by the zero value, of all.
func (r *registry) ingests() map[spanID]uint64 {
	last := map[spanID]uint64{}
	for _, row := range r.segments {
		last[spanID{}] = max(last[spanID{}], row.ingest)
		last[row.spanID()] = max(last[row.spanID()], row.ingest)
	}
	return last
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
