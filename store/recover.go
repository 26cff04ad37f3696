package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"dedupstore/wal"
)

// Recovery brings back what Close, or a crash, has left: it compares what the
// log, the bitmap and Pebble say of the last ingest, sets again the bits that
// were not synced, and replays and flushes the log's files above the flushed
// one, file by file. It may be killed anywhere and run again.

// recoverAll makes a Store of what is on disk.
func (s *Store) recoverAll() error {
	start := time.Now()
	f, err := s.examine()
	if err != nil {
		return err
	}
	s.mu.registry = f.registry
	s.maintainer.stored = f.registry.storeRow
	s.time = newStoreTime(s.opts.Clock, f.clock)
	if err := s.openFilters(f); err != nil {
		return err
	}
	if f.badCounters == nil {
		s.noteCounters(f.registry.counterGen)
	}
	full, err := s.openSet()
	if err != nil {
		return err
	}
	if err := s.checkTables(); err != nil {
		return err
	}
	s.noteTorn(f.chain)
	if !s.opts.ReadOnly && full == nil {
		err = s.recoverWriting(f)
		if errors.Is(err, ErrDiskFull) && !errors.Is(err, ErrPoisoned) {
			full = err
		}
	}
	switch {
	case s.opts.ReadOnly:
		s.refuse = ErrReadOnly
		err = s.serveReplayed(f)
	case full != nil:
		// What was answered is served, and nothing is taken, until there is
		// space to recover (see waiting).
		s.refuse = full
		err = s.serveReplayed(f)
	}
	s.recovery.Time = since(start)
	s.recovery.Clean = s.recovery.Words == 0 && f.chain.Torn == nil
	s.opts.Logger.Debug("store: recovered", "dir", s.dir, "clean", s.recovery.Clean,
		"words", s.recovery.Words, "time", s.recovery.Time)
	return err
}

// openSet opens Pebble: for writing, or read-only if the store is, or if the
// disk is full, which is not an error. Opening it for writing takes some space
// for its MANIFEST, without which it cannot go on.
func (s *Store) openSet() (full, err error) {
	if !s.opts.ReadOnly {
		full = s.space.check(0)
	}
	s.db, s.pebble, err = s.openPebble(s.opts.ReadOnly || full != nil)
	if errors.Is(err, ErrDiskFull) && full == nil {
		full = err
		s.db, s.pebble, err = s.openPebble(true)
	}
	return full, err
}

func (s *Store) noteTorn(c *wal.Chain) {
	if t := c.Torn; t != nil {
		s.recovery.TornFile, s.recovery.TornOffset, s.recovery.TornBytes = t.Path, t.Offset, t.Bytes
		s.opts.Logger.Warn("store: a torn tail of the log was dropped; no answer rested on it",
			"path", t.Path, "offset", t.Offset, "bytes", t.Bytes, "reason", t.Reason)
	}
}

// recoverWriting recovers a store that may be written to. An error that is
// ErrDiskFull has left everything for another try.
func (s *Store) recoverWriting(f *found) error {
	if err := s.removeLeftovers(f.chain); err != nil {
		return err
	}
	if err := errors.Join(s.settleFilters(f), s.settleCounters(f)); err != nil {
		return err
	}
	if err := s.setBitsAgain(); err != nil {
		return err
	}
	if err := s.createLog(f.chain); err != nil {
		return err
	}
	s.maintainer.oldestLog.Store(f.chain.Files[0].File)
	s.maintainer.tornLogs = make(map[uint64]bool)
	for _, file := range f.chain.Files {
		// The number of one that is gone already may be the new file's.
		s.maintainer.tornLogs[file.File] = file.Dropped > 0 && !file.Discard && !file.Prepared
	}
	for i, file := range f.chain.Files {
		if file.File > s.mu.registry.flushed && !file.Prepared && !file.Discard {
			if err := s.recoverFile(f.chain, i); err != nil {
				return err
			}
		}
	}
	active, err := newMemtable(s.memtableLimit)
	if err != nil {
		return err
	}
	active.file = s.log.File()
	if err := s.start(active, nil); err != nil {
		return errors.Join(err, active.free())
	}
	if err := s.setFloor(uint64(s.opts.ExpectedURLs)); err != nil {
		return err
	}
	return s.setTTL(s.opts.TTL)
}

