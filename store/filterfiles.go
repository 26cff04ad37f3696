package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"dedupstore/internal/planted"
	"dedupstore/mmapfilter"
)

// The files of the bitmap and of the segment filters, as Open finds them. One
// that is missing, short, damaged or another store's does not stop a store: it
// answers from Pebble until a build has made a new one, and the bad file is
// kept.

// badSuffix ends the name of a filter's file that was put aside.
const badSuffix = ".bad"

// filterFile is the file that counts for the bitmap or for a span.
type filterFile struct {
	span   spanID // the zero value: the bitmap
	path   string
	header mmapfilter.Header
	bad    error // why it cannot be used; nil if it can
	// leftOut says that it is missing because a snapshot has left it out.
	leftOut bool
}

// examineFilters reads the headers of the filters' files and chooses those
// that count. An error says what the system does not let it read.
func (s *Store) examineFilters(f *found) error {
	names, err := s.opts.seams.Device.List(s.dir)
	if err != nil {
		return fmt.Errorf("store: list the filters: %w", err)
	}
	if f.origin, err = s.readOrigin(); err != nil {
		return err
	}
	f.bitmap = filterFile{path: s.bitmapPath(f.registry)}
	if err := s.examineFilter(f, &f.bitmap, f.registry.bitmapGeneration, s.identity.hasher.mix); err != nil {
		return err
	}
	spans := f.registry.spans(nil)
	f.spans = make(map[spanID]filterFile, len(spans))
	for _, name := range names {
		base := strings.TrimSuffix(name, mmapfilter.TmpSuffix)
		id, generation, ok := parseSpanFilterName(base)
		switch {
		case isBitmapName(base) && name != bitmapName(f.registry.bitmapGeneration), ok && base != name:
			f.leftovers = append(f.leftovers, name)
			continue
		case !ok:
			continue
		}
		ff := filterFile{span: id, path: s.opts.seams.FS.PathJoin(s.dir, name)}
		if err := s.examineFilter(f, &ff, generation, id.seed(&s.identity.hasher)); err != nil {
			return err
		}
		i := slices.IndexFunc(spans, func(sp span) bool { return sp.id == id })
		switch {
		case ff.bad != nil:
			f.badFilters = append(f.badFilters, ff)
		case i < 0, ff.header.Ingest == 0 && f.registry.closed(spans[i].ids()):
			f.leftovers = append(f.leftovers, name) // a build or a flush that did not end
		default:
			f.chooseFilter(ff, name)
		}
	}
	if isLeftOut(f.bitmap.bad, f.registry.bitmapGeneration, f.origin.Bitmap) {
		f.bitmap.leftOut = true
	} else if f.bitmap.bad != nil {
		f.badFilters = append(f.badFilters, f.bitmap)
	}
	return nil
}

// chooseFilter keeps the better one of a span's files: a switch is the new
// file's first sync, and the old one is unlinked after it.
func (f *found) chooseFilter(ff filterFile, name string) {
	best, ok := f.spans[ff.span]
	if !ok {
		f.spans[ff.span] = ff
		return
	}
	a, b := best.header, ff.header
	if a.Ingest > b.Ingest || a.Ingest == b.Ingest && a.Generation > b.Generation {
		f.leftovers = append(f.leftovers, name)
		return
	}
	f.leftovers = append(f.leftovers, best.path[strings.LastIndex(best.path, spanFilterPrefix):])
	f.spans[ff.span] = ff
}

// examineFilter reads and checks one header.
func (s *Store) examineFilter(f *found, ff *filterFile, generation, seed uint64) error {
	h, _, err := mmapfilter.ReadHeader(s.opts.seams.Device, ff.path)
	switch {
	case err != nil:
		if notOurs(err) {
			return s.wrapFilter(ff.path, err)
		}
		ff.bad = s.wrapFilter(ff.path, err)
	case h.StoreID != s.identity.id:
		ff.bad = &CorruptError{Path: ff.path, Offset: 0, Reason: "it belongs to another store"}
	case h.Generation != generation || h.Seed != seed:
		ff.bad = &CorruptError{Path: ff.path, Offset: 0, Reason: "another file of this store is in its place"}
	default:
		ff.header = h
		f.note(ff.path, h.Ingest)
	}
	return nil
}

// notOurs reports an error that a rebuilt file would not take away.
func notOurs(err error) bool { return isSystem(err) && !errors.Is(err, syscall.EIO) }

// openFilters maps the files that count. The others' place is taken by filters
// that let everything through.
func (s *Store) openFilters(f *found) error {
	touched := f.registry.ingests()
	bitmap, err := s.openFilter(f, &f.bitmap, touched[spanID{}], f.registry.ids())
	if err != nil {
		return err
	}
	s.current.Store(&state{bitmap: bitmap})
	s.maintainer.filters = make(map[spanID]*filter, len(f.spans))
	for _, sp := range f.registry.spans(nil) {
		ff, ok := f.spans[sp.id]
		if !ok {
			continue
		}
		open, err := s.openFilter(f, &ff, touched[sp.id], sp.ids())
		if err != nil {
			return err
		}
		if s.opts.ReadOnly && open.header().Ingest < touched[sp.id] {
			// Its bits may not be set here, and without them its "no" is none.
			if err := open.close(); err != nil {
				return err
			}
			continue
		}
		s.maintainer.filters[sp.id] = open
	}
	return nil
}

