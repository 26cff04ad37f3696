package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/counting"
	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// The counter file: four bits for each bit of the bitmap, over the counted
// segments, beside the bitmap and with a generation of its own in its name. No
// answer rests on it. One that is missing, short, damaged or another store's is
// kept under another name, its segments count as closed again, and the next
// build makes new counters from Pebble. So does one that there is no space for.

const countersPrefix = "counters-"

func countersName(generation uint64) string { return fmt.Sprintf(countersPrefix+"%010d", generation) }

// isCountersName reports whether countersName makes such a name.
func isCountersName(name string) bool {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, countersPrefix), 10, 64)
	return err == nil && countersName(n) == name
}

func (s *Store) countersPath(generation uint64) string {
	return s.opts.seams.FS.PathJoin(s.dir, countersName(generation))
}

// openCounters opens the counters of a generation and checks the header, and
// the geometry if one is given. What is wrong with the file is a *CorruptError
// or fs.ErrNotExist.
func (s *Store) openCounters(generation uint64, want counting.Geometry) (*counting.Reader, vfs.File, error) {
	path := s.countersPath(generation)
	f, err := s.opts.seams.FS.Open(path)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.readCounters(f, path, generation, want)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return r, f, nil
}

func (s *Store) readCounters(f vfs.File, path string, generation uint64, want counting.Geometry) (*counting.Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r, err := counting.NewReader(f, path, info.Size())
	if err != nil {
		return nil, wrapCounters(path, err)
	}
	h := r.Header()
	reason := ""
	switch {
	case h.StoreID != s.identity.id:
		reason = "it belongs to another store"
	case h.Generation != generation || h.Seed != s.identity.hasher.mix:
		reason = "another file of this store is in its place"
	case want.Blocks > 0 && h.Geometry != want:
		reason = fmt.Sprintf("it has counters for %d blocks, and the bitmap has %d", h.Blocks, want.Blocks)
	default:
		return r, nil
	}
	return nil, &CorruptError{Path: path, Offset: 0, Reason: reason}
}

// wrapCounters gives an error of the counters the store's type.
func wrapCounters(path string, err error) error {
	if c, ok := errors.AsType[*counting.CorruptError](err); ok {
		return &CorruptError{Path: c.Path, Offset: c.Offset, Reason: c.Reason}
	}
	if err == nil || isSystem(err) {
		return err
	}
	return &CorruptError{Path: path, Offset: -1, Reason: "the counters cannot be used", Err: err}
}

