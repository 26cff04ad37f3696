package store

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func newViews() *views {
	v := new(views)
	v.current.Store(&state{epoch: 1})
	return v
}

// publish replaces the state and returns the new epoch.
func (v *views) publish() uint64 {
	next := *v.current.Load()
	next.epoch++
	v.current.Store(&next)
	return next.epoch
}

func TestViewHolds(t *testing.T) {
	v := newViews()
	st, slot := v.enter()
	if st.epoch != 1 || !v.quiet(1) {
		t.Errorf("entered epoch %d; quiet before it: %v", st.epoch, v.quiet(1))
	}
	epoch := v.publish()
	if v.quiet(epoch) {
		t.Error("a view of the state before does not count")
	}
	late, lateSlot := v.enter()
	if late.epoch != epoch {
		t.Errorf("entered epoch %d, want %d", late.epoch, epoch)
	}
	slot.leave()
	if !v.quiet(epoch) {
		t.Error("the view that was left still counts, or one of the new state does")
	}
	lateSlot.leave()
	v.current.Store(&state{epoch: epoch + 1, closed: true})
	if st, _ := v.enter(); st != nil {
		t.Error("a closed store can be entered")
	}
}

// TestViewMoreReadersThanSlots takes every slot. One more reader waits until
// one is free, and so does one of a store that is closed meanwhile.
func TestViewMoreReadersThanSlots(t *testing.T) {
	v := newViews()
	var slots []*viewSlot
	for range viewSlots {
		_, slot := v.enter()
		slots = append(slots, slot)
	}
	for _, closed := range []bool{false, true} {
		var st *state
		done := start(func() {
			var slot *viewSlot
			if st, slot = v.enter(); st != nil {
				slot.leave()
			}
		})
		if ended(done) {
			t.Fatal("it found a slot")
		}
		if closed {
			next := *v.current.Load()
			next.closed = true
			v.current.Store(&next)
		} else {
			slots[7].leave()
		}
		within(t, "enter", done)
		if (st == nil) != closed {
			t.Errorf("closed %v: entered %v", closed, st)
		}
		if !closed {
			_, slots[7] = v.enter()
		}
	}
}

// TestViewNeverStale lets readers look at a state whose memory is used again
// once it is quiet, as the maintainer does it.
func TestViewNeverStale(t *testing.T) {
	v := newViews()
	m := &memtable{}
	m.count.Store(1)
	v.current.Store(&state{epoch: 1, active: m})
	var wg sync.WaitGroup
	var stop atomic.Bool
	for range 2 * viewSlots {
		wg.Go(func() {
			for !stop.Load() {
				st, slot := v.enter()
				if st.active.count.Load() != 1 {
					t.Error("a view holds memory that was given up")
				}
				slot.leave()
				runtime.Gosched()
			}
		})
	}
	for range 300 {
		old := v.current.Load()
		m := &memtable{}
		m.count.Store(1)
		v.current.Store(&state{epoch: old.epoch + 1, active: m})
		for !v.quiet(old.epoch + 1) {
			runtime.Gosched()
		}
		old.active.count.Store(0)
	}
	stop.Store(true)
	wg.Wait()
}
