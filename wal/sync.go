package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dedupstore/internal/planted"
)

// This file holds the two turns, write and sync, and everything that takes
// one: waiters, the sync goroutine, Close.

// A turn is held by one goroutine at a time, the leader, which does for
// everybody that waits what they wait for.
type turn struct {
	mu    sync.Mutex
	cond  sync.Cond
	taken bool // guarded by mu
}

// pass gives the turn back and wakes who waits.
func (t *turn) pass() {
	t.mu.Lock()
	t.taken = false
	t.mu.Unlock()
	t.cond.Broadcast()
}

// seize takes the turn whatever happened to the log.
func (t *turn) seize() {
	t.mu.Lock()
	for t.taken {
		t.cond.Wait()
	}
	t.taken = true
	t.mu.Unlock()
}

// lead waits until pos has reached lsn or the log is stopped, and returns
// false; or until the turn is free, takes it and returns true.
func (l *Log) lead(t *turn, pos *atomic.Uint64, lsn LSN) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if LSN(pos.Load()) >= lsn || l.stop.Load() != nil {
			return false
		}
		if !t.taken {
			t.taken = true
			return true
		}
		t.cond.Wait()
	}
}

// WaitWritten returns nil once the record is written. Whoever comes first
// writes everything that was appended by then, in one write.
func (l *Log) WaitWritten(lsn LSN) error {
	for {
		w := LSN(l.written.Load())
		if s := l.stop.Load(); s != nil {
			if lsn <= s.written {
				return nil
			}
			return s.err
		}
		if w >= lsn {
			return nil
		}
		if !l.lead(&l.write, &l.written, lsn) {
			continue
		}
		err := l.writeAll()
		l.write.pass()
		if err != nil {
			l.tell(err)
		} else if l.stop.Load() == nil && LSN(l.written.Load()) < lsn {
			return l.neverAppended(lsn)
		}
	}
}

// WaitSynced returns nil once the record is synced, by an fdatasync that
// started after it was written. One fdatasync serves all who wait for it to
// start.
func (l *Log) WaitSynced(lsn LSN) error {
	if err := l.WaitWritten(lsn); err != nil {
		return err
	}
	if planted.AckBeforeSync {
		return nil
	}
	for {
		d := LSN(l.synced.Load())
		if d >= lsn {
			return nil
		}
		if s := l.stop.Load(); s != nil {
			if lsn <= s.synced {
				return nil
			}
			return s.err
		}
		if !l.lead(&l.sync, &l.synced, lsn) {
			continue
		}
		err := l.syncAll()
		l.sync.pass()
		if err != nil {
			l.tell(err)
		}
	}
}

// neverAppended is the fate of a wait for a record that is not on its way.
func (l *Log) neverAppended(lsn LSN) error {
	l.mu.Lock()
	dropping, last := l.mu.dropping, l.mu.last
	l.mu.Unlock()
	if dropping {
		return ErrClosed
	}
	panic(fmt.Sprintf("bug: wait for LSN %d, the last one is %d", lsn, last))
}

// writeAll writes what is in the buffer. The caller has the write turn.
func (l *Log) writeAll() error {
	l.mu.Lock()
	buf, cuts, upto, f := l.mu.pend, l.mu.cuts, l.mu.buffered, l.mu.writing
	l.mu.pend, l.mu.spare, l.mu.cuts = l.mu.spare[:0], nil, nil
	l.mu.taken = cap(buf)
	l.mu.Unlock()

	at := 0
	for _, c := range cuts {
		if err := l.writeTo(f, buf[at:c.end]); err != nil {
			return err
		}
		at = c.end
		l.mu.Lock()
		l.written.Store(uint64(c.lsn))
		l.mu.retired = append(l.mu.retired, f)
		l.mu.writing = c.next
		l.mu.Unlock()
		f = c.next
	}
	if err := l.writeTo(f, buf[at:]); err != nil {
		return err
	}
	l.mu.Lock()
	l.written.Store(uint64(upto))
	l.mu.taken = 0
	if cap(buf) <= keptBufferBytes {
		l.mu.spare = buf[:0]
	}
	l.mu.Unlock()
	return nil
}

// writeTo writes b, which it may change, at the end of f.
func (l *Log) writeTo(f *logFile, b []byte) error {
	if err := l.Err(); err != nil {
		return err // a sync failed meanwhile
	}
	if len(b) == 0 {
		return nil
	}
	n, err := f.w.Write(b)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%w: %d of %d bytes", io.ErrShortWrite, n, len(b))
	}
	if err != nil {
		return l.setPoison(fmt.Errorf("write %s: %w", f.path, err), LSN(l.written.Load()))
	}
	l.mu.Lock()
	l.mu.stats.Writes++
	l.mu.Unlock()
	return nil
}

// syncAll syncs what is written, one file after the other. The caller has the
// sync turn.
func (l *Log) syncAll() error {
	if err := l.Err(); err != nil {
		return err // a write failed meanwhile
	}
	l.mu.Lock()
	target, f := l.written.Load(), l.mu.writing
	retired := l.mu.retired
	l.mu.retired = nil
	l.mu.Unlock()

	for _, r := range retired {
		// The file takes no frame any more: its size stays.
		if err := l.countSync(r.finish(r.size)); err != nil {
			return err
		}
		l.mu.Lock()
		l.mu.open = slices.DeleteFunc(l.mu.open, func(f *logFile) bool { return f == r })
		l.mu.Unlock()
		_ = r.close()
	}
	err := f.s.SyncData()
	if err != nil {
		err = fmt.Errorf("sync %s: %w", f.path, err)
	}
	if err := l.countSync(err); err != nil {
		return err
	}
	if planted.SyncStartedEarlier {
		target = l.written.Load()
	}
	l.synced.Store(target)
	return nil
}

