package store

import (
	"context"
	"fmt"
	"slices"

	"dedupstore/internal/planted"
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

// forgetPart forgets the keys of a part. It waits for the records of those too
// that were forgotten already: theirs may be on its way.
func (s *Store) forgetPart(ctx context.Context, p *part) error {
	if err := s.mark(ctx, p); err != nil {
		return err
	}
	if planted.ForgetUnsynced {
		return nil
	}
	return s.await(max(p.marked, p.rests), Sync)
}

// copyOf is where a look has found the i-th word of a part, behind the active
// memtable: live, or expired and not yet dropped. Of the latter there is more
// than one if the key was added again, and each of them is live again when a
// wrong clock is set right.
type copyOf struct {
	i  int
	id segmentID
}

// findCopies notes the copies of a word that is to be forgotten.
func (s *Store) findCopies(st *state, p *part, i int) error {
	w := p.words[i]
	if slot, found := st.active.find(w); found && st.active.isSettled(slot) {
		p.rest(st.active)
		return nil
	}
	if st.frozen != nil {
		if slot, found := st.frozen.find(w); found {
			if st.frozen.number(slot) != noSegment {
				p.copies = append(p.copies, copyOf{i, st.frozen.segmentOf(slot)})
			}
			if st.frozen.isSettled(slot) {
				p.rest(st.frozen)
				return nil
			}
		}
	}
	if !st.bitmap.maybe(w) {
		p.filtered.negatives++
		return nil
	}
	for _, sp := range st.spans {
		if !sp.filter.maybe(w) {
			continue
		}
		for _, seg := range sp.of(p.incarnation.number) {
			if !seg.is(p.incarnation) {
				continue
			}
			found, err := s.getFrom(p, seg.id, w)
			if err != nil {
				return err
			}
			if found {
				p.copies = append(p.copies, copyOf{i, seg.id})
			}
		}
	}
	return nil
}

// forgetLocked makes the words of a part absent: all copies that the look has
// found, and those that the active memtable has got since. It is a new epoch:
// who has found one of them has to look again.
//
// The records say in which segment a copy was, so that a flush knows, and the
// one after a crash too, what to delete; what was in the active memtable comes
// first, so that a replay finds it there.
//
// It reports false if the memtable is full before its time.
func (s *Store) forgetLocked(m *memtable, p *part) bool {
	if !m.spare(len(p.words)) {
		m.filled = true
		return false
	}
	r, mono, now := s.mu.registry, s.opts.Clock.Monotonic(), s.now()
	active, older := map[segmentID][]word{}, map[segmentID][]word{}
	live := map[word]struct{}{}
	note := func(in map[segmentID][]word, id segmentID, w word) {
		row, ok := r.segments[id]
		if !ok {
			return // it was dropped
		}
		if r.live(&row, now) {
			live[w] = struct{}{}
		}
		in[id] = append(in[id], w)
	}
	copies := p.copies
	for i, w := range p.words {
		slot, found := m.find(w)
		if found && m.number(slot) != noSegment {
			note(active, m.segments[m.number(slot)].id, w)
		}
		for ; len(copies) > 0 && copies[0].i == i; copies = copies[1:] {
			note(older, copies[0].id, w)
		}
		if _, ok := live[w]; ok {
			continue
		}
		if found && m.number(slot) == noSegment {
			p.rest(m)
		}
		if _, busy := s.claimedLocked(w, mono); busy {
			p.busy++
		}
	}
	p.fresh = len(live)
	if len(active)+len(older) == 0 {
		return true
	}
	s.logForgetsLocked(m, p, active)
	s.logForgetsLocked(m, p, older)
	if !planted.ForgetKeepsEpoch {
		s.publishLocked(func(*state) {})
	}
	s.filling.Lock()
	cache := s.current.Load().cache
	for _, w := range p.words {
		cache.remove(w)
	}
	s.filling.Unlock()
	return true
}

// logForgetsLocked puts on record what words are forgotten of which segments,
// and makes them absent.
func (s *Store) logForgetsLocked(m *memtable, p *part, in map[segmentID][]word) {
	for id, words := range in {
		slices.Sort(words)
		words = slices.Compact(words)
		p.payload = beginAdds(p.payload[:0], id)
		for _, w := range words {
			p.payload = appendWord(p.payload, w)
		}
		m.cover(s.log.Next())
		p.marked = s.log.Append(recordForgets, p.payload)
		s.mu.registry.forget(m, id, words)
	}
}

// forget makes words absent that are in a segment, by a record of the
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
