package store

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/counting"
	"dedupstore/internal/planted"
)

// A count is the part of a build that has to do with counters: the old ones,
// with the words of segments that closed since, and without those of segments
// that are over, make new ones and the bits that belong to them. All other
// segments are scanned, as in a build without counters.
//
// Closed segments are read as they are when the build comes to a place, not as
// they were at one moment. That is enough: once the log file in which it closed
// is flushed, a segment only loses words, each by a forget. So whatever a later
// build finds in it, and subtracts, this one has found, and added. A word that
// is forgotten after it was added is found by no scan any more: its counts leak.
// It is counted as dead, and when those are more than the bitmap has room for a
// build makes new counters from Pebble.
type count struct {
	old  vfs.File // nil: from nothing
	file vfs.File // the new one, under a name that does not count
	path string   // its name once it does
	pass *counting.Pass
	// pages is how many of them a step makes.
	pages int

	generation uint64
	plus       []segmentID
	has        map[segmentID]bool // the counted ones afterwards
	words      uint64             // that those had when it began

	// What has failed, if it was not the old file.
	sourceErr, bitsErr, writeErr error
}

// counterUse says what a build of the bitmap does with the counters.
type counterUse uint8

const (
	withoutCounters counterUse = iota
	keepCounters               // they stay as they are: so does the bitmap's size
	oldCounters                // new ones are made from the old ones
	newCounters                // new ones are made from nothing
)

// maxStepPages bounds a step where there are few words: a page without any
// takes 6 us, so that these take as long as buildPart words.
const maxStepPages = 8 << 10

// planLocked chooses what is read how: segments to scan, to add and to subtract.
func (b *build) planLocked(s *Store) (p plan) {
	r := s.mu.registry
	over := map[segmentID]bool{}
	for _, id := range r.over(s.now(), s.expires.Load() && s.time.dropsAllowed()) {
		over[id] = true
	}
	counts := b.counters == oldCounters || b.counters == newCounters
	if counts {
		b.count = &count{has: map[segmentID]bool{}}
	}
	for _, id := range r.ids() {
		row := r.segments[id]
		flushed := row.closedIn <= r.flushed || planted.CountedUnflushed
		switch {
		case !b.isBitmap() && row.spanID() != b.span, row.state == segmentSubtracted:
		case counts && row.state == segmentCounted && over[id]:
			if b.counters == oldCounters {
				p.minus = append(p.minus, id)
			}
		case counts && row.state == segmentCounted && b.counters == oldCounters:
			b.count.has[id] = true
		case counts && row.state != segmentOpen && flushed && !over[id] && (row.words > 0 || planted.CountedUnflushed):
			b.count.has[id] = true
			b.count.plus = append(b.count.plus, id)
		case row.words > 0:
			b.segments = append(b.segments, id)
		}
	}
	p.scanWords, p.minusWords = r.wordsIn(b.segments), r.wordsIn(p.minus)
	if counts {
		b.count.words = b.count.wordsIn(r)
		p.plusWords = r.wordsIn(b.count.plus)
		p.old = r.counterGen
	}
	return p
}

// plan is what a build is to read.
type plan struct {
	minus                            []segmentID
	old                              uint64 // generation of the counters
	scanWords, plusWords, minusWords uint64
}

// wordsIn is how many words the counted segments have in Pebble.
func (c *count) wordsIn(r *registry) (n uint64) {
	for id := range c.has {
		n += r.segments[id].words
	}
	return n
}

// beginCount opens the old counters and makes the file of the new ones. An
// error is ErrDiskFull, *lostCounters, or the store's end.
func (s *Store) beginCount(b *build, p plan) (err error) {
	c := b.count
	h := b.filter.header()
	g := geometry(h.Params)
	if err := s.space.check(g.FileBytes()); err != nil {
		return err
	}
	c.generation = h.Generation
	c.path = s.countersPath(c.generation)
	j := counting.Job{
		Header: counting.Header{StoreID: s.identity.id, Generation: c.generation, Geometry: g},
		Plus:   s.wordsToCount(c, c.plus, p.plusWords),
		Minus:  s.wordsToCount(c, p.minus, p.minusWords),
		Bits: func(first uint64, bits []uint64) error {
			c.bitsErr = b.filter.OrBlocks(first, bits)
			return c.bitsErr
		},
	}
	if b.counters == oldCounters {
		if j.Old, c.old, err = s.openCounters(p.old, g); err != nil {
			return &lostCounters{err}
		}
	}
	file, err := s.opts.seams.FS.Create(c.path+newSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return s.countWriteError(err)
	}
	// Written back as it grows: its sync at the end would hold flushes up.
	c.file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{BytesPerSync: counterSyncBytes})
	j.New = writerFunc(func(p []byte) (int, error) {
		n, err := c.file.Write(p)
		c.writeErr = err
		return n, err
	})
	words := p.scanWords + p.plusWords + p.minusWords
	pages := g.Blocks / counting.BlocksPerPage
	c.pages = maxStepPages
	if part := float64(s.buildWords()) / float64(words+1); part < 1 {
		c.pages = max(1, min(c.pages, int(part*float64(pages))))
	}
	if c.pass, err = counting.NewPass(j); err != nil {
		return s.countError(c, err)
	}
	return nil
}

