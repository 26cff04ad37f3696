package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/wal"
)

// VerifyOptions say how much Verify reads.
type VerifyOptions struct {
	// Deep reads everything: every word of a live segment must be in the
	// bitmap, in its segment filter, and in the counters if the segment is
	// counted, counts must be exact, every table must
	// be this store's, and Pebble's own checks must pass. Without it only
	// headers, checksums, the filters' pages, the log's chain and the registry
	// are read.
	Deep bool
	// Progress, if not nil, is called now and then with the share of the words
	// that have been checked, 0 to 1.
	Progress func(done float64)
}

// A Report is what Verify found.
type Report struct {
	Deep   bool    `json:"deep"`
	URLs   int64   `json:"urls"` // exact; -1 if it could not be told
	Faults []Fault `json:"faults"`
	// Notes are facts that are no faults, for example a torn tail.
	Notes []string `json:"notes"`

	unread error // what the system did not let Verify read
}

// OK reports that no fault was found.
func (r *Report) OK() bool { return len(r.Faults) == 0 }

// A Fault is one thing that is not as it must be, and what it means.
type Fault struct {
	Path        string `json:"path"`
	Offset      int64  `json:"offset"` // in bytes; -1 if it concerns the whole file
	Reason      string `json:"reason"`
	Consequence string `json:"consequence"`
}

// Consequences, in words.
const (
	doesNotOpen  = "the store does not open"
	asksInVain   = "a URL in it may be answered new: wrong"
	countWrong   = "the number of URLs is wrong"
	readsFail    = "adds and lookups that need it return an error"
	notTheStores = "answers from it are another store's"
	isBuiltAnew  = "the store opens without it, answers from Pebble, keeps the file and builds a new one"
	idsTaken     = "what is made later takes the place of what is there"
	isSetAgain   = "no answer rests on it: it is set again from Pebble while the store is open"
)

func (r *Report) fault(path string, offset int64, consequence, format string, args ...any) {
	r.Faults = append(r.Faults, Fault{Path: path, Offset: offset, Reason: fmt.Sprintf(format, args...), Consequence: consequence})
}

// add notes an error as a fault.
func (r *Report) add(path, consequence string, err error) {
	if err == nil {
		return
	}
	if isSystem(err) {
		r.unread = errors.Join(r.unread, err)
		return
	}
	if c, ok := errors.AsType[*CorruptError](err); ok {
		reason := c.Reason
		if c.Err != nil {
			reason += ": " + c.Err.Error()
		}
		r.fault(c.Path, c.Offset, consequence, "%s", reason)
		return
	}
	r.fault(path, -1, consequence, "%v", err)
}

// Verify checks a store that nobody has open: it holds the store's lock
// shared, and writes nothing. What is wrong with the store is in the report;
// the error says why it could not be made.
func Verify(ctx context.Context, dir string, o VerifyOptions) (*Report, error) {
	return verifyDir(ctx, dir, o, nil)
}

func verifyDir(ctx context.Context, dir string, o VerifyOptions, so *Options) (*Report, error) {
	opts := so.withDefaults()
	opts.ReadOnly = true
	if _, err := examineDir(&opts, dir); err != nil {
		return nil, err
	}
	lock, err := lockStore(opts.seams.FS, dir, true)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	id, err := readIdentity(opts.seams.FS, opts.seams.FS.PathJoin(dir, identityName))
	if isSystem(err) {
		return nil, err
	}
	if err != nil {
		r := &Report{Deep: o.Deep, URLs: -1}
		r.add(opts.seams.FS.PathJoin(dir, identityName), doesNotOpen, err)
		return r, nil
	}
	return verifyLocked(ctx, dir, o, &opts, id)
}

// verifyLocked is Verify of a store whose lock is held, shared or not.
func verifyLocked(ctx context.Context, dir string, o VerifyOptions, so *Options, id *identity) (*Report, error) {
	r := &Report{Deep: o.Deep, URLs: -1}
	s := &Store{dir: dir, opts: *so, identity: id, poisoned: make(chan struct{})}
	s.opts.ReadOnly = true
	s.events = newPebbleEvents(s.poison, so.Logger)
	err := s.verifyFiles(ctx, r, o)
	if r.unread != nil {
		return nil, errors.Join(r.unread, err)
	}
	return r, err
}

