package store

import (
	"crypto/rand"
	"errors"
	"fmt"
)

// The new store that what can be read of damaged tables goes to.

// copyWords makes the new store.
func (r *repairer) copyWords(s *Store, p *tablesPlan) (err error) {
	fsys, dir := r.opts.seams.FS, r.o.To
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return openError("make", dir, err)
	}
	if err := syncDir(fsys, fsys.PathDir(dir)); err != nil {
		return openError("make", dir, err)
	}
	lock, err := lockStore(fsys, dir, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	id := *r.identity
	if _, err := rand.Read(id.id[:]); err != nil {
		return fmt.Errorf("store: make keys: %w", err)
	}
	id.made = r.opts.Clock.Wall().UnixNano()
	o := newSpace(&r.opts, dir).mind(&r.opts)
	if err := createWith(o, dir, &id, p.newRegistry(newStoreTime(o.Clock, p.registry.clock).stamp()), func(to *Store) ([]string, error) {
		return r.writeMerged(s, to, p)
	}); err != nil {
		return openError("create", dir, err)
	}
	return nil
}

// newRegistry is the new store's: the old one's namespaces and segments, with
// the words that there are.
func (p *tablesPlan) newRegistry(clock clockStamp) *registry {
	old := p.registry
	r := newRegistry(max(old.floor, p.total(), 1), forever, clock)
	r.sizeSpan = old.sizeSpan
	r.namespaces = old.namespaces
	r.nextNamespace = max(r.nextNamespace, old.nextNamespace)
	r.nextIncarnation = max(r.nextIncarnation, old.nextIncarnation)
	r.nextSegment = old.nextSegment
	for id := range p.words {
		r.nextSegment = max(r.nextSegment, id+1)
	}
	for id, n := range p.words {
		row, ok := old.segments[id]
		if !ok {
			row = r.lostSegment()
		}
		if row.state == segmentOpen && id+1 < r.nextSegment {
			row.state = segmentClosed // a later one was made
		}
		row.words, row.ingest, row.closedIn = uint64(n), 1, 0
		if row.state != segmentOpen {
			row.state, row.closedIn = segmentClosed, 1 // the new store has no counters
		}
		r.segments[id] = row
	}
	return r
}

// writeMerged writes the tables of the new store.
func (r *repairer) writeMerged(s, to *Store, p *tablesPlan) (paths []string, err error) {
	var t *table
	var segment segmentID
	counts := map[segmentID]int64{}
	finish := func() error {
		if t == nil {
			return nil
		}
		_, err := t.finish()
		t = nil
		return err
	}
	n := 0
	err = r.merge(s, p, func(at keyPlace, _ bool) error {
		if t != nil && (segment != at.segment || n%sortedPart == 0 && t.w.Raw().EstimatedSize() >= tableBytes) {
			if err := finish(); err != nil {
				return err
			}
		}
		if t == nil {
			path := to.tmpTable(1, len(paths)+1)
			paths = append(paths, path)
			if t, err = to.newTable(path); err != nil {
				return err
			}
			to.opts.seams.At("repair-table")
		}
		n++
		segment = at.segment
		counts[segment]++
		t.key = appendWordKey(t.key[:0], at.segment, at.word)
		return wrapPebble(t.w.Set(t.key, nil))
	}, false)
	if err = errors.Join(err, finish()); err != nil {
		return nil, err
	}
	for id, n := range p.words {
		if counts[id] != n {
			return nil, fmt.Errorf("store: segment %d had %d words when it was read first, and %d the second time", id, n, counts[id])
		}
	}
	return paths, nil
}
