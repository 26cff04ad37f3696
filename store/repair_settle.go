package store

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/wal"
)

// What a log with gaps says of a word is compared with what there is: a word that
// it adds may be there already, because the record that forgot it is lost, and one
// that it forgets may not be there, because the record that added it is lost.
// Without that the counts would be wrong.

// unflushed are the memtables of the log files before one, where those are not
// flushed. Their deletes are in order.
type unflushed []*memtable

// holds reports whether a word is in a segment by what the files before say; known
// is false if they say nothing.
func (u unflushed) holds(at segmentWord) (holds, known bool) {
	for _, m := range slices.Backward(u) {
		if slot, found := m.find(at.word); found {
			if n, ok := m.numbers[at.segment]; ok && m.number(slot) == n {
				return true, true
			}
		}
		if _, deleted := slices.BinarySearchFunc(m.deletes, at, segmentWord.compare); deleted {
			return false, true
		}
	}
	return false, false
}

func (u unflushed) free() (err error) {
	for _, m := range u {
		err = errors.Join(err, m.free())
	}
	return err
}

// unflushed reports that what a log file holds is not in Pebble.
func (f *found) unflushed(file wal.FileInfo) bool {
	return file.File > f.registry.flushed && !file.Prepared && !file.Discard
}

// logWords is how many words a file can hold.
func logWords(file wal.FileInfo) int { return max(int(file.End-file.Start)/8, 64) }

// onlyDeletes leaves out the deletes of words that are not there.
func (s *Store) onlyDeletes(m *memtable, before unflushed) error {
	slices.SortFunc(m.deletes, segmentWord.compare)
	all := slices.Compact(m.deletes)
	m.deletes = nil
	clear(m.deleted)
	return s.deletesThere(all, before, func(d segmentWord) {
		m.deletes = append(m.deletes, d)
		m.deleted[d.segment]++
	})
}

// deletesThere calls fn, in order, with those of the deletes, which are in order,
// whose words are there.
func (s *Store) deletesThere(all []segmentWord, before unflushed, fn func(segmentWord)) error {
	all = slices.Clone(all)
	for len(all) > 0 {
		id, words := all[0].segment, []word{}
		for len(all) > 0 && all[0].segment == id {
			words = append(words, all[0].word)
			all = all[1:]
		}
		stored := map[word]bool{}
		if err := s.inSegment(id, words, func(w word) { stored[w] = true }); err != nil {
			return err
		}
		for _, w := range words {
			at := segmentWord{id, w}
			if holds, known := before.holds(at); holds || !known && stored[w] {
				fn(at)
			}
		}
	}
	return nil
}

// onlyNew returns the memtable without the words that are elsewhere, and there
// for as long. A sound log has none; one whose torn tail was dropped, and is
// read now, may.
func (s *Store) onlyNew(m *memtable, before unflushed) (*memtable, error) {
	r := s.mu.registry
	seen := map[word]bool{}
	err := m.bySegment(m.ids(), sortedPart, func(id segmentID, words []word) error {
		mine := r.segments[id]
		for _, other := range r.ids() {
			row := r.segments[other]
			if row.ends < mine.ends || r.gone(&row) || row.incarnation != mine.incarnation &&
				row.incarnation != anyIncarnation && mine.incarnation != anyIncarnation {
				continue
			}
			stored := map[word]bool{}
			if err := s.inSegment(other, words, func(w word) { stored[w] = true }); err != nil {
				return err
			}
			for _, w := range words {
				at := segmentWord{other, w}
				if _, deletes := slices.BinarySearchFunc(m.deletes, at, segmentWord.compare); deletes {
					continue
				}
				if holds, known := before.holds(at); holds || !known && stored[w] {
					seen[w] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, m.free())
	}
	if len(seen) == 0 {
		return m, nil
	}
	rest, err := newMemtable(m.limit)
	if err != nil {
		return nil, errors.Join(err, m.free())
	}
	rest.file = m.file
	rest.cover(wal.LSN(m.lsn.Load()))
	m.addTo(rest, func(at segmentWord) bool { return seen[at.word] })
	return rest, m.free()
}

// inSegment calls fn with those of ascending words that a segment holds in Pebble.
func (s *Store) inSegment(id segmentID, words []word, fn func(word)) error {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendWordKey(nil, id, 0), UpperBound: appendWordKey(nil, id+1, 0),
	})
	if err != nil {
		return wrapPebble(err)
	}
	var key []byte
	for _, w := range words {
		key = appendWordKey(key[:0], id, w)
		if !it.SeekGE(key) {
			break
		}
		if _, have, _ := decodeWordKey(it.Key()); have == w {
			fn(w)
		}
	}
	return wrapPebble(it.Close())
}
