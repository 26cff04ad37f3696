package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/planted"
)

// What can be read of a store's tables one by one.
//
// A key may be in several of them: a word that was forgotten, or a copy in a table
// that was merged into another one and not deleted yet. The MANIFEST says which
// tables count, from which key to which, and how old what they hold is. Without it
// nothing does: then a word that is anywhere is taken for one that is there, for a
// forgotten URL that is seen again does less harm than one that is lost.

var (
	firstPlace = keyPlace{1, 0}
	lastPlace  = keyPlace{^segmentID(0), ^word(0)}
)

// before and after are the places next to p.
func (p keyPlace) before() keyPlace {
	if p.word == 0 {
		return keyPlace{p.segment - 1, ^word(0)}
	}
	return keyPlace{p.segment, p.word - 1}
}

func (p keyPlace) after() keyPlace {
	if p.word == ^word(0) {
		return keyPlace{p.segment + 1, 0}
	}
	return keyPlace{p.segment, p.word + 1}
}

// A tableGap is a range of places, both ends included, that a table may have
// held and that could not be read.
type tableGap struct {
	table  string // its name
	offset int64
	bytes  int64
	placeRange
	words int64 // about so many
	// hides says that there may have been deletes among them: then a word may be
	// taken for one that is there which was forgotten.
	hides bool
}

// A placeRange includes both ends.
type placeRange struct{ from, to keyPlace }

func (r placeRange) holds(p keyPlace) bool { return p.compare(r.from) >= 0 && p.compare(r.to) <= 0 }

// A storedTable is a table as it is found on disk or in the MANIFEST.
type storedTable struct {
	name     string
	size     int64
	missing  bool
	named    bool     // by the MANIFEST
	low      keyPlace // at most its first key, and at least its last
	high     keyPlace
	parts    []placeRange // what counts of it; nil: all
	seq      uint64       // the number of its oldest key; 0 if nothing tells
	bottom   bool         // nothing is below it that its deletes could be of
	dataEnd  int64        // where its data blocks end; 0 if nothing tells
	empty    bool         // it has neither words nor rows
	deletes  int64        // -1 if nothing tells
	dropped  []placeRange // of whole segments, by range tombstones
	owner    []byte
	ownerErr error // why its properties could not be read
}

// counts reports that a place is in a part of the table that counts.
func (t *storedTable) counts(p keyPlace) bool {
	return t.parts == nil || slices.ContainsFunc(t.parts, func(r placeRange) bool { return r.holds(p) })
}

// hides reports that parts of the table which cannot be read may hide deletes.
func (t *storedTable) hides() bool { return !t.bottom && t.deletes != 0 }

// A tableReader reads the words of a table in order.
type tableReader struct {
	*storedTable
	carver *carver
	rows   []tableRow
	next   int
	at     keyPlace // the last key
	end    int64    // of the last block
	words  int64
	gaps   []tableGap
	// registry takes the rows of segment 0.
	registry func(row tableRow) error
}

func (s *Store) readTable(t *storedTable) (*tableReader, error) {
	c, err := openCarver(s.opts.seams.FS, s.tablePath(t.name))
	if err != nil {
		return nil, err
	}
	return &tableReader{storedTable: t, carver: c}, nil
}

func (s *Store) tablePath(name string) string {
	return s.opts.seams.FS.PathJoin(s.dir, pebbleDir, name)
}

// advance moves to the next word that counts, and reports whether there is one.
func (t *tableReader) advance() (v wordVersion, ok bool, err error) {
	for {
		for t.next < len(t.rows) {
			row := t.rows[t.next]
			t.next++
			t.at = row.keyPlace
			switch {
			case row.segment != 0:
				t.words++
				if t.counts(row.keyPlace) && !(row.gone && planted.RepairDeletesUnread) {
					return wordVersion{row.keyPlace, rankTable, max(row.seq, t.seq), row.gone, false}, true, nil
				}
			case t.registry != nil:
				if err := t.registry(row); err != nil {
					return wordVersion{}, false, err
				}
			}
		}
		if ok, err := t.block(); err != nil || !ok {
			return wordVersion{}, false, err
		}
	}
}

