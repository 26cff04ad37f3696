package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
)

// InspectRegistry calls fn with every row of the registry of the store in dir,
// as Pebble has it: what the log says on top of that is in the log files. It
// holds the store's lock shared meanwhile; a store that another process has
// open is ErrLocked.
func InspectRegistry(ctx context.Context, dir string, fn func(Fact) error) (err error) {
	dir = filepath.Clean(dir)
	var o *Options
	opts := o.withDefaults()
	opts.ReadOnly = true
	path := filepath.Join(dir, pebbleDir)
	if _, err := os.Stat(path); err != nil { // with it, a store that lost its STORE can be looked at
		if _, err := examineDir(&opts, dir); err != nil {
			return err
		}
	}
	lock, err := lockStore(opts.seams.FS, dir, true)
	if err != nil {
		return err
	}
	defer lock.Close() // nothing was written
	s := &Store{dir: dir, opts: opts, identity: &identity{}, poisoned: make(chan struct{})}
	s.events = newPebbleEvents(s.poison, opts.Logger)
	db, _, err := s.openPebble(true)
	if err != nil {
		if c, ok := errors.AsType[*CorruptError](err); ok {
			return fn(Fact{Path: c.Path, Offset: c.Offset, Kind: "damage", Damage: damageOf(c)})
		}
		return err
	}
	defer func() { err = errors.Join(err, wrapPebble(s.events.apart(db.Close))) }()
	return inspectRows(ctx, db, path, fn)
}

func inspectRows(ctx context.Context, db *pebble.DB, path string, fn func(Fact) error) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{UpperBound: appendWordKey(nil, 1, 0)[:4]})
	if err != nil {
		return wrapPebble(err)
	}
	defer func() { err = errors.Join(err, wrapPebble(it.Close())) }()
	var rows, segments int
	var words uint64
	for it.First(); it.Valid(); it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		kind, fields, rowErr := rowFacts(it.Key(), it.Value())
		f := Fact{Path: path, Offset: -1, Kind: kind, Fields: append(fields, Field{"key", hexOf(it.Key())})}
		if rowErr != nil {
			f.Damage = rowErr.Error()
			f.Fields = append(f.Fields, bytesField(int64(len(it.Value()))))
		}
		for _, field := range fields {
			if field.Name == "words" {
				segments++
				words += field.Value.(uint64)
			}
		}
		rows++
		if err := fn(f); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		f := Fact{Path: path, Offset: -1, Kind: "damage", Damage: damageOf(wrapPebble(err))}
		return fn(f)
	}
	f := Fact{Path: path, Offset: -1, Kind: "summary", Fields: []Field{{"rows", rows}, {"segments", segments}, {"words", words}}}
	if rows == 0 {
		f.Damage = "there are no rows"
	}
	return fn(f)
}

// rowFacts are those of one row. An error says that it makes no sense.
func rowFacts(key, value []byte) (kind string, fields []Field, err error) {
	r := emptyRegistry()
	if err := r.load(key, value); err != nil {
		return "row", nil, err
	}
	for id, n := range r.namespaces {
		return "namespace", []Field{{"id", id}, {"name", n.name}, {"incarnation", n.incarnation}, {"ttl_ns", n.ttl}}, nil
	}
	for id, row := range r.segments {
		return "segment", []Field{
			{"id", uint32(id)}, {"namespace", row.namespace}, {"state", row.state.String()},
			{"span_kind", uint8(row.spanKind)}, {"span_log2", row.spanLog2}, {"span", row.span},
			{"incarnation", row.incarnation}, {"words", row.words}, {"ingest", row.ingest}, {"closed_in", row.closedIn}, {"ends", row.ends},
		}, nil
	}
	return "store", append([]Field{
		{"ingest", r.ingest}, {"flushed_file", r.flushed}, {"flushed_lsn", r.flushedLSN},
		{"next_segment", uint32(r.nextSegment)}, {"next_namespace", r.nextNamespace},
		{"next_incarnation", r.nextIncarnation}, {"bitmap", r.bitmapGeneration},
		{"counters", r.counterGen}, {"leaked", r.leaked}, {"floor", r.floor},
		{"size_span", r.sizeSpan}, {"dead", r.dead},
	}, r.clock.facts()...), nil
}

func (s segmentState) String() string {
	switch s {
	case segmentOpen:
		return "open"
	case segmentClosed:
		return "closed"
	case segmentCounted:
		return "counted"
	case segmentSubtracted:
		return "subtracted"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}
