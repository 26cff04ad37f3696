package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/internal/planted"
	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// Recovery brings back what Close, or a crash, has left: it compares what the
// log, the bitmap and Pebble say of the last ingest, sets again the bits that
// were not synced, and replays and flushes the log's files above the flushed
// one, file by file. It may be killed anywhere and run again.

// found is what the files of a store say before anything is written.
type found struct {
	chain    *wal.Chain
	registry *registry
	bitmap   mmapfilter.Header
	// ingest is the highest number that log and bitmap know of.
	ingest     uint64
	ingestFrom string // the file that says so
	// generation is the bitmap's of the last build on record in the log, 0 if
	// none is; the registry may not know of it yet.
	generation uint64
}

// examine reads what recovery needs to know and compares it. It writes
// nothing, and opens Pebble read-only.
func (s *Store) examine() (*found, error) {
	f := &found{}
	if err := s.examineLog(f); err != nil {
		return nil, err
	}
	db, _, err := s.openPebble(true)
	if err != nil {
		return nil, err
	}
	f.registry, err = loadRegistry(db, s.opts.seams.FS.PathJoin(s.dir, pebbleDir))
	if err = errors.Join(err, wrapPebble(db.Close())); err != nil {
		return nil, err
	}
	f.registry.bitmapGeneration = max(f.registry.bitmapGeneration, f.generation)
	path := s.bitmapPath(f.registry)
	h, _, err := mmapfilter.ReadHeader(s.opts.seams.Device, path)
	if err != nil {
		return nil, s.wrapFilter(path, err)
	}
	f.noteBitmap(path, h)
	return f, s.compare(f)
}

// examineLog reads the log and the numbers of the ingests on record in it.
func (s *Store) examineLog(f *found) (err error) {
	if f.chain, err = wal.Read(s.opts.seams.FS, s.logDir(), s.identity.id); err != nil {
		return wrapLog(err)
	}
	for i := range f.chain.Files {
		err := f.chain.Replay(i, func(r wal.Record) (err error) {
			switch r.Kind {
			case recordIngest:
				var number uint64
				if number, _, _, err = decodeIngest(r.Payload); err == nil {
					f.note(r.Path, number)
				}
			case recordBitmap:
				f.generation, err = decodeBitmap(r.Payload)
			}
			return recordError(r, err)
		})
		if err != nil {
			return wrapLog(err)
		}
	}
	return nil
}

// note takes a number that a file knows of.
func (f *found) note(path string, number uint64) {
	if number > f.ingest {
		f.ingest, f.ingestFrom = number, path
	}
}

func (f *found) noteBitmap(path string, h mmapfilter.Header) {
	f.bitmap = h
	f.note(path, h.Ingest)
}

// compare finds what was lost without a trace in itself: Pebble opens a
// damaged MANIFEST at an older version, and would delete the tables that only
// the lost part names.
func (s *Store) compare(f *found) error {
	if f.registry.ingest < f.ingest {
		return &CorruptError{
			Path: s.manifestPath(), Offset: -1,
			Reason: fmt.Sprintf("it names ingest %d as the last one, and %s ingest %d",
				f.registry.ingest, f.ingestFrom, f.ingest),
		}
	}
	first, last := f.chain.Files[0].File, f.chain.Files[len(f.chain.Files)-1].File
	if next := f.registry.flushed + 1; next < first || next > last {
		return &CorruptError{
			Path: s.logDir(), Offset: -1,
			Reason: fmt.Sprintf("log file %d is missing; there are %d to %d", next, first, last),
		}
	}
	return nil
}

func (s *Store) bitmapPath(r *registry) string { return s.bitmapPathOf(r.bitmapGeneration) }

func (s *Store) bitmapPathOf(generation uint64) string {
	return s.opts.seams.FS.PathJoin(s.dir, bitmapName(generation))
}

// manifestPath is the file that Pebble's state is in.
func (s *Store) manifestPath() string {
	fsys := s.opts.seams.FS
	dir := fsys.PathJoin(s.dir, pebbleDir)
	if d, err := pebble.Peek(dir, fsys); err == nil && d.Exists {
		return d.ManifestFilename
	}
	return fsys.PathJoin(dir, "MANIFEST")
}

// recoverAll makes a Store of what is on disk.
func (s *Store) recoverAll() error {
	start := time.Now()
	f, err := s.examine()
	if err != nil {
		return err
	}
	s.mu.registry = f.registry
	if err := s.openBitmap(); err != nil {
		return err
	}
	if s.db, s.pebble, err = s.openPebble(s.opts.ReadOnly); err != nil {
		return err
	}
	s.noteTorn(f.chain)
	if s.opts.ReadOnly {
		s.refuse = ErrReadOnly
		err = s.serveReplayed(f)
	} else if err = s.recoverWriting(f); errors.Is(err, ErrDiskFull) {
		// What was answered is served, and nothing is taken, until a reopen
		// finds space.
		s.refuse = fmt.Errorf("%w; reopen when there is space", err)
		err = s.serveReplayed(f)
	}
	s.recovery.Time = since(start)
	s.recovery.Clean = s.recovery.Words == 0 && f.chain.Torn == nil
	s.opts.Logger.Debug("store: recovered", "dir", s.dir, "clean", s.recovery.Clean,
		"words", s.recovery.Words, "time", s.recovery.Time)
	return err
}