// block reads the next block that belongs to the table.
func (t *tableReader) block() (bool, error) {
	for {
		at, err := t.carver.next()
		if errors.Is(err, errCarved) {
			return false, t.tail()
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", t.name, err)
		}
		if t.rows, err = t.carver.rows(t.rows[:0]); err != nil {
			return false, fmt.Errorf("store: %s at offset %d: %w: %w", t.name, at, ErrVersion, err)
		}
		first, last := t.rows[0].keyPlace, t.rows[len(t.rows)-1].keyPlace
		if t.end > 0 && first.compare(t.at) < 0 || last.compare(first) < 0 {
			continue // it does not follow
		}
		if at > t.end {
			t.gap(at, first.before())
		}
		t.next = 0
		t.end = t.carver.off
		return true, nil
	}
}

// gap notes that nothing could be read from the end of the last block to the
// given offset and place.
func (t *tableReader) gap(offset int64, to keyPlace) {
	from := t.low
	if t.end > 0 {
		from = t.at.after()
	}
	per := float64(tableBlockBytes) / 480 // bytes of a word
	if t.words > 0 {
		per = float64(t.end) / float64(t.words)
	}
	g := tableGap{
		table: t.name, offset: t.end, bytes: offset - t.end, placeRange: placeRange{from, to},
		words: max(1, int64(float64(offset-t.end)/per)), hides: t.hides(),
	}
	t.gaps = append(t.gaps, t.clip(g)...)
}

// clip returns the gaps that a gap is in the parts of the table that count.
func (t *storedTable) clip(g tableGap) []tableGap {
	if t.parts == nil {
		return []tableGap{g}
	}
	var gaps []tableGap
	for _, part := range t.parts {
		in := g
		if in.from.compare(part.from) < 0 {
			in.from = part.from
		}
		if in.to.compare(part.to) > 0 {
			in.to = part.to
		}
		if in.from.compare(in.to) <= 0 {
			gaps = append(gaps, in)
		}
	}
	return gaps
}

// tail decides whether data blocks are missing at the end.
func (t *tableReader) tail() error {
	switch {
	case planted.TableTailForgotten, t.empty:
	case t.dataEnd > 0:
		if t.end < t.dataEnd {
			t.gap(t.dataEnd, t.high)
		}
	default:
		if err := t.carver.seek(t.end); err != nil {
			return err
		}
		if t.end == 0 || !t.carver.anyBlock() {
			t.gap(max(t.size, t.end+1), t.high)
		}
	}
	return nil
}

// listTables returns the tables of the store, those that only the MANIFEST
// names too, and whether it could be asked.
func (s *Store) listTables() (tables []*storedTable, asked bool, err error) {
	fsys := s.opts.seams.FS
	names, err := fsys.List(fsys.PathJoin(s.dir, pebbleDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("store: list the tables: %w", err)
	}
	named, err := s.namedTables(names)
	asked = err == nil
	for _, name := range names {
		if _, ok := tableNumber(name); !ok {
			continue
		}
		t := &storedTable{name: name, high: lastPlace, deletes: -1}
		if n, ok := named[name]; ok {
			t = n
			t.missing = false
			delete(named, name)
		}
		info, err := fsys.Stat(s.tablePath(name))
		if err != nil {
			return nil, false, fmt.Errorf("store: %w", err)
		}
		t.size = info.Size()
		s.readProperties(t)
		tables = append(tables, t)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		tables = append(tables, named[name])
	}
	return tables, asked, nil
}

// tableNumber is the number in the name of a table.
func tableNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".sst")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && tableName(n) == name
}

func tableName(n uint64) string { return fmt.Sprintf("%06d.sst", n) }

// namedTables returns the tables that the MANIFEST names, as missing ones. It
// may be an older version's: what they held is then in others.
func (s *Store) namedTables(names []string) (map[string]*storedTable, error) {
	o := pebbleOptions(allTablesFS{s.opts.seams.FS, s.opts.seams.FS.PathJoin(s.dir, pebbleDir), names}, minCacheBytes, s.identity.id, s.events, true)
	o.DisableConsistencyCheck, o.DisableTableStats = true, true
	named := map[string]*storedTable{}
	err := s.events.apart(func() error {
		db, err := pebble.Open(s.opts.seams.FS.PathJoin(s.dir, pebbleDir), o)
		if err != nil {
			return err
		}
		levels, err := db.SSTables()
		for level, tables := range levels {
			for _, t := range tables {
				name := tableName(uint64(t.BackingSSTNum))
				named[name] = named[name].with(&t, name, level == len(levels)-1)
			}
		}
		return errors.Join(err, db.Close())
	})
	if err != nil {
		return nil, err
	}
	return named, nil
}

