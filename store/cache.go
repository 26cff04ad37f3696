package store

import (
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"

	"dedupstore/internal/planted"
)

// cache is a set-associative array of words known to be seen: found in Pebble
// in a live segment. One cache line is a set of eight entries. It may forget,
// and never invents.
//
// An entry is a word's tag with a stamp in its low bits, and yet exact: all 64
// bits of a word are compared. The word's set is the upper half of word * sets.
// In the lower half the words of one set are sets apart, so they differ above
// its low k bits too, where 2^k <= sets: those bits are the stamp's, the rest is
// the tag.
//
// Atomics only; safe for any number of goroutines.
type cache struct {
	sets [][cacheWays]uint64 // at least two; an entry of 0 is empty
	// next picks the way that a full set gives up, one after the other: as
	// good as random, for sets are chosen by the word.
	next atomic.Uint32

	never stamp // the last stamp: all its k bits
	base  int64 // store time of stamp 0
	shift int   // a stamp's unit is 1<<shift seconds

	free func() error
}

const cacheWays = 8

// A stamp is a store time as one cache has it: units since the cache's base,
// rounded down. An entry's stamp is never 0, which is what is empty. At its
// stamp an entry is a miss, and so too early by less than a unit, not too late.
//
// The unit is a second, for TTLs of seconds as for those of years: time spans
// end at whole seconds, so that rounding takes nothing. What the few bits cost
// is that a cache is worn after 2^(k-1) seconds, and the next begins empty: 6
// days for 1 Mi sets (64 MiB), where an hour's TTL does not notice and an
// entry of 90 days is found in Pebble again once in 6; 34 minutes for the 4096
// sets of the smallest store. The larger a cache, the rarer it is, so it costs
// the same whatever the size: at most 32 Gets a second, if every entry is asked
// for again. A coarser unit would make them fewer, and take from each entry.
//
// Fewer sets than that have a coarser unit, or they would be worn at once.
type stamp uint64

// secondBits are how many bits a stamp in seconds has at least.
const secondBits = 12

// newCache makes a cache of about the given bytes, at least two sets: the
// stamps of one would have no bits. The base is the store time of now.
func newCache(bytes, base int64) (*cache, error) {
	n := max(bytes/(cacheWays*8), 2)
	words, free, err := allocWords(int(n) * cacheWays)
	if err != nil {
		return nil, err
	}
	k := bits.Len64(uint64(n)) - 1
	c := &cache{
		// One check of bounds instead of two: 10 % of has.
		sets:  unsafe.Slice((*[cacheWays]uint64)(unsafe.Pointer(unsafe.SliceData(words))), n),
		never: 1<<k - 1,
		shift: max(secondBits-k, 0),
		free:  free,
	}
	// Whole units, as the ends of time spans are.
	c.base = base - base%int64(time.Second<<c.shift)
	return c, nil
}

// coarse rounds a store time down to a stamp. It is the same for all words of a
// batch, and every time at or past the end of the range is the last but one.
func (c *cache) coarse(at int64) stamp {
	if at <= c.base {
		return 0
	}
	// The difference of two int64 is a uint64. A constant divides by
	// multiplication.
	units := (uint64(at) - uint64(c.base)) / uint64(time.Second) >> c.shift
	return min(stamp(units), c.never-1)
}

// worn reports that half of the stamps have passed: before the rest does, and
// nothing that expires can be added any more, a new cache should replace it.
func (c *cache) worn(now int64) bool { return c.coarse(now) > c.never/2 }

// set returns the cache line that the word belongs to, and the last entry that
// the word can have there, which is the one that never expires.
func (c *cache) set(w word) (set *[cacheWays]uint64, last uint64) {
	hi, lo := bits.Mul64(w, uint64(len(c.sets)))
	return &c.sets[hi], lo | uint64(c.never)
}

// touch loads one entry of the set, so that the cache misses of a batch
// overlap.
func (c *cache) touch(w word) uint64 {
	set, _ := c.set(w)
	return atomic.LoadUint64(&set[0])
}

// has reports whether the word is known to be seen, and not to have expired by
// now, which coarse has made of a store time.
func (c *cache) has(w word, now stamp) bool {
	set, last := c.set(w)
	// Another tag makes the difference larger than any stamp. With the word's
	// own it is how far before never the entry's stamp is.
	live := uint64(c.never - now)
	for i := range set {
		if atomic.LoadUint64(&set[i])^last < live {
			return true
		}
	}
	return false
}

// add remembers that a word is seen until a store time, instead of what it knew
// of the word; forever is never forgotten for its age. What is over within the
// base's unit is not added. The caller takes it back with remove if what it
// rested on has changed meanwhile.
//
// Of two that add a word at once, either may be the one that stays. If the word
// was not there, both may.
func (c *cache) add(w word, ends int64) {
	until := c.never
	if ends != forever {
		until = c.coarse(ends)
		if planted.StampsLate {
			until = c.coarse(ends + int64(time.Second<<c.shift) - 1)
		}
	}
	if until == 0 {
		return
	}
	set, last := c.set(w)
	entry := last - uint64(c.never-until)
	free := -1
	for i := range set {
		e := atomic.LoadUint64(&set[i])
		switch {
		case e^last < uint64(c.never):
			if e != entry {
				// Who comes between adds or removes it at the same time.
				atomic.CompareAndSwapUint64(&set[i], e, entry)
			}
			return
		case e == 0:
			free = i
		}
	}
	if free < 0 || !atomic.CompareAndSwapUint64(&set[free], 0, entry) {
		atomic.StoreUint64(&set[c.next.Add(1)%cacheWays], entry)
	}
}

// remove forgets a word, whatever its stamp is and becomes meanwhile.
func (c *cache) remove(w word) {
	set, last := c.set(w)
	for i := range set {
		for {
			e := atomic.LoadUint64(&set[i])
			if e^last >= uint64(c.never) || atomic.CompareAndSwapUint64(&set[i], e, 0) {
				break
			}
		}
	}
}

func (c *cache) bytes() int64 { return int64(len(c.sets)) * cacheWays * 8 }
