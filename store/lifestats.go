package store

import (
	"cmp"
	"slices"
	"time"
)

// ExpiryStats describe what leaves the store. What has left counts since Open.
type ExpiryStats struct {
	// DueURLs have expired, or are of a namespace that was dropped: they are
	// new, and their space is still to come back.
	DueURLs         int64 `json:"due_urls"`
	DroppedURLs     int64 `json:"dropped_urls"` // of those, whose space came back
	DroppedSegments int64 `json:"dropped_segments"`
	Forgotten       int64 `json:"forgotten"` // by Forget
}

// SpanStats describe the segments of one span: of all namespaces, those that
// end together, or, where nothing expires, that began together.
type SpanStats struct {
	Kind string `json:"kind"` // "time" or "size"
	// Ends is the store time from which the URLs are new, and Width by how much
	// the first of them are late then. Zero: they do not expire.
	Ends     time.Time     `json:"ends,omitzero"`
	Width    time.Duration `json:"width_ns,omitzero"`
	Segments int           `json:"segments"`
	URLs     int64         `json:"urls"`   // in Pebble, those that are due to be dropped too
	Closed   bool          `json:"closed"` // no URL is added any more
}

// lifeStatsLocked fills in what tells of namespaces, spans and expiry, in one
// pass over the segments.
func (s *Store) lifeStatsLocked(x *Stats) {
	r := s.mu.registry
	x.Namespaces = len(r.namespaces)
	x.TTL = time.Duration(r.namespaces[0].ttl)
	now := s.now()
	type newest struct {
		SpanStats
		id segmentID
	}
	at := map[spanID]*newest{}
	for id, row := range r.segments {
		if !r.live(&row, now) {
			x.Expiry.DueURLs += int64(row.words)
		}
		sp := at[row.spanID()]
		if sp == nil {
			sp = &newest{SpanStats: SpanStats{Kind: "size", Closed: true}}
			at[row.spanID()] = sp
		}
		if row.spanKind == spanTime {
			sp.Kind = "time"
			sp.Width = time.Second << row.spanLog2
			if ends := utc(row.ends); ends.After(sp.Ends) {
				sp.Ends = ends
			}
		}
		sp.id = max(sp.id, id)
		sp.Segments++
		sp.URLs += int64(row.words)
		sp.Closed = sp.Closed && row.state != segmentOpen
	}
	all := make([]*newest, 0, len(at))
	for _, sp := range at {
		all = append(all, sp)
	}
	slices.SortFunc(all, func(a, b *newest) int { return cmp.Compare(b.id, a.id) })
	x.Spans = make([]SpanStats, len(all))
	for i, sp := range all {
		x.Spans[i] = sp.SpanStats
	}
}
