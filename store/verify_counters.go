package store

import (
	"fmt"
	"io"

	"dedupstore/counting"
)

// Verify and the counters: each page's checksum, and, deep, each counter
// against the words of the counted segments.

const (
	countersBuiltAnew = "no answer rests on it: the store lets it go, keeps the file and makes new counters"
	becomesNew        = "a URL may be answered new after the next build: wrong"
)

// counters checks the counter file, if there is one on record.
func (v *verifier) counters() error {
	s, r := v.store, v.registry
	if r.counterGen == 0 || s.maintainer.countersLost != "" {
		return nil
	}
	path := s.countersPath(r.counterGen)
	var want counting.Geometry
	if v.bitmap.Filter != nil {
		want = geometry(v.bitmap.header().Params)
	}
	reader, file, err := s.openCounters(r.counterGen, want)
	if err != nil {
		v.report.add(path, countersBuiltAnew, err)
		return nil
	}
	defer file.Close() // nothing was written
	if !v.report.Deep {
		_, err := reader.Check(v.ctx)
		v.addCounters(path, err)
		return v.ctx.Err()
	}
	return v.compareCounters(path, reader)
}

func (v *verifier) compareCounters(path string, reader *counting.Reader) error {
	var ids []segmentID
	for _, id := range v.registry.ids() {
		if v.registry.segments[id].state == segmentCounted {
			ids = append(ids, id)
		}
	}
	var unread error
	words := wordsInOrder(v.db, ids, v.registry.wordsIn(ids))
	source := func() ([]uint64, error) {
		batch, err := words()
		if err != nil && err != io.EOF {
			unread = err
		}
		return batch, err
	}
	d, err := counting.Compare(v.ctx, reader, []counting.Words{source})
	switch {
	case v.ctx.Err() != nil:
		return v.ctx.Err()
	case unread != nil:
		v.report.add(pebbleDir, readsFail, unread)
		return nil
	}
	v.addCounters(path, err)
	if d.Low > 0 {
		v.report.fault(path, -1, becomesNew,
			"%d counters are less than the words of the counted segments come to, the first one in block %d", d.Low, d.FirstLow)
	}
	if d.Saturated > 0 {
		v.report.Notes = append(v.report.Notes, fmt.Sprintf("%s: %d counters of 15, whose bits stay set until there are new counters", path, d.Saturated))
	}
	return nil
}

func (v *verifier) addCounters(path string, err error) {
	if err != nil && v.ctx.Err() == nil {
		v.report.add(path, countersBuiltAnew, wrapCounters(path, err))
	}
}
