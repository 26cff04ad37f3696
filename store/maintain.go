package store

import (
	"context"
	"errors"
	"time"

	"dedupstore/internal/planted"
	"dedupstore/wal"
)

// The maintainer is one goroutine. It does what is neither look nor insert:
// it makes log files and flushes. An Add that needs room waits for it.

// retiredWait is how long it waits before it looks again whether a filter that
// was let go can be unmapped.
const retiredWait = 10 * time.Millisecond

// emptiedWait is how long it waits before it looks again whether a memtable
// that was let go can be used again: an Add may be waiting for it.
const emptiedWait = 50 * time.Microsecond

// kick tells the maintainer that there may be something to do.
func (s *Store) kick() {
	select {
	case s.maintainer.kick <- struct{}{}:
	default:
	}
}

// maintain is the maintainer's goroutine. Pebble may end it (see Fatalf).
func (s *Store) maintain() {
	defer close(s.maintainer.done)
	retry := time.NewTimer(0)
	<-retry.C
	for {
		select {
		case <-s.maintainer.kick:
		case <-retry.C:
			if !s.maintainer.full.due(s.space) {
				if err := s.tidy(); err != nil {
					s.poison(err)
					return
				}
				retry.Reset(s.comeAgain(ErrDiskFull))
				continue
			}
		case <-s.maintainer.stop:
			return
		case <-s.poisoned:
			return
		}
		s.mu.Lock()
		s.mu.tries++
		try := s.mu.tries
		s.mu.Unlock()
		err := s.work()
		if err != nil && !errors.Is(err, ErrDiskFull) {
			s.poison(err)
		}
		if s.Err() != nil {
			return // also if somebody else has seen to it: what work met then is half done
		}
		s.space.stock()
		s.mu.Lock()
		if s.mu.full != nil || err != nil {
			s.mu.full, s.mu.fullTry = err, try
			s.wakeLocked()
		}
		s.mu.Unlock()
		if wait := s.comeAgain(err); wait > 0 {
			retry.Reset(wait)
		}
	}
}

// work does all that is to be done. An error that is ErrDiskFull has changed
// nothing that a later try could trip over.
func (s *Store) work() error {
	s.maintainer.full = backoff{}
	for {
		start := time.Now()
		free, _ := s.space.free()
		more, err := s.step()
		if err != nil {
			s.maintainer.full.failed(free, time.Since(start))
		}
		if err != nil || !more {
			return err
		}
		select {
		case <-s.maintainer.stop:
			return nil
		default:
		}
	}
}

// tidy lets go of what only waits for views.
func (s *Store) tidy() error {
	s.maintainer.mu.Lock()
	defer s.maintainer.mu.Unlock()
	s.recycle()
	return s.unmapRetired()
}

// comeAgain is how long to wait before looking again without being asked; 0
// is for ever.
func (s *Store) comeAgain(err error) (wait time.Duration) {
	s.maintainer.mu.Lock()
	defer s.maintainer.mu.Unlock()
	soonest := func(d time.Duration) {
		if d = max(d, time.Microsecond); wait == 0 || d < wait {
			wait = d
		}
	}
	m := &s.maintainer
	if s.space.wantsReserve() {
		soonest(diskFullRetry)
	}
	if err != nil {
		soonest(diskFullRetry)
	} else if m.build != nil {
		soonest(time.Until(m.build.next))
	}
	if m.emptied.m != nil {
		soonest(emptiedWait)
	}
	s.mu.Lock()
	if len(s.mu.retired) > 0 {
		soonest(retiredWait)
	}
	s.mu.Unlock()
	if d := time.Until(m.noBuildBefore); d > 0 {
		soonest(d)
	}
	if d := s.nextDue(); d > 0 && err == nil {
		soonest(d)
	}
	if d := s.time.nextTick(); d > 0 && s.expires.Load() {
		soonest(d)
	}
	return wait
}

