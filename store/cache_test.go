package store

import (
	"sync"
	"testing"
)

// TestCacheExact adds more words than the cache holds: it forgets some and
// invents none, not even one that differs in a single bit.
func TestCacheExact(t *testing.T) {
	c, err := newCache(64<<10, 0)
	must(t, err)
	rng := seeded(t)
	words := randomWords(rng, 20_000)
	added := map[word]bool{}
	for _, w := range words {
		c.add(w, forever)
		added[w] = true
		if !c.has(w, 0) {
			t.Fatalf("%x is not there after it was added", w)
		}
	}
	hits := 0
	for _, w := range words {
		if c.has(w, 0) {
			hits++
		}
		for bit := range 64 {
			if other := w ^ 1<<bit; other != 0 && c.has(other, 0) && !added[other] {
				t.Fatalf("%x was never added", other)
			}
		}
	}
	if want := int(c.bytes() / 8); hits < want*9/10 || hits > want {
		t.Errorf("%d of the words are there, and it holds %d", hits, want)
	}
}

func TestCacheRemove(t *testing.T) {
	c, err := newCache(0, 0) // one set
	must(t, err)
	for w := word(1); w <= cacheWays; w++ {
		c.add(w, forever)
		c.add(w, forever) // once is enough
	}
	for w := word(1); w <= cacheWays; w++ {
		if !c.has(w, 0) {
			t.Errorf("%d is not there", w)
		}
	}
	c.remove(3)
	c.remove(99)
	if c.has(3, 0) || !c.has(4, 0) || c.has(99, 0) {
		t.Error("remove has taken another word, or none")
	}
	c.add(99, forever)
	if !c.has(99, 0) || !c.has(1, 0) {
		t.Error("the free way was not taken")
	}
}

// TestCacheAtOnce adds, removes and asks at the same time.
func TestCacheAtOnce(t *testing.T) {
	c, err := newCache(1<<10, 0)
	must(t, err)
	rng := seeded(t)
	words := randomWords(rng, 1000)
	known := map[word]bool{}
	for _, w := range words {
		known[w] = true
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				for _, w := range words {
					c.add(w, forever)
					c.has(w, 0)
					c.touch(w)
					c.remove(w)
				}
			}
		})
	}
	wg.Wait()
	for _, w := range c.words {
		if w != 0 && !known[w] {
			t.Errorf("%x was never added", w)
		}
	}
}

// TestCacheTakenBack has the state change between Pebble's answer and the
// cache's: the word does not stay.
func TestCacheTakenBack(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, key(1))
	s.flush()
	st := s.current.Load()
	s.mu.Lock()
	s.publishLocked(func(*state) {})
	s.mu.Unlock()
	p := &part{incarnation: s.core.current.Load()}
	id, err := s.get(st, p, st.spans[0].segments, s.word(key(1)))
	if id == 0 || err != nil {
		t.Errorf("get: %v, %v", id, err)
	}
	if s.current.Load().cache.has(s.word(key(1)), 0) {
		t.Error("a word found under another state stays in the cache")
	}
	s.has(Seen, key(1))
	if !s.current.Load().cache.has(s.word(key(1)), 0) {
		t.Error("a word found in Pebble is not in the cache")
	}
}
