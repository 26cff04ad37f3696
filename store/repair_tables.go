package store

import (
	"errors"
	"io/fs"
	"math"
	"slices"

	"dedupstore/wal"
)

// Damaged tables, or a MANIFEST that does not say any more which tables count,
// are not repaired where they are: every word that can be read goes to a new
// store beside the old one, with the same keys, so that digests stay what they
// are. It is made like any store, STORE last: cut short it is no store, and
// the next run makes it anew.

// A TablesRepair is what could be read of damaged tables.
type TablesRepair struct {
	To     string   `json:"to"`     // the new store
	Tables int      `json:"tables"` // that were read
	Bad    []string `json:"bad"`    // tables with parts that cannot be read, or that are missing
	// Foreign are tables of another store, which were passed over.
	Foreign []string `json:"foreign"`
	// URLs is how many there were in the tables, those that have expired and were not
	// dropped included, and Claimed how many there should have been by the
	// registry; -1 if that is not known.
	URLs    int64 `json:"urls_in_tables"`
	Claimed int64 `json:"urls_claimed"`
	// Lost is how many URLs are lost; about, unless Exact is set.
	Lost   int64       `json:"urls_lost"`
	Exact  bool        `json:"exact"`
	Ranges []LostRange `json:"ranges"`
}

// A LostRange is a part of a segment from which words are lost. A URL that was
// in the store, and whose word is in none of them, still is.
type LostRange struct {
	Segment uint32 `json:"segment"`
	// From and To are the first and the last word of the range, in hex.
	From string `json:"from"`
	To   string `json:"to"`
	// Share is the range's share of 2^64: of the segment's URLs, which are
	// spread evenly, so many were in it.
	Share float64 `json:"share"`
	// URLs is about how many words are lost.
	URLs  int64  `json:"urls"`
	Table string `json:"table"` // "" if it is not known in which they were

	from, to word
}

// tablesPlan is what one pass over all tables, and the log, has found.
type tablesPlan struct {
	tables   []*storedTable
	registry *storedRows
	asked    bool                       // the MANIFEST says which tables count
	current  bool                       // and it is that of the last ingest
	counted  bool                       // so are the registry's counts
	exact    bool                       // and no delete can be hidden: what is missing is what is lost
	inTables map[segmentID]int64        // words that the registry counts
	words    map[segmentID]int64        // all words
	added    map[segmentID]int64        // those of them that are in the log alone
	logged   map[segmentID][]loggedWord // in the order of the log
	doubtful bool                       // the log forgets words, and misses records
	gaps     []tableGap                 // of the tables that count
	now      int64                      // store time
}

// dead reports that a segment was dropped, or will be.
func (p *tablesPlan) dead(id segmentID) bool {
	if row, ok := p.registry.segments[id]; ok {
		return p.registry.gone(&row)
	}
	return p.registry.isDropped(id) || p.whole() && id < p.registry.nextSegment
}

// whole reports that no row of the registry can be lost.
func (p *tablesPlan) whole() bool { return p.registry.whole || p.current && p.registry.wholeNamed }

// live is how many words count, of the given numbers.
func (p *tablesPlan) live(words map[segmentID]int64) (n int64) {
	for id, some := range words {
		row, ok := p.registry.segments[id]
		if !ok || p.registry.live(&row, p.now) {
			n += some
		}
	}
	return n
}

// repairTables copies what can be read to a new store.
func (r *repairer) repairTables() error {
	exists := r.checkTo()
	if exists != nil && !errors.Is(exists, fs.ErrExist) {
		return exists
	}
	s := r.store(true)
	p, err := r.planTables(s)
	if err != nil {
		return err
	}
	if exists != nil {
		if made, err := r.madeBefore(p); err != nil || !made {
			return errors.Join(exists, err)
		}
		r.report.note("an earlier run has made %s", r.o.To)
	}
	t := &TablesRepair{To: r.o.To, Bad: []string{}, Foreign: []string{}, Ranges: []LostRange{}, Exact: p.exact}
	r.report.Tables = t
	r.report.Store = r.o.To
	for _, f := range p.tables {
		switch {
		case s.foreign(f):
			t.Foreign = append(t.Foreign, f.name)
		case !f.missing:
			t.Tables++
			if f.ownerErr != nil {
				r.report.note("%s does not say whose it is, and is taken for this store's: %v", f.name, f.ownerErr)
			}
		}
	}
	p.lost(t)
	r.report.URLs = p.live(p.words)
	if l := r.report.Log; l != nil {
		l.URLs = p.live(p.added)
	}
	if !r.o.Apply || exists != nil {
		return nil
	}
	return r.copyWords(s, p)
}

