package store

import (
	"context"
	"fmt"
	"math"
	"time"
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
	n           *Namespace
	incarnation *incarnation
	word        word
	token       uint64
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
func (n *Namespace) Claim(ctx context.Context, key string, lease time.Duration) (Claim, Answer, error) {
	keys, claims, answers := [1]string{key}, [1]Claim{}, [1]Answer{}
	err := n.ClaimBatch(ctx, keys[:], lease, claims[:], answers[:])
	return claims[0], answers[0], err
}

// ClaimBatch does for each key what Claim does, and stores its answer at the
// same index, and its claim if the answer is New. Keys are decided in their
// order, in parts of at most 4096, each atomic by itself; of a key that stands
// in the batch twice the second is Busy. After an error those that are New are
// claimed all the same, and those that are Unanswered are not.
func (n *Namespace) ClaimBatch(ctx context.Context, keys []string, lease time.Duration, claims []Claim, answers []Answer) error {
	if len(keys) != len(claims) {
		return fmt.Errorf("store: %d keys and %d claims", len(keys), len(claims))
	}
	clear(claims)
	if err := checkLease(&lease); err != nil {
		clear(answers)
		return err
	}
	return n.batch(ctx, keys, answers, ask{verb: verbClaim, lease: lease, claims: claims})
}

// CommitBatch makes the keys of the claims seen, as Commit does, in parts of at
// most 4096, and notes at the same index which were. When all were decided and
// some did not hold, the error is ErrClaimLost. After any other error those
// that are not committed may be tried again; one that is not ErrPoisoned has
// marked none of them.
func (s *Store) CommitBatch(ctx context.Context, claims []Claim, ttl time.Duration, committed []bool) error {
	if s.waiting != nil {
		return s.waiting.call(func(s *Store) error { return s.CommitBatch(ctx, claims, ttl, committed) })
	}
	if len(claims) != len(committed) {
		return fmt.Errorf("store: %d claims and %d places for what is committed", len(claims), len(committed))
	}
	clear(committed)
	if ttl < 0 {
		return fmt.Errorf("store: %w", checkTTL(int64(ttl)))
	}
	if err := s.writable(); err != nil {
		return err
	}
	p := parts.Get().(*part)
	defer parts.Put(p)
	all, lost := len(claims), 0
	for len(claims) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := s.alike(claims)
		if !p.loadClaims(s, claims[:n], ttl) {
			lost += n
		} else if err := s.commitPart(ctx, p, committed[:n]); err != nil {
			return err
		} else {
			lost += n - p.fresh
		}
		claims, committed = claims[n:], committed[n:]
	}
	if lost > 0 {
		s.counters.claimsLost.Add(int64(lost))
		return fmt.Errorf("%w: %d of %d", ErrClaimLost, lost, all)
	}
	return nil
}

// alike is how many of the claims can be one part: made through one handle, in
// one incarnation of its namespace.
func (s *Store) alike(claims []Claim) int {
	n := 1
	for n < min(len(claims), s.maxPart) && claims[n].n == claims[0].n && claims[n].incarnation == claims[0].incarnation {
		n++
	}
	return n
}

// Commit makes the key seen: logged, and durable when it returns, by the level
// of the handle that it was claimed through, exactly like an Add. A TTL of 0 is
// that handle's. After an error that is neither ErrClaimLost nor ErrPoisoned
// the claim holds as before.
func (c Claim) Commit(ctx context.Context, ttl time.Duration) error {
	if c.n == nil {
		return ErrClaimLost
	}
	return c.n.s.CommitBatch(ctx, []Claim{c}, ttl, make([]bool, 1))
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
		t.held[c.word] = heldClaim{token: c.token, ends: leaseEnd(c.n.s.opts.Clock.Monotonic(), lease)}
	})
}

// use does something to a claim that holds, under the lock.
func (c Claim) use(change func(*claims)) error {
	if c.n == nil {
		return ErrClaimLost
	}
	s := c.n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		return ErrClosed
	}
	if c.incarnation != c.n.core.current.Load() || !s.claimHoldsLocked(c.word, c.token, s.opts.Clock.Monotonic()) {
		s.counters.claimsLost.Add(1)
		return ErrClaimLost
	}
	change(&s.mu.claims)
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