// verifyFiles checks the files of a store that is not open.
func (s *Store) verifyFiles(ctx context.Context, r *Report, vo VerifyOptions) (err error) {
	fsys := s.opts.seams.FS
	f := &found{}
	if f.chain, err = wal.Read(fsys, s.logDir(), s.identity.id); err != nil {
		r.add(s.logDir(), doesNotOpen, wrapLog(err))
		f.chain = nil
	}
	db, o, err := s.openPebble(true)
	if err != nil {
		r.add(fsys.PathJoin(s.dir, pebbleDir), doesNotOpen, err)
		return nil
	}
	s.pebble = o
	defer func() { err = errors.Join(err, wrapPebble(db.Close())) }()
	if f.registry, err = s.loadRegistry(db); err != nil {
		r.add(fsys.PathJoin(s.dir, pebbleDir), doesNotOpen, err)
		return nil
	}
	var bad error
	if f.chain != nil {
		bad = s.examineRecords(f)
	}
	if err := errors.Join(s.examineFilters(f), s.examineCounters(f)); err != nil {
		r.add(s.dir, doesNotOpen, err)
		return nil
	}
	if bad := f.badCounters; bad != nil {
		if !bad.leftOut {
			r.add(bad.path, countersBuiltAnew, bad.bad)
		}
		s.maintainer.countersLost = bad.reason()
	}
	if err := s.openFilters(f); err != nil {
		r.add(s.dir, doesNotOpen, err)
		return nil
	}
	defer func() { err = errors.Join(err, s.release()) }()
	for _, ff := range f.badFilters {
		r.add(ff.path, isBuiltAnew, ff.bad)
	}
	if f.chain != nil {
		if err := s.compare(f); err != nil {
			r.add(s.manifestPath(), doesNotOpen, err)
		}
		r.add(s.logDir(), doesNotOpen, bad)
		r.noteTorn(f.chain)
		if bad == nil {
			r.add(fsys.PathJoin(s.dir, pebbleDir), idsTaken, f.registry.checkNext())
			r.URLs = s.countReplayed(r, f, vo.Deep, db)
		}
	}
	v := verifier{ctx: ctx, report: r, store: s, registry: f.registry, db: db, progress: vo.Progress}
	v.bitmap, v.filters = s.current.Load().bitmap, s.maintainer.filters
	if err := v.pages(); err != nil {
		return err
	}
	if !vo.Deep {
		return v.counters()
	}
	return v.deep()
}

func (r *Report) noteTorn(c *wal.Chain) {
	if t := c.Torn; t != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("%s has a torn tail of %d bytes at offset %d, on which no answer rests: %s",
			t.Path, t.Bytes, t.Offset, t.Reason))
	}
}

// countReplayed replays the log in memory and returns the number of URLs, or
// -1 if that cannot be told. If it is to go deep, each word that the log forgets
// must be there by then: or the number is too low.
func (s *Store) countReplayed(r *Report, f *found, deep bool, db *pebble.DB) int64 {
	s.db = db
	defer func() { s.db = nil }()
	var before unflushed
	defer func() {
		if err := before.free(); err != nil {
			r.Notes = append(r.Notes, err.Error())
		}
	}()
	words := make(map[segmentID]int64)
	for id, row := range f.registry.segments {
		words[id] = int64(row.words)
	}
	s.mu.registry = f.registry.clone()
	for i, file := range f.chain.Files {
		if file.File <= f.registry.flushed || file.Prepared || file.Discard {
			continue
		}
		m, _, err := s.replay(f.chain, i)
		if err != nil {
			r.add(file.Path, doesNotOpen, err)
			return -1
		}
		for _, seg := range m.segments {
			words[seg.id] += seg.words
		}
		for id, n := range m.deleted {
			words[id] -= n
		}
		before = append(before, m)
		if deep {
			r.add(file.Path, countWrong, s.checkDeletes(m, before[:len(before)-1]))
		}
	}
	now := newStoreTime(s.opts.Clock, f.clock).now()
	urls := int64(0)
	for id, row := range s.mu.registry.segments {
		if s.mu.registry.live(&row, now) {
			urls += words[id]
		}
	}
	return urls
}

