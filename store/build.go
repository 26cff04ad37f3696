package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"time"

	"dedupstore/internal/planted"
	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// A build is the one way a bitmap, or a segment filter, changes other than by
// a flush's set bits: the maintainer writes the next generation beside the
// live one, from Pebble, or from counters and Pebble (see count), and switches.
//
// It begins between flushes. From then on flushes set their words' bits in
// both; then the scan begins. A word is either in Pebble when the scan comes
// to its place, or its flush comes later and sets it. So the scan need not see
// one moment, and holds no table of Pebble's: each step opens those that it
// needs.
//
// Nothing rests on the new file before the switch. A crash, a full disk or a
// Close before it costs only the file.
type build struct {
	buildTarget
	filter *filter
	count  *count // nil: without counters, or they stay as they are
	// segments are those that had words when it began, and that the count does
	// not take. They are scanned together, from the word from on: so each page
	// of the file is written once.
	segments []segmentID
	from     word
	width    word // of word space in a step
	// next is when the next step is due. While there are adds a build takes
	// half of the maintainer's time, whether flushes wait or not: less, and a
	// store whose flushes never end would not grow; more, and adds would be
	// held up. added is the log's end as of the last step.
	next  time.Time
	added wal.LSN
	start time.Time
	// dead are the words whose bits the old bitmap has in vain, as of the
	// beginning: the new one does not.
	dead uint64
}

// buildTarget says what a build makes.
type buildTarget struct {
	span     spanID // the zero value: the bitmap
	capacity uint64 // words
	counters counterUse
}

func (t *buildTarget) isBitmap() bool { return t.span == spanID{} }

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

// buildRetry is how long after a full disk stopped a build the next is begun,
// and unreadRetry how long after a table that could not be read.
const (
	buildRetry  = 10 * time.Second
	unreadRetry = 5 * time.Minute
)

// stepToBuild does what of a build comes before a flush: its beginning, so that
// the flush sets the bits in both, and all of it, if it takes one step. It
// reports whether it did.
func (s *Store) stepToBuild() (bool, error) {
	b := s.maintainer.build
	if b == nil {
		if time.Now().Before(s.maintainer.noBuildBefore) {
			return false, nil
		}
		want, wants := s.wantsBuild()
		if !wants {
			return false, nil
		}
		return true, s.beginBuild(want)
	}
	if s.words() < uint64(s.buildWords()) {
		return true, s.stepBuild(b)
	}
	return false, nil
}

// beginBuild makes the file. The maintainer is between flushes.
func (s *Store) beginBuild(t buildTarget) error {
	b := &build{buildTarget: t, start: time.Now()}
	var path string
	h := mmapfilter.Header{StoreID: s.identity.id}
	s.mu.Lock()
	r := s.mu.registry
	plan := b.planLocked(s)
	b.width = widthOf(uint64(s.buildWords()), plan.scanWords)
	h.Generation = r.bitmapGeneration + 1
	b.dead = r.dead
	s.mu.Unlock()
	if t.isBitmap() {
		h.Params = mmapfilter.ParamsFor(t.capacity, s.identity.hasher.mix)
		path = s.bitmapPathOf(h.Generation)
	} else {
		h.Generation = s.filterOf(t.span).header().Generation + 1
		h.Params = mmapfilter.ParamsFor(t.capacity, t.span.seed(&s.identity.hasher))
		path = s.spanFilterPath(t.span, h.Generation)
	}
	f, err := s.createFilter(path, h)
	if errors.Is(err, mmapfilter.ErrNoSpace) {
		return s.giveBuildUp(err, buildRetry)
	}
	if err != nil {
		return err
	}
	b.filter = f
	s.maintainer.build = b
	s.counters.building.Store(&path)
	if b.count != nil {
		if err := s.beginCount(b, plan); err != nil {
			return s.buildFailed(b, err)
		}
	}
	s.opts.seams.At("build-begun")
	return nil
}

