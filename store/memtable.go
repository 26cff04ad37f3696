package store

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"dedupstore/wal"
)

// memtable is an insert-only hash table of words: those accepted and not yet
// in Pebble. Its slot is its position in word order (position = value), with
// linear probing to the right, so that a scan from left to right meets the
// words almost sorted: a word is never further to the left than a smaller one
// by more than the run of full slots that it stands in. The flush sorts those
// runs as it reads, and needs no memory to sort in.
//
// One writer at a time inserts, under the store's lock. Readers take none: a
// slot goes from 0 to its word once, atomically.
type memtable struct {
	slots []uint64 // home positions, then slack for the last run to spill into
	homes uint64
	limit int // words that it takes

	// index says which segment the word of a slot belongs to: a number in
	// segments, or noSegment, and settled beside it. Two slots share a uint32.
	// While all words belong to one segment it is all zeros, and takes no
	// memory.
	index []uint32
	// marked says that index has to be asked: some word has expired, or will,
	// or was forgotten.
	marked atomic.Bool
	// ends are the ends of the segments, by number. Replaced as a whole when
	// one is added; the values are read and written atomically.
	ends atomic.Pointer[[]int64]

	// What follows is guarded by the store's lock, and fixed once the memtable
	// is frozen.
	segments []memSegment
	numbers  map[segmentID]uint16
	// deletes are the words that were forgotten, with the segment that each
	// was live in by then, in Pebble or in the memtable before this one.
	deletes []segmentWord
	// deleted counts them by segment.
	deleted map[segmentID]int64

	// count is the number of slots in use, written under the store's lock.
	count atomic.Int64
	// spent counts what was put and forgotten, in a slot that is in use too:
	// the log file has a record of each, and must not grow without end while
	// one word comes and goes. Written under the store's lock.
	spent atomic.Int64
	// lsn is at or above the LSN of the record of every word in the table. It
	// is raised before the first insert that needs it, so that whoever sees a
	// word sees an LSN that covers it.
	lsn atomic.Uint64

	filled  bool     // its slack is, or its numbers; guarded by the store's lock
	file    uint64   // the log file that holds exactly these words
	touched []uint64 // one bit for each run of touchSlots slots with a word

	free func() error
}

// memSegment is what a memtable has of a segment.
type memSegment struct {
	id    segmentID
	words int64 // that are live, unless the segment is not
}

// segmentWord is a word in a segment.
type segmentWord struct {
	segment segmentID
	word    word
}

func (a segmentWord) compare(b segmentWord) int {
	return cmp.Or(cmp.Compare(a.segment, b.segment), cmp.Compare(a.word, b.word))
}

const (
	// maxLoadPercent is how full the slots become: 70 % costs 5.6 slots for a
	// look that finds nothing when the table is full (Knuth, TAOCP 3, 6.4,
	// (1+1/(1-load)^2)/2), most of them in one cache line.
	maxLoadPercent = 70
	// slackSlots are behind the last home. The longest run of a table at 70 %
	// is some 200 slots; a table whose slack is full counts as full.
	slackSlots = 4096
	touchSlots = 1 << 12

	// settled is set beside the number of a word that was forgotten: what is
	// older of it is in deletes, for ever. So it is not put there twice.
	settled = 1 << 15
	// noSegment is the number of a word that was forgotten and not added again.
	noSegment = settled - 1
	// maxMemSegments is how many segments a memtable can have words of.
	maxMemSegments = noSegment
)

// newMemtable makes a table for limit words.
func newMemtable(limit int) (*memtable, error) {
	homes := max(limit*100/maxLoadPercent, limit+1)
	n := homes + slackSlots
	// The numbers stand behind the slots, four to a word.
	words, free, err := allocWords(n + (n+3)/4)
	if err != nil {
		return nil, err
	}
	m := &memtable{
		slots: words[:n:n], homes: uint64(homes), limit: limit, free: free,
		index:   halves(words[n:]),
		touched: make([]uint64, n/touchSlots/64+1),
		numbers: map[segmentID]uint16{}, deleted: map[segmentID]int64{},
	}
	m.ends.Store(new([]int64))
	return m, nil
}

