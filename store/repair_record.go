package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"dedupstore/internal/planted"
)

// A repairRecord is what a repair of the log has lost, in a file of the store's
// directory. It is written before the first change, and stays.
type repairRecord struct {
	Finished bool     `json:"finished"`
	Gaps     []LogGap `json:"gaps"`

	name string
}

const (
	repairPrefix = "repair-"
	repairSuffix = ".json"
	maxRecord    = 64 << 20 // bytes
)

func repairName(n int) string { return fmt.Sprintf(repairPrefix+"%04d"+repairSuffix, n) }

// readRecord reads the record of a repair that did not end, or names the next
// one.
func (r *repairer) readRecord() error {
	fsys := r.opts.seams.FS
	names, err := fsys.List(r.dir)
	if err != nil {
		return fmt.Errorf("store: list %s: %w", r.dir, err)
	}
	n := 1
	for slices.Contains(names, repairName(n)) {
		n++
	}
	r.record = &repairRecord{name: repairName(n), Finished: true}
	if n == 1 {
		return nil
	}
	last := &repairRecord{name: repairName(n - 1)}
	b, err := readSmallFile(fsys, fsys.PathJoin(r.dir, last.name), maxRecord)
	if err == nil {
		err = json.Unmarshal(b, last)
	}
	if err != nil {
		r.report.note("%s cannot be read: %v", last.name, err)
		return nil
	}
	if !last.Finished {
		r.record = last
		r.report.Log = last.gaps(newLogRepair(nil))
		r.report.note("an earlier repair did not end; what it has found lost is in this report too")
	}
	return nil
}

// gaps adds what an earlier run has found. The files of its gaps may be put
// aside by now.
func (rec *repairRecord) gaps(l *LogRepair) *LogRepair {
	for _, g := range rec.Gaps {
		same := func(h LogGap) bool { return h.Path == g.Path && h.Offset == g.Offset }
		if i := slices.IndexFunc(l.Gaps, same); i >= 0 {
			l.Gaps[i] = g
		} else {
			l.Gaps = append(l.Gaps, g)
		}
	}
	l.sum()
	return l
}

// openRecord writes the record before the first change.
func (r *repairer) openRecord() error {
	if planted.RepairUnrecorded {
		return nil
	}
	r.record.Finished, r.record.Gaps = false, r.report.Log.Gaps
	return r.writeRecord()
}

// closeRecord says that the repair has ended.
func (r *repairer) closeRecord() error {
	if r.record == nil || r.record.Finished || r.report.Tables != nil {
		return nil // a store that is copied is not written to
	}
	r.record.Finished = true
	r.report.note("%s keeps what is lost", r.record.name)
	return r.writeRecord()
}

func (r *repairer) writeRecord() error {
	b, err := json.MarshalIndent(r.record, "", "  ")
	if err != nil {
		return err
	}
	if err := publishFile(r.opts.seams.FS, r.dir, r.record.name, append(b, '\n')); err != nil {
		return fmt.Errorf("store: write %s: %w", r.record.name, err)
	}
	return nil
}