// counterSyncBytes is how much of a counter file is written between two
// requests to write it back.
const counterSyncBytes = 4 << 20

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// lostCounters is the error of a build that has found the old counters
// unusable.
type lostCounters struct{ err error }

func (e *lostCounters) Error() string { return e.err.Error() }
func (e *lostCounters) Unwrap() error { return e.err }

// unreadTable is the error of a build that cannot read a table.
type unreadTable struct{ err error }

func (e *unreadTable) Error() string { return e.err.Error() }
func (e *unreadTable) Unwrap() error { return e.err }

// stepCount makes some pages, and returns the last word of them.
func (s *Store) stepCount(c *count) (last word, err error) {
	if err := s.space.check(int64(c.pages) * counterPageBytes); err != nil {
		return 0, err
	}
	if _, err := c.pass.Step(c.pages); err != nil {
		return 0, s.countError(c, err)
	}
	if from, more := c.pass.From(); more {
		return from - 1, nil
	}
	return ^word(0), nil
}

const counterPageBytes = 16<<10 + 8

// countError tells whose fault an error of the pass is: what is left when
// neither reading tables, writing nor setting bits has failed is the old file's.
func (s *Store) countError(c *count, err error) error {
	switch {
	case c.bitsErr != nil, s.Err() != nil:
		return err
	case c.writeErr != nil:
		return s.countWriteError(err)
	case c.sourceErr != nil:
		return &unreadTable{err}
	}
	return &lostCounters{wrapCounters(c.path, err)}
}

func (s *Store) countWriteError(err error) error {
	if isDiskFull(err) {
		return fmt.Errorf("%w: write the counters: %w", ErrDiskFull, err)
	}
	return fmt.Errorf("store: write the counters: %w", err)
}

// endCount publishes the file: it is whole, and counts with the switch.
func (s *Store) endCount(c *count) error {
	s.opts.seams.At("build-counted")
	st := c.pass.Stats()
	s.mu.Lock()
	have := c.wordsIn(s.mu.registry)
	s.mu.Unlock()
	if st.Underflows > 0 || st.Words < have {
		// More was subtracted than was ever added: bits of other words lack.
		return &lostCounters{fmt.Errorf("%d of %d words to subtract, the first one %016x, were never counted; %d words are counted of %d",
			st.Underflows, st.Underflows+st.Minus, st.FirstUnderflow, st.Words, have)}
	}
	file := c.file
	c.file = nil // it is closed here, whatever fails
	err := file.Sync()
	s.opts.seams.At("counters-synced")
	if err = errors.Join(err, file.Close()); err != nil {
		return s.countWriteError(err)
	}
	fsys := s.opts.seams.FS
	if err := fsys.Rename(c.path+newSuffix, c.path); err != nil {
		return s.countWriteError(err)
	}
	if err := syncDir(fsys, s.dir); err != nil {
		return s.countWriteError(err)
	}
	s.opts.seams.At("counters-renamed")
	return c.closeOld()
}

// countersBuilt tells Stats.
func (s *Store) countersBuilt(b *build) {
	switch {
	case b.count == nil && b.counters == keepCounters || !b.isBitmap():
		return
	case b.counters == oldCounters:
		s.counters.buildsCounted.Add(1)
	case b.counters == newCounters:
		s.counters.buildsAnew.Add(1)
	}
	var bytes, saturated int64
	if c := b.count; c != nil {
		bytes, saturated = geometry(b.filter.header().Params).FileBytes(), int64(c.pass.Stats().Saturated)
	}
	s.counters.counterBytes.Store(bytes)
	s.counters.saturated.Store(saturated)
}

func (c *count) closeOld() error {
	if c.old == nil {
		return nil
	}
	old := c.old
	c.old = nil
	return old.Close()
}

