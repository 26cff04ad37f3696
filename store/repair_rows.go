package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// storedRows is what can be read of the registry in a store's tables.
type storedRows struct {
	*registry
	ingest uint64 // the highest of all tables; 0 if there is no row of the store
	named  uint64 // the highest of the tables that the MANIFEST names
	// whole says that no row can be lost: then a segment that has none was
	// dropped; wholeNamed that none can that is in a table which the MANIFEST
	// names. dropped are the segments of which a table says that they were.
	whole, wholeNamed bool
	dropped           map[segmentID]bool
	ranges            []placeRange // of such
	notes             []string
}

// isDropped reports that a table says that a segment was dropped: it never comes
// back.
func (r *storedRows) isDropped(id segmentID) bool {
	return r.dropped[id] || slices.ContainsFunc(r.ranges, func(g placeRange) bool {
		return id >= g.from.segment && id <= g.to.segment
	})
}

// readRegistry reads the registry's rows out of all tables: of each row the
// version of the highest ingest.
func (s *Store) readRegistry(tables []*storedTable) (*storedRows, error) {
	r := &storedRows{registry: emptyRegistry(), whole: true, wholeNamed: true, dropped: map[segmentID]bool{}}
	from := map[uint32]uint64{} // the ingests that the namespaces' rows are of
	for _, t := range tables {
		if s.foreign(t) || t.missing {
			if t.named && t.low.segment == 0 {
				r.lose(t)
			}
			continue
		}
		r.ranges = append(r.ranges, t.dropped...)
		one, err := s.rowsOf(t, r)
		if err != nil {
			return nil, err
		}
		if one.storeRow.ingest > r.storeRow.ingest {
			r.storeRow = one.storeRow
		}
		if t.named {
			r.named = max(r.named, one.storeRow.ingest)
		}
		for id, row := range one.namespaces {
			if have, ok := from[id]; !ok || one.storeRow.ingest > have {
				r.namespaces[id], from[id] = row, one.storeRow.ingest
			}
		}
		for id, row := range one.segments {
			if have, ok := r.segments[id]; !ok || row.ingest > have.ingest {
				r.segments[id] = row
			}
		}
	}
	r.ingest = r.storeRow.ingest
	if r.ingest == 0 {
		fresh := newRegistry(uint64(cmp.Or(s.opts.ExpectedURLs, defaultExpectedURLs)), forever, clockStamp{})
		r.storeRow = fresh.storeRow
		r.storeRow.ingest = 0
		r.whole, r.wholeNamed = false, false
	}
	maps.DeleteFunc(r.segments, func(id segmentID, _ segmentRow) bool { return r.isDropped(id) })
	r.complete()
	return r, nil
}

// lose says that rows of a table cannot be read.
func (r *storedRows) lose(t *storedTable) {
	r.whole = false
	r.wholeNamed = r.wholeNamed && !t.named
}

// rowsOf reads the rows of one table, which come first.
func (s *Store) rowsOf(t *storedTable, r *storedRows) (*registry, error) {
	one := emptyRegistry()
	reader, err := s.readTable(t)
	if err != nil {
		return nil, err
	}
	var last []byte
	reader.registry = func(row tableRow) error {
		if bytes.Equal(row.key, last) || !t.counts(row.keyPlace) {
			return nil // an older version, or cut out
		}
		last = row.key
		if row.gone {
			if row.key[4] == rowSegment {
				r.dropped[segmentID(row.word)] = true
			}
			return nil
		}
		err := one.load(row.key, row.value)
		if err != nil && !errors.Is(err, ErrVersion) {
			r.notes = append(r.notes, fmt.Sprintf("registry row %x in %s: %v", row.key, t.name, err))
			r.lose(t)
			return nil
		}
		return err
	}
	_, _, err = reader.advance() // past the rows
	for _, g := range reader.gaps {
		if g.from.segment == 0 {
			r.lose(t)
		}
	}
	return one, errors.Join(err, reader.carver.close())
}

// complete makes up for rows that are lost: the segments tell of namespaces and of
// incarnations.
func (r *storedRows) complete() {
	lost := map[uint32]uint64{}
	for id, row := range r.segments {
		r.nextSegment = max(r.nextSegment, id+1)
		space, ok := r.namespaces[row.namespace]
		switch {
		case !ok:
			lost[row.namespace] = max(lost[row.namespace], row.incarnation)
		case row.incarnation > space.incarnation:
			space.incarnation = row.incarnation
			r.setNamespace(row.namespace, space)
		}
	}
	if _, ok := r.namespaces[0]; !ok {
		lost[0] = max(lost[0], 1)
	}
	for _, id := range slices.Sorted(maps.Keys(lost)) {
		r.notes = append(r.notes, r.nameLost(id, lost[id], ""))
	}
	for id := range r.namespaces {
		r.nextNamespace = max(r.nextNamespace, id+1)
		r.nextIncarnation = max(r.nextIncarnation, r.namespaces[id].incarnation+1)
	}
	if !r.whole {
		r.nextIncarnation += lostIncarnations
	}
	r.index()
}
