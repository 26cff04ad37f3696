package store

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
)

// state is everything that a look rests on, published as a whole and never
// changed afterwards, but for the slots of the active memtable. Its order is
// active, frozen, bitmap, segment filters, Pebble: a word moves only to the
// right, and is let go on the left after it can be found on the right.
type state struct {
	// epoch is new with every publication. A look notes it; under the lock,
	// if it is unchanged, only the active memtable has to be asked again.
	epoch  uint64
	cache  *cache
	active *memtable
	frozen *memtable // nil if there is none
	bitmap *filter
	// spans are those with words in Pebble, newest first.
	spans []span
	// behind are the segments that were ingested above the bitmap's number,
	// in a store that must not set bits: there a "no" of the bitmap means
	// "maybe". Empty in a store that is open for writing.
	behind []spanSegment
	closed bool
}

// views are the readers that may be looking at a state. What a state points
// to is unmapped, or used again, only when no view holds it. Nobody waits
// inside a view, but for Pebble's reads.
//
// A reader stores the state it takes into a slot and looks again: had the
// state been replaced in between, whoever replaced it may not have seen the
// slot. This is the hazard pointer of Maged Michael, "Hazard Pointers: Safe
// Memory Reclamation for Lock-Free Objects", IEEE TPDS 2004.
type views struct {
	current atomic.Pointer[state]
	slots   [viewSlots]viewSlot
}

const viewSlots = 128 // 8 KiB; more readers at once than that take turns

type viewSlot struct {
	held atomic.Pointer[state]
	_    [56]byte // a cache line each
}

// enter returns the current state and the slot to leave with. The state is
// nil, and there is nothing to leave, when the store is closed.
func (v *views) enter() (*state, *viewSlot) {
	for i := rand.Uint32(); ; i++ {
		st := v.current.Load()
		if st.closed {
			return nil, nil
		}
		slot := &v.slots[i%viewSlots]
		if !slot.held.CompareAndSwap(nil, st) {
			if i%viewSlots == 0 {
				runtime.Gosched()
			}
			continue
		}
		if v.current.Load() == st {
			return st, slot
		}
		slot.held.Store(nil)
	}
}

func (s *viewSlot) leave() { s.held.Store(nil) }

// quiet reports that no view holds a state of an epoch before the given one.
func (v *views) quiet(epoch uint64) bool {
	for i := range v.slots {
		if st := v.slots[i].held.Load(); st != nil && st.epoch < epoch {
			return false
		}
	}
	return true
}
