package store

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// found is what the files of a store say before anything is written.
type found struct {
	chain    *wal.Chain
	registry *registry
	// clock is the last stamp.
	clock clockStamp
	// clean says that nothing was added since the last flush.
	clean bool
	// What there is of filters: the files that count, those that cannot be
	// used, and the names of those that a build or a flush has left.
	bitmap     filterFile
	spans      map[spanID]filterFile
	badFilters []filterFile
	leftovers  []string
	// The same of counters.
	badCounters  *filterFile
	leftCounters []string
	// origin says what a snapshot has left out.
	origin origin
	// ingest is the highest number that log and filters know of.
	ingest     uint64
	ingestFrom string // the file that says so
}

// examine reads what recovery needs to know and compares it. It writes
// nothing, and opens Pebble read-only.
func (s *Store) examine() (*found, error) {
	f := &found{}
	var err error
	if f.chain, err = wal.Read(s.opts.seams.FS, s.logDir(), s.identity.id); err != nil {
		return nil, wrapLog(err)
	}
	db, _, err := s.openPebble(true)
	if err != nil {
		return nil, err
	}
	f.registry, err = s.loadRegistry(db)
	if err = errors.Join(err, wrapPebble(db.Close())); err != nil {
		return nil, err
	}
	bad := s.examineRecords(f)
	// An older registry may name a bitmap that is gone: that is not the
	// bitmap's fault.
	if err := s.compare(f); err != nil {
		return nil, err
	}
	if err := s.examineFilters(f); err != nil {
		return nil, err
	}
	if err := s.examineCounters(f); err != nil {
		return nil, err
	}
	if err := s.compare(f); err != nil {
		return nil, err
	}
	return f, bad
}

// examineRecords notes the numbers of the ingests on record in the log, the
// last clock stamp, and the bitmap of the last build, of which the registry may
// not know yet, and tries whether the records above the flushed file can be replayed: one that
// cannot must be found before the first file is flushed and let go.
func (s *Store) examineRecords(f *found) error {
	r := f.registry.clone()
	defer func() { f.registry.noteSwitches(r) }()
	var bad error
	f.clean, f.clock = true, r.clock
	for i, file := range f.chain.Files {
		f.stamped(decodeClockStamp(file.Meta[:]))
		m := &memtable{file: file.File} // without slots: takes no words
		r.listed = nil
		err := f.chain.Replay(i, func(rec wal.Record) error {
			f.see(rec)
			if file.File <= f.registry.flushed {
				return nil
			}
			if bad == nil {
				bad = badRecord(rec, r.replay(m, rec))
			}
			f.clean = f.clean && rec.Kind != recordAdds
			return nil
		})
		if err != nil {
			return wrapLog(err)
		}
	}
	return bad
}

// noteSwitches takes over what the records of switches have made of a clone:
// which files count, and for which segments.
func (r *registry) noteSwitches(replayed *registry) {
	r.bitmapGeneration, r.counterGen = replayed.bitmapGeneration, replayed.counterGen
	r.dead, r.leaked = replayed.dead, replayed.leaked
	for id, row := range r.segments {
		if now, ok := replayed.segments[id]; ok && row.state != segmentOpen {
			row.state = now.state
			r.segments[id] = row
		}
	}
}

// badRecord gives an error of a record's replay the place.
func badRecord(rec wal.Record, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrVersion):
		return fmt.Errorf("store: %s at offset %d: %w", rec.Path, rec.Offset, err)
	}
	return &CorruptError{Path: rec.Path, Offset: rec.Offset, LSN: uint64(rec.LSN), Reason: "bad record", Err: err}
}

// see notes what a record of the log says of ingests and of the time.
func (f *found) see(rec wal.Record) {
	if number, _, clock, err := decodeIngest(rec.Payload); rec.Kind == recordIngest && err == nil {
		f.note(rec.Path, number)
		f.stamped(clock)
	}
	if clock, err := decodeClock(rec.Payload); rec.Kind == recordClock && err == nil {
		f.clock = clock // accepted, whatever was before
	}
}

// note takes a number that a file knows of.
func (f *found) note(path string, number uint64) {
	if number > f.ingest {
		f.ingest, f.ingestFrom = number, path
	}
}

// stamped takes a stamp that is in the log.
func (f *found) stamped(c clockStamp) {
	if c != (clockStamp{}) && !f.clock.isLater(c) {
		f.clock = c
	}
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
	if len(f.chain.Files) == 0 {
		return &CorruptError{
			Path: s.logDir(), Offset: -1,
			Reason: fmt.Sprintf("log file %d is missing; there is none", f.registry.flushed+1),
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

// wrapFilter gives an error of a filter's the store's type.
func (s *Store) wrapFilter(path string, err error) error {
	if c, ok := errors.AsType[*mmapfilter.CorruptError](err); ok {
		return &CorruptError{Path: c.Path, Offset: c.Offset, Reason: c.Reason}
	}
	if errors.Is(err, mmapfilter.ErrVersion) {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	if isSystem(err) {
		return fmt.Errorf("store: open a filter: %w", err)
	}
	return &CorruptError{Path: path, Offset: -1, Reason: "the filter does not open", Err: err}
}