// with is a table of which Pebble has one more part. One that a range was cut out
// of has two.
func (t *storedTable) with(info *pebble.SSTableInfo, name string, bottom bool) *storedTable {
	part := placeRange{boundOf(info.Smallest.UserKey), boundOf(info.Largest.UserKey)}
	if t == nil {
		t = &storedTable{
			name: name, missing: true, named: true, low: part.from, high: part.to,
			seq: uint64(info.SmallestSeqNum), bottom: true, deletes: -1,
		}
	}
	t.size += int64(info.Size)
	if part.from.compare(t.low) < 0 {
		t.low = part.from
	}
	if part.to.compare(t.high) > 0 {
		t.high = part.to
	}
	t.seq = min(t.seq, uint64(info.SmallestSeqNum))
	t.bottom = t.bottom && bottom
	if info.Virtual {
		t.parts = append(t.parts, part)
	}
	return t
}

// allTablesFS makes Pebble believe that no table is missing, so that it tells
// of those that are.
type allTablesFS struct {
	vfs.FS
	dir   string
	names []string
}

// List adds a name for each number below the highest that is not there.
func (f allTablesFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	if err != nil || dir != f.dir {
		return names, err
	}
	have := map[string]bool{}
	highest := uint64(0)
	for _, name := range names {
		have[name] = true
		digits := strings.TrimPrefix(strings.TrimPrefix(name, "MANIFEST-"), "OPTIONS-")
		if n, err := strconv.ParseUint(strings.TrimSuffix(digits, ".sst"), 10, 64); err == nil {
			highest = max(highest, n)
		}
	}
	const margin, limit = 100, 1 << 20
	for n := uint64(1); n <= min(highest+margin, limit); n++ {
		if name := tableName(n); !have[name] {
			names = append(names, name)
		}
	}
	return names, nil
}

func (f allTablesFS) Unwrap() vfs.FS { return f.FS }

// readProperties reads whose table it is and where its data ends.
func (s *Store) readProperties(t *storedTable) {
	t.ownerErr = func() (err error) {
		defer func() {
			if r := recover(); r != nil { // of a schema that it does not know
				err = fmt.Errorf("%v", r)
			}
		}()
		f, err := s.opts.seams.FS.Open(s.tablePath(t.name))
		if err != nil {
			return err
		}
		readable, err := sstable.NewSimpleReadable(f)
		if err != nil {
			return errors.Join(err, f.Close())
		}
		r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
		if err != nil {
			return errors.Join(err, readable.Close())
		}
		defer r.Close()
		p, err := r.ReadPropertiesBlock(context.Background(), nil)
		if err != nil {
			return err
		}
		if t.dropped, err = rangeTombstones(r); err != nil {
			return err
		}
		t.dataEnd = int64(p.DataSize)
		t.empty = p.NumEntries == p.NumRangeDeletions
		t.deletes = int64(p.NumDeletions - p.NumRangeDeletions)
		if id := []byte(p.UserProperties[idProperty]); len(id) > 0 {
			t.owner = id[1:] // Pebble puts a byte of its own in front
		}
		return nil
	}()
}

// rangeTombstones reads those of a table. Each is of whole segments, though a merge
// may have cut it anywhere.
func rangeTombstones(r *sstable.Reader) (dropped []placeRange, err error) {
	it, err := r.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || it == nil {
		return nil, err
	}
	defer it.Close()
	span, err := it.First()
	for ; span != nil && err == nil; span, err = it.Next() {
		dropped = append(dropped, placeRange{boundOf(span.Start), boundOf(span.End).before()})
	}
	return dropped, err
}

// foreign reports whether another store made the table. One that does not tell
// is taken for ours: a word that nobody added does less harm than one that is
// lost.
func (s *Store) foreign(t *storedTable) bool {
	return !t.missing && t.ownerErr == nil && !bytes.Equal(t.owner, s.identity.id[:])
}
