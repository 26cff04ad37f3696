package store

import (
	"errors"
	"fmt"
	"slices"

	"dedupstore/internal/planted"
)

// Healing: the maintainer checks the pages of filters that a clean Close has
// left, sets the bits of a bad page again from Pebble, and notices a file that
// was removed under it. What is wrong with a whole file a build replaces.

// checkPart is how many pages, 4 MiB of them, are checked between two looks for
// a flush to do.
const checkPart = 1 << 10

// filters calls fn with the bitmap and each segment filter, and the segments
// that it is of, until fn returns false or an error. The maintainer calls it.
func (s *Store) filters(fn func(f *filter, of []segmentID) (bool, error)) error {
	st := s.current.Load()
	s.mu.Lock()
	all := s.mu.registry.ids()
	s.mu.Unlock()
	if more, err := fn(st.bitmap, all); err != nil || !more {
		return err
	}
	for _, sp := range st.spans {
		if more, err := fn(sp.filter, sp.ids()); err != nil || !more {
			return err
		}
	}
	return nil
}

// heal sets a bad page again, or checks some pages. It reports whether there
// was anything to do.
func (s *Store) heal() (did bool, err error) {
	err = s.filters(func(f *filter, of []segmentID) (bool, error) {
		if f.Filter == nil {
			return true, nil
		}
		if did, err = s.healPages(f, of); err != nil {
			return false, err
		}
		// A filter that a build is to replace is not checked further: if the
		// disk does not give a page, there would be no end to it.
		if did || f.Unchecked() == 0 || f.doubt.Load() != nil {
			return !did, nil
		}
		did = true
		return false, s.checkPages(f)
	})
	return did, err
}

func (s *Store) checkPages(f *filter) error {
	if _, err := f.CheckPages(checkPart); err != nil {
		f.doubts(doubt{reason: "the disk does not give a page"})
		s.opts.Logger.Warn("store: check the pages of a filter", "path", f.path, "err", err)
	}
	s.opts.seams.At("pages-checked")
	return nil
}

// healPages sets the bad pages of a filter again. One that is to be replaced
// keeps them: it is so because they cannot be set, for one.
func (s *Store) healPages(f *filter, of []segmentID) (did bool, err error) {
	for _, page := range f.BadPages() {
		if d := f.doubt.Load(); d != nil && !d.unverified {
			break
		}
		did = true
		if err := s.healPage(f, of, page); err != nil {
			return did, err
		}
	}
	return did, nil
}

// healPage sets the bits of all words of a page again. Those that were set and
// should not be stay: they cost a question more, until the next build.
func (s *Store) healPage(f *filter, of []segmentID, page uint64) error {
	first, last := f.PageRange(page)
	var setErr error
	set := func(words []word) error {
		setErr = f.setSorted(words)
		return setErr
	}
	for _, id := range of {
		err := scanRange(s.db, id, first, last, set)
		if err != nil && setErr == nil && s.Err() == nil {
			f.doubts(doubt{reason: "a page is damaged, and a table that it is to be set again from: " + err.Error()})
			return nil
		}
		if err != nil {
			return err
		}
	}
	s.counters.pagesHealed.Add(1)
	f.Healed(page)
	s.opts.seams.At("page-set")
	if err := f.Sync(f.header().Ingest); err != nil {
		return fmt.Errorf("store: sync %s: %w", f.path, err)
	}
	s.opts.Logger.Warn("store: a damaged page of a filter was set again", "path", f.path, "page", page)
	return nil
}

// healAll ends the healing that Close has met: what stays bad would be synced
// as good. A page that nobody has asked for stays unchecked, and its sum.
func (s *Store) healAll() error {
	return s.filters(func(f *filter, of []segmentID) (bool, error) {
		if f.Filter == nil {
			return true, nil
		}
		_, err := s.healPages(f, of)
		return err == nil, err
	})
}

// checkLinked notices a filter whose file was removed, or replaced. What is
// mapped goes on being right while the store is open.
func (s *Store) checkLinked() error {
	return s.filters(func(f *filter, _ []segmentID) (bool, error) {
		if f.Filter == nil || f.doubt.Load() != nil {
			return true, nil
		}
		linked, err := f.Linked()
		if err == nil && !linked {
			f.doubts(doubt{reason: "the file is gone from its directory"})
			s.opts.Logger.Error("store: the file of a filter is gone", "path", f.path)
		}
		return true, err
	})
}

// syncFilters syncs the filters whose bits were set since their last sync, and
// puts the last ingest's number into them.
func (s *Store) syncFilters() error {
	s.mu.Lock()
	last, touched := s.mu.registry.ingest, s.mu.registry.ingests()
	s.mu.Unlock()
	st := s.current.Load()
	err := s.syncFilter(st.bitmap, touched[spanID{}], last)
	for i := range st.spans {
		if sp := &st.spans[i]; err == nil {
			err = s.syncFilter(sp.filter, touched[sp.id], last)
		}
	}
	if err != nil {
		s.poison(err)
		return err
	}
	s.maintainer.bitsUnsynced = 0
	return nil
}

// syncFilter syncs a filter in which an ingest has set bits since.
func (s *Store) syncFilter(f *filter, touched, last uint64) error {
	if f.Filter == nil || f.header().Ingest >= touched {
		return nil
	}
	if err := f.Sync(last); err != nil {
		return fmt.Errorf("store: sync %s: %w", f.path, err)
	}
	s.counters.bitmapSyncs.Add(1)
	return nil
}

// syncBeforeDrop syncs the filters if segments that are to be dropped have bits
// in them that are not. Later nobody would know of those: the page sums of the
// last sync would be taken for true.
func (s *Store) syncBeforeDrop(ids []segmentID) error {
	s.mu.Lock()
	unsynced := slices.ContainsFunc(ids, func(id segmentID) bool {
		row := s.mu.registry.segments[id]
		return slices.ContainsFunc([]*filter{s.current.Load().bitmap, s.filterOf(row.spanID())}, func(f *filter) bool {
			return f.Filter != nil && f.header().Ingest < row.ingest
		})
	})
	s.mu.Unlock()
	if !unsynced {
		return nil
	}
	return s.syncFilters()
}

// retired is memory of a filter, or of a cache, that nothing is found in any
// more. A reader that entered its view before the epoch may still look into it,
// and will then look again.
type retired struct {
	unmap func() error
	epoch uint64
}

// retireLocked is called with the publication that lets the memory go.
func (s *Store) retireLocked(unmap func() error) {
	s.mu.retired = append(s.mu.retired, retired{unmap, s.current.Load().epoch})
}

// unmapRetired unmaps what no view can reach any more. The
// maintainer does not wait for views: it comes again.
func (s *Store) unmapRetired() error {
	var quiet []retired
	s.mu.Lock()
	s.mu.retired = slices.DeleteFunc(s.mu.retired, func(r retired) bool {
		if !s.quiet(r.epoch) && !planted.UnmapAtOnce {
			return false
		}
		quiet = append(quiet, r)
		return true
	})
	s.mu.Unlock()
	var errs []error
	for _, r := range quiet {
		errs = append(errs, r.unmap())
	}
	return errors.Join(errs...)
}
