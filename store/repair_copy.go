package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	r := newRegistry(max(old.floor, uint64(p.live(p.words)), 1), forever, clock)
	r.sizeSpan = old.sizeSpan
	r.namespaces = old.namespaces
	r.nextNamespace = max(r.nextNamespace, old.nextNamespace)
	r.nextIncarnation = max(r.nextIncarnation, old.nextIncarnation)
	r.nextSegment = old.nextSegment
	for id := range p.words {
		r.nextSegment = max(r.nextSegment, id+1)
	}
	for _, id := range slices.Sorted(maps.Keys(p.words)) {
		row, ok := old.segments[id]
		if !ok {
			row = r.lostSegment()
		}
		key := row.key()
		if before, open := r.taking[key]; open && row.state == segmentOpen {
			r.close(before) // or two would take words
		}
		row.words, row.ingest, row.closedIn = uint64(p.words[id]), 1, 0
		r.setSegment(id, row)
		if row.state != segmentOpen || // the new store has no counters
			row.spanKind == spanSize && row.span < r.sizeSpan {
			r.close(id)
		}
	}
	return r
}

// close closes a segment of a new store.
func (r *registry) close(id segmentID) {
	row := r.segments[id]
	row.state, row.closedIn = segmentClosed, 1
	r.setSegment(id, row)
}

// writeMerged writes the tables of the new store.
func (r *repairer) writeMerged(s, to *Store, p *tablesPlan) (paths []string, err error) {
	var t *table
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
	err = r.merge(s, p, func(at *plannedWord) error {
		if !at.live {
			return nil
		}
		if t != nil && n%sortedPart == 0 && t.w.Raw().EstimatedSize() >= tableBytes {
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
		counts[at.segment]++
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