func (s *Store) openBitmap() error {
	path := s.bitmapPath(s.mu.registry)
	b, err := mmapfilter.Open(s.opts.seams.Device, path, s.identity.id, s.opts.ReadOnly)
	if err != nil {
		return s.wrapFilter(path, err)
	}
	s.current.Store(&state{bitmap: b})
	return nil
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
	if err := s.removeOtherBitmaps(); err != nil {
		return err
	}
	if !planted.NoBitsAtOpen {
		if err := s.setBitsAgain(f.bitmap.Ingest); err != nil {
			return err
		}
	}
	if err := s.createLog(f.chain); err != nil {
		return err
	}
	s.maintainer.oldestLog = f.chain.Files[0].File
	s.maintainer.tornLogs = make(map[uint64]bool)
	for _, file := range f.chain.Files {
		s.maintainer.tornLogs[file.File] = file.Dropped > 0
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
	return nil
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
		if err := fsys.Remove(fsys.PathJoin(tmp, name)); err != nil {
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
	for _, name := range []string{creatingName, identityName + newSuffix, creatingName + newSuffix} {
		if err := removeIfThere(fsys, fsys.PathJoin(s.dir, name)); err != nil {
			return fmt.Errorf("store: remove a left-over file: %w", err)
		}
	}
	return nil
}

// setBitsAgain sets the bits of every segment that was ingested above the
// bitmap's number: they may not have been synced.
func (s *Store) setBitsAgain(above uint64) error {
	bitmap := s.current.Load().bitmap
	for _, id := range s.mu.registry.ids() {
		if s.mu.registry.segments[id].ingest <= above {
			continue
		}
		err := scanSegment(s.db, id, func(words []word) error {
			s.recovery.BitsSetAgain += int64(len(words))
			s.maintainer.bitsUnsynced += int64(len(words))
			return bitmap.SetSorted(words)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scanSegment calls fn with a segment's words in ascending order, in parts. fn
// may keep nothing.
func scanSegment(db pebble.Reader, id segmentID, fn func([]word) error) error {
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: appendWordKey(nil, id, 0),
		UpperBound: appendWordKey(nil, id+1, 0),
	})
	if err != nil {
		return wrapPebble(err)
	}
	words := make([]word, 0, sortedPart)
	for it.First(); it.Valid(); it.Next() {
		_, w, ok := decodeWordKey(it.Key())
		if !ok {
			err = &CorruptError{Path: pebbleDir, Offset: -1, Reason: fmt.Sprintf("key %x is no word's", it.Key())}
			break
		}
		if words = append(words, w); len(words) == cap(words) {
			if err = fn(words); err != nil {
				break
			}
			words = words[:0]
		}
	}
	if err == nil && len(words) > 0 && it.Error() == nil {
		err = fn(words)
	}
	return errors.Join(err, wrapPebble(it.Close()))
}

// createLog makes the log file that new records go to. Nothing is appended to
// an old one: its header says where the last old one ends.
func (s *Store) createLog(c *wal.Chain) error {
	o := wal.Options{StoreID: s.identity.id, OnPoison: s.poison}
	if s.opts.Durability != NoSync {
		o.SyncInterval = s.opts.SyncInterval
	}
	log, err := wal.Create(s.opts.seams.FS, s.logDir(), c.Next(logMeta(stampClock())), o)
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
	if m.count.Load() > 0 || len(changed.segments) > 0 || s.maintainer.tornLogs[file] {
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

// replay makes the memtable of one log file, and applies what the file says of
// segments to the registry.
func (s *Store) replay(c *wal.Chain, i int) (*memtable, *registry, error) {
	file := c.Files[i]
	r := s.mu.registry
	m, err := newMemtable(max(int(file.End-file.Start)/8, 64))
	if err != nil {
		return nil, nil, err
	}
	m.file = file.File
	err = c.Replay(i, func(rec wal.Record) error {
		s.recovery.Records++
		m.cover(rec.LSN)
		return recordError(rec, r.replay(m, rec))
	})
	if err != nil {
		return nil, nil, errors.Join(wrapLog(err), m.free())
	}
	s.recovery.LogFiles++
	s.recovery.Words += m.count.Load()
	return m, r.takeChanged(), nil
}

// recordError gives what is wrong with a record its place.
func recordError(r wal.Record, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrVersion) {
		return fmt.Errorf("store: %s at offset %d: %w", r.Path, r.Offset, err)
	}
	return &CorruptError{Path: r.Path, Offset: r.Offset, LSN: uint64(r.LSN), Reason: "bad record", Err: err}
}

// replay applies one record.
func (r *registry) replay(m *memtable, rec wal.Record) error {
	switch rec.Kind {
	case recordAdds:
		return r.replayAdds(m, rec.Payload)
	case recordMade:
		id, row, err := decodeMade(rec.Payload)
		if err != nil {
			return err
		}
		if now, ok := r.segments[id]; ok && now.words == 0 {
			r.setSegment(id, now) // replayed once before in this open
			break
		}
		if id < r.nextSegment {
			return fmt.Errorf("it makes segment %d, and the next id is %d", id, r.nextSegment)
		}
		r.nextSegment = id + 1
		r.setSegment(id, row)
	case recordClosed:
		id, err := decodeClosed(rec.Payload)
		if err != nil {
			return err
		}
		row, ok := r.segments[id]
		if !ok {
			return fmt.Errorf("it closes segment %d, which there is not", id)
		}
		row.state, row.closedIn = segmentClosed, m.file
		r.setSegment(id, row)
	case recordIngest:
		_, _, _, err := decodeIngest(rec.Payload)
		return err
	case recordBitmap:
		generation, err := decodeBitmap(rec.Payload)
		r.bitmapGeneration = max(r.bitmapGeneration, generation)
		return err
	default:
		return fmt.Errorf("%w: kind of record %d", ErrVersion, rec.Kind)
	}
	return nil
}

func (r *registry) replayAdds(m *memtable, payload []byte) error {
	a, err := decodeAdds(payload)
	if err != nil {
		return err
	}
	row, ok := r.segments[a.segment]
	switch {
	case !ok && a.segment < r.nextSegment:
		return nil // a segment that was dropped: its words are dead
	case !ok:
		return fmt.Errorf("it adds to segment %d, which was never made", a.segment)
	case m.segment != 0 && m.segment != a.segment:
		return fmt.Errorf("it adds to segment %d, and its file to %d", a.segment, m.segment)
	}
	m.segment = a.segment
	r.setSegment(a.segment, row)
	for i := range a.len() {
		w := a.word(i)
		slot, found := m.find(w)
		if found {
			continue
		}
		if m.full(slot) {
			return errors.New("bug: a replayed memtable is full")
		}
		m.put(slot, w)
		m.count.Add(1)
	}
	return nil
}

// serveReplayed makes a store that answers from what is on disk and from the
// replayed log, and writes nothing.
func (s *Store) serveReplayed(f *found) error {
	if s.log != nil {
		s.log.Close() // nothing was appended that anybody waits for
		s.log = nil
	}
	s.recovery.Records, s.recovery.Words, s.recovery.LogFiles = 0, 0, 0
	r := f.registry
	tables := []*memtable{}
	for i, file := range f.chain.Files {
		if file.File <= r.flushed || file.Prepared || file.Discard {
			continue
		}
		m, _, err := s.replay(f.chain, i)
		if err != nil {
			return err
		}
		tables = append(tables, m)
	}
	// More than one file above the flushed one is rare, and those behind the
	// second hold no words but in a store that was killed in its recovery.
	active, frozen, err := fold(tables)
	if err != nil {
		return err
	}
	s.publishLocked(func(st *state) {
		for _, id := range r.ids() {
			if r.segments[id].ingest > f.bitmap.Ingest {
				st.behind = append(st.behind, id)
			}
		}
	})
	return s.start(active, frozen)
}

// fold makes two memtables of any number: the last one, and one with the words
// of all others.
func fold(tables []*memtable) (active, frozen *memtable, err error) {
	for len(tables) > 2 {
		a, b := tables[0], tables[1]
		sum, err := newMemtable(int(a.count.Load()+b.count.Load()) + 1)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range []*memtable{a, b} {
			err := m.sorted(sortedPart, func(words []word) error {
				for _, w := range words {
					if slot, found := sum.find(w); !found {
						sum.put(slot, w)
						sum.count.Add(1)
					}
				}
				return nil
			})
			if err = errors.Join(err, m.free()); err != nil {
				return nil, nil, err
			}
		}
		tables = append([]*memtable{sum}, tables[2:]...)
	}
	if len(tables) == 2 {
		frozen = tables[0]
	}
	return tables[len(tables)-1], frozen, nil
}

// wrapLog gives an error of the log's reader the store's type.
func wrapLog(err error) error {
	if c, ok := errors.AsType[*wal.CorruptError](err); ok {
		return &CorruptError{Path: c.Path, Offset: c.Offset, LSN: uint64(c.LSN), Reason: c.Reason, Err: c.Err}
	}
	if errors.Is(err, wal.ErrVersion) {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return err
}

// wrapFilter gives an error of the bitmap's the store's type.
func (s *Store) wrapFilter(path string, err error) error {
	if c, ok := errors.AsType[*mmapfilter.CorruptError](err); ok {
		return &CorruptError{Path: c.Path, Offset: c.Offset, Reason: c.Reason}
	}
	if errors.Is(err, mmapfilter.ErrVersion) {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return &CorruptError{Path: path, Offset: -1, Reason: "the bitmap does not open", Err: err}
}
