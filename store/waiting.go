package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// A store that is opened on a full disk cannot recover as it should: that
// takes a log file, and tables. It serves lookups from what it reads, writes
// nothing, and refuses adds. When there is space it has to be opened again,
// which nobody else needs to know: the Store that the caller has only stands
// for another one, and that is closed, opened again and replaced.

// waiting is what such a Store stands for.
type waiting struct {
	dir  string
	o    *Options
	lock io.Closer // of the directory

	// mu is held shared by each call, and exclusively to replace s, which
	// calls wait for.
	mu   sync.RWMutex
	s    *Store // refuses adds, or is open like any other, or err is set
	err  error  // why s could not be opened again; then s is closed
	over bool   // and will not be

	stop, done chan struct{} // of the goroutine that looks for space
	closeOnce  sync.Once
	closeErr   error
}

// wait returns a Store that stands for s, which was opened on a full disk.
func wait(s *Store, o Options) *Store {
	o.MustExist, o.MustCreate = true, false
	w := &waiting{dir: s.dir, o: &o, lock: s.lock, s: s, stop: make(chan struct{}), done: make(chan struct{})}
	s.lock = io.NopCloser(nil)
	go w.lookForSpace(s)
	stand := &Store{dir: s.dir, opts: s.opts, identity: s.identity, waiting: w}
	stand.Namespace = &Namespace{s: stand, core: new(namespace)}
	return stand
}

// lookForSpace opens the store again as soon as there is space.
func (w *waiting) lookForSpace(s *Store) {
	defer close(w.done)
	space := s.space
	free, _ := space.free()
	var full backoff
	full.failed(free, s.recovery.Time)
	tick := time.NewTicker(diskFullRetry)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		if space.check(0) != nil || !full.due(space) {
			continue
		}
		start := time.Now()
		free, _ := space.free()
		if !w.again() {
			return
		}
		full.failed(free, time.Since(start))
	}
}

// again opens the store again. It reports whether that has to be repeated.
func (w *waiting) again() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waitsLocked() {
		w.replaceLocked(func() error { return nil })
	}
	return w.waitsLocked()
}

// waitsLocked reports whether the store is to be opened again. The lock is
// held, shared or not.
func (w *waiting) waitsLocked() bool { return !w.over && (w.err != nil || w.s.refuse != nil) }

// replaceLocked closes the store, does something to its files, and opens it
// again. The lock of the directory is held throughout.
func (w *waiting) replaceLocked(between func() error) {
	if w.err == nil {
		w.err = w.s.Close()
	} else {
		w.err = nil // it was closed before
	}
	if w.err == nil {
		w.err = between()
	}
	var s *Store
	if w.err == nil {
		s, w.err = openLocked(w.o, w.dir)
	}
	switch {
	case w.err == nil:
		s.lock = io.NopCloser(nil)
		w.s = s
	case errors.Is(w.err, errPebbleDead):
		w.endLocked(func() error { keepLock(w.lock); return nil })
	case !errors.Is(w.err, ErrDiskFull) || errors.Is(w.err, ErrPoisoned):
		w.endLocked(w.lock.Close)
	}
}

// endLocked makes the error final and lets the lock of the directory go.
func (w *waiting) endLocked(release func() error) {
	w.over = true
	w.err = errors.Join(fmt.Errorf("%w: open again: %w", ErrPoisoned, w.err), release())
}

// call calls fn with the store of the moment.
func (w *waiting) call(fn func(*Store) error) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.err != nil {
		return w.err
	}
	return fn(w.s)
}

// poison is Err.
func (w *waiting) poison() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	switch {
	case w.over:
		return w.err
	case w.err != nil:
		return nil
	}
	return w.s.Err()
}

// stats are those of the store of the moment.
func (w *waiting) stats() Stats {
	w.mu.RLock()
	defer w.mu.RUnlock()
	x := w.s.Stats()
	if w.err != nil {
		x.Warnings = append(x.Warnings, w.err.Error())
	}
	if w.over {
		x.Err = w.err.Error()
	}
	return x
}

// compact is Compact: of a store like any other, or of the tables alone while
// it is closed.
func (w *waiting) compact(ctx context.Context) error {
	for {
		refuses := false
		err := w.call(func(s *Store) error {
			if refuses = s.refuse != nil; refuses {
				return nil
			}
			return s.Compact(ctx)
		})
		if err != nil || !refuses {
			return err
		}
		if done, err := w.compactBetween(ctx); done {
			return err
		}
	}
}

// compactBetween closes the store, compacts its tables, and opens it again. It
// reports false if the store was replaced before.
func (w *waiting) compactBetween(ctx context.Context) (done bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return true, w.err
	case w.s.current.Load().closed:
		return true, ErrClosed
	case w.s.refuse == nil:
		return false, nil
	}
	w.replaceLocked(func() error {
		err = w.s.compactClosed(ctx)
		if errors.Is(err, errPebbleDead) {
			return err
		}
		return nil
	})
	return true, errors.Join(err, w.err)
}

// compactClosed compacts the tables of a store that is closed and locked. What
// its log holds is not needed for that.
func (s *Store) compactClosed(ctx context.Context) error {
	c := &Store{dir: s.dir, opts: s.opts, identity: s.identity, space: s.space, poisoned: make(chan struct{})}
	c.mu.registry = s.mu.registry
	c.events = newPebbleEvents(c.poison, s.opts.Logger)
	var err error
	if c.db, c.pebble, err = c.openPebble(false); err != nil {
		return err
	}
	err = c.compactTables(ctx)
	if c.events.dead.Load() {
		return fmt.Errorf("%w: %w", errPebbleDead, err)
	}
	return errors.Join(err, wrapPebble(c.events.apart(c.db.Close)))
}

// close ends the search for space, closes the store of the moment, and lets
// the lock of the directory go.
func (w *waiting) close() error {
	w.closeOnce.Do(func() {
		close(w.stop)
		<-w.done
		w.mu.RLock() // not exclusively: a call may be waiting for the Close
		defer w.mu.RUnlock()
		if w.over {
			w.closeErr = w.err
			return
		}
		if w.err == nil { // else it is closed
			w.closeErr = w.s.Close()
		}
		if w.s.events.dead.Load() {
			keepLock(w.lock)
			return
		}
		w.closeErr = errors.Join(w.closeErr, w.lock.Close())
	})
	return w.closeErr
}