// checkDeletes refuses a memtable that deletes words which are not there.
func (s *Store) checkDeletes(m *memtable, before unflushed) error {
	slices.SortFunc(m.deletes, segmentWord.compare)
	var all, there []segmentWord
	for _, d := range m.deletes {
		if _, ok := s.mu.registry.segments[d.segment]; ok { // else it was dropped
			all = append(all, d)
		}
	}
	err := s.deletesThere(slices.Compact(slices.Clone(all)), before, func(d segmentWord) { there = append(there, d) })
	if err != nil || len(there) == len(all) {
		return err
	}
	n := 0
	for n < len(there) && all[n] == there[n] {
		n++
	}
	return fmt.Errorf("it forgets word %016x of segment %d, and %d more, which are not there by then",
		all[n].word, all[n].segment, len(all)-len(there)-1)
}

// Verify checks an open store, while it goes on taking calls; flushes wait
// meanwhile. What is wrong with the store is in the report; the error says why
// it could not be made.
func (s *Store) Verify(ctx context.Context, o VerifyOptions) (*Report, error) {
	if s.waiting != nil {
		var r *Report
		err := s.waiting.call(func(s *Store) (err error) { r, err = s.Verify(ctx, o); return err })
		return r, err
	}
	s.maintainer.mu.Lock()
	defer s.maintainer.mu.Unlock()
	st, slot := s.enter()
	if st == nil {
		return nil, ErrClosed
	}
	defer slot.leave()
	if s.events.dead.Load() {
		return nil, s.Err() // Pebble may only be asked for single keys
	}
	r := &Report{Deep: o.Deep, URLs: s.Stats().URLs}
	if _, err := readIdentity(s.opts.seams.FS, s.opts.seams.FS.PathJoin(s.dir, identityName)); err != nil {
		r.add(identityName, doesNotOpen, err)
	}
	s.verifyLog(r)
	s.mu.Lock()
	rows := s.mu.registry.clone()
	s.mu.Unlock()
	stored, err := s.loadRegistry(s.db)
	if err != nil {
		r.add(pebbleDir, doesNotOpen, err)
	} else if err := stored.checkNext(); err != nil {
		r.add(pebbleDir, idsTaken, err)
	} else if stored.ingest != rows.ingest || stored.flushed != rows.flushed || stored.words() != rows.words() {
		r.fault(pebbleDir, -1, countWrong, "the registry's row says ingest %d, log file %d and %d words, and the store %d, %d and %d",
			stored.ingest, stored.flushed, stored.words(), rows.ingest, rows.flushed, rows.words())
	}
	if !o.Deep {
		return r, nil
	}
	v := verifier{ctx: ctx, report: r, store: s, registry: rows, db: s.db, progress: o.Progress}
	v.bitmap, v.filters = st.bitmap, s.maintainer.filters
	v.open = s.refuse == nil // else what is above a filter's number is not asked of it
	return r, v.deep()
}

// verifyLog reads the log of an open store. An Add may switch files under the
// reader, once: no other is made while the maintainer is kept out.
func (s *Store) verifyLog(r *Report) {
	for {
		var before, after uint64
		if s.log != nil {
			// A switch before this one is in its file then: the reader might
			// miss it there, and find the next file.
			before = s.log.File()
			_ = s.log.WaitWritten(s.log.Last()) // what cannot be written is told elsewhere
		}
		c, err := wal.Read(s.opts.seams.FS, s.logDir(), s.identity.id)
		if s.log != nil {
			after = s.log.File()
		}
		if err != nil && before != after {
			continue
		}
		if err != nil {
			r.add(s.logDir(), doesNotOpen, wrapLog(err))
		} else if s.log == nil {
			r.noteTorn(c)
		}
		return
	}
}

// verifier reads every word of a store.
type verifier struct {
	ctx      context.Context
	report   *Report
	store    *Store
	registry *registry
	db       *pebble.DB
	bitmap   *filter
	filters  map[spanID]*filter
	// open says that the store is, for writing: then all bits must be set, and
	// else those of segments up to a filter's ingest number.
	open     bool
	progress func(float64)
	done     uint64
}

// pages checks the page sums of the filters that a Close has left.
func (v *verifier) pages() error {
	all := []*filter{v.bitmap}
	for _, sp := range v.registry.spans(v.filters) {
		all = append(all, sp.filter)
	}
	for _, f := range all {
		if f.Filter == nil {
			continue
		}
		for more := true; more; {
			if err := v.ctx.Err(); err != nil {
				return err
			}
			var err error
			if more, err = f.CheckPages(checkPart); err != nil {
				v.report.add(f.path, isBuiltAnew, v.store.wrapFilter(f.path, err))
				break
			}
		}
		for _, page := range f.BadPages() {
			first, last := f.PageRange(page)
			v.report.fault(f.path, f.PageOffset(page), isSetAgain,
				"the checksum of the page of the words %016x to %016x is wrong", first, last)
		}
		switch d := f.doubt.Load(); {
		case d == nil:
		case d.unverified:
			v.report.Notes = append(v.report.Notes, fmt.Sprintf("%s is unverified: %s", f.path, d.reason))
		default:
			v.report.fault(f.path, -1, isBuiltAnew, "%s", d.reason)
		}
	}
	return nil
}