// buildFailed ends a build for a reason that is not the store's end. What it is
// for waits for the next one: which, where the counters are at fault, or the
// disk has no room for more of them, does without.
func (s *Store) buildFailed(b *build, err error) error {
	var lost *lostCounters
	var unread *unreadTable
	switch {
	case s.Err() != nil || b.count == nil:
		return err
	case errors.As(err, &lost):
		return errors.Join(s.abandonBuild(), s.loseCounters(lost.err))
	case errors.Is(err, ErrDiskFull):
		// What is over must not hold its space because there is none to
		// subtract it in.
		s.maintainer.countersLost = "the disk has no space for the next ones"
		return s.giveBuildUp(err, buildRetry)
	case errors.As(err, &unread):
		return s.giveBuildUp(err, unreadRetry)
	}
	return err
}

// giveBuildUp ends a build that has met a full disk or a damaged table: the old
// file goes on being used, or Pebble asked, and lookups that need the table say
// so. To leave its words out would make them new.
func (s *Store) giveBuildUp(cause error, retry time.Duration) error {
	s.maintainer.noBuildBefore = time.Now().Add(retry)
	s.counters.buildsGivenUp.Add(1)
	s.counters.buildErr.Store(&cause)
	s.opts.Logger.Error("store: a filter cannot be built", "err", cause)
	err := s.abandonBuild()
	s.mu.Lock()
	s.wakeLocked()
	s.mu.Unlock()
	return err
}

// widthOf is how much of word space holds part of all words: part / all of it.
func widthOf(part, all uint64) word {
	if part >= all {
		return ^word(0)
	}
	q, _ := bits.Div64(part, 0, all)
	return q
}

// stepBuild scans some of word space and sets the bits of its words; the last
// step switches.
func (s *Store) stepBuild(b *build) error {
	begun := time.Now()
	last := b.from + b.width
	if last < b.from {
		last = ^word(0)
	}
	if b.count != nil {
		var err error
		if last, err = s.stepCount(b.count); err != nil {
			return s.buildFailed(b, err)
		}
	}
	var setErr error
	set := func(words []word) error {
		setErr = b.filter.setSorted(words)
		return setErr
	}
	for _, id := range b.segments {
		err := s.scanTables(id, b.from, last, set)
		if err != nil && setErr == nil && s.Err() == nil {
			return s.giveBuildUp(err, unreadRetry)
		}
		if err != nil {
			return err
		}
	}
	b.filter.StartSync(b.from, last)
	s.opts.seams.At("build-step")
	if b.from = last + 1; b.from == 0 {
		return s.endBuild(b)
	}
	b.next = time.Now()
	if end := s.log.Last(); end != b.added {
		b.added, b.next = end, b.next.Add(time.Since(begun))
	}
	return nil
}

// buildDue reports whether the build under way is to have a step.
func (s *Store) buildDue() bool {
	b := s.maintainer.build
	return b != nil && !time.Now().Before(b.next)
}

// endBuild switches to the new file and lets the old one go.
func (s *Store) endBuild(b *build) error {
	s.mu.Lock()
	number := s.mu.registry.ingest // every flush up to it has set its bits
	s.mu.Unlock()
	if err := b.filter.Sync(number); err != nil {
		return fmt.Errorf("store: sync %s: %w", b.filter.path, err)
	}
	s.opts.seams.At("build-synced")
	if b.count != nil {
		if err := s.endCount(b.count); err != nil {
			return s.buildFailed(b, err)
		}
	}
	var old *filter
	var oldCounters uint64
	var err error
	if b.isBitmap() {
		old, oldCounters, err = s.switchBitmap(b)
	} else {
		old = s.switchSpanFilter(b)
	}
	if err != nil {
		return s.buildFailed(b, err)
	}
	s.maintainer.build = nil
	s.counters.building.Store(nil)
	s.counters.buildErr.Store(nil)
	s.counters.builds.Add(1)
	s.counters.buildNanos.Add(int64(time.Since(b.start)))
	s.countersBuilt(b)
	if err := s.removeFilter(old); err != nil {
		return err
	}
	s.opts.seams.At("build-removed")
	return s.removeCounters(oldCounters)
}

