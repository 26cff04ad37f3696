package main

// The rule of this file: a line is seen only after it has been written. Those of
// a batch are claimed, the new ones written, to where a kill does not reach them,
// and only then is their claim committed. A kill between the write and the
// commit leaves them new, and written twice after the next run; no order of the
// steps loses a line.

import (
	"context"
	"io"
	"math"
	"time"

	"dedupstore/internal/planted"
	"dedupstore/store"
)

// noLease is that of a claim which ends with the process: nobody else may claim
// meanwhile, however long the output takes its lines.
const noLease = time.Duration(math.MaxInt64)

// A claimSet is what a marker claims in: a store, or what stands for one in a
// dry run.
type claimSet interface {
	ClaimBatch(ctx context.Context, keys []string, lease time.Duration, claims []store.Claim, answers []store.Answer) error
	CommitBatch(ctx context.Context, claims []store.Claim, ttl time.Duration, committed []bool) error
	io.Closer
}

// A realRun claims in a namespace of a store.
type realRun struct {
	*store.Namespace
	store *store.Store
}

func (r realRun) CommitBatch(ctx context.Context, claims []store.Claim, ttl time.Duration, committed []bool) error {
	return r.store.CommitBatch(ctx, claims, ttl, committed)
}

func (r realRun) Close() error { return r.store.Close() }

// openMarked opens what a marker claims in.
func (p *program) openMarked(a adding, dry bool) (claimSet, error) {
	if dry {
		return p.openDry(a)
	}
	s, n, err := p.openAdding(a)
	return realRun{n, s}, err
}

// A marker holds the buffers of a run that marks what it has written.
type marker struct {
	in claimSet
	// write returns when those lines of b are safe from a kill, or says that
	// they are not, with errReaderGone if nobody wants them.
	write     func(b *batch, fresh []int) error
	claims    []store.Claim // of one batch; pick moves those granted to the front
	fresh     []int         // where in the batch they are
	committed []bool
}

func newMarker(in claimSet, write func(b *batch, fresh []int) error) *marker {
	return &marker{in: in, write: write, claims: make([]store.Claim, batchLines), committed: make([]bool, batchLines)}
}

// ask claims the lines of b, writes those that are granted, and commits them.
func (m *marker) ask(r *lineRun, b *batch) error {
	answers, claims := r.answersFor(b.keys), m.claims[:len(b.keys)]
	if err := m.in.ClaimBatch(r.ctx, b.keys, noLease, claims, answers); err != nil {
		r.tally.Errors += int64(len(b.keys))
		return err
	}
	claims, known := m.pick(answers)
	repeated := int64(len(b.keys)-len(claims)) - known
	if planted.MarkBeforeWrite {
		_ = m.commit(r, claims)
	}
	if err := m.write(b, m.fresh); err == errReaderGone {
		return err
	} else if err != nil {
		r.tally.Seen += known
		r.tally.Errors += int64(len(claims)) + repeated
		return err
	}
	r.tally.Seen += known + repeated
	if planted.MarkBeforeWrite {
		return nil
	}
	return m.commit(r, claims)
}

// pick notes which lines are new, and returns their claims and the number of
// lines that the store knows. A line that is busy is one that stands in the
// batch before.
func (m *marker) pick(answers []store.Answer) (granted []store.Claim, known int64) {
	granted, m.fresh = m.claims[:0], m.fresh[:0]
	for i, a := range answers {
		switch a {
		case store.New:
			granted = append(granted, m.claims[i])
			m.fresh = append(m.fresh, i)
		case store.Seen:
			known++
		}
	}
	return granted, known
}

// commit makes the lines seen that were written.
func (m *marker) commit(r *lineRun, claims []store.Claim) error {
	committed := m.committed[:len(claims)]
	err := m.in.CommitBatch(r.ctx, claims, 0, committed)
	for _, c := range committed {
		if c {
			r.tally.New++
		} else {
			r.tally.Errors++
		}
	}
	return err
}