// halves returns the same memory as twice as many uint32.
func halves(words []uint64) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(words))), 2*len(words))
}

// memtableWords is how many words fit a table of the given bytes.
func memtableWords(bytes int64) int {
	return max(int(bytes/8-slackSlots)*maxLoadPercent/100, 64)
}

// bytes is what the table takes of RAM at most: the numbers of the segments
// only where there is more than one.
func (m *memtable) bytes() int64 {
	n := int64(len(m.slots)) * 8
	if m.marked.Load() || len(m.segments) > 1 {
		n += int64(len(m.index)) * 4
	}
	return n
}

// touch loads the home slot of a word, so that the cache misses of a batch
// overlap. It returns what it loaded for the caller to use.
func (m *memtable) touch(w word) uint64 {
	return atomic.LoadUint64(&m.slots[fastrange(w, m.homes)])
}

// presence is what a memtable says of a word.
type presence uint8

const (
	absent    presence = iota // not here: ask what is older
	present                   // live
	expired                   // here, and as if it was not
	forgotten                 // not live, whatever is older says
)

// look says what the table knows of a word at a moment of store time.
func (m *memtable) look(w word, now int64) presence {
	slot, found := m.find(w)
	switch {
	case !found:
		return absent
	case !m.marked.Load():
		return present
	}
	return m.presence(slot, now)
}

// presence is that of the word in a slot.
func (m *memtable) presence(slot uint64, now int64) presence {
	entry := m.entry(slot)
	n := entry &^ settled
	switch {
	case n == noSegment:
		return forgotten
	case atomic.LoadInt64(&(*m.ends.Load())[n]) > now:
		return present
	case entry&settled != 0:
		return forgotten // and then added, for a while
	}
	return expired
}

// holds reports that the word in a slot is live.
func (m *memtable) holds(slot uint64, now int64) bool {
	return !m.marked.Load() || m.presence(slot, now) == present
}

// number is that of the segment of the word in a slot.
func (m *memtable) number(slot uint64) uint16 { return m.entry(slot) &^ settled }

// isSettled reports that the table deletes whatever is older of the word in a
// slot.
func (m *memtable) isSettled(slot uint64) bool { return m.entry(slot)&settled != 0 }

func (m *memtable) entry(slot uint64) uint16 {
	return uint16(atomic.LoadUint32(&m.index[slot/2]) >> (slot % 2 * 16))
}

// segmentOf is the segment of the word in a slot of a frozen table, which was
// not forgotten.
func (m *memtable) segmentOf(slot uint64) segmentID { return m.segments[m.number(slot)].id }

// find returns the word's slot, and whether the word is in it. Without the
// word the slot is empty, or it is the last one, which stays empty.
func (m *memtable) find(w word) (slot uint64, found bool) {
	for i := fastrange(w, m.homes); ; i++ {
		switch atomic.LoadUint64(&m.slots[i]) {
		case w:
			return i, true
		case 0:
			return i, false
		}
	}
}

// full reports that a word which find did not find cannot be put there.
func (m *memtable) full(slot uint64) bool { return slot == uint64(len(m.slots))-1 }

// takes reports whether there is room for n more words.
func (m *memtable) takes(n int) bool { return !m.filled && int(m.spent.Load())+n <= m.limit }

// spare reports that n more words can be put whatever their slots are: behind
// an empty slot of the slack there is no full one.
func (m *memtable) spare(n int) bool { return m.slots[len(m.slots)-1-min(n, slackSlots)] == 0 }

// addSegment gives a segment its number. It reports false if there are too
// many.
func (m *memtable) addSegment(id segmentID, ends int64) (number uint16, ok bool) {
	if number, ok := m.numbers[id]; ok {
		return number, true
	}
	if len(m.segments) == maxMemSegments {
		return 0, false
	}
	number = uint16(len(m.segments))
	all := append(*m.ends.Load(), ends) // whoever reads it has the length of before
	m.ends.Store(&all)
	if ends != forever {
		m.marked.Store(true)
	}
	m.segments = append(m.segments, memSegment{id: id})
	m.numbers[id] = number
	return number, true
}

