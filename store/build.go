package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/mmapfilter"
)

// A build is the one way a bitmap changes other than by a flush's set bits:
// the maintainer writes the next generation beside the live one, from Pebble
// alone, and switches.
//
// It begins between flushes. From then on flushes set their words' bits in
// both; then the scan begins. A word is either in Pebble when the scan comes
// to its place, or its flush comes later and sets it. So the scan need not see
// one moment, and holds no table of Pebble's: each step opens an iterator of
// its own.
//
// Nothing rests on the new file before the switch, which is one record of the
// log. A crash, a full disk or a Close before it costs only the file.
type build struct {
	filter *mmapfilter.Filter
	// cursor is the key that the next step begins at.
	cursor []byte
	start  time.Time
}

// buildPart is how many words a step scans before the maintainer looks for a
// flush to do: some 40 ms of work.
const buildPart = 1 << 20

// buildWords is buildPart, or what a test wants it to be.
func (s *Store) buildWords() int {
	if n := s.opts.seams.BuildWords; n > 0 {
		return n
	}
	return buildPart
}

// buildRetry is how long after a full disk stopped a build the next is begun.
const buildRetry = 10 * time.Second

// wantsBuild reports whether a build is to begin, and how many words it is to
// be sized for: the bitmap is past its designed fill, or the next flushes will
// take it there.
func (s *Store) wantsBuild() (capacity uint64, wants bool) {
	if s.maintainer.build != nil || time.Now().Before(s.maintainer.noBuildBefore) {
		return 0, false
	}
	st := s.current.Load()
	words := s.words() + uint64(st.active.count.Load())
	if st.frozen != nil {
		words += uint64(st.frozen.count.Load())
	}
	capacity = st.bitmap.Header().Capacity
	if words <= capacity {
		return 0, false
	}
	for capacity < words {
		capacity *= 2
	}
	return capacity, true
}

// stepToBuild does what of a build comes before a flush: its beginning, so that
// the flush sets the bits in both, and all of it, if it takes one step. It
// reports whether it did.
func (s *Store) stepToBuild() (bool, error) {
	if capacity, wants := s.wantsBuild(); wants {
		return true, s.beginBuild(capacity)
	}
	if b := s.maintainer.build; b != nil && s.words() < uint64(s.buildWords()) {
		return true, s.stepBuild(b)
	}
	return false, nil
}

// beginBuild makes the file. The maintainer is between flushes.
func (s *Store) beginBuild(capacity uint64) error {
	s.mu.Lock()
	generation := s.mu.registry.bitmapGeneration + 1
	s.mu.Unlock()
	path := s.bitmapPathOf(generation)
	f, err := mmapfilter.Create(s.opts.seams.Device, path, mmapfilter.Header{
		StoreID: s.identity.id, Generation: generation,
		Params: mmapfilter.ParamsFor(capacity, s.identity.hasher.mix),
	})
	if errors.Is(err, mmapfilter.ErrNoSpace) {
		s.maintainer.noBuildBefore = time.Now().Add(buildRetry)
		s.counters.buildsGivenUp.Add(1)
		s.opts.Logger.Warn("store: no space for a larger bitmap", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: make the next bitmap: %w", err)
	}
	s.maintainer.build = &build{filter: f, cursor: appendWordKey(nil, 1, 0), start: time.Now()}
	s.opts.seams.At("build-begun")
	return nil
}

// stepBuild scans some words and sets their bits; the last step switches.
func (s *Store) stepBuild(b *build) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: b.cursor})
	if err != nil {
		return wrapPebble(err)
	}
	words := make([]word, 0, sortedPart)
	var last segmentID
	set := func() error {
		err := b.filter.SetSorted(words)
		words = words[:0]
		return err
	}
	scanned, valid, part := 0, it.First(), s.buildWords()
	for ; valid && scanned < part && err == nil; valid, scanned = it.Next(), scanned+1 {
		id, w, ok := decodeWordKey(it.Key())
		if !ok {
			err = &CorruptError{Path: pebbleDir, Offset: -1, Reason: fmt.Sprintf("key %x is no word's", it.Key())}
			break
		}
		if id != last || len(words) == cap(words) {
			err, last = set(), id
		}
		words = append(words, w)
	}
	if err == nil {
		err = set()
	}
	if valid && err == nil {
		b.cursor = append(b.cursor[:0], it.Key()...)
	}
	if err = errors.Join(err, wrapPebble(it.Close())); err != nil {
		return err
	}
	s.opts.seams.At("build-step")
	if valid {
		return nil
	}
	return s.endBuild(b)
}

