package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dedupstore/wal"
)

// How records are replayed when others between them are lost. Those that are left
// must not become "new" by that: what made a segment or a namespace which they
// name, and is lost, is made up for before the first is replayed. What closed or
// dropped something is made up for when a later record shows that it did.

// lostIncarnations is how many incarnations of namespaces may have been used by
// records that are lost: the numbers are left out.
const lostIncarnations = 1 << 32

// missed is what the records of a log name, and none of them has made.
type missed struct {
	made       map[segmentID]struct{}
	named      map[uint32]string    // all names on record
	segments   map[segmentID]uint64 // with the log file that names it first
	namespaces map[uint32]uint64    // with the incarnation that is named first
	switched   uint64               // the highest bitmap of a record with counters
}

func newMissed() *missed {
	return &missed{
		made: map[segmentID]struct{}{}, named: map[uint32]string{},
		segments: map[segmentID]uint64{}, namespaces: map[uint32]uint64{},
	}
}

// see takes the next record.
func (l *missed) see(r *registry, file uint64, rec wal.Record) {
	switch rec.Kind {
	case recordAdds:
		a, err := decodeAdds(rec.Payload)
		if err != nil || a.segment < r.nextSegment {
			return // it was dropped, if there is none
		}
		_, made := l.made[a.segment]
		_, missing := l.segments[a.segment]
		if _, known := r.segments[a.segment]; !known && !made && !missing {
			l.segments[a.segment] = file
		}
	case recordMade:
		id, row, err := decodeMade(rec.Payload)
		if err != nil {
			return
		}
		l.made[id] = struct{}{}
		_, named := l.named[row.namespace]
		_, missing := l.namespaces[row.namespace]
		if _, known := r.namespaces[row.namespace]; !known && !named && !missing {
			l.namespaces[row.namespace] = row.incarnation
		}
	case recordBitmap:
		if b, err := decodeBitmap(rec.Payload); err == nil && b.counterGen > 0 {
			l.switched = max(l.switched, b.generation)
		}
	case recordNamed:
		if id, row, err := decodeNamed(rec.Payload); err == nil {
			l.named[id] = row.name
		}
	}
}

// makeUp makes what is missing.
func (l *missed) makeUp(r *registry) (notes []string) {
	for id := range l.named {
		r.nextNamespace = max(r.nextNamespace, id) // one between that nothing names may be lost too
	}
	for _, id := range slices.Sorted(maps.Keys(l.namespaces)) {
		notes = append(notes, r.nameLost(id, l.namespaces[id], l.named[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(l.segments)) {
		row := r.lostSegment()
		if len(l.named) > 0 {
			row.incarnation = anyIncarnation
		}
		row.closedIn = l.segments[id]
		r.setSegment(id, row)
		notes = append(notes, fmt.Sprintf("the record that made segment %d is lost: "+
			"its URLs do not expire, and are seen in every namespace that they can be of", id))
	}
	return notes
}

// loseCounters gives the counters up: a list of what they have, or have not any
// more, may be lost. If one has made a bitmap, that is built anew too, from Pebble.
func (l *missed) loseCounters(r *registry) {
	r.counterGen, r.leaked = 0, 0
	for id, row := range r.segments {
		if row.state == segmentCounted {
			row.state = segmentClosed
			r.setSegment(id, row)
		}
	}
	if l.switched >= r.bitmapGeneration {
		r.bitmapGeneration = l.switched + 1
	}
}

// nameLost makes a namespace whose row or record is lost.
func (r *registry) nameLost(id uint32, incarnation uint64, name string) (note string) {
	row := namespaceRow{incarnation: incarnation, ttl: forever, name: name}
	if all, ok := r.namespaces[0]; ok {
		row.ttl = all.ttl
	}
	note = "its TTL is that of the store"
	if id == 0 {
		note = "its URLs do not expire"
	}
	if name == "" && id != 0 {
		taken := map[string]bool{}
		for _, other := range r.namespaces {
			taken[other.name] = true
		}
		row.name = fmt.Sprintf("lost-%d", id)
		for taken[row.name] {
			row.name += "-"
		}
		note += fmt.Sprintf(", and it is %q from now on, in place of a name that is lost", row.name)
	}
	r.setNamespace(id, row)
	return fmt.Sprintf("what made namespace %d is lost: %s", id, note)
}

// lostSegment is a segment of which nothing is known: of any namespace, unless
// there was never more than one, and without an end, so that no word of it is
// new.
func (r *registry) lostSegment() segmentRow {
	row := segmentRow{incarnation: anyIncarnation, spanKind: spanSize, span: r.sizeSpan, state: segmentClosed, ends: forever}
	if one, ok := r.namespaces[0]; ok && r.nextIncarnation == 2 {
		row.incarnation = one.incarnation
	}
	return row
}

// replaySalvaged is replay of a record that others before it may be missing of.
// What makes no sense is left out. An error is of a version not known.
func (r *registry) replaySalvaged(m *memtable, rec wal.Record) (note string, err error) {
	switch rec.Kind {
	case recordAdds:
		if a, err := decodeAdds(rec.Payload); err == nil {
			if _, made := r.segments[a.segment]; made { // made up for
				r.nextSegment = max(r.nextSegment, a.segment+1)
			}
		}
	case recordMade:
		if id, row, err := decodeMade(rec.Payload); err == nil && id >= r.nextSegment {
			note = strings.Join(append(r.dropLost(&row), r.closeLost(m, &row)...), "; ")
		}
	}
	if err := r.replay(m, rec); errors.Is(err, ErrVersion) {
		return note, err
	} else if err != nil {
		note = strings.TrimPrefix(note+"; left out: "+err.Error(), "; ")
	}
	return note, nil
}

// dropLost drops the incarnation of a namespace that was dropped when a segment
// of a later one was made.
func (r *registry) dropLost(made *segmentRow) (notes []string) {
	row, ok := r.namespaces[made.namespace]
	if !ok || made.incarnation <= row.incarnation {
		return nil
	}
	row.incarnation = made.incarnation
	r.setNamespace(made.namespace, row)
	return []string{fmt.Sprintf("the record that dropped namespace %q is lost: dropped", row.name)}
}

// closeLost closes the segments that were closed when the given one was made:
// that of the same incarnation and span, and those of smaller spans of size.
func (r *registry) closeLost(m *memtable, made *segmentRow) (notes []string) {
	key := made.key()
	for _, id := range slices.Sorted(maps.Values(r.taking)) {
		row := r.segments[id]
		if row.key() != key && (row.spanKind != spanSize || key.span.kind != spanSize || row.span >= key.span.number) {
			continue
		}
		row.state, row.closedIn = segmentClosed, m.file
		r.setSegment(id, row)
		notes = append(notes, fmt.Sprintf("the record that closed segment %d is lost: closed", id))
	}
	return notes
}

// makeUp makes up for what the records of a log with gaps, above the flushed file,
// name and do not make.
func (r *repairer) makeUp(rows *registry, c *wal.Chain, gaps []wal.Gap) error {
	l := newMissed()
	for i, file := range c.Files {
		if file.File <= rows.flushed {
			continue
		}
		if err := c.Replay(i, func(rec wal.Record) error { l.see(rows, file.File, rec); return nil }); err != nil {
			return wrapLog(err)
		}
	}
	r.report.Notes = append(r.report.Notes, l.makeUp(rows)...)
	if len(gaps) > 0 {
		r.report.note("in the records that are lost, URLs may have been forgotten and namespaces dropped: they are seen again")
		rows.nextIncarnation += lostIncarnations
		l.loseCounters(rows)
	}
	return nil
}
