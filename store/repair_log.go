package store

import (
	"errors"
	"fmt"

	"dedupstore/wal"
)

// A log with gaps is repaired where it is. Its files are flushed one by one, as
// in a recovery, and put aside as ".bad" once their words are in Pebble; a new
// file goes on behind everything that was on record. Cut short anywhere, it is
// run again. What it has said to be lost is written down first, so that a
// second run can say it again.

// A LogRepair is what could be read of a damaged log.
type LogRepair struct {
	Gaps []LogGap `json:"gaps"`
	// RecordsAtLeast and RecordsAtMost bound the number of records lost;
	// RecordsAtMost is -1 if nothing tells.
	RecordsAtLeast int64 `json:"records_lost_at_least"`
	RecordsAtMost  int64 `json:"records_lost_at_most"`
	// URLsAtMost is how many URLs can have been in them: those that are new
	// again. -1 if nothing tells.
	URLsAtMost int64 `json:"urls_lost_at_most"`
	// URLs is how many of the URLs that there are the log has added.
	URLs int64    `json:"urls_salvaged"`
	Kept []string `json:"kept"` // the files, where they are kept
}

// A LogGap is a part of a log that could not be read.
type LogGap struct {
	Path           string `json:"path"`
	Offset         int64  `json:"offset"` // in bytes
	Bytes          int64  `json:"bytes"`
	FirstLSN       uint64 `json:"first_lsn"`
	LastLSN        uint64 `json:"last_lsn"` // FirstLSN-1 if no record is known to be lost
	RecordsAtLeast int64  `json:"records_lost_at_least"`
	RecordsAtMost  int64  `json:"records_lost_at_most"` // -1 if nothing tells
	URLsAtMost     int64  `json:"urls_lost_at_most"`    // -1 if nothing tells
	Reason         string `json:"reason"`
}

// newLogRepair makes the report of gaps.
func newLogRepair(gaps []wal.Gap) *LogRepair {
	l := &LogRepair{Gaps: []LogGap{}, Kept: []string{}}
	for _, g := range gaps {
		l.Gaps = append(l.Gaps, LogGap{
			Path: g.Path, Offset: g.Offset, Bytes: g.Bytes,
			FirstLSN: uint64(g.FirstLSN), LastLSN: uint64(g.LastLSN),
			RecordsAtLeast: g.AtLeast, RecordsAtMost: g.AtMost, URLsAtMost: urlsAtMost(&g), Reason: g.Reason,
		})
	}
	l.sum()
	return l
}

// sum adds the gaps up.
func (l *LogRepair) sum() {
	l.RecordsAtLeast, l.RecordsAtMost, l.URLsAtMost = 0, 0, 0
	for _, g := range l.Gaps {
		l.RecordsAtLeast += g.RecordsAtLeast
		l.RecordsAtMost = addBound(l.RecordsAtMost, g.RecordsAtMost)
		l.URLsAtMost = addBound(l.URLsAtMost, g.URLsAtMost)
	}
}

// addBound adds two bounds, of which -1 is none.
func addBound(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

// urlsAtMost bounds the URLs in a gap by the bytes that their records took.
func urlsAtMost(g *wal.Gap) int64 {
	switch {
	case g.AtMost == 0:
		return 0
	case g.AtMost < 0 || g.Bytes == 0:
		return -1
	}
	return max(0, g.Bytes-max(1, g.AtLeast)*wal.FrameBytes(addsHeaderBytes)) / 8
}

// repairLog repairs a store whose only trouble is its log.
func (r *repairer) repairLog() error {
	s := r.store(true)
	db, _, err := s.openPebble(true)
	if err != nil {
		return err
	}
	f := &found{}
	f.registry, err = s.loadRegistry(db)
	if err = errors.Join(err, wrapPebble(db.Close())); err != nil {
		return err
	}
	var gaps []wal.Gap
	if f.chain, gaps, err = r.readLog(s, f.registry.flushed, f.registry.flushedLSN); err != nil {
		return err
	}
	r.report.Log = r.record.gaps(newLogRepair(gaps))
	if err := r.makeUp(f.registry, f.chain, gaps); err != nil {
		return err
	}
	if err := r.examineSalvaged(f); err != nil {
		return err
	}
	if !r.o.Apply {
		return r.countLog(s, f)
	}
	if err := r.openRecord(); err != nil {
		return err
	}
	w := r.store(false)
	return errors.Join(r.flushLog(w, f), w.abandonRepair())
}

// abandonRepair closes what a repair has opened.
func (s *Store) abandonRepair() error {
	if s.current.Load() == nil {
		return nil
	}
	return s.abandon()
}

// countLog counts what flushLog would flush.
func (r *repairer) countLog(s *Store, f *found) (err error) {
	if s.db, s.pebble, err = s.openPebble(true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wrapPebble(s.db.Close())) }()
	s.mu.registry = f.registry.clone()
	var before unflushed
	defer func() { err = errors.Join(err, before.free()) }()
	added := map[segmentID]int64{}
	for i, file := range f.chain.Files {
		if !f.unflushed(file) {
			continue
		}
		m, _, err := r.replaySalvaged(s, f.chain, i, before)
		if err != nil {
			return err
		}
		for id := range s.mu.registry.segments {
			row := s.mu.registry.segments[id]
			row.words += uint64(m.wordsOf(id)) - uint64(m.deleted[id])
			s.mu.registry.segments[id] = row
			added[id] += m.wordsOf(id)
		}
		before = append(before, m)
	}
	r.sumURLs(s.mu.registry, newStoreTime(s.opts.Clock, f.clock).now(), added)
	return nil
}

