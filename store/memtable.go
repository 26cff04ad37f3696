package store

import (
	"sync/atomic"

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

	// count is written under the store's lock.
	count atomic.Int64
	// lsn is at or above the LSN of the record of every word in the table. It
	// is raised before the first insert that needs it, so that whoever sees a
	// word sees an LSN that covers it.
	lsn atomic.Uint64

	filled  bool      // its slack is; guarded by the store's lock
	file    uint64    // the log file that holds exactly these words
	segment segmentID // that its words belong to; 0 before the first
	touched []uint64  // one bit for each run of touchSlots slots with a word

	free func() error
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
)

// newMemtable makes a table for limit words.
func newMemtable(limit int) (*memtable, error) {
	homes := max(limit*100/maxLoadPercent, limit+1)
	slots, free, err := allocWords(homes + slackSlots)
	if err != nil {
		return nil, err
	}
	return &memtable{
		slots: slots, homes: uint64(homes), limit: limit, free: free,
		touched: make([]uint64, len(slots)/touchSlots/64+1),
	}, nil
}

// memtableWords is how many words fit a table of the given bytes.
func memtableWords(bytes int64) int {
	return max(int(bytes/8-slackSlots)*maxLoadPercent/100, 64)
}

func (m *memtable) bytes() int64 { return int64(len(m.slots)) * 8 }

// touch loads the home slot of a word, so that the cache misses of a batch
// overlap. It returns what it loaded for the caller to use.
func (m *memtable) touch(w word) uint64 {
	return atomic.LoadUint64(&m.slots[fastrange(w, m.homes)])
}

// has reports whether the word is in the table.
func (m *memtable) has(w word) bool {
	for i := fastrange(w, m.homes); ; i++ {
		switch atomic.LoadUint64(&m.slots[i]) {
		case w:
			return true
		case 0:
			return false
		}
	}
}

// find returns the word's slot, and whether the word is in it. Without the
// word the slot is empty, or it is the last one, which stays empty. Only for
// the writer.
func (m *memtable) find(w word) (slot uint64, found bool) {
	for i := fastrange(w, m.homes); ; i++ {
		switch m.slots[i] {
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
func (m *memtable) takes(n int) bool { return !m.filled && int(m.count.Load())+n <= m.limit }

// put stores a word into the slot that find returned.
func (m *memtable) put(slot uint64, w word) {
	m.touched[slot/touchSlots/64] |= 1 << (slot / touchSlots % 64)
	atomic.StoreUint64(&m.slots[slot], w)
}

// cover raises lsn, before the first insert of a record.
func (m *memtable) cover(lsn wal.LSN) { m.lsn.Store(uint64(lsn)) }

// sorted calls fn with the words of a frozen table in ascending order, in
// parts of about the given number of words. fn may keep nothing.
func (m *memtable) sorted(part int, fn func([]word) error) error {
	buf := make([]word, 0, part+touchSlots)
	for base := 0; base < len(m.slots); base += touchSlots {
		if m.touched[base/touchSlots/64]&(1<<(base/touchSlots%64)) == 0 {
			continue
		}
		for _, w := range m.slots[base:min(base+touchSlots, len(m.slots))] {
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

// clear empties a table that has been let go and that no view can reach any
// more.
func (m *memtable) clear() {
	for base := 0; base < len(m.slots); base += touchSlots {
		if m.touched[base/touchSlots/64]&(1<<(base/touchSlots%64)) != 0 {
			clear(m.slots[base:min(base+touchSlots, len(m.slots))])
		}
	}
	clear(m.touched)
	m.count.Store(0)
	m.lsn.Store(0)
	m.filled, m.file, m.segment = false, 0, 0
}
