package store

import (
	"errors"
	"fmt"

	"dedupstore/internal/planted"
	"dedupstore/wal"
)

// replay makes the memtable of one log file, and applies what the file says of
// segments to the registry.
func (s *Store) replay(c *wal.Chain, i int) (*memtable, *registry, error) {
	file := c.Files[i]
	r := s.mu.registry
	m, err := newMemtable(max(int(file.End-file.Start)/8, 64))
	if err != nil {
		return nil, nil, err
	}
	m.file = file.File
	r.listed = nil
	err = c.Replay(i, func(rec wal.Record) error {
		s.recovery.Records++
		m.cover(rec.LSN)
		return badRecord(rec, r.replay(m, rec))
	})
	if err != nil {
		return nil, nil, errors.Join(wrapLog(err), m.free())
	}
	s.recovery.LogFiles++
	s.recovery.Words += m.count.Load()
	return m, r.takeChanged(), nil
}

// replay applies one record.
func (r *registry) replay(m *memtable, rec wal.Record) error {
	if rec.Kind != recordCounted && rec.Kind != recordGone && rec.Kind != recordBitmap {
		r.listed = nil // of a bitmap's record that a crash has taken
	}
	switch rec.Kind {
	case recordAdds:
		return r.replayAdds(m, rec.Payload)
	case recordMade:
		id, row, err := decodeMade(rec.Payload)
		if err != nil {
			return err
		}
		if now, ok := r.segments[id]; ok && now.words == 0 && now.key() == row.key() {
			r.setSegment(id, now) // replayed once before in this open
			break
		}
		if space, ok := r.namespaces[row.namespace]; !ok || row.incarnation > space.incarnation {
			return fmt.Errorf("it makes a segment of incarnation %d of namespace %d, which there is not", row.incarnation, row.namespace)
		}
		if id < r.nextSegment {
			return fmt.Errorf("it makes segment %d, and the next id is %d", id, r.nextSegment)
		}
		r.nextSegment = id + 1
		r.setSegment(id, row)
		if row.spanKind == spanSize {
			r.sizeSpan = max(r.sizeSpan, row.span)
		}
	case recordClosed:
		return r.replayClosed(m, rec.Payload)
	case recordShut:
		span, err := decodeShut(rec.Payload)
		if err != nil {
			return err
		}
		r.shut(span, m.file)
	case recordForgets:
		return r.replayForgets(m, rec.Payload)
	case recordNamed:
		id, row, err := decodeNamed(rec.Payload)
		if err != nil {
			return err
		}
		if id > r.nextNamespace {
			return fmt.Errorf("it names namespace %d, and the next id is %d", id, r.nextNamespace)
		}
		if err := r.checkName(id, row.name); err != nil {
			return err
		}
		r.setNamespace(id, row)
	case recordClock:
		clock, err := decodeClock(rec.Payload)
		if err != nil {
			return err
		}
		for id, ends := range r.capEnds(clock.store) {
			m.setEnds(id, ends)
		}
	case recordIngest:
		_, _, _, err := decodeIngest(rec.Payload)
		return err
	case recordBitmap:
		b, err := decodeBitmap(rec.Payload)
		if err != nil {
			return err
		}
		r.replayBitmap(b)
	case recordCounted:
		return r.replayList(rec.Payload, segmentCounted)
	case recordGone:
		return r.replayList(rec.Payload, segmentSubtracted)
	case recordFloor:
		urls, err := decodeFloor(rec.Payload)
		if err != nil {
			return err
		}
		r.floor = max(r.floor, urls)
	default:
		return fmt.Errorf("%w: kind of record %d", ErrVersion, rec.Kind)
	}
	return nil
}

// checkName refuses the name of another namespace, and another name than a
// namespace has.
func (r *registry) checkName(id uint32, name string) error {
	if r.byName == nil {
		r.byName = make(map[string]uint32, len(r.namespaces))
		for id, row := range r.namespaces {
			r.byName[row.name] = id
		}
	}
	if row, ok := r.namespaces[id]; ok && row.name != name {
		return fmt.Errorf("it names namespace %d %q, which is %q", id, name, row.name)
	}
	if other, ok := r.byName[name]; ok && other != id {
		return fmt.Errorf("it gives namespace %d the name of %d, %q", id, other, name)
	}
	r.byName[name] = id
	return nil
}

// replayList notes segments for the bitmap's record behind.
func (r *registry) replayList(payload []byte, state segmentState) error {
	ids, err := decodeList(payload)
	if err != nil {
		return err
	}
	if r.listed == nil {
		r.listed = map[segmentID]segmentState{}
	}
	for _, id := range ids {
		row, ok, err := r.replayed(id)
		if ok && row.state == segmentOpen {
			err = fmt.Errorf("it counts segment %d, which is open", id)
		}
		if err != nil {
			return err
		}
		r.listed[id] = state
	}
	return nil
}

