package fuzz

import (
	"context"
	"errors"

	"dedupstore/store"
)

// claims are the model's: what is claimed, and the claims that operations name
// by their place. Those that were overwritten are held until the store ends.
type claims struct {
	claimed map[int]bool // keys
	slots   [slots]slot
}

// A slot has the claim that was granted there last, of a store that may have
// ended since.
type slot struct {
	claim store.Claim
	key   int
	holds bool
	dead  bool // the store has ended
}

// end is the end of the store, by a crash or not: no claim outlives it.
func (c *claims) end() {
	c.claimed = nil
	for i := range c.slots {
		c.slots[i].dead, c.slots[i].holds = true, false
	}
}

// claim claims n keys in one batch, and has the claims granted in the slots from
// the first one on.
func (w *world) claim(at, first, n, step int) {
	names, granted, answers := make([]string, n), make([]store.Claim, n), make([]store.Answer, n)
	for i := range names {
		names[i] = w.all[(first+i*step)%keys]
	}
	if err := w.s.ClaimBatch(context.Background(), names, 0, granted, answers); err != nil {
		w.tb.Fatalf("claim: %v", err)
	}
	for i := range names {
		k := (first + i*step) % keys
		if want := w.answer(k); answers[i] != want {
			w.tb.Fatalf("claim of key %d is %v, want %v", k, answers[i], want)
		}
		if answers[i] != store.New {
			continue
		}
		if w.claims.claimed == nil {
			w.claims.claimed = map[int]bool{}
		}
		w.claims.claimed[k] = true
		w.claims.slots[(at+i)%slots] = slot{claim: granted[i], key: k, holds: true}
	}
}

// commit commits the claims of the slots that the bits of set name, in one batch
// of the store of now, whichever store has granted them.
func (w *world) commit(set int) {
	var places []int
	var batch []store.Claim
	holding := 0
	for i, c := range w.claims.slots {
		if set>>i&1 == 0 {
			continue
		}
		places, batch = append(places, i), append(batch, c.claim)
		if c.holds {
			holding++
		}
	}
	committed := make([]bool, len(batch))
	err := w.s.CommitBatch(context.Background(), batch, 0, committed)
	if want := holding < len(batch); errors.Is(err, store.ErrClaimLost) != want || err != nil && !want {
		w.tb.Fatalf("commit of %d claims of which %d hold: %v", len(batch), holding, err)
	}
	for i, place := range places {
		c := &w.claims.slots[place]
		if committed[i] != c.holds {
			w.tb.Fatalf("commit of key %d: %v, want %v", c.key, committed[i], c.holds)
		}
		if c.holds {
			c.holds = false
			delete(w.claims.claimed, c.key)
			w.mark(c.key)
		}
	}
}

// use releases or extends the claim in a slot.
func (w *world) use(what string, at int, use func(store.Claim) error, ends bool) {
	c := &w.claims.slots[at%slots]
	var want error
	switch {
	case c.dead && c.claim != store.Claim{}:
		want = store.ErrClosed
	case !c.holds:
		want = store.ErrClaimLost
	}
	if err := use(c.claim); !errors.Is(err, want) {
		w.tb.Fatalf("%s of key %d: %v, want %v", what, c.key, err, want)
	}
	if ends && c.holds {
		c.holds = false
		delete(w.claims.claimed, c.key)
	}
}
