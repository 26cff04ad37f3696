package store

import (
	"context"
	"fmt"
	"slices"
)

// Forget makes the keys new again, and returns how many of them were seen.
// When it returns they are forgotten durably, whatever the level. Keys are
// taken in parts of at most 4096, each atomic by itself. One that is claimed
// is not seen yet, and stays claimed: the others are forgotten, and the error
// is ErrClaimed. After any other error some may be forgotten; to forget them
// again does no harm.
//
// Costs a look for each key, which asks Pebble for those that are seen, and a
// place in the memtable; the flush deletes them.
func (n *Namespace) Forget(ctx context.Context, keys ...string) (removed int, err error) {
	if n.s.waiting != nil {
		err := n.call(func(n *Namespace) (err error) { removed, err = n.Forget(ctx, keys...); return err })
		return removed, err
	}
	if err := checkKeys(keys); err != nil {
		return 0, err
	}
	p := parts.Get().(*part)
	defer parts.Put(p)
	claimed, all := 0, len(keys)
	for len(keys) > 0 {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		m := min(len(keys), n.s.maxPart)
		p.load(n, keys[:m], ask{verb: verbForget})
		if err := n.s.forgetPart(ctx, p); err != nil {
			return removed, err
		}
		removed += p.fresh
		claimed += p.busy
		keys = keys[m:]
	}
	n.s.counters.forgotten.Add(int64(removed))
	if claimed > 0 {
		return removed, fmt.Errorf("%w: %d of %d", ErrClaimed, claimed, all)
	}
	return removed, nil
}

// forgetPart forgets the keys of a part.
func (s *Store) forgetPart(ctx context.Context, p *part) error {
	if err := s.mark(ctx, p); err != nil {
		return err
	}
	if p.marked == 0 {
		return nil
	}
	return s.waitSynced(p.marked)
}

// forgetLocked makes the words of a part absent that are live: those that the
// look has found, and those that the active memtable has got since. It is a
// new epoch: who has found one of them has to look again.
//
// The records say in which segment a word was live, so that a flush knows, and
// the one after a crash too, what to delete.
//
// It reports false if the memtable is full before its time.
func (s *Store) forgetLocked(m *memtable, p *part) bool {
	if !m.spare(len(p.words)) {
		m.filled = true
		return false
	}
	mono, now := s.opts.Clock.Monotonic(), s.now()
	at := make(map[segmentID][]word)
	for i, w := range p.words {
		id := p.at[i] // 0 if the look has found it in the active memtable or nowhere
		slot, found := m.find(w)
		if found && m.number(slot) == noSegment {
			continue
		}
		if found && m.holds(slot, now) {
			id = m.segments[m.number(slot)].id
		}
		if id != 0 {
			at[id] = append(at[id], w)
			continue
		}
		if _, busy := s.claimedLocked(w, mono); busy {
			p.busy++
		}
	}
	if len(at) == 0 {
		return true
	}
	m.marked.Store(true)
	for id, words := range at {
		slices.Sort(words)
		words = slices.Compact(words)
		at[id] = words
		p.payload = beginAdds(p.payload[:0], id)
		for _, w := range words {
			p.payload = appendWord(p.payload, w)
		}
		m.cover(s.log.Next())
		p.marked = s.log.Append(recordForgets, p.payload)
		p.fresh += len(words)
		s.mu.registry.forget(m, id, words)
	}
	s.publishLocked(func(*state) {})
	cache := s.current.Load().cache
	for _, words := range at {
		for _, w := range words {
			cache.remove(w)
		}
	}
	return true
}

// forget makes words absent that are live in a segment, by a record of the
// memtable's log file.
func (r *registry) forget(m *memtable, id segmentID, words []word) {
	r.setSegment(id, r.segments[id]) // it will have fewer
	for _, w := range words {
		slot, found := m.find(w)
		if n, ok := m.numbers[id]; found && ok && m.number(slot) == n {
			m.forget(slot, w, 0)
		} else {
			m.forget(slot, w, id)
		}
	}
}