// replayBitmap applies the record of a switch. It says all that counts from
// then on, so that it does not matter which of them were applied before: those
// of one open, to find out which files count, or of one that was killed.
func (r *registry) replayBitmap(b bitmapRecord) {
	listed := r.listed
	r.listed = nil
	if b.generation < r.bitmapGeneration {
		return
	}
	if b.generation > r.bitmapGeneration {
		r.dead = b.dead
	}
	r.bitmapGeneration, r.counterGen, r.leaked = b.generation, b.counterGen, b.leaked
	for id, row := range r.segments {
		state, ok := listed[id]
		switch {
		case ok:
			row.state = state
		case row.state == segmentCounted:
			row.state = segmentClosed
		default:
			continue
		}
		r.setSegment(id, row)
	}
}

// replayClosed applies the record by which older stores closed one segment.
func (r *registry) replayClosed(m *memtable, payload []byte) error {
	id, err := decodeClosed(payload)
	if err != nil {
		return err
	}
	row, ok, err := r.replayed(id)
	if !ok || err != nil {
		return err
	}
	row.state, row.closedIn = segmentClosed, m.file
	r.setSegment(id, row)
	if row.spanKind == spanSize {
		r.sizeSpan = max(r.sizeSpan, row.span+1)
	}
	return nil
}

// replayed returns the row of a segment that a record names; ok is false if it
// was dropped, and its words are dead.
func (r *registry) replayed(id segmentID) (row segmentRow, ok bool, err error) {
	row, ok = r.segments[id]
	if !ok && (id >= r.nextSegment || planted.DroppedUnknown) {
		return row, false, fmt.Errorf("it names segment %d, which was never made", id)
	}
	return row, ok, nil
}

func (r *registry) replayAdds(m *memtable, payload []byte) error {
	a, err := decodeAdds(payload)
	if err != nil {
		return err
	}
	row, ok, err := r.replayed(a.segment)
	if !ok || err != nil {
		return err
	}
	r.setSegment(a.segment, row)
	if m.slots == nil {
		return nil
	}
	number, ok := m.addSegment(a.segment, row.ends)
	if !ok {
		return errors.New("bug: a replayed memtable has too many segments")
	}
	for i := range a.len() {
		w := a.word(i)
		slot, found := m.find(w)
		switch {
		case found && m.holds(slot, row.ends-1):
			continue // a copy that ends earlier never replaces one that ends later
		case found && m.number(slot) == noSegment && planted.ForgetReplayedLast:
			continue
		case !found && m.full(slot):
			return errors.New("bug: a replayed memtable is full")
		}
		m.put(slot, w, number)
	}
	return nil
}

func (r *registry) replayForgets(m *memtable, payload []byte) error {
	a, err := decodeAdds(payload)
	if err != nil {
		return err
	}
	if _, ok, err := r.replayed(a.segment); !ok || err != nil {
		return err
	}
	if m.slots == nil {
		return nil
	}
	words := make([]word, a.len())
	for i := range words {
		words[i] = a.word(i)
	}
	if !m.spare(len(words)) {
		return errors.New("bug: a replayed memtable is full")
	}
	r.forget(m, a.segment, words)
	return nil
}

// serveReplayed makes a store that answers from what is on disk and from the
// replayed log, and writes nothing.
func (s *Store) serveReplayed(f *found) error {
	if s.log != nil {
		s.log.Close() // nothing was appended that anybody waits for
		s.log = nil
	}
	s.recovery.Records, s.recovery.Words, s.recovery.LogFiles = 0, 0, 0
	r := f.registry
	tables := []*memtable{}
	for i, file := range f.chain.Files {
		if file.File <= r.flushed || file.Prepared || file.Discard {
			continue
		}
		m, _, err := s.replay(f.chain, i)
		if err != nil {
			return err
		}
		tables = append(tables, m)
	}
	if len(tables) == 0 {
		// Killed between an ingest and the next write of the log, which has
		// still to say that the next file is in use.
		m, err := newMemtable(1)
		if err != nil {
			return err
		}
		tables = append(tables, m)
	}
	for _, m := range tables { // a later file may have changed when words end
		for _, seg := range m.segments {
			if row, ok := r.segments[seg.id]; ok {
				m.setEnds(seg.id, row.ends)
			}
		}
	}
	// More than one file above the flushed one is rare, and those behind the
	// second hold no words but in a store that was killed in its recovery.
	active, frozen, err := fold(tables)
	if err != nil {
		return err
	}
	s.publishLocked(func(st *state) {
		for _, id := range r.ids() {
			if row := r.segments[id]; f.bitmap.bad == nil && row.ingest > f.bitmap.header.Ingest {
				st.behind = append(st.behind, spanSegment{row.incarnation, id, row.ends})
			}
		}
	})
	return s.start(active, frozen)
}

// fold makes two memtables of any number: the last one, and one with what was done
// in all others.
func fold(tables []*memtable) (active, frozen *memtable, err error) {
	last := len(tables) - 1
	if last < 2 {
		if last == 1 {
			frozen = tables[0]
		}
		return tables[last], frozen, nil
	}
	words := 0
	for _, m := range tables[:last] {
		words += int(m.count.Load())
	}
	if frozen, err = newMemtable(words + 1); err != nil {
		return nil, nil, err
	}
	for _, m := range tables[:last] {
		m.addTo(frozen, nil)
		if err := m.free(); err != nil {
			return nil, nil, err
		}
	}
	return tables[last], frozen, nil
}