// removeLeftovers removes temporary files of ours, and log files that were
// made and never used; one that is wholly behind a torn tail is put aside. The
// highest number goes first, so that a crash between two leaves no gap, and
// the number that the new file takes stays taken until it has it.
func (s *Store) removeLeftovers(c *wal.Chain) error {
	fsys := s.opts.seams.FS
	tmp := fsys.PathJoin(s.dir, tmpDir)
	names, err := fsys.List(tmp)
	if err != nil {
		return fmt.Errorf("store: list %s: %w", tmp, err)
	}
	for _, name := range names {
		if err := fsys.RemoveAll(fsys.PathJoin(tmp, name)); err != nil {
			return fmt.Errorf("store: remove a left-over file: %w", err)
		}
		s.recovery.Removed = append(s.recovery.Removed, fsys.PathJoin(tmpDir, name))
	}
	next := c.Next([wal.MetaBytes]byte{}).File
	for _, file := range slices.Backward(c.Files) {
		switch {
		case file.Prepared && file.File == next:
		case file.Discard && file.File == next:
			if _, err := wal.KeepCopy(fsys, s.logDir(), file.File); err != nil {
				return fmt.Errorf("store: put a torn log file aside: %w", err)
			}
		case file.Prepared:
			if err := wal.Remove(fsys, s.logDir(), file.File); err != nil {
				return fmt.Errorf("store: remove a left-over log file: %w", err)
			}
		case file.Discard:
			if _, err := wal.Quarantine(fsys, s.logDir(), file.File); err != nil {
				return fmt.Errorf("store: put a torn log file aside: %w", err)
			}
		}
	}
	for _, name := range []string{creatingName, identityName + newSuffix, creatingName + newSuffix, statusName + newSuffix} {
		if err := removeIfThere(fsys, fsys.PathJoin(s.dir, name)); err != nil {
			return fmt.Errorf("store: remove a left-over file: %w", err)
		}
	}
	return nil
}

// createLog makes the log file that new records go to. Nothing is appended to
// an old one: its header says where the last old one ends.
func (s *Store) createLog(c *wal.Chain) error {
	o := wal.Options{StoreID: s.identity.id, OnPoison: s.poison}
	if s.opts.Durability != NoSync {
		// At level Sync it is for the mark that an idle log puts behind the
		// last record: without it damage to that one passes for a torn tail.
		o.SyncInterval = s.opts.SyncInterval
	}
	log, err := wal.Create(s.opts.seams.FS, s.logDir(), c.Next(logMeta(s.time.stamp())), o)
	if errors.Is(err, wal.ErrNoSpace) || isDiskFull(err) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	if err != nil {
		return fmt.Errorf("store: make a log file: %w", err)
	}
	s.log = log
	return s.reserveLog(room{logBytes: keepLogBytes})
}

// recoverFile replays one log file, flushes what is in it, and lets it go. A
// file with nothing in it goes with the next flush. One with a torn tail is
// put aside, once its good part is in Pebble.
func (s *Store) recoverFile(c *wal.Chain, i int) error {
	m, changed, err := s.replay(c, i)
	if err != nil {
		return err
	}
	defer m.free()
	file := c.Files[i].File
	if m.count.Load() > 0 || len(changed.segments)+len(changed.namespaces) > 0 || s.maintainer.tornLogs[file] {
		if _, err := s.ingest(m, changed); err != nil {
			return err
		}
		s.mu.registry.apply(changed)
		s.maintainer.bitsUnsynced += m.count.Load()
		if err := s.waitSynced(s.logIngestLocked()); err != nil {
			return err
		}
	}
	s.opts.seams.At("recovered-file")
	if s.mu.registry.flushed < file {
		return nil
	}
	return s.removeLogs(file)
}
