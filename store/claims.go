package store

import (
	"context"
	"fmt"
	"time"

	"dedupstore/internal/planted"
	"dedupstore/wal"
)

// claims are those that are held, in memory only. The store's lock guards them:
// they are asked in the second look, never in the first, and one is granted in
// the same hold. So of any number of callers one gets it, and a word that is
// claimed is in no memtable and not in Pebble.
//
// No timer ends a lease: a claim that has expired is as if released, and is
// removed when its word is asked for next, or when the table is full.
type claims struct {
	held map[word]heldClaim // no pointers: the garbage collector does not look inside
	// lastToken counts grants. A token is never used twice in a store's life.
	lastToken uint64
	// noPurgeBefore keeps a full table from being searched at every claim.
	noPurgeBefore time.Duration
	// most is how many were held at once: the map does not shrink.
	most int
}

// claimBytes is what a claim takes at most: 25 bytes a slot of a map that is
// between 7/16 and 7/8 full (BenchmarkClaimTable: 35 to 56 bytes).
const claimBytes = 56

// bytes is what the table takes at most.
func (t *claims) bytes() int64 {
	if t.held == nil {
		return 0
	}
	return int64(t.most) * claimBytes
}

type heldClaim struct {
	token uint64
	ends  time.Duration // of the monotonic clock
}

// purgeEvery is how long a search of a full table is not repeated: a million
// claims take 12 ms, in the lock.
const purgeEvery = time.Second

// claimedLocked returns the word's claim. One that has expired by now, of the
// monotonic clock, is removed.
func (s *Store) claimedLocked(w word, mono time.Duration) (c heldClaim, ok bool) {
	c, ok = s.mu.claims.held[w]
	if ok && c.ends <= mono {
		delete(s.mu.claims.held, w)
		s.counters.claimsExpired.Add(1)
		return c, false
	}
	return c, ok
}

// claimHoldsLocked reports whether the token is that of the word's claim.
func (s *Store) claimHoldsLocked(w word, token uint64, mono time.Duration) bool {
	c, ok := s.claimedLocked(w, mono)
	return ok && (c.token == token || planted.TokenIgnored)
}

// claimAllowsLocked reports whether a word that is not there may be inserted. A
// commit's claim ends with that: nothing can fail any more.
func (s *Store) claimAllowsLocked(p *part, i int, mono time.Duration) bool {
	w := p.words[i]
	if p.verb == verbCommit {
		if p.incarnation != p.n.core.current.Load() || !s.claimHoldsLocked(w, p.tokens[i], mono) {
			return false
		}
		delete(s.mu.claims.held, w)
		return true
	}
	if _, busy := s.claimedLocked(w, mono); busy && !planted.ClaimsUnasked {
		p.decided[i] = Busy
		return false
	}
	return true
}

// grantLocked claims the words that are neither in the active memtable nor
// claimed.
func (s *Store) grantLocked(m *memtable, p *part) (rests wal.LSN, err error) {
	mono, now := s.opts.Clock.Monotonic(), s.now()
	ends := leaseEnd(mono, p.lease)
	t := &s.mu.claims
	if t.held == nil {
		t.held = map[word]heldClaim{}
	}
	for _, i := range p.open {
		w := p.words[i]
		if slot, found := m.find(w); found && m.holds(slot, now) {
			rests = max(rests, wal.LSN(m.lsn.Load()))
			continue
		}
		if _, busy := s.claimedLocked(w, mono); busy {
			p.decided[i] = Busy
			continue
		}
		if len(t.held) >= s.opts.MaxClaims && !s.purgeClaimsLocked() {
			return rests, fmt.Errorf("%w: %d", ErrTooManyClaims, len(t.held))
		}
		t.lastToken++
		t.held[w] = heldClaim{token: t.lastToken, ends: ends}
		t.most = max(t.most, len(t.held))
		p.decided[i], p.tokens[i] = New, t.lastToken
	}
	return rests, nil
}

// purgeClaimsLocked removes the claims that have expired from a full table. It
// reports whether there is room now.
func (s *Store) purgeClaimsLocked() bool {
	t, now := &s.mu.claims, s.opts.Clock.Monotonic()
	if now < t.noPurgeBefore {
		return false
	}
	t.noPurgeBefore = now + purgeEvery
	before := len(t.held)
	for w, c := range t.held {
		if c.ends <= now {
			delete(t.held, w)
		}
	}
	s.counters.claimsExpired.Add(int64(before - len(t.held)))
	return len(t.held) < before
}

// forgetBusy takes back what a claim has decided: the part is looked at again.
func (p *part) forgetBusy() {
	for i, a := range p.decided {
		if a == Busy {
			p.decided[i] = Unanswered
		}
	}
}

// claimPart claims the keys of a part and answers for them.
func (s *Store) claimPart(ctx context.Context, p *part, answers []Answer, claims []Claim) error {
	err := s.mark(ctx, p)
	if err == nil {
		err = s.await(p.rests, p.n.level())
	}
	// What is claimed is answered, whatever has failed: it rests on no record.
	p.answer(answers, err == nil)
	for i, a := range answers {
		if a == New {
			claims[i] = Claim{n: p.n, incarnation: p.incarnation, word: p.words[i], token: p.tokens[i]}
		}
	}
	addIf(&s.counters.claimsGranted, int64(p.fresh))
	return err
}

// loadClaims makes a part of claims that are alike. It reports false if they are
// of another store, and do not hold in this one.
func (p *part) loadClaims(s *Store, claims []Claim, ttl time.Duration) bool {
	n := claims[0].n
	if n == nil || n.s != s {
		return false
	}
	if ttl != 0 {
		n = n.With(WriteOptions{TTL: ttl})
	}
	p.reset(n, ask{verb: verbCommit}, len(claims))
	p.incarnation = claims[0].incarnation
	for _, c := range claims {
		p.words = append(p.words, c.word)
		p.tokens = append(p.tokens, c.token)
	}
	return true
}

// markClaimed decides the claims of a part, without a look: a word whose claim
// holds is neither in a memtable nor in Pebble, for nobody else may add it.
func (s *Store) markClaimed(ctx context.Context, p *part) error {
	for {
		st, slot := s.enter()
		if st == nil {
			return ErrClosed
		}
		for _, w := range p.words {
			p.touched += st.active.touch(w)
		}
		slot.leave()
		p.open = p.open[:0]
		for i, a := range p.decided {
			if a != New {
				p.open = append(p.open, i)
			}
		}
		decided, err := s.decide(ctx, p, st.epoch)
		if err != nil || decided {
			return err
		}
	}
}

// commitPart inserts the words whose claims hold.
func (s *Store) commitPart(ctx context.Context, p *part, committed []bool) error {
	err := s.writable()
	if err == nil {
		err = s.markClaimed(ctx, p)
	}
	if err != nil && p.marked == 0 {
		return err
	}
	if werr := s.await(p.marked, p.n.level()); werr != nil {
		return werr
	}
	for i, a := range p.decided {
		if a == New {
			committed[i] = true
			p.fresh++
		}
	}
	return err
}
