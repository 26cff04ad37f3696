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

// unflushed is what the log files before one have done, where they are not
// flushed.
type unflushed struct {
	table   *memtable
	deleted map[segmentWord]struct{}
}

func newUnflushed(f *found) (*unflushed, error) {
	words := 0
	for _, file := range f.chain.Files {
		if f.unflushed(file) {
			words += logWords(file)
		}
	}
	m, err := newMemtable(max(words, 64))
	return &unflushed{m, map[segmentWord]struct{}{}}, err
}

// unflushed reports that what a log file holds is not in Pebble.
func (f *found) unflushed(file wal.FileInfo) bool {
	return file.File > f.registry.flushed && !file.Prepared && !file.Discard
}

// logWords is how many words a file can hold.
func logWords(file wal.FileInfo) int { return max(int(file.End-file.Start)/8, 64) }

func (u *unflushed) add(m *memtable) {
	for _, d := range m.deletes {
		u.deleted[d] = struct{}{}
	}
	m.addTo(u.table, nil)
}

// holds reports whether a word is in a segment by what the files before say; known
// is false if they say nothing.
func (u *unflushed) holds(at segmentWord) (holds, known bool) {
	if u == nil {
		return false, false
	}
	if slot, found := u.table.find(at.word); found {
		if n, ok := u.table.numbers[at.segment]; ok && u.table.number(slot) == n {
			return true, true
		}
	}
	_, deleted := u.deleted[at]
	return false, deleted
}

// onlyDeletes leaves out the deletes of words that are not there.
func (s *Store) onlyDeletes(m *memtable, before *unflushed) error {
	slices.SortFunc(m.deletes, segmentWord.compare)
	all := slices.Compact(m.deletes)
	m.deletes = nil
	clear(m.deleted)
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
				m.deletes = append(m.deletes, at)
				m.deleted[id]++
			}
		}
	}
	return nil
}

// onlyNew returns the memtable without the words that are elsewhere, and there
// for as long. A sound log has none; one whose torn tail was dropped, and is
// read now, may.
func (s *Store) onlyNew(m *memtable, before *unflushed) (*memtable, error) {
	r := s.mu.registry
	seen := map[word]bool{}
	err := m.bySegment(m.ids(), sortedPart, func(id segmentID, words []word) error {
		mine := r.segments[id]
		for _, other := range r.ids() {
			row := r.segments[other]
			if row.ends < mine.ends || row.incarnation != mine.incarnation &&
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