// endBuild switches to the new bitmap and lets the old one go.
func (s *Store) endBuild(b *build) error {
	s.mu.Lock()
	number := s.mu.registry.ingest // every flush up to it has set its bits
	s.mu.Unlock()
	if err := b.filter.Sync(number); err != nil {
		return fmt.Errorf("store: sync the next bitmap: %w", err)
	}
	s.opts.seams.At("build-synced")
	if err := s.reserveLog(room{logBytes: keepLogBytes}); err != nil {
		return err
	}
	old := s.current.Load().bitmap
	s.mu.Lock()
	record := s.log.Append(recordBitmap, appendBitmap(nil, b.filter.Header().Generation))
	s.mu.registry.bitmapGeneration = b.filter.Header().Generation
	s.publishLocked(func(st *state) { st.bitmap = b.filter })
	epoch := s.current.Load().epoch
	s.mu.Unlock()
	s.maintainer.build, s.maintainer.bitsUnsynced = nil, 0
	s.counters.builds.Add(1)
	s.counters.buildNanos.Add(int64(time.Since(b.start)))
	s.opts.seams.At("build-switched")
	if err := s.waitSynced(record); err != nil {
		return err
	}
	if err := s.opts.seams.Device.Remove(s.bitmapPathOf(old.Header().Generation)); err != nil {
		return fmt.Errorf("store: remove the bitmap before this one: %w", err)
	}
	s.maintainer.retired = append(s.maintainer.retired, retired{old, epoch})
	s.opts.seams.At("build-removed")
	return nil
}

// retired is a bitmap that nothing is found in any more. A reader that entered
// its view before the epoch may still look into it, and will then look again.
type retired struct {
	filter *mmapfilter.Filter
	epoch  uint64
}

// unmapRetired unmaps the bitmaps that no view can reach any more. The
// maintainer does not wait for views: it comes again.
func (s *Store) unmapRetired() error {
	var errs []error
	s.maintainer.retired = slices.DeleteFunc(s.maintainer.retired, func(r retired) bool {
		if !s.quiet(r.epoch) {
			return false
		}
		errs = append(errs, r.filter.Close())
		return true
	})
	return errors.Join(errs...)
}

// overfull is the load at which Close waits for a build instead of giving it
// up: else a store that is open for short whiles only would never grow.
const overfull = 1.5

// closeBuild ends the build that Close has met.
func (s *Store) closeBuild() error {
	b := s.maintainer.build
	if b == nil {
		return nil
	}
	full := overfull * float64(s.current.Load().bitmap.Header().Capacity)
	for float64(s.words()) > full && s.maintainer.build != nil {
		if err := s.stepBuild(b); err != nil {
			return errors.Join(err, s.abandonBuild())
		}
	}
	return s.abandonBuild()
}

// abandonBuild gives the build up, if there is one, and removes its file.
func (s *Store) abandonBuild() error {
	b := s.maintainer.build
	if b == nil {
		return nil
	}
	s.maintainer.build = nil
	return errors.Join(b.filter.Close(), s.opts.seams.Device.Remove(s.bitmapPathOf(b.filter.Header().Generation)))
}

// bitmaps returns those that a flush sets bits in.
func (s *Store) bitmaps() []*mmapfilter.Filter {
	all := []*mmapfilter.Filter{s.current.Load().bitmap}
	if b := s.maintainer.build; b != nil {
		all = append(all, b.filter)
	}
	return all
}

// setBitsOf sets the bits of ascending words.
func (s *Store) setBitsOf(words []word) error {
	for _, f := range s.bitmaps() {
		if err := f.SetSorted(words); err != nil {
			return err
		}
	}
	return nil
}

// removeOtherBitmaps removes what a build that did not end, or an unlink that
// did not happen, has left.
func (s *Store) removeOtherBitmaps() error {
	names, err := s.opts.seams.Device.List(s.dir)
	if err != nil {
		return fmt.Errorf("store: list the bitmaps: %w", err)
	}
	live := bitmapName(s.mu.registry.bitmapGeneration)
	for _, name := range names {
		if !isBitmapName(strings.TrimSuffix(name, mmapfilter.TmpSuffix)) || name == live {
			continue
		}
		path := s.opts.seams.FS.PathJoin(s.dir, name)
		if err := s.opts.seams.Device.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: remove a left-over bitmap: %w", err)
		}
		s.recovery.Removed = append(s.recovery.Removed, name)
	}
	return nil
}
