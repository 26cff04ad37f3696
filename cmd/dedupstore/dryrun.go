package main

// A dry run is a run into a store of its own, with the lines that the store
// does not know: so its answers are those of a run that remembers, a line that
// comes twice among them, in bounded memory however many lines there are.

import (
	"context"
	"errors"
	"os"
	"time"

	"dedupstore/store"
)

// A dryRun is the claimSet of a dry run.
type dryRun struct {
	known   *store.Namespace // nil: there is none yet
	store   *store.Store     // of known, nil: there is none
	scratch realRun
	dir     string // of scratch

	keys    []string // what is not known, of one batch
	at      []int    // where in the batch it is
	claims  []store.Claim
	answers []store.Answer
}

// openDry opens the store, if there is one, for reading, and a scratch store in
// the directory for temporary files. Where a real run would end with an error,
// so does this one.
func (p *program) openDry(a adding) (_ *dryRun, err error) {
	d := &dryRun{claims: make([]store.Claim, batchLines), answers: make([]store.Answer, batchLines)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	o := a.options
	o.ReadOnly, o.MustExist, o.ExpectedURLs = true, false, 0
	if o.MemoryBytes > 0 { // the two stores share it
		o.MemoryBytes = max(store.MinMemoryBytes, o.MemoryBytes/2)
	}
	ttl := a.ttl
	switch d.store, err = p.open(o); {
	case errors.Is(err, store.ErrNotExist) && !a.options.MustExist:
		d.store, err = nil, p.newProfile(&o)
	case err == nil:
		d.known, err = p.namespace(d.store, a.namespace)
		if errors.Is(err, errNoNamespace) && !a.options.MustExist {
			d.known, err = nil, nil
		}
		if err != nil {
			return nil, err
		}
		if ttl == 0 {
			ttl = d.ttl(a.namespace)
		}
	}
	if err != nil {
		return nil, err
	}
	return d, d.makeScratch(store.Options{
		MemoryBytes: o.MemoryBytes, Durability: store.NoSync, TTL: ttl, Clock: clock,
	})
}

// ttl is how long a line of that namespace would be seen.
func (d *dryRun) ttl(namespace string) time.Duration {
	if d.known == nil {
		return d.store.Stats().TTL
	}
	return namespaceStats(d.store, namespace).TTL
}

func (d *dryRun) makeScratch(o store.Options) (err error) {
	if d.dir, err = os.MkdirTemp("", "dedupstore-dry-run-"); err != nil {
		return err
	}
	s, err := store.Open(d.dir, &o)
	if err == nil {
		d.scratch = realRun{s.Namespace, s}
	}
	return err
}

// ClaimBatch claims what is not known.
func (d *dryRun) ClaimBatch(ctx context.Context, keys []string, lease time.Duration, claims []store.Claim, answers []store.Answer) error {
	if d.known != nil {
		if err := d.known.HasBatch(ctx, keys, answers); err != nil {
			return err
		}
	}
	d.keys, d.at = d.keys[:0], d.at[:0]
	for i, key := range keys {
		if answers[i] != store.Seen {
			d.keys, d.at = append(d.keys, key), append(d.at, i)
		}
	}
	subClaims, subAnswers := d.claims[:len(d.keys)], d.answers[:len(d.keys)]
	err := d.scratch.ClaimBatch(ctx, d.keys, lease, subClaims, subAnswers)
	for n, i := range d.at {
		claims[i], answers[i] = subClaims[n], subAnswers[n]
	}
	return err
}

// CommitBatch remembers until the end of the run.
func (d *dryRun) CommitBatch(ctx context.Context, claims []store.Claim, ttl time.Duration, committed []bool) error {
	return d.scratch.CommitBatch(ctx, claims, ttl, committed)
}

// Close removes the scratch store.
func (d *dryRun) Close() (err error) {
	if d.scratch.store != nil {
		err = d.scratch.Close()
	}
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	if d.store != nil {
		err = errors.Join(err, d.store.Close())
	}
	return err
}