// madeBefore reports whether the store that is in the place of the new one has
// the same keys and as many URLs as it would get: a run that was cut short
// behind the copying has made it.
func (r *repairer) madeBefore(p *tablesPlan) (bool, error) {
	s := r.store(true)
	s.dir = r.o.To
	var err error
	if s.identity, err = readIdentity(r.opts.seams.FS, r.opts.seams.FS.PathJoin(s.dir, identityName)); err != nil {
		return false, err
	}
	if s.identity.hasher != r.identity.hasher || s.identity.id == r.identity.id {
		return false, nil
	}
	db, _, err := s.openPebble(true)
	if err != nil {
		return false, err
	}
	rows, err := s.loadRegistry(db)
	if err = errors.Join(err, wrapPebble(db.Close())); err != nil {
		return false, err
	}
	return rows.liveWords(p.now) == p.live(p.words), nil
}

// checkTo sees to it that nothing is overwritten. What an earlier run has left
// is no store yet, and may be.
func (r *repairer) checkTo() error {
	o := r.opts
	o.MustExist, o.MustCreate = false, true
	_, err := examineDir(&o, r.o.To)
	return err
}

// planTables reads everything once.
func (r *repairer) planTables(s *Store) (p *tablesPlan, err error) {
	p = &tablesPlan{
		inTables: map[segmentID]int64{}, words: map[segmentID]int64{}, added: map[segmentID]int64{},
		logged: map[segmentID][]loggedWord{},
	}
	if p.tables, p.asked, err = s.listTables(); err != nil {
		return nil, err
	}
	if p.registry, err = s.readRegistry(p.tables); err != nil {
		return nil, err
	}
	r.report.Notes = append(r.report.Notes, p.registry.notes...)
	ingest := p.registry.ingest
	known, err := r.planLog(s, p)
	if err != nil {
		return nil, err
	}
	p.current = p.asked && ingest > 0 && ingest >= known && p.registry.named == ingest
	p.counted = ingest > 0 && ingest >= known && p.whole()
	p.now = newStoreTime(r.opts.Clock, p.registry.clock).now()
	r.noteTrust(p, known)
	aside := 0
	err = r.merge(s, p, func(v *plannedWord) error {
		if v.aside {
			aside++
		}
		if v.stored {
			p.inTables[v.segment]++
		}
		if v.live {
			p.words[v.segment]++
			if !v.stored {
				p.added[v.segment]++
			}
		}
		return nil
	}, true)
	hides := slices.ContainsFunc(p.gaps, func(g tableGap) bool { return g.hides })
	p.exact = p.current && p.counted && !hides && aside == 0 && !p.doubtful
	if p.current && hides {
		r.report.note("what cannot be read of the tables may have said that URLs were forgotten: those may be seen again")
	}
	if p.current && aside > 0 {
		r.report.note("%d URLs that cannot be read any more are taken from older copies: if one was forgotten, it is seen again", aside)
	}
	return p, err
}

// noteTrust says how far the plan can be trusted.
func (r *repairer) noteTrust(p *tablesPlan, known uint64) {
	const again = "forgotten URLs may be seen again"
	switch rows := p.registry; {
	case !p.asked:
		r.report.note("the MANIFEST does not say which tables there are: " +
			"one that is missing is known by the registry's counts only, and " + again)
	case !p.current:
		r.report.note("the MANIFEST names tables up to ingest %d, and there was ingest %d: "+
			"which of the others count is not known, and %s", rows.named, max(rows.ingest, known), again)
	}
	switch rows := p.registry; {
	case rows.ingest == 0:
		r.report.note("no table holds the registry: how many URLs there were is not known")
	case rows.ingest < known:
		r.report.note("the registry that can be read is of ingest %d, and there was ingest %d: how many URLs there were is not known", rows.ingest, known)
	case !p.whole():
		r.report.note("rows of the registry are lost: how many URLs there were is not known, " +
			"and those of segments that have none do not expire; what was dropped may be seen again, or be counted")
	}
}

// planLog reads the log, and applies to the registry what it says of segments.
// It returns the highest ingest that the log or a filter knows of.
func (r *repairer) planLog(s *Store, p *tablesPlan) (known uint64, err error) {
	rows := p.registry.registry
	flushed, lsn, err := r.flushedFile(s, rows)
	if err != nil {
		return 0, err
	}
	chain, gaps, err := r.readLog(s, flushed, lsn)
	if err != nil {
		return 0, err
	}
	if gaps != nil {
		r.report.Log = r.record.gaps(newLogRepair(gaps))
	}
	if err := r.makeUp(rows, chain, gaps); err != nil {
		return 0, err
	}
	forgets := false
	defer func() { p.doubtful = forgets && len(gaps) > 0 }()
	f := &found{chain: chain, registry: rows, clock: rows.clock}
	defer func() { rows.clock = f.clock }()
	for i, file := range chain.Files {
		f.stamped(decodeClockStamp(file.Meta[:]))
		m := &memtable{file: file.File}
		rows.listed = nil
		err := chain.Replay(i, func(rec wal.Record) error {
			f.see(rec)
			if rec.Kind == recordAdds || rec.Kind == recordForgets {
				if a, err := decodeAdds(rec.Payload); err == nil {
					p.logWords(a, rec.Kind == recordForgets, file.File <= rows.flushed)
				}
			}
			if file.File <= rows.flushed {
				return nil
			}
			forgets = forgets || rec.Kind == recordForgets
			note, err := rows.replaySalvaged(m, rec)
			if note != "" {
				r.report.note("%s at offset %d (LSN %d): %s", rec.Path, rec.Offset, rec.LSN, note)
			}
			return badRecord(rec, err)
		})
		if err != nil {
			return 0, wrapLog(err)
		}
	}
	if err := s.examineFilters(f); err != nil {
		return 0, err
	}
	return f.ingest, nil
}

