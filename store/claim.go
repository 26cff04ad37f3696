package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"dedupstore/internal/planted"
	"dedupstore/wal"
)

// A Claim is the right to make one key seen, until its lease ends: what Claim
// has granted. Commit, Release and the lease's end are its ends, after which
// each of its methods returns ErrClaimLost and changes nothing, whoever has
// claimed the key since.
//
// A Claim is a value that may be copied; its methods may be called by any
// number of goroutines at once, and one Commit or Release succeeds. The zero
// Claim does not hold.
type Claim struct {
	s     *Store
	word  word
	token uint64
}

// defaultLease is long enough for a slow fetch with its retries.
const defaultLease = 10 * time.Minute

// Claim asks for a key that the caller will make seen when it is done with it:
// one atomic step. The answer is New, and the claim is granted; or Seen; or
// Busy, when somebody holds a claim on the key that has not expired.
//
// The key is not there until Commit: Has says so, and Add returns ErrClaimed. A
// claim is not durable: after Close or a crash its key is new. So it is after
// Release, and when the lease has ended, by the monotonic clock. A lease of 0
// is one of 10 minutes.
//
// Costs what Has costs, the lock, and memory, see Options.MaxClaims. A store
// that refuses adds refuses claims.
func (s *Store) Claim(ctx context.Context, key string, lease time.Duration) (Claim, Answer, error) {
	keys, claims, answers := [1]string{key}, [1]Claim{}, [1]Answer{}
	err := s.ClaimBatch(ctx, keys[:], lease, claims[:], answers[:])
	return claims[0], answers[0], err
}

// ClaimBatch does for each key what Claim does, and stores its answer at the
// same index, and its claim if the answer is New. Keys are decided in their
// order, in parts of at most 4096, each atomic by itself; of a key that stands
// in the batch twice the second is Busy. After an error those that are New are
// claimed all the same, and those that are Unanswered are not.
func (s *Store) ClaimBatch(ctx context.Context, keys []string, lease time.Duration, claims []Claim, answers []Answer) error {
	if len(keys) != len(claims) {
		return fmt.Errorf("store: %d keys and %d claims", len(keys), len(claims))
	}
	clear(claims)
	if err := checkLease(&lease); err != nil {
		clear(answers)
		return err
	}
	return s.batch(ctx, keys, answers, ask{verb: verbClaim, lease: lease, claims: claims})
}

// CommitBatch makes the keys of the claims seen, as Commit does, in parts of at
// most 4096, and notes at the same index which were. When all were decided and
// some did not hold, the error is ErrClaimLost. After any other error those
// that are not committed may be tried again; one that is not ErrPoisoned has
// marked none of them.
func (s *Store) CommitBatch(ctx context.Context, claims []Claim, committed []bool) error {
	if s.waiting != nil {
		return s.waiting.call(func(s *Store) error { return s.CommitBatch(ctx, claims, committed) })
	}
	if len(claims) != len(committed) {
		return fmt.Errorf("store: %d claims and %d places for what is committed", len(claims), len(committed))
	}
	clear(committed)
	p := parts.Get().(*part)
	defer parts.Put(p)
	all, lost := len(claims), 0
	for len(claims) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(claims), s.maxPart)
		p.loadClaims(s, claims[:n])
		if err := s.commitPart(ctx, p, committed[:n]); err != nil {
			return err
		}
		lost += n - p.fresh
		claims, committed = claims[n:], committed[n:]
	}
	if lost > 0 {
		s.counters.claimsLost.Add(int64(lost))
		return fmt.Errorf("%w: %d of %d", ErrClaimLost, lost, all)
	}
	return nil
}

// Commit makes the key seen: logged, and durable when it returns, by the
// store's level, exactly like an Add. After an error that is neither
// ErrClaimLost nor ErrPoisoned the claim holds as before.
func (c Claim) Commit(ctx context.Context) error {
	if c.s == nil {
		return ErrClaimLost
	}
	return c.s.CommitBatch(ctx, []Claim{c}, make([]bool, 1))
}

// Release makes the key new again at once. It does no I/O.
func (c Claim) Release() error {
	return c.use(func(t *claims) { delete(t.held, c.word) })
}

// Extend has the lease end that long from now, which may be earlier than it
// would have. A lease of 0 is one of 10 minutes. It does no I/O.
func (c Claim) Extend(lease time.Duration) error {
	if err := checkLease(&lease); err != nil {
		return err
	}
	return c.use(func(t *claims) {
		t.held[c.word] = heldClaim{token: c.token, ends: leaseEnd(c.s.opts.seams.Now(), lease)}
	})
}