// step does one thing: it makes the next log file, flushes the frozen memtable,
// freezes the active one if somebody asks for it, heals a filter, or goes on
// with a build. It
// reports whether there was something to do.
//
// What it goes by, and the freeze, are one hold of the lock: an Add that needs
// room freezes too.
func (s *Store) step() (bool, error) {
	s.maintainer.mu.Lock()
	defer s.maintainer.mu.Unlock() // also when Pebble ends the goroutine
	s.opts.seams.At("step")
	s.recycle()
	if err := s.mindClock(); err != nil {
		return false, err
	}
	s.mu.Lock()
	st := s.current.Load()
	words := int(st.active.count.Load())
	wanted := s.mu.flushTo >= st.active.file && (words > 0 || s.mu.emptyToo)
	prepared := s.log.Prepared()
	low := int(st.active.spent.Load()) > s.memtableLimit/2 || st.active.filled
	if wanted && prepared && st.frozen == nil && s.mu.spare != nil {
		s.mu.emptyToo = false
		s.freezeLocked()
		s.mu.Unlock()
		return true, nil
	}
	s.mu.Unlock()
	if s.countersUnwanted() {
		return true, s.uncount()
	}
	if done, err := s.dropDue(); done || err != nil {
		return done, err
	}
	if done, err := s.stepToBuild(); done || err != nil {
		return done, err
	}
	if (wanted || low) && !prepared {
		err := s.prepareLog()
		if err == nil || st.frozen == nil || !errors.Is(err, ErrDiskFull) {
			return true, err
		}
		// The log file that the frozen memtable's flush lets go of may be
		// the room that is missing.
	}
	if s.buildDue() {
		return true, s.stepBuild(s.maintainer.build)
	}
	if st.frozen != nil {
		return true, s.flushFrozen(st.frozen)
	}
	if done, err := s.heal(); done || err != nil {
		return done, err
	}
	return false, s.unmapRetired()
}

// prepareLog makes the next log file, outside of the lock.
func (s *Store) prepareLog() error {
	if err := s.log.Prepare(logMeta(s.time.stamp())); err != nil {
		return s.logSpaceError(err)
	}
	s.mu.Lock()
	s.wakeLocked()
	s.mu.Unlock()
	return nil
}

// logMeta is what a log file's header keeps for the store.
func logMeta(c clockStamp) (meta [64]byte) {
	appendClockStamp(meta[:0], c)
	return meta
}

// logSpaceError gives an error of the log's file making its type.
func (s *Store) logSpaceError(err error) error {
	if errors.Is(err, wal.ErrNoSpace) {
		return errors.Join(ErrDiskFull, err)
	}
	return s.logError(err)
}

// reserveLog sees to it that the log file has room on disk. Outside the lock.
func (s *Store) reserveLog(need room) error {
	if s.log.Room() >= need.logBytes {
		return nil
	}
	if err := s.log.Reserve(need.logBytes); err != nil {
		return s.logSpaceError(err)
	}
	return nil
}

// hasRoom reports whether an insert can go on. The lock is held.
func (s *Store) hasRoom(m *memtable, need room) bool {
	return m.takes(need.words) && s.log.Room() >= need.logBytes
}

// makeRoomAndUnlock lets the lock go and makes room, or waits for it. Whoever
// calls it looks for room again.
func (s *Store) makeRoomAndUnlock(ctx context.Context, need room) error {
	st := s.current.Load()
	if st.active.takes(need.words) {
		s.mu.Unlock()
		return s.reserveLog(need)
	}
	if st.frozen == nil && s.mu.spare != nil && s.log.Prepared() {
		s.freezeLocked()
		s.mu.Unlock()
		return nil
	}
	full, changed := s.mu.full, s.mu.changed
	if planted.WaitForRoomInside {
		defer s.mu.Unlock()
	} else {
		s.mu.Unlock()
	}
	if full != nil {
		return full
	}
	s.counters.stalls.Add(1)
	s.kick()
	return s.waitFor(ctx, changed)
}

// freezeLocked makes the active memtable the frozen one, and the spare one
// active, and switches the log to the next file: one hold of the lock, so that
// a log file holds exactly its memtable's words.
func (s *Store) freezeLocked() {
	m := s.current.Load().active
	s.shutSpansLocked(m)
	s.mu.frozenChanged = s.mu.registry.takeChanged()
	next := s.mu.spare
	s.mu.spare = nil
	next.file = s.log.Switch()
	s.mu.nextCut = s.log.Stats().Bytes
	if planted.FreezeOutsideLock {
		s.mu.Unlock()
	}
	s.opts.seams.At("freeze")
	if planted.FreezeOutsideLock {
		s.mu.Lock()
	}
	s.publishLocked(func(st *state) { st.active, st.frozen = next, m })
	s.kick()
}
