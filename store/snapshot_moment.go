package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"dedupstore/wal"
)

// A moment is a store at one position of its log, for as long as it takes to copy
// it: tables, the MANIFEST that names them, and log files, which together say
// what the store held then. The log files go on behind the position.
type moment struct {
	tables, log string // directories
	first, last uint64 // log files
	logBytes    int64  // of their frames, about
	meta        [wal.MetaBytes]byte
	origin      origin
	held        time.Duration // how long flushes waited
	release     func() error  // called when the copy is made
}

// stagedTables is where Pebble links its tables. It is no pebbleDir, a failing
// sync of which ends the store.
const stagedTables = "tables"

// momentLive cuts a store that goes on. Between two flushes Pebble holds what the
// log files up to the flushed one say, and the others the rest. The moment is
// kept by second names for the files, in tmp/, where they can always be linked:
// then flushes go on, and may remove the first ones.
func (s *Store) momentLive(ctx context.Context) (_ *moment, err error) {
	fsys := s.opts.seams.FS
	staged := fsys.PathJoin(s.dir, tmpDir, fmt.Sprintf("snapshot-%d", s.counters.cuts.Add(1)))
	c := &moment{
		tables:  fsys.PathJoin(staged, stagedTables),
		log:     fsys.PathJoin(staged, logDir),
		release: func() error { return fsys.RemoveAll(staged) },
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.release())
		}
	}()
	if err := s.lockMaintainer(ctx); err != nil {
		return nil, err
	}
	defer s.maintainer.mu.Unlock()
	if err := s.Err(); err != nil {
		return nil, err
	}
	begun := time.Now()
	c.first = s.maintainer.oldestLog.Load()
	s.mu.Lock()
	c.last = s.log.File()
	c.origin = s.originLocked(s.log.Last())
	c.meta = logMeta(s.time.stamp())
	c.logBytes = s.log.Stats().Bytes - s.mu.logCut
	s.mu.Unlock()
	if err := s.waitWritten(wal.LSN(c.origin.LSN)); err != nil {
		return nil, err
	}
	if err := fsys.MkdirAll(c.log, 0o700); err != nil {
		return nil, err
	}
	for n := c.first; n <= c.last; n++ {
		if err := wal.LinkFile(fsys, s.logDir(), c.log, n); err != nil {
			return nil, err
		}
	}
	err = s.events.apart(func() error {
		return unpanicked(func() error { return s.db.Checkpoint(c.tables) })
	})
	c.held = time.Since(begun)
	return c, wrapPebble(err)
}

// unpanicked makes an error of the panic with which Pebble meets a directory
// that it cannot sync behind a marker.
func unpanicked(call func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			panic(p)
		case error:
			err = p
		default:
			panic(p)
		}
	}()
	return call()
}

// lockMaintainer waits until the maintainer is between two steps.
func (s *Store) lockMaintainer(ctx context.Context) error {
	locked := make(chan struct{})
	go func() {
		s.maintainer.mu.Lock()
		select {
		case locked <- struct{}{}:
		case <-ctx.Done():
			s.maintainer.mu.Unlock()
		}
	}()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// momentStill cuts a store that writes nothing, and whose files stay as they are
// while it is open.
func (s *Store) momentStill(context.Context) (*moment, error) {
	fsys := s.opts.seams.FS
	chain, err := wal.Read(fsys, s.logDir(), s.identity.id)
	if err != nil {
		return nil, wrapLog(err)
	}
	c := &moment{
		tables: fsys.PathJoin(s.dir, pebbleDir), log: s.logDir(),
		first: chain.Files[0].File, release: func() error { return nil },
	}
	for _, f := range chain.Files {
		if !f.Prepared && !f.Discard {
			c.last = f.File
			c.logBytes += f.End
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.origin = s.originLocked(chain.Last)
	return c, nil
}