func (p *tablesPlan) logWords(a addsRecord, gone, flushed bool) {
	for i := range a.len() {
		p.logged[a.segment] = append(p.logged[a.segment], loggedWord{a.word(i), gone, flushed})
	}
}

// flushedFile is the last log file that is in Pebble, and its last LSN, 0 if
// that is not known: the registry that can be read may be an older one.
func (r *repairer) flushedFile(s *Store, rows *registry) (file, lsn uint64, err error) {
	chain, _, err := wal.Salvage(r.opts.seams.FS, s.logDir(), r.identity.id, wal.Needed{})
	if err != nil {
		return 0, 0, wrapLog(err)
	}
	file, lsn = rows.flushed, rows.flushedLSN
	for i := range chain.Files {
		err := chain.Replay(i, func(rec wal.Record) error {
			_, flushed, _, err := decodeIngest(rec.Payload)
			if rec.Kind == recordIngest && err == nil && flushed > file {
				file, lsn = flushed, 0
			}
			return nil
		})
		if err != nil {
			return 0, 0, wrapLog(err)
		}
	}
	return file, lsn, nil
}

// A plannedWord is a word of a segment that was not dropped.
type plannedWord struct {
	keyPlace
	live   bool // it is there
	stored bool // it was, before what the log says: the registry counts it
	aside  bool // only a copy says so
}

// merge calls fn with every word that there is, or was before the log, once and in
// order. With report, it takes the tables' gaps.
func (r *repairer) merge(s *Store, p *tablesPlan, fn func(*plannedWord) error, report bool) (err error) {
	var sources []*wordSource
	var readers []*tableReader
	defer func() {
		for _, t := range readers {
			err = errors.Join(err, t.carver.close())
		}
	}()
	gaps := p.missingTables(s)
	var bytes, total int64
	for _, f := range p.tables {
		if f.missing || s.foreign(f) {
			continue
		}
		t, err := s.readTable(f)
		if err != nil {
			return err
		}
		readers = append(readers, t)
		sources = append(sources, &wordSource{advance: p.trusted(t)})
		total += f.size
	}
	for id, words := range p.logged {
		sources = append(sources, sourceOf(id, words))
	}
	inGap := func(at keyPlace) bool {
		holds := func(g tableGap) bool { return g.holds(at) }
		return slices.ContainsFunc(gaps, holds) || slices.ContainsFunc(readers, func(t *tableReader) bool {
			return t.named && slices.ContainsFunc(t.gaps, holds)
		})
	}
	there := func(v *wordVersion) bool {
		return v.rank != rankNone && !v.gone && (v.rank != rankAside || !p.current || inGap(v.keyPlace))
	}
	n := 0
	var segment segmentID
	dead := false
	err = mergeWords(r.ctx, sources, func(all, stored *wordVersion) error {
		if n++; n%sortedPart == 0 && r.o.Progress != nil {
			bytes = 0
			for _, t := range readers {
				bytes += t.carver.off
			}
			r.o.Progress(float64(bytes) / float64(total))
		}
		if all.segment != segment {
			segment, dead = all.segment, p.dead(all.segment)
		}
		v := plannedWord{all.keyPlace, there(all), there(stored) || all.was, false}
		v.aside = v.stored && stored.rank == rankAside
		if dead || !v.live && !v.stored {
			return nil
		}
		return fn(&v)
	})
	if err != nil || !report {
		return err
	}
	p.gaps = gaps
	for _, t := range readers {
		if t.named || !p.current {
			p.gaps = append(p.gaps, t.gaps...)
		}
	}
	return nil
}

// missingTables are the gaps that tables have left which are not there.
func (p *tablesPlan) missingTables(s *Store) (gaps []tableGap) {
	for _, f := range p.tables {
		if f.missing || f.named && s.foreign(f) { // that one stands where ours was
			gaps = append(gaps, f.clip(tableGap{
				table: f.name, bytes: f.size, placeRange: placeRange{f.low, f.high},
				words: max(1, f.size*480/tableBlockBytes), hides: !f.bottom,
			})...)
		}
	}
	return gaps
}

// trusted gives a table's words with the rank that they have. Where the MANIFEST
// does not tell how old a table is, what it deletes counts for nothing.
func (p *tablesPlan) trusted(t *tableReader) func() (wordVersion, bool, error) {
	if t.named {
		return t.advance
	}
	return func() (wordVersion, bool, error) {
		v, ok, err := t.advance()
		switch {
		case v.gone:
			v.rank = rankNone
		case p.current:
			v.rank, v.seq = rankAside, 0
		default:
			v.seq = math.MaxUint64
		}
		return v, ok, err
	}
}