// bitCheck counts the words of a segment that a filter denies.
type bitCheck struct {
	filter  *filter
	missing uint64
	first   word
}

// count takes ascending words.
func (b *bitCheck) count(words []word) error {
	n, _, err := b.filter.MissingSorted(words)
	if n == 0 || err != nil {
		return err
	}
	for _, w := range words { // some of them may be on pages that do not count
		if b.filter.maybe(w) {
			continue
		}
		if b.missing++; b.missing == 1 {
			b.first = w
		}
	}
	return nil
}

// bitsOf are the filters that a segment must be in.
func (v *verifier) bitsOf(row *segmentRow) (must []*bitCheck) {
	for _, f := range []*filter{v.bitmap, v.filters[row.spanID()]} {
		if row.state == segmentSubtracted {
			continue // nobody looks into it
		}
		if f != nil && f.Filter != nil && (v.open || row.ingest <= f.header().Ingest) {
			must = append(must, &bitCheck{filter: f})
		}
	}
	return must
}

func (v *verifier) deep() error {
	for _, id := range v.registry.ids() {
		if err := v.segment(id); err != nil {
			return err
		}
	}
	if err := errors.Join(v.strays(), v.counters()); err != nil {
		return err
	}
	v.tables()
	if err := v.db.CheckLevels(nil); err != nil {
		v.report.add(pebbleDir, readsFail, wrapPebble(err))
	}
	return v.ctx.Err()
}

// segment checks the words of one segment: in order, in the bitmap and the
// segment filter, and as many as its row says.
func (v *verifier) segment(id segmentID) error {
	row := v.registry.segments[id]
	must := v.bitsOf(&row)
	var words uint64
	err := scanSegment(v.db, id, func(part []word) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		words += uint64(len(part))
		for _, b := range must {
			if err := b.count(part); err != nil {
				return err
			}
		}
		v.done += uint64(len(part))
		if v.progress != nil {
			v.progress(float64(v.done) / float64(max(v.registry.words(), v.done)))
		}
		return nil
	})
	if err := v.ctx.Err(); err != nil {
		return err
	}
	if err != nil {
		v.report.add(pebbleDir, readsFail, err)
		return nil
	}
	for _, b := range must {
		if b.missing > 0 {
			v.report.fault(b.filter.path, -1, asksInVain,
				"the bits of %d words of segment %d are not all set, the first one is %016x", b.missing, id, b.first)
		}
	}
	if words != row.words {
		v.report.fault(pebbleDir, -1, countWrong, "segment %d holds %d words, its row says %d", id, words, row.words)
	}
	return nil
}

// strays looks for keys that belong to no segment: before, between and behind
// those that there are.
func (v *verifier) strays() error {
	it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: appendWordKey(nil, 1, 0)[:4]})
	if err != nil {
		return wrapPebble(err)
	}
	defer it.Close()
	for valid := it.First(); valid; {
		id, _, ok := decodeWordKey(it.Key())
		if _, known := v.registry.segments[id]; !ok || !known {
			v.report.fault(pebbleDir, -1, countWrong, "key %x belongs to no segment", it.Key())
			break
		}
		valid = it.SeekGE(appendWordKey(nil, id+1, 0)) // past the segment
	}
	if err := it.Error(); err != nil {
		v.report.add(pebbleDir, readsFail, wrapPebble(err))
	}
	return nil
}

// tables checks that every table is this store's.
func (v *verifier) tables() {
	levels, err := v.db.SSTables()
	if err != nil {
		v.report.add(pebbleDir, readsFail, wrapPebble(err))
		return
	}
	for _, level := range levels {
		for _, t := range level {
			path := v.store.backingPath(&t)
			switch made, err := v.store.madeTable(path); {
			case errors.Is(err, fs.ErrNotExist): // merged since, or Pebble says so
			case err != nil:
				v.report.add(path, readsFail, err)
			case !made:
				v.report.fault(path, -1, notTheStores, "the table was made by another store")
			}
		}
	}
}
