package store

// selfCheckEvery is how many words that the filters deny pass between two that
// are asked of Pebble all the same. At 3 us a segment that is below 1 ns a
// word and segment.
const selfCheckEvery = 4096

// selfCheck asks Pebble, now and then, for a word that the filters have denied.
// If it is there, a bit was lost: under a state that still is the current one,
// for a flush may have brought the word since. The page that denied it is then
// healed, and the answer is right.
func (s *Store) selfCheck(st *state, p *part, w word) (segmentID, error) {
	if p.unchecked++; p.unchecked < s.selfCheckEvery() {
		return 0, nil
	}
	p.unchecked = 0
	s.counters.selfChecks.Add(1)
	for i := range st.spans {
		sp := &st.spans[i]
		id, err := s.get(st, p, sp.of(p.incarnation.number), w)
		if err != nil {
			return 0, err
		}
		if id == 0 {
			continue
		}
		if s.current.Load() == st {
			s.lostBit(st.bitmap, w)
			s.lostBit(sp.filter, w)
		}
		return id, nil
	}
	return 0, nil
}

func (s *Store) selfCheckEvery() int {
	if n := s.opts.seams.SelfCheckEvery; n > 0 {
		return n
	}
	return selfCheckEvery
}

// lostBit has the page healed that denies a word which is there.
func (s *Store) lostBit(f *filter, w word) {
	if f.Filter == nil || f.Has(w) {
		return
	}
	f.MarkBad(w)
	s.counters.bitsLost.Add(1)
	s.opts.Logger.Error("store: a word is not in its filter; the page is set again", "path", f.path)
	s.kick()
}
