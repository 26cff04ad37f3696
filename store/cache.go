package store

import "sync/atomic"

// cache is a set-associative array of words known to be seen: found in Pebble
// in a live segment. One cache line is a set of eight words. It is exact: all
// 64 bits of a word are compared. It may forget, and never invents.
//
// Atomics only; safe for any number of goroutines.
type cache struct {
	words []uint64 // sets of cacheWays, one after the other
	sets  uint64
	// next picks the way that a full set gives up, one after the other: as
	// good as random, for sets are chosen by the word.
	next atomic.Uint32

	free func() error
}

const cacheWays = 8

// newCache makes a cache of about the given bytes, at least one set.
func newCache(bytes, base int64) (*cache, error) {
	sets := max(bytes/(cacheWays*8), 1)
	words, free, err := allocWords(int(sets) * cacheWays)
	if err != nil {
		return nil, err
	}
	return &cache{words: words, sets: uint64(sets), free: free}, nil
}

// set returns the cache line that the word belongs to.
func (c *cache) set(w word) []uint64 {
	i := fastrange(w, c.sets) * cacheWays
	return c.words[i : i+cacheWays : i+cacheWays]
}

// touch loads one word of the set, so that the cache misses of a batch
// overlap.
func (c *cache) touch(w word) uint64 { return atomic.LoadUint64(&c.set(w)[0]) }

// has reports whether the word is known to be seen.
func (c *cache) has(w word, now int64) bool {
	set := c.set(w)
	for i := range set {
		if atomic.LoadUint64(&set[i]) == w {
			return true
		}
	}
	return false
}

// add remembers a word. It is taken back by remove if what the caller rested
// on has changed meanwhile.
func (c *cache) add(w word, ends int64) {
	if ends != forever {
		return
	}
	set := c.set(w)
	for i := range set {
		switch atomic.LoadUint64(&set[i]) {
		case w:
			return
		case 0:
			if atomic.CompareAndSwapUint64(&set[i], 0, w) {
				return
			}
		}
	}
	atomic.StoreUint64(&set[c.next.Add(1)%cacheWays], w)
}

// remove forgets a word.
func (c *cache) remove(w word) {
	set := c.set(w)
	for i := range set {
		atomic.CompareAndSwapUint64(&set[i], w, 0)
	}
}

func (c *cache) bytes() int64 { return int64(len(c.words)) * 8 }

func (c *cache) worn(now int64) bool { return false }
