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
	dir string
	o   *Options

	// mu is held shared by each call, and exclusively to replace s, which
	// calls wait for.
	mu  sync.RWMutex
	s   *Store // refuses adds, or is open like any other
	err error  // why s could not be opened again; then s is closed

	stop, done chan struct{} // of the goroutine that looks for space
	closeOnce  sync.Once
	closeErr   error
}

// wait returns a Store that stands for s, which was opened on a full disk.
func wait(s *Store, o Options) *Store {
	o.MustExist, o.MustCreate = true, false
	w := &waiting{dir: s.dir, o: &o, s: s, stop: make(chan struct{}), done: make(chan struct{})}
	go w.lookForSpace(s)
	return &Store{dir: s.dir, opts: s.opts, identity: s.identity, waiting: w}
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
	if w.err == nil && w.s.refuse != nil {
		w.replace(func() error { return nil })
	}
	return w.err == nil && w.s.refuse != nil
}

// replace closes the store, does something to its files, and opens it again.
// The lock of the directory is held throughout.
func (w *waiting) replace(between func() error) {
	lock := w.s.lock
	w.s.lock = io.NopCloser(nil)
	err := w.s.Close()
	if err == nil {
		err = between()
	}
	var s *Store
	if err == nil {
		s, err = openLocked(w.o, w.dir)
	}
	if err == nil {
		s.lock = lock
		w.s = s
		return
	}
	w.err = fmt.Errorf("%w: open again: %w", ErrPoisoned, err)
	if errors.Is(err, errPebbleDead) {
		keepLock(lock)
		return
	}
	w.err = errors.Join(w.err, lock.Close())
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

// stats are those of the store of the moment.
func (w *waiting) stats() Stats {
	w.mu.RLock()
	defer w.mu.RUnlock()
	x := w.s.Stats()
	if w.err != nil {
		x.Err = w.err.Error()
		x.Warnings = append(x.Warnings, x.Err)
	}
	return x
}

// compact is Compact: of a store like any other, or of the tables alone while
// it is closed.
func (w *waiting) compact(ctx context.Context) error {
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
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.err
	case w.s.current.Load().closed:
		return ErrClosed
	}
	w.replace(func() error {
		err = w.s.compactClosed(ctx)
		if errors.Is(err, errPebbleDead) {
			return err
		}
		return nil
	})
	return errors.Join(err, w.err)
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

// close ends the search for space and closes the store of the moment.
func (w *waiting) close() error {
	w.closeOnce.Do(func() {
		close(w.stop)
		<-w.done
		w.closeErr = w.call((*Store).Close)
	})
	return w.closeErr
}
