package store

import (
	"context"
	"fmt"
	"time"
)

// obsoleteWait is the time between two looks whether Pebble has removed the
// tables that it has merged.
const obsoleteWait = 2 * time.Millisecond

// Compact merges the tables of each segment until none overlaps another, and
// returns when the old ones are gone. Nobody has to call it: the store merges
// by itself. Adds and lookups go on meanwhile, slower. It reads and writes
// every table that overlaps another, and what it writes must find space before
// the old tables go: it may go below MinFreeBytes for that, and takes the
// reserve, which is made again behind it. An error that is ErrDiskFull says
// that all of it was not enough; nothing is lost then.
//
// Close, or a context that is done, ends it with the merge that is under way.
// In a store that was opened on a full disk, other calls wait for it.
func (s *Store) Compact(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.waiting != nil {
		return s.waiting.compact(ctx)
	}
	if err := s.writable(); err != nil {
		return err
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return s.compactTables(ctx)
}

// begin begins a call that Close waits for, and whose context it ends, with
// ErrClosed for the cause.
func (s *Store) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		return nil, nil, ErrClosed
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.maintainer.stop: // for ever in a store that must not write
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); s.calls.Done() }, nil
}

// compactTables compacts below the floor, with the reserve given up.
func (s *Store) compactTables(ctx context.Context) error {
	defer s.space.below()()
	s.mu.Lock()
	ids := s.mu.registry.ids()
	s.mu.Unlock()
	for _, id := range append([]segmentID{0}, ids...) { // 0: the registry
		err := s.events.apart(func() error {
			return s.db.Compact(ctx, appendWordKey(nil, id, 0), appendWordKey(nil, id+1, 0), false)
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.Err() != nil:
			return s.Err()
		case err != nil:
			return fmt.Errorf("store: compact segment %d: %w", id, wrapPebble(err))
		}
	}
	return s.awaitRemovals(ctx)
}

// awaitRemovals returns when Pebble has removed the tables that nothing refers
// to any more, which it does beside its calls.
func (s *Store) awaitRemovals(ctx context.Context) error {
	tick := time.NewTicker(obsoleteWait)
	defer tick.Stop()
	for {
		m := s.metrics()
		if m == nil {
			return s.Err()
		}
		if m.Table.ObsoleteCount == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