// sumURLs reports how many URLs there are, by the registry, and how many of them
// the log has added.
func (r *repairer) sumURLs(rows *registry, now int64, added map[segmentID]int64) {
	r.report.URLs = rows.liveWords(now)
	for id, n := range added {
		if row, ok := rows.segments[id]; ok && rows.live(&row, now) {
			r.report.Log.URLs += n
		}
	}
}

// flushLog flushes what verifies of the log's files, one by one, and begins a
// clean log.
func (r *repairer) flushLog(s *Store, f *found) error {
	s.mu.registry = f.registry
	s.maintainer.stored = f.registry.storeRow
	s.time = newStoreTime(s.opts.Clock, f.clock)
	if err := s.examineFilters(f); err != nil {
		return err
	}
	if err := s.openFilters(f); err != nil {
		return err
	}
	var err error
	if s.db, s.pebble, err = s.openPebble(false); err != nil {
		return err
	}
	if err := s.removeLeftovers(f.chain); err != nil {
		return err
	}
	if err := s.settleFilters(f); err != nil {
		return err
	}
	if err := s.setBitsAgain(); err != nil {
		return err
	}
	for _, file := range f.chain.Files {
		// What they hold is in Pebble, and their places in the log are free.
		if file.File <= f.registry.flushed && !file.Prepared && !file.Discard {
			if err := r.keepLog(s, file.File); err != nil {
				return err
			}
		}
	}
	if err := s.createLog(f.chain); err != nil {
		return err
	}
	s.opts.seams.At("repair-log")
	added := map[segmentID]int64{}
	for i, file := range f.chain.Files {
		if f.unflushed(file) {
			if err := r.flushSalvaged(s, f.chain, i, added); err != nil {
				return err
			}
			s.opts.seams.At("repair-file")
		}
	}
	r.sumURLs(s.mu.registry, s.time.now(), added)
	return s.syncFilters()
}

// flushSalvaged flushes one file, and keeps it.
func (r *repairer) flushSalvaged(s *Store, c *wal.Chain, i int, added map[segmentID]int64) (err error) {
	m, changed, err := r.replaySalvaged(s, c, i, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.free()) }()
	if _, err := s.ingest(m, changed); err != nil {
		return err
	}
	s.opts.seams.At("repair-ingested")
	s.mu.registry.apply(changed)
	if err := s.waitSynced(s.logIngestLocked()); err != nil {
		return err
	}
	for _, id := range m.ids() {
		added[id] += m.wordsOf(id)
	}
	return r.keepLog(s, c.Files[i].File)
}

func (r *repairer) keepLog(s *Store, file uint64) error {
	name, err := wal.Quarantine(s.opts.seams.FS, s.logDir(), file)
	if err != nil {
		return fmt.Errorf("store: put a damaged log file aside: %w", err)
	}
	r.report.Log.Kept = append(r.report.Log.Kept, s.opts.seams.FS.PathJoin(logDir, name))
	return nil
}

// examineSalvaged is examineRecords for a log with gaps.
func (r *repairer) examineSalvaged(f *found) error {
	rows := f.registry.clone()
	f.clock = rows.clock
	for i, file := range f.chain.Files {
		f.stamped(decodeClockStamp(file.Meta[:]))
		m := &memtable{file: file.File}
		rows.listed = nil
		err := f.chain.Replay(i, func(rec wal.Record) error {
			f.see(rec)
			if file.File <= f.registry.flushed {
				return nil
			}
			_, err := rows.replaySalvaged(m, rec)
			return err
		})
		if err != nil {
			return wrapLog(err)
		}
	}
	f.registry.noteSwitches(rows)
	return nil
}

// replaySalvaged makes the memtable of a file, as it is behind what is in Pebble
// and in the files before that are not flushed.
func (r *repairer) replaySalvaged(s *Store, c *wal.Chain, i int, before unflushed) (*memtable, *registry, error) {
	file := c.Files[i]
	m, err := newMemtable(logWords(file))
	if err != nil {
		return nil, nil, err
	}
	m.file = file.File
	s.mu.registry.listed = nil
	err = c.Replay(i, func(rec wal.Record) error {
		m.cover(rec.LSN)
		note, err := s.mu.registry.replaySalvaged(m, rec)
		if note != "" {
			r.report.note("%s at offset %d (LSN %d): %s", rec.Path, rec.Offset, rec.LSN, note)
		}
		return badRecord(rec, err)
	})
	if err == nil {
		err = s.onlyDeletes(m, before)
	}
	if err != nil {
		return nil, nil, errors.Join(wrapLog(err), m.free())
	}
	m, err = s.onlyNew(m, before)
	return m, s.mu.registry.takeChanged(), err
}