// openFilter maps a file, in whose bits the segments are up to an ingest.
func (s *Store) openFilter(f *found, ff *filterFile, touched uint64, of []segmentID) (*filter, error) {
	if ff.bad == nil {
		m, err := mmapfilter.Open(s.opts.seams.Device, ff.path, s.identity.id, s.opts.ReadOnly)
		if err == nil {
			open := &filter{Filter: m, path: ff.path}
			s.believe(f, open, ff.span, touched, of)
			return open, nil
		}
		if notOurs(err) {
			return nil, s.wrapFilter(ff.path, err)
		}
		ff.bad = s.wrapFilter(ff.path, err)
		f.badFilters = append(f.badFilters, *ff)
	}
	open := &filter{path: ff.path}
	open.doubts(doubt{reason: ff.reason()})
	return open, nil
}

// reason is why a file cannot be used.
func (ff *filterFile) reason() string {
	if ff.leftOut {
		return leftOutReason
	}
	return reasonOf(ff.bad)
}

// reasonOf is what an error says, without the path.
func reasonOf(err error) string {
	if c, ok := errors.AsType[*CorruptError](err); ok {
		if errors.Is(c.Err, fs.ErrNotExist) {
			return "the file is missing"
		}
		return c.Reason
	}
	return err.Error()
}

// believe tells a filter whose page sums count from one that a crash has left:
// after the last sync of that one bits may have been set, and be there or not.
// What no flush can have touched since is as good as after a Close: the filter
// of a closed span, but never the bitmap, in which a segment of which Pebble
// does not know yet has its bits too.
func (s *Store) believe(f *found, open *filter, span spanID, touched uint64, of []segmentID) {
	synced := open.header().Ingest >= touched
	if synced && (f.clean || span != spanID{} && f.registry.closed(of)) {
		err := open.TrustSums()
		if err == nil {
			return
		}
		if !errors.Is(err, mmapfilter.ErrUnverified) {
			open.doubts(doubt{reason: "its page sums are damaged"})
		}
	}
	open.doubts(doubt{unverified: true, reason: "a crash has left it"})
	if !s.opts.ReadOnly {
		open.MarkUnverified()
	}
}

// settleFilters puts bad files aside and removes left-over ones.
func (s *Store) settleFilters(f *found) error {
	device, fsys := s.opts.seams.Device, s.opts.seams.FS
	names, err := device.List(s.dir)
	if err != nil {
		return fmt.Errorf("store: list the filters: %w", err)
	}
	for _, ff := range f.badFilters {
		name := fsys.PathBase(ff.path)
		if !slices.Contains(names, name) {
			s.noteBad(ff, "")
			continue
		}
		kept := name + badSuffix
		for i := 1; slices.Contains(names, kept); i++ {
			kept = fmt.Sprintf("%s%s.%d", name, badSuffix, i)
		}
		if err := device.Rename(ff.path, fsys.PathJoin(s.dir, kept)); err != nil {
			return fmt.Errorf("store: put a bad filter aside: %w", err)
		}
		s.noteBad(ff, kept)
	}
	for _, name := range f.leftovers {
		if err := device.Remove(fsys.PathJoin(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: remove a left-over filter: %w", err)
		}
		s.recovery.Removed = append(s.recovery.Removed, name)
	}
	return nil
}

func (s *Store) noteBad(ff filterFile, kept string) {
	s.recovery.BadFilters = append(s.recovery.BadFilters, BadFilter{
		Path: ff.path, Reason: reasonOf(ff.bad), Kept: kept,
	})
	s.opts.Logger.Error("store: a filter cannot be used and is built anew",
		"path", ff.path, "reason", reasonOf(ff.bad), "kept", kept)
}

// setBitsAgain sets the bits of every segment that was ingested above a
// filter's number: they may not have been synced.
func (s *Store) setBitsAgain() error {
	if planted.NoBitsAtOpen {
		return nil
	}
	r := s.mu.registry
	for _, id := range r.ids() {
		row := r.segments[id]
		if row.state == segmentSubtracted {
			continue
		}
		behind := []*filter{s.current.Load().bitmap, s.filterOf(row.spanID())}
		behind = slices.DeleteFunc(behind, func(f *filter) bool {
			return f.Filter == nil || f.header().Ingest >= row.ingest
		})
		if len(behind) == 0 {
			continue
		}
		err := scanSegment(s.db, id, func(words []word) error {
			s.recovery.BitsSetAgain += int64(len(words))
			s.maintainer.bitsUnsynced += int64(len(words))
			for _, f := range behind {
				if err := f.setSorted(words); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) spanFilterPath(id spanID, generation uint64) string {
	return s.opts.seams.FS.PathJoin(s.dir, spanFilterName(id, generation))
}