// setEnds changes the end of a segment.
func (m *memtable) setEnds(id segmentID, ends int64) {
	if n, ok := m.numbers[id]; ok {
		atomic.StoreInt64(&(*m.ends.Load())[n], ends)
	}
}

// put stores a word, with the number of its segment, into the slot that find
// returned: an empty one, or that of the same word in a segment that has
// expired, or forgotten.
func (m *memtable) put(slot uint64, w word, number uint16) {
	m.spent.Add(1)
	if m.slots[slot] == w {
		m.renumber(slot, number)
		return
	}
	if number != 0 {
		m.setEntry(slot, number)
	}
	m.touched[slot/touchSlots/64] |= 1 << (slot / touchSlots % 64)
	m.segments[number].words++
	atomic.StoreUint64(&m.slots[slot], w)
	m.count.Add(1)
}

// forget makes a word one that is not there, whatever is older says: the word
// of a segment of Pebble, or of an older memtable, if older is not 0.
func (m *memtable) forget(slot uint64, w word, older segmentID) {
	m.marked.Store(true)
	m.spent.Add(1)
	if older != 0 {
		m.deletes = append(m.deletes, segmentWord{older, w})
		m.deleted[older]++
	}
	if m.slots[slot] == w {
		m.renumber(slot, noSegment)
		return
	}
	m.setEntry(slot, noSegment|settled)
	m.touched[slot/touchSlots/64] |= 1 << (slot / touchSlots % 64)
	atomic.StoreUint64(&m.slots[slot], w)
	m.count.Add(1)
}

func (m *memtable) renumber(slot uint64, number uint16) {
	if old := m.number(slot); old != noSegment {
		m.segments[old].words--
	}
	entry := number | m.entry(slot)&settled
	if number == noSegment {
		entry |= settled
	} else {
		m.segments[number].words++
	}
	m.setEntry(slot, entry)
}

func (m *memtable) setEntry(slot uint64, entry uint16) {
	shift := slot % 2 * 16
	both := m.index[slot/2] &^ (math.MaxUint16 << shift)
	atomic.StoreUint32(&m.index[slot/2], both|uint32(entry)<<shift)
}

// cover raises lsn, before the first insert of a record.
func (m *memtable) cover(lsn wal.LSN) { m.lsn.Store(uint64(lsn)) }

// sorted calls fn with the words of a frozen table in ascending order, in
// parts of about the given number of words; only those that pick takes, nil
// for all. fn may keep nothing.
func (m *memtable) sorted(part int, pick func(slot uint64) bool, fn func([]word) error) error {
	buf := make([]word, 0, part+touchSlots)
	for base := 0; base < len(m.slots); base += touchSlots {
		if m.touched[base/touchSlots/64]&(1<<(base/touchSlots%64)) == 0 {
			continue
		}
		for i, w := range m.slots[base:min(base+touchSlots, len(m.slots))] {
			if w == 0 {
				// A run ends: what is in buf is in its final order.
				if len(buf) >= part {
					if err := fn(buf); err != nil {
						return err
					}
					buf = buf[:0]
				}
				continue
			}
			if pick != nil && !pick(uint64(base+i)) {
				continue
			}
			buf = append(buf, w)
			for i := len(buf) - 1; i > 0 && buf[i-1] > w; i-- {
				buf[i], buf[i-1] = buf[i-1], w
			}
		}
	}
	if len(buf) == 0 {
		return nil
	}
	return fn(buf)
}