// abandonCount removes what there is of a count.
func (s *Store) abandonCount(c *count) error {
	errs := []error{c.closeOld()}
	if c.file != nil {
		errs = append(errs, c.file.Close())
	}
	if c.path != "" {
		fsys := s.opts.seams.FS
		errs = append(errs, removeIfThere(fsys, c.path+newSuffix), removeIfThere(fsys, c.path))
	}
	return errors.Join(errs...)
}

// switchLocked says in the registry what the new counters have: the bitmap is
// that of generation.
func (b *build) switchLocked(r *registry) (old uint64) {
	old = r.counterGen
	r.dead -= min(r.dead, b.dead)
	r.bitmapGeneration = b.filter.header().Generation
	if b.counters == keepCounters {
		return 0
	}
	r.counterGen, r.leaked = 0, 0
	if c := b.count; c != nil {
		have := c.wordsIn(r)
		r.counterGen, r.leaked = c.generation, c.pass.Stats().Words-have
		// What was forgotten meanwhile of a counted segment has leaked too, or
		// has not, if the build came later.
		r.dead -= min(r.dead, c.words-have)
		r.dead += r.leaked
	}
	for id, row := range r.segments {
		state := row.state
		switch {
		case b.count != nil && b.count.has[id]:
			state = segmentCounted
		case row.state != segmentCounted:
		case b.count != nil:
			state = segmentSubtracted
		default:
			state = segmentClosed
		}
		if state != row.state {
			row.state = state
			r.setSegment(id, row)
		}
	}
	return old
}

// wordsToCount is a source of the words of segments, all of them in one order.
func (s *Store) wordsToCount(c *count, ids []segmentID, words uint64) []counting.Words {
	if len(ids) == 0 {
		return nil
	}
	next := wordsInOrder(s.db, ids, words)
	return []counting.Words{func() ([]uint64, error) {
		batch, err := next()
		if err != nil && err != io.EOF {
			c.sourceErr = err
		}
		return batch, err
	}}
}

const (
	// countPart is how many words of some segments are read and put in order
	// at a time: 512 KiB.
	countPart = 64 << 10
	// countSeek is how many words, at least, a seek in a segment is to bring,
	// on the average, if there are many segments.
	countSeek = 16
	// maxCountPart bounds what the source has in memory: 8 MiB, twice.
	maxCountPart = 1 << 20
)

// wordsInOrder is a source of the words of segments, which are about so many:
// word space is read in parts, of all segments each, and no iterator stays open
// between two of them.
func wordsInOrder(db pebble.Reader, ids []segmentID, words uint64) counting.Words {
	part := min(max(countPart, countSeek*len(ids)), maxCountPart)
	width := widthOf(uint64(part), words)
	var from word
	var o orderer
	over := false
	return func() ([]uint64, error) {
		for !over {
			last := from + width
			if over = last < from || last == ^word(0); over {
				last = ^word(0)
			}
			o.reset()
			for _, id := range ids {
				o.begin()
				if err := scanRange(db, id, from, last, o.add); err != nil {
					return nil, err
				}
			}
			from = last + 1
			if batch := o.ordered(); len(batch) > 0 {
				return batch, nil
			}
		}
		return nil, io.EOF
	}
}

// An orderer makes one ascending run of several.
type orderer struct {
	words, spare []word
	runs         []int // where each begins
}

func (o *orderer) reset() { o.words, o.runs = o.words[:0], o.runs[:0] }

// begin begins a run.
func (o *orderer) begin() {
	if n := len(o.runs); n == 0 || o.runs[n-1] < len(o.words) {
		o.runs = append(o.runs, len(o.words))
	}
}

func (o *orderer) add(words []word) error {
	o.words = append(o.words, words...)
	return nil
}

// ordered merges neighbouring runs until there is one.
func (o *orderer) ordered() []word {
	for len(o.runs) > 1 {
		o.spare = o.spare[:0]
		ends := append(o.runs[1:len(o.runs):len(o.runs)], len(o.words))
		merged := o.runs[:0]
		for i := 0; i < len(ends); i += 2 {
			begin := 0
			if i > 0 {
				begin = ends[i-1]
			}
			merged = append(merged, begin)
			if i+1 == len(ends) {
				o.spare = append(o.spare, o.words[begin:]...)
				break
			}
			o.spare = appendMerged(o.spare, o.words[begin:ends[i]], o.words[ends[i]:ends[i+1]])
		}
		o.runs = merged
		o.words, o.spare = o.spare, o.words
	}
	return o.words
}

// appendMerged appends two ascending runs as one.
func appendMerged(dst, a, b []word) []word {
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			dst, a = append(dst, a[0]), a[1:]
		} else {
			dst, b = append(dst, b[0]), b[1:]
		}
	}
	return append(append(dst, a...), b...)
}