// countSync counts a sync and turns its failure into poison. A failed sync
// may have lost what was written and not synced: none of it is safe any more.
func (l *Log) countSync(err error) error {
	if err != nil {
		return l.setPoison(err, LSN(l.synced.Load()))
	}
	l.mu.Lock()
	l.mu.stats.Syncs++
	l.mu.Unlock()
	return nil
}

// setPoison stops the log for good, if nothing did before, and returns why.
// What is buffered is thrown away, lest half of it be written later.
func (l *Log) setPoison(cause error, written LSN) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stop.Load()
	if s == nil || !s.poison {
		s = &stop{
			err:     fmt.Errorf("%w: %w", ErrPoisoned, cause),
			written: written,
			synced:  LSN(l.synced.Load()),
			poison:  true,
		}
		l.stop.Store(s)
	}
	l.mu.dropping = true
	l.mu.pend, l.mu.spare, l.mu.cuts, l.mu.taken = nil, nil, nil, 0
	return s.err
}

// tell announces the poison. No lock and no turn is held.
func (l *Log) tell(err error) {
	l.announce.Do(func() { l.o.OnPoison(err) })
}

// syncLoop is the sync goroutine. In every interval it syncs what is not
// synced; if there is nothing, it sees to it that the last sync is on record,
// so that damage below it is told from an incomplete tail.
func (l *Log) syncLoop() {
	defer close(l.done)
	t := time.NewTicker(l.o.SyncInterval)
	defer t.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-t.C:
		}
		var err error
		if last := l.Last(); last > l.Synced() {
			err = l.WaitSynced(last)
		} else if l.makeMark() {
			err = l.force()
		}
		if err != nil {
			return
		}
	}
}

// makeMark appends a sync mark if the synced position is not on record, there
// is room for a mark, and the log goes on.
func (l *Log) makeMark() bool {
	if l.markRoom() <= 0 {
		// A full disk leaves the position off the record for now.
		_ = l.grow(func(f *logFile) (bytes, marks int64) {
			used := hiddenBytes - f.hidden
			return used, used
		})
	}
	if l.markRoom() <= 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.dropping {
		return false
	}
	return l.markLocked()
}

// markRoom returns what is left for sync marks other than the one at Close.
func (l *Log) markRoom() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.cur.hidden - switchBytes - markBytes
}

// markLocked appends a sync mark if the synced position is not on record.
func (l *Log) markLocked() bool {
	if l.mu.recorded >= LSN(l.synced.Load()) {
		return false
	}
	l.appendLocked(kindMark, nil)
	l.mu.cur.hidden -= markBytes
	return true
}

// force writes and syncs whatever is there, positions aside: a sync mark has
// none of its own.
func (l *Log) force() error {
	for _, step := range []struct {
		turn *turn
		pos  *atomic.Uint64
		do   func() error
	}{{&l.write, &l.written, l.writeAll}, {&l.sync, &l.synced, l.syncAll}} {
		if !l.lead(step.turn, step.pos, maxLSN) {
			return l.stop.Load().err
		}
		err := step.do()
		step.turn.pass()
		if err != nil {
			l.tell(err)
			return err
		}
	}
	return nil
}

// Close writes and syncs what was appended, puts that on record, and closes
// the files. It is idempotent and returns the poison, or the first error.
// Records that are appended after it are not accepted: waiting for them
// returns ErrClosed.
func (l *Log) Close() error {
	l.closeOnce.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Log) close() error {
	l.mu.Lock()
	l.mu.dropping = true
	last := l.mu.buffered
	l.mu.Unlock()
	close(l.quit)
	if l.done != nil {
		<-l.done
	}
	err := l.closeFiles(l.WaitSynced(last))
	if errors.Is(err, ErrPoisoned) {
		l.tell(err)
	}
	return err
}

// closeFiles ends the current file, unless err says that nothing may be
// written any more, and closes all of them. It returns err, or its own first
// error.
func (l *Log) closeFiles(err error) error {
	// With all turns, nobody is at the files, and nobody will be after stop.
	l.prepare.Lock()
	defer l.prepare.Unlock()
	l.write.seize()
	defer l.write.pass()
	l.sync.seize()
	defer l.sync.pass()

	if err == nil {
		err = l.Err()
	}
	l.mu.Lock()
	cur, next, open := l.mu.cur, l.mu.next, l.mu.open
	l.mu.next, l.mu.open = nil, nil
	if err == nil {
		l.markLocked()
	}
	l.mu.Unlock()
	if err == nil {
		err = l.writeAll()
	}
	if err == nil {
		err = l.countSync(cur.finish(cur.size))
	}
	l.mu.Lock()
	if l.stop.Load() == nil {
		l.stop.Store(&stop{err: ErrClosed, written: l.mu.buffered, synced: l.mu.buffered})
	}
	l.mu.pend, l.mu.spare = nil, nil
	l.mu.Unlock()

	for _, f := range open {
		if cerr := f.close(); err == nil && cerr != nil {
			err = fmt.Errorf("wal: close %s: %w", f.path, cerr)
		}
	}
	if err == nil && next != nil {
		err = Remove(l.fs, l.dir, next.num)
	}
	return err
}
