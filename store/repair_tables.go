package store

import (
	"errors"
	"io/fs"

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
	// URLs is how many there were in the tables, and Claimed how many there
	// should have been by the registry; -1 if that is not known.
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
	registry *registry
	exact    bool                     // the registry's counts are those of the last ingest
	inTables map[segmentID]int64      // words that the registry counts
	words    map[segmentID]int64      // all words
	logWords map[uint64]salvagedWords // by log file
	gaps     []tableGap
}

// salvagedWords are the words of a log file.
type salvagedWords map[segmentID][]word

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
	r.report.URLs = int64(p.total())
	if l := r.report.Log; l != nil {
		l.URLs = r.report.URLs - t.URLs
	}
	if !r.o.Apply || exists != nil {
		return nil
	}
	return r.copyWords(s, p)
}

// madeBefore reports whether the store that is in the place of the new one has
// the same keys and as many words as it would get: a run that was cut short
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
	return rows.words() == p.total(), nil
}

// total is the number of all words.
func (p *tablesPlan) total() (n uint64) {
	for _, words := range p.words {
		n += uint64(words)
	}
	return n
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
func (r *repairer) planTables(s *Store) (*tablesPlan, error) {
	p := &tablesPlan{
		inTables: map[segmentID]int64{}, words: map[segmentID]int64{}, logWords: map[uint64]salvagedWords{},
	}
	var asked bool
	var err error
	if p.tables, asked, err = s.listTables(); err != nil {
		return nil, err
	}
	if !asked {
		r.report.note("the MANIFEST does not say which tables there are: one that is missing is known by the registry's counts only")
	}
	var notes []string
	var ingest uint64
	if p.registry, ingest, notes, err = s.readRegistry(p.tables); err != nil {
		return nil, err
	}
	r.report.Notes = append(r.report.Notes, notes...)
	known, err := r.planLog(s, p)
	if err != nil {
		return nil, err
	}
	p.exact = ingest > 0 && ingest >= known
	switch {
	case ingest == 0:
		r.report.note("no table holds the registry: how many URLs there were is not known")
	case !p.exact:
		r.report.note("the registry that can be read is of ingest %d, and there was ingest %d: how many URLs there were is not known", ingest, known)
	}
	err = r.merge(s, p, func(at keyPlace, flushed bool) error {
		p.words[at.segment]++
		if flushed {
			p.inTables[at.segment]++
		}
		return nil
	}, true)
	return p, err
}

// planLog reads the log, and applies to the registry what it says of segments.
// It returns the highest ingest that the log or a filter knows of.
func (r *repairer) planLog(s *Store, p *tablesPlan) (known uint64, err error) {
	flushed, lsn, err := r.flushedFile(s, p.registry)
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
	f := &found{chain: chain, registry: p.registry}
	for i, file := range chain.Files {
		m := &memtable{file: file.File}
		l := salvagedWords{}
		err := chain.Replay(i, func(rec wal.Record) error {
			if number, _, _, err := decodeIngest(rec.Payload); rec.Kind == recordIngest && err == nil {
				f.note(rec.Path, number)
			}
			if a, err := decodeAdds(rec.Payload); rec.Kind == recordAdds && err == nil {
				for j := range a.len() {
					l[a.segment] = append(l[a.segment], a.word(j))
				}
			}
			if file.File <= p.registry.flushed {
				return nil
			}
			note, err := p.registry.replaySalvaged(m, rec)
			if note != "" {
				r.report.note("%s at offset %d (LSN %d): %s", rec.Path, rec.Offset, rec.LSN, note)
			}
			return badRecord(rec, err)
		})
		if err != nil {
			return 0, wrapLog(err)
		}
		if len(l) > 0 {
			p.logWords[file.File] = l
		}
	}
	if err := s.examineFilters(f); err != nil {
		return 0, err
	}
	return f.ingest, nil
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

// merge calls fn with every word that there is, once and in order. With
// report, it takes the tables' gaps.
func (r *repairer) merge(s *Store, p *tablesPlan, fn func(keyPlace, bool) error, report bool) (err error) {
	var sources []*wordSource
	var readers []*tableReader
	defer func() {
		for _, t := range readers {
			err = errors.Join(err, t.carver.close())
		}
	}()
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
		sources = append(sources, &wordSource{flushed: true, advance: t.advance})
		total += f.size
	}
	for file, l := range p.logWords {
		for id, words := range l {
			sources = append(sources, sourceOf(id, words, file <= p.registry.flushed))
		}
	}
	n := 0
	err = mergeWords(r.ctx, sources, func(at keyPlace, flushed bool) error {
		if n++; n%sortedPart == 0 && r.o.Progress != nil {
			bytes = 0
			for _, t := range readers {
				bytes += t.carver.off
			}
			r.o.Progress(float64(bytes) / float64(total))
		}
		return fn(at, flushed)
	})
	if err != nil || !report {
		return err
	}
	for _, t := range readers {
		p.gaps = append(p.gaps, t.gaps...)
	}
	for _, f := range p.tables {
		if f.missing || f.named && s.foreign(f) { // that one stands where ours was
			p.gaps = append(p.gaps, tableGap{
				table: f.name, bytes: f.size, from: f.low, to: f.high,
				words: max(1, f.size*480/tableBlockBytes),
			})
		}
	}
	return nil
}
