package store

import (
	"bytes"
	"cmp"
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

// What can be read of a store's tables one by one, without the MANIFEST that
// says which of them count. Words only ever come, so that a table which was
// merged into another one and not deleted yet does no harm: what it says is
// still so. (Once words can be forgotten, it does: then a table that the
// MANIFEST does not name may bring them back.)

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
	table    string // its name
	offset   int64
	bytes    int64
	from, to keyPlace
	words    int64 // about so many
}

// A storedTable is a table as it is found on disk or in the MANIFEST.
type storedTable struct {
	name     string
	size     int64
	missing  bool
	named    bool     // by the MANIFEST
	low      keyPlace // at most its first key, and at least its last
	high     keyPlace
	dataEnd  int64 // where its data blocks end; 0 if nothing tells
	owner    []byte
	ownerErr error // why its properties could not be read
}

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

// advance moves to the next word, and reports whether there is one.
func (t *tableReader) advance() (p keyPlace, ok bool, err error) {
	for {
		for t.next < len(t.rows) {
			row := t.rows[t.next]
			t.next++
			t.at = row.keyPlace
			if row.segment != 0 {
				t.words++
				return row.keyPlace, true, nil
			}
			if t.registry != nil {
				if err := t.registry(row); err != nil {
					return keyPlace{}, false, err
				}
			}
		}
		if ok, err := t.block(); err != nil || !ok {
			return keyPlace{}, false, err
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
		if t.end > 0 && first.compare(t.at) <= 0 || last.compare(first) < 0 {
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
	t.gaps = append(t.gaps, tableGap{
		table: t.name, offset: t.end, bytes: offset - t.end, from: from, to: to,
		words: max(1, int64(float64(offset-t.end)/per)),
	})
}

// tail decides whether data blocks are missing at the end.
func (t *tableReader) tail() error {
	switch {
	case planted.TableTailForgotten:
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
		t := &storedTable{name: name, low: firstPlace, high: lastPlace}
		if n, ok := named[name]; ok {
			t.low, t.high, t.named = n.low, n.high, true
		}
		delete(named, name)
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
		for _, level := range levels {
			for _, t := range level {
				name := tableName(uint64(t.BackingSSTNum))
				named[name] = &storedTable{
					name: name, size: int64(t.Size), missing: true,
					low: placeOf(t.Smallest.UserKey), high: placeOf(t.Largest.UserKey),
				}
			}
		}
		return errors.Join(err, db.Close())
	})
	if err != nil {
		return nil, err
	}
	return named, nil
}

func placeOf(key []byte) keyPlace {
	if id, w, ok := decodeWordKey(key); ok {
		return keyPlace{id, w}
	}
	return keyPlace{} // a row of the registry
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
		t.dataEnd = int64(p.DataSize)
		if id := []byte(p.UserProperties[idProperty]); len(id) > 0 {
			t.owner = id[1:] // Pebble puts a byte of its own in front
		}
		return nil
	}()
}

// foreign reports whether another store made the table. One that does not tell
// is taken for ours: a word that nobody added does less harm than one that is
// lost.
func (s *Store) foreign(t *storedTable) bool {
	return !t.missing && t.ownerErr == nil && !bytes.Equal(t.owner, s.identity.id[:])
}

// readRegistry reads the registry's rows out of all tables: of each row the
// version of the highest ingest. ingest is the highest; 0 if there is no row of
// the store.
func (s *Store) readRegistry(tables []*storedTable) (r *registry, ingest uint64, notes []string, err error) {
	r = emptyRegistry()
	named := map[uint32]uint64{} // the ingests that the namespaces' rows are of
	for _, t := range tables {
		if t.missing || s.foreign(t) {
			continue
		}
		one := emptyRegistry()
		reader, err := s.readTable(t)
		if err != nil {
			return nil, 0, nil, err
		}
		reader.registry = func(row tableRow) error {
			err := one.load(row.key, row.value)
			if err != nil && !errors.Is(err, ErrVersion) {
				notes = append(notes, fmt.Sprintf("registry row %x in %s: %v", row.key, t.name, err))
				return nil
			}
			return err
		}
		_, _, err = reader.advance() // past the rows, which come first
		if err = errors.Join(err, reader.carver.close()); err != nil {
			return nil, 0, nil, err
		}
		if one.ingest > r.ingest {
			r.storeRow = one.storeRow
		}
		for id, row := range one.namespaces {
			if have, ok := named[id]; !ok || one.ingest > have {
				r.namespaces[id], named[id] = row, one.ingest
			}
		}
		for id, row := range one.segments {
			if have, ok := r.segments[id]; !ok || row.ingest > have.ingest {
				r.segments[id] = row
			}
		}
	}
	ingest = r.ingest
	if ingest == 0 {
		fresh := newRegistry(uint64(cmp.Or(s.opts.ExpectedURLs, defaultExpectedURLs)), forever, clockStamp{})
		r.storeRow = fresh.storeRow
		r.storeRow.ingest = 0
	}
	if _, ok := r.namespaces[0]; !ok {
		r.namespaces[0] = newRegistry(1, forever, clockStamp{}).namespaces[0]
	}
	for id := range r.segments {
		r.nextSegment = max(r.nextSegment, id+1)
	}
	r.index()
	return r, ingest, notes, nil
}