// use does something to a claim that holds, under the lock.
func (c Claim) use(change func(*claims)) error {
	if c.s == nil {
		return ErrClaimLost
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.mu.closing {
		return ErrClosed
	}
	if !c.s.claimHoldsLocked(c.word, c.token) {
		c.s.counters.claimsLost.Add(1)
		return ErrClaimLost
	}
	change(&c.s.mu.claims)
	return nil
}

// checkLease puts the default in.
func checkLease(lease *time.Duration) error {
	switch {
	case *lease < 0:
		return fmt.Errorf("store: a lease of %v", *lease)
	case *lease == 0:
		*lease = defaultLease
	}
	return nil
}

// leaseEnd does not overflow.
func leaseEnd(now, lease time.Duration) time.Duration {
	return now + min(lease, math.MaxInt64-now)
}

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
}

type heldClaim struct {
	token uint64
	ends  time.Duration // of the monotonic clock
}

// purgeEvery is how long a search of a full table is not repeated: a million
// claims take 12 ms, in the lock.
const purgeEvery = time.Second

// claimedLocked returns the word's claim. One that has expired is removed.
func (s *Store) claimedLocked(w word) (c heldClaim, ok bool) {
	c, ok = s.mu.claims.held[w]
	if ok && c.ends <= s.opts.seams.Now() {
		delete(s.mu.claims.held, w)
		s.counters.claimsExpired.Add(1)
		return c, false
	}
	return c, ok
}

// claimHoldsLocked reports whether the token is that of the word's claim.
func (s *Store) claimHoldsLocked(w word, token uint64) bool {
	c, ok := s.claimedLocked(w)
	return ok && (c.token == token || planted.TokenIgnored)
}

// claimAllowsLocked reports whether a word that is not there may be inserted. A
// commit's claim ends with that: nothing can fail any more.
func (s *Store) claimAllowsLocked(p *part, i int) bool {
	w := p.words[i]
	if p.verb == verbCommit {
		if !s.claimHoldsLocked(w, p.tokens[i]) {
			return false
		}
		delete(s.mu.claims.held, w)
		return true
	}
	if _, busy := s.claimedLocked(w); busy && !planted.ClaimsUnasked {
		p.decided[i] = Busy
		return false
	}
	return true
}

// grantLocked claims the words that are neither in the active memtable nor
// claimed.
func (s *Store) grantLocked(m *memtable, p *part) (rests wal.LSN, err error) {
	ends := leaseEnd(s.opts.seams.Now(), p.lease)
	t := &s.mu.claims
	if t.held == nil {
		t.held = map[word]heldClaim{}
	}
	for _, i := range p.open {
		w := p.words[i]
		if _, found := m.find(w); found {
			rests = max(rests, wal.LSN(m.lsn.Load()))
			continue
		}
		if _, busy := s.claimedLocked(w); busy {
			p.decided[i] = Busy
			continue
		}
		if len(t.held) >= s.opts.MaxClaims && !s.purgeClaimsLocked() {
			return rests, fmt.Errorf("%w: %d", ErrTooManyClaims, len(t.held))
		}
		t.lastToken++
		t.held[w] = heldClaim{token: t.lastToken, ends: ends}
		p.decided[i], p.tokens[i] = New, t.lastToken
	}
	return rests, nil
}

// purgeClaimsLocked removes the claims that have expired from a full table. It
// reports whether there is room now.
func (s *Store) purgeClaimsLocked() bool {
	t, now := &s.mu.claims, s.opts.seams.Now()
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
		err = s.await(p.rests)
	}
	// What is claimed is answered, whatever has failed: it rests on no record.
	p.answer(answers, err == nil)
	for i, a := range answers {
		if a == New {
			claims[i] = Claim{s: s, word: p.words[i], token: p.tokens[i]}
		}
	}
	addIf(&s.counters.claimsGranted, int64(p.fresh))
	return err
}

// loadClaims makes a part of claims. One of another store has no token here.
func (p *part) loadClaims(s *Store, claims []Claim) {
	p.reset(ask{verb: verbCommit})
	for _, c := range claims {
		token := c.token
		if c.s != s {
			token = 0
		}
		p.words = append(p.words, c.word)
		p.tokens = append(p.tokens, token)
		p.decided = append(p.decided, Unanswered)
	}
}

// commitPart inserts the words whose claims hold.
func (s *Store) commitPart(ctx context.Context, p *part, committed []bool) error {
	err := s.mark(ctx, p)
	if err != nil && p.marked == 0 {
		return err
	}
	if werr := s.await(p.marked); werr != nil {
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