// ids returns the segments that the table has live words of, in ascending
// order.
func (m *memtable) ids() (ids []segmentID) {
	for _, s := range m.segments {
		if s.words > 0 {
			ids = append(ids, s.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// whole reports that all words are live ones of one segment, so that index is
// all zeros.
func (m *memtable) whole() bool {
	return len(m.segments) == 1 && m.segments[0].words == m.count.Load()
}

// bySegment calls fn with the words of the given segments of a frozen table,
// which are in ascending order, in the order of segment and word, in parts of
// about the given number of words.
//
// It goes through the table once for each segment, or, of segments that are
// small, for so many that their words fit a sixteenth of the table's memory.
func (m *memtable) bySegment(ids []segmentID, part int, fn func(segmentID, []word) error) error {
	if m.whole() && len(ids) == 1 {
		return m.sorted(part, nil, func(words []word) error { return fn(ids[0], words) })
	}
	room := max(int64(len(m.slots)/16), int64(part))
	for len(ids) > 0 {
		n, words := 0, int64(0)
		for n < len(ids) && (n == 0 || words+m.wordsOf(ids[n]) <= room) {
			words += m.wordsOf(ids[n])
			n++
		}
		var err error
		if n == 1 {
			number := m.numbers[ids[0]]
			pick := func(slot uint64) bool { return m.number(slot) == number }
			err = m.sorted(part, pick, func(words []word) error { return fn(ids[0], words) })
		} else {
			err = m.group(ids[:n], part, fn)
		}
		if err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

func (m *memtable) wordsOf(id segmentID) int64 {
	if n, ok := m.numbers[id]; ok {
		return m.segments[n].words
	}
	return 0
}

// group is bySegment for segments whose words are gathered first: in slot
// order, which is almost word order.
func (m *memtable) group(ids []segmentID, part int, fn func(segmentID, []word) error) error {
	of := make(map[uint16][]word, len(ids))
	for _, id := range ids {
		of[m.numbers[id]] = make([]word, 0, m.wordsOf(id))
	}
	for slot, w := range m.slots {
		if w == 0 {
			continue
		}
		number := m.number(uint64(slot))
		if words, ok := of[number]; ok {
			of[number] = append(words, w)
		}
	}
	for _, id := range ids {
		words := of[m.numbers[id]]
		slices.Sort(words)
		for len(words) > 0 {
			n := min(part, len(words))
			if err := fn(id, words[:n]); err != nil {
				return err
			}
			words = words[n:]
		}
	}
	return nil
}

// addTo does in a table that has room for it, and that holds what is older,
// what was done in this one; but for the adds that skip takes, nil for none. A
// table that has held something older is not to be flushed.
func (m *memtable) addTo(sum *memtable, skip func(segmentWord) bool) {
	var older []segmentWord
	for _, d := range m.deletes {
		slot, found := sum.find(d.word)
		if n, ok := sum.numbers[d.segment]; found && ok && sum.number(slot) == n {
			sum.forget(slot, d.word, 0)
		} else {
			older = append(older, d)
		}
	}
	for _, d := range older {
		slot, _ := sum.find(d.word)
		sum.forget(slot, d.word, d.segment)
	}
	for i, w := range m.slots {
		if w == 0 {
			continue
		}
		slot, found := sum.find(w)
		number := m.number(uint64(i))
		if number == noSegment {
			sum.forget(slot, w, 0)
			continue
		}
		id := m.segments[number].id
		if skip != nil && skip(segmentWord{id, w}) {
			continue
		}
		into, _ := sum.addSegment(id, (*m.ends.Load())[number])
		if found {
			// A copy that has expired loses its slot, and still counts with its
			// segment: of the next table it may be forgotten.
			if old := sum.number(slot); old != noSegment && old != into {
				sum.segments[old].words++
			}
		}
		sum.put(slot, w, into)
	}
}

// clear empties a table that has been let go and that no view can reach any
// more.
func (m *memtable) clear() {
	numbered := m.marked.Load() || len(m.segments) > 1
	for base := 0; base < len(m.slots); base += touchSlots {
		if m.touched[base/touchSlots/64]&(1<<(base/touchSlots%64)) != 0 {
			end := min(base+touchSlots, len(m.slots))
			clear(m.slots[base:end])
			if numbered {
				clear(m.index[base/2 : (end+1)/2])
			}
		}
	}
	clear(m.touched)
	clear(m.numbers)
	clear(m.deleted)
	m.segments, m.deletes = m.segments[:0], nil
	m.ends.Store(new([]int64))
	m.count.Store(0)
	m.spent.Store(0)
	m.lsn.Store(0)
	m.marked.Store(false)
	m.filled, m.file = false, 0
}
