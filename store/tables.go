package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// A build reads Pebble's tables itself, one after the other. Through Pebble's
// iterators its blocks go through the block cache, which is small: they push
// out what Gets need, and both wait for the cache's locks. 17 M words were
// scanned at 160 ns each, and adds went on at a third of their rate ("bench
// grow").
//
// What it reads is a superset of one moment: each key is in a table of the
// version that was listed, and a table that is merged away is still whole. A
// word more than there is sets bits that cost a question.

// scanTables calls fn with the words of a segment from first to last, in parts
// of ascending words. A word may come twice. fn may keep nothing.
func (s *Store) scanTables(id segmentID, first, last word, fn func([]word) error) error {
	lower, upper := appendWordKey(nil, id, first), append(appendWordKey(nil, id, last), 0)
	for {
		tables, err := s.tablesIn(lower, upper)
		if err != nil {
			return err
		}
		for _, t := range tables {
			if err = s.scanTable(t, lower, upper, fn); err != nil {
				break
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// It was merged, and removed, after it was listed. So there is a new
		// list. One that is missing altogether Pebble itself complains of.
		if err := s.Err(); err != nil {
			return err
		}
		if now, err := s.tablesIn(lower, upper); err != nil || equalTables(now, tables) {
			return errors.Join(err, &CorruptError{Path: pebbleDir, Offset: -1, Reason: "a table is missing"})
		}
	}
}

// tableRef is a table's file, and what of it counts.
type tableRef struct {
	path             string
	smallest, beyond []byte
}

func equalTables(a, b []tableRef) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].path != b[i].path {
			return false
		}
	}
	return true
}

// tablesIn lists the tables that may hold keys from lower on, before upper.
func (s *Store) tablesIn(lower, upper []byte) (tables []tableRef, err error) {
	err = s.events.apart(func() error {
		levels, err := s.db.SSTables()
		for _, level := range levels {
			for _, t := range level {
				if bytes.Compare(t.Largest.UserKey, lower) < 0 || bytes.Compare(t.Smallest.UserKey, upper) >= 0 {
					continue
				}
				tables = append(tables, tableRef{
					path:     s.backingPath(&t),
					smallest: t.Smallest.UserKey, beyond: append(bytes.Clone(t.Largest.UserKey), 0),
				})
			}
		}
		return err
	})
	return tables, wrapPebble(err)
}

// scanTable calls fn with a table's words.
func (s *Store) scanTable(t tableRef, lower, upper []byte, fn func([]word) error) (err error) {
	r, err := s.openTable(t.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wrapTable(t.path, r.Close())) }()
	if bytes.Compare(t.smallest, lower) > 0 {
		lower = t.smallest
	}
	if bytes.Compare(t.beyond, upper) < 0 {
		upper = t.beyond
	}
	it, err := r.NewIter(sstable.NoTransforms, lower, upper, sstable.AssertNoBlobHandles)
	if err != nil {
		return wrapTable(t.path, err)
	}
	defer func() { err = errors.Join(err, wrapTable(t.path, it.Close())) }()
	words := make([]word, 0, 1<<12) // 32 KiB, the first cache's size
	for kv := it.SeekGE(lower, 0); kv != nil; kv = it.Next() {
		if _, w, ok := decodeWordKey(kv.K.UserKey); ok {
			words = append(words, w)
		}
		if len(words) == cap(words) {
			if err := fn(words); err != nil {
				return err
			}
			words = words[:0]
		}
	}
	if err := it.Error(); err != nil {
		return wrapTable(t.path, err)
	}
	return fn(words)
}

// openTable opens a table past Pebble.
func (s *Store) openTable(path string) (*sstable.Reader, error) {
	f, err := s.opts.seams.FS.Open(path)
	if err != nil {
		return nil, err
	}
	readable, err := objstorageprovider.NewFileReadable(f, s.opts.seams.FS, objstorageprovider.NewReadaheadConfig(), path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, s.pebble.MakeReaderOptions())
	if err != nil {
		return nil, errors.Join(wrapTable(path, err), readable.Close())
	}
	return r, nil
}

// checkTables refuses a table that another store has made: Pebble looks at the
// size only. One that cannot be read is left to the lookups that need it.
func (s *Store) checkTables() error {
	tables, err := s.tablesIn(nil, []byte{0xff, 0xff, 0xff, 0xff, 0xff})
	if err != nil {
		return err
	}
	for _, t := range tables {
		if made, err := s.madeTable(t.path); err == nil && !made {
			return &CorruptError{Path: t.path, Offset: -1, Reason: "the table was made by another store"}
		}
	}
	return nil
}

// backingPath is the file of a table. After an excision two may share one, which
// has their properties.
func (s *Store) backingPath(t *pebble.SSTableInfo) string {
	return s.opts.seams.FS.PathJoin(s.dir, pebbleDir, t.BackingSSTNum.String()+".sst")
}

// madeTable reports whether this store made a table.
func (s *Store) madeTable(path string) (made bool, err error) {
	r, err := s.openTable(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, wrapTable(path, r.Close())) }()
	p, err := r.ReadPropertiesBlock(context.Background(), nil)
	return err == nil && s.made(p.UserProperties), wrapTable(path, err)
}

// made reports whether a table's properties say that this store made it.
func (s *Store) made(properties map[string]string) bool {
	// Pebble puts a byte of its own in front of a collector's value.
	id := properties[idProperty]
	return len(id) > 0 && id[1:] == string(s.identity.id[:])
}

// wrapTable gives an error of a table's reader the store's type.
func wrapTable(path string, err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return &CorruptError{Path: path, Offset: -1, Reason: "pebble says so", Err: err}
	}
	return wrapPebble(err)
}