// switchBitmap puts the new bitmap on record, which is what makes it count.
func (s *Store) switchBitmap(b *build) (old *filter, oldCounters uint64, err error) {
	old = s.current.Load().bitmap
	record, err := s.logSwitch(func(r *registry) {
		oldCounters = b.switchLocked(r)
		s.publishLocked(func(st *state) { st.bitmap, st.spans = b.filter, s.spansLocked() })
		s.retireLocked(old.close)
	})
	if err != nil {
		return nil, 0, err
	}
	s.maintainer.bitsUnsynced = 0
	s.opts.seams.At("build-switched")
	if planted.UnlinkBeforeSwitch {
		return old, oldCounters, nil
	}
	return old, oldCounters, s.waitSynced(record)
}

// switchSpanFilter needs no record: of a span's files the one with the higher
// ingest number counts, and the new one is synced.
func (s *Store) switchSpanFilter(b *build) (old *filter) {
	old = s.filterOf(b.span)
	s.maintainer.filters[b.span] = b.filter
	s.mu.Lock()
	s.publishLocked(func(st *state) { st.spans = s.spansLocked() })
	s.retireLocked(old.close)
	s.mu.Unlock()
	s.opts.seams.At("build-switched")
	return old
}

// spansLocked are the spans as they are now. The maintainer calls it.
func (s *Store) spansLocked() []span { return s.mu.registry.spans(s.maintainer.filters) }

// filterOf is the segment filter of a span. The maintainer calls it.
func (s *Store) filterOf(id spanID) *filter {
	if f := s.maintainer.filters[id]; f != nil {
		return f
	}
	return new(filter)
}

// createFilter makes the file of an empty filter.
func (s *Store) createFilter(path string, h mmapfilter.Header) (*filter, error) {
	f, err := mmapfilter.Create(s.opts.seams.Device, path, h)
	if err != nil {
		return nil, fmt.Errorf("store: make a filter: %w", err)
	}
	return &filter{Filter: f, path: path}, nil
}

// removeFilter unlinks the file of a filter that was replaced. What somebody
// else has put in its place is not ours.
func (s *Store) removeFilter(f *filter) error {
	if f.Filter == nil {
		return nil
	}
	if linked, err := f.Linked(); err != nil || !linked {
		return err
	}
	err := s.opts.seams.Device.Remove(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store: remove the filter before this one: %w", err)
	}
	return nil
}

// overfull is the load at which Close waits for a build of the bitmap instead
// of giving it up: else a store that is open for short whiles only would never
// grow. So it does if the build is past its half.
const overfull = 1.5

// closeBuild ends the build that Close has met.
func (s *Store) closeBuild() error {
	b := s.maintainer.build
	if b == nil {
		return nil
	}
	full := overfull * float64(s.current.Load().bitmap.header().Capacity)
	wait := float64(s.words()) > full || b.from > 1<<63
	for b.isBitmap() && wait && s.maintainer.build != nil {
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
	s.counters.building.Store(nil)
	var err error
	if b.count != nil {
		err = s.abandonCount(b.count)
	}
	return errors.Join(err, b.filter.close(), s.opts.seams.Device.Remove(b.filter.path))
}

// bitmaps are those in which a flush sets bits: what there is, and what is
// being built.
func (s *Store) bitmaps() []*filter {
	all := []*filter{s.current.Load().bitmap}
	if b := s.maintainer.build; b != nil && b.isBitmap() && !planted.BuildMissesFlush {
		all = append(all, b.filter)
	}
	return all
}

// spanFilters are those of a span in which a flush sets bits.
func (s *Store) spanFilters(id spanID) []*filter {
	all := []*filter{s.filterOf(id)}
	if b := s.maintainer.build; b != nil && b.span == id && !planted.BuildMissesFlush {
		all = append(all, b.filter)
	}
	return all
}