// examineCounters looks whether the counters are there that the registry
// names, and for what builds have left.
func (s *Store) examineCounters(f *found) error {
	names, err := s.opts.seams.FS.List(s.dir)
	if err != nil {
		return fmt.Errorf("store: list the counters: %w", err)
	}
	generation := f.registry.counterGen
	for _, name := range names {
		if isCountersName(strings.TrimSuffix(name, newSuffix)) && name != countersName(generation) {
			f.leftCounters = append(f.leftCounters, name)
		}
	}
	if generation == 0 {
		return nil
	}
	_, file, err := s.openCounters(generation, counting.Geometry{})
	switch {
	case err == nil:
		return file.Close()
	case notOurs(err) && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("store: open the counters: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		err = &CorruptError{Path: s.countersPath(generation), Offset: -1, Reason: "the file is missing", Err: err}
	}
	f.badCounters = &filterFile{
		path: s.countersPath(generation), bad: err, leftOut: isLeftOut(err, generation, f.origin.Counters),
	}
	return nil
}

// settleCounters removes what builds have left, and puts bad counters aside.
func (s *Store) settleCounters(f *found) error {
	for _, name := range f.leftCounters {
		if err := removeIfThere(s.opts.seams.FS, s.opts.seams.FS.PathJoin(s.dir, name)); err != nil {
			return fmt.Errorf("store: remove left-over counters: %w", err)
		}
		s.recovery.Removed = append(s.recovery.Removed, name)
	}
	if f.badCounters == nil {
		return nil
	}
	s.maintainer.countersLost = f.badCounters.reason()
	if f.badCounters.leftOut {
		return nil
	}
	kept, err := s.keepBadCounters(f.registry.counterGen)
	s.noteBad(*f.badCounters, kept)
	return err
}

// keepBadCounters gives a counter file another name, and returns it; "" if
// there is no file.
func (s *Store) keepBadCounters(generation uint64) (kept string, err error) {
	fsys, name := s.opts.seams.FS, countersName(generation)
	names, err := fsys.List(s.dir)
	if err != nil {
		return "", fmt.Errorf("store: put bad counters aside: %w", err)
	}
	if !slices.Contains(names, name) {
		return "", nil
	}
	kept = name + badSuffix
	for i := 1; slices.Contains(names, kept); i++ {
		kept = fmt.Sprintf("%s%s.%d", name, badSuffix, i)
	}
	err = fsys.Rename(s.countersPath(generation), fsys.PathJoin(s.dir, kept))
	if err = errors.Join(err, syncDir(fsys, s.dir)); err != nil {
		return "", fmt.Errorf("store: put bad counters aside: %w", err)
	}
	return kept, nil
}

// noteCounters tells Stats of a counter file.
func (s *Store) noteCounters(generation uint64) {
	var bytes, saturated int64
	if generation > 0 {
		if r, f, err := s.openCounters(generation, counting.Geometry{}); err == nil {
			bytes = r.Header().FileBytes()
			if _, c, err := counting.ReadCounts(f, s.countersPath(generation), bytes); err == nil {
				saturated = int64(c.Saturated)
			}
			f.Close() // nothing was written
		}
	}
	s.counters.counterBytes.Store(bytes)
	s.counters.saturated.Store(saturated)
}

// loseCounters puts counters aside that a build has found damaged. The next
// step lets them go.
func (s *Store) loseCounters(cause error) error {
	s.mu.Lock()
	generation := s.mu.registry.counterGen
	s.mu.Unlock()
	s.maintainer.countersLost = cause.Error()
	kept, err := s.keepBadCounters(generation)
	s.opts.Logger.Error("store: the counters cannot be used and are made anew",
		"path", s.countersPath(generation), "err", cause, "kept", kept)
	return err
}

// countersUnwanted reports that there are counters on record that are to be let
// go.
func (s *Store) countersUnwanted() bool {
	if s.opts.Counters && s.maintainer.countersLost == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.registry.counterGen != 0
}

// uncount lets the counters go. Their segments are closed ones again: the
// bitmap has the bits of all of them, those of the words that are over too,
// which are then dropped and count as dead.
func (s *Store) uncount() error {
	if b := s.maintainer.build; b != nil && b.count != nil {
		if err := s.abandonBuild(); err != nil {
			return err
		}
	}
	var old uint64
	record, err := s.logSwitch(func(r *registry) {
		for id, row := range r.segments {
			if row.state == segmentCounted {
				row.state = segmentClosed
				r.setSegment(id, row)
			}
		}
		old = r.counterGen
		r.counterGen, r.leaked = 0, 0
		s.wakeLocked()
	})
	if err != nil {
		return err
	}
	if err := s.waitSynced(record); err != nil {
		return err
	}
	s.opts.seams.At("uncounted")
	s.maintainer.countersLost = ""
	s.noteCounters(0)
	return s.removeCounters(old)
}

// removeCounters unlinks counters that do not count any more.
func (s *Store) removeCounters(generation uint64) error {
	if generation == 0 {
		return nil
	}
	if err := removeIfThere(s.opts.seams.FS, s.countersPath(generation)); err != nil {
		return fmt.Errorf("store: remove the counters before these: %w", err)
	}
	s.opts.seams.At("counters-removed")
	return nil
}

// logSwitch has change say which bitmap, counters and segments count, and puts
// that on record: the lists and the bitmap's record in one hold of the lock,
// with room that was reserved before it.
func (s *Store) logSwitch(change func(*registry)) (record wal.LSN, err error) {
	for {
		s.mu.Lock()
		n := int64(len(s.mu.registry.segments))
		if need := keepLogBytes + (2+n/maxListed)*2*wal.FrameBytes(0) + 4*n; s.log.Room() < need {
			s.mu.Unlock()
			if err := s.reserveLog(room{logBytes: need}); err != nil {
				return 0, err
			}
			continue
		}
		defer s.mu.Unlock()
		change(s.mu.registry)
		return s.logBitmapLocked(), nil
	}
}

// logBitmapLocked puts the switch on record.
func (s *Store) logBitmapLocked() wal.LSN {
	r := s.mu.registry
	lists := map[segmentState][]segmentID{}
	for _, id := range r.ids() {
		state := r.segments[id].state
		lists[state] = append(lists[state], id)
	}
	for part := range slices.Chunk(lists[segmentCounted], maxListed) {
		s.log.Append(recordCounted, appendList(nil, part))
	}
	for part := range slices.Chunk(lists[segmentSubtracted], maxListed) {
		s.log.Append(recordGone, appendList(nil, part))
	}
	return s.log.Append(recordBitmap, appendBitmap(nil, bitmapRecord{r.bitmapGeneration, r.counterGen, r.leaked, r.dead}))
}

// geometry is that of the counters of a filter.
func geometry(p mmapfilter.Params) counting.Geometry {
	return counting.Geometry{Blocks: p.Blocks, Probes: p.Probes, Seed: p.Seed}
}
