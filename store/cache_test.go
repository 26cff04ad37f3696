package store

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const second = int64(time.Second)

// cacheOf makes a cache of so many sets.
func cacheOf(t testing.TB, sets, base int64) *cache {
	t.Helper()
	c, err := newCache(sets*cacheWays*8, base)
	must(t, err)
	t.Cleanup(func() { must(t, c.free()) })
	if len(c.sets) != int(sets) {
		t.Fatalf("%d sets, want %d", len(c.sets), sets)
	}
	return c
}

// setCounts are powers of two, the numbers beside them, and others.
var setCounts = []int64{2, 3, 4, 5, 7, 8, 9, 1000, 4095, 4096, 4097, 1<<14 + 1}

// firstOf is the first word of a set, and the one whose tag may be 0.
func firstOf(set, sets int64) word {
	w, rest := bits.Div64(uint64(set), 0, uint64(sets))
	if rest > 0 {
		w++
	}
	return max(w, 1)
}

func lastOf(set, sets int64) word {
	if set == sets-1 {
		return math.MaxUint64
	}
	return firstOf(set+1, sets) - 1
}

// TestCacheExact adds more words than the cache holds: it forgets some and
// invents none, not even one that differs in a single bit.
func TestCacheExact(t *testing.T) {
	c := cacheOf(t, 1000, 0)
	words := randomWords(seeded(t), 20_000)
	added := map[word]bool{}
	for i, w := range words {
		c.add(w, []int64{forever, 1000 * second}[i%2])
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

// TestCacheNeighbours has words whose tags are as near to each other as can
// be: those beside each other, at both ends of a set, with the first stamps and
// the last.
func TestCacheNeighbours(t *testing.T) {
	for _, sets := range setCounts {
		c := cacheOf(t, sets, 0)
		unit := second << c.shift
		ends := []int64{unit, 2 * unit, forever - 1, forever}
		if c.never == 1 {
			ends = ends[3:]
		}
		for set := range sets {
			if set > 8 && set < sets-8 {
				continue
			}
			first, last := firstOf(set, sets), lastOf(set, sets)
			for _, w := range []word{first, first + 1, first + 2, last - 2, last - 1, last} {
				if at := fastrange(w, uint64(sets)); at != uint64(set) {
					t.Fatalf("%x is in set %d of %d, want %d", w, at, sets, set)
				}
				for _, end := range ends {
					alone(t, c, w, end)
				}
			}
		}
		empty(t, c)
	}
}

// alone adds a word: its neighbours are not there, and taking them out takes
// nothing.
func alone(t *testing.T, c *cache, w word, ends int64) {
	t.Helper()
	if c.has(w, 0) {
		t.Fatalf("%d sets: %x is there before it was added", len(c.sets), w)
	}
	c.add(w, ends)
	for other := w - 5; other != w+6; other++ {
		if other == 0 || other == w {
			continue
		}
		if c.has(other, 0) {
			t.Fatalf("%d sets: %x was added, and %x is there", len(c.sets), w, other)
		}
		c.remove(other)
	}
	if !c.has(w, 0) {
		t.Fatalf("%d sets: %x, added until %d, is not there", len(c.sets), w, ends)
	}
	c.remove(w)
}

// empty fails if there is an entry.
func empty(t *testing.T, c *cache) {
	t.Helper()
	for i := range c.sets {
		for _, e := range c.sets[i] {
			if e != 0 {
				t.Fatalf("set %d of %d has an entry, %x", i, len(c.sets), e)
			}
		}
	}
}

// TestCacheModel adds, removes and asks at random: a word that is there was
// added, last of all until after now, and not removed since.
func TestCacheModel(t *testing.T) {
	rng := seeded(t)
	for _, sets := range setCounts {
		base := rng.Int64N(math.MaxInt64 / 2)
		c := cacheOf(t, sets, base)
		unit := second << c.shift
		span := int64(c.never) * unit
		words := append(randomWords(rng, 200), 1, math.MaxUint64, math.MaxUint64-1)
		for range 100 { // of few sets, so that they displace each other
			words = append(words, firstOf(rng.Int64N(2), sets)+rng.Uint64N(40))
		}
		model := map[word]int64{} // until when
		at := func() int64 { return base + rng.Int64N(span+unit) }
		for range 50_000 {
			w := words[rng.IntN(len(words))]
			switch rng.IntN(8) {
			case 0, 1, 2:
				ends := at()
				if rng.IntN(4) == 0 {
					ends = forever
				}
				c.add(w, ends)
				if ends >= c.base+unit && (c.never > 1 || ends == forever) {
					model[w] = ends
				}
				if sure := min(ends, base+span) - 2*unit; sure > base && c.never > 1 && !c.has(w, c.coarse(sure)) {
					t.Fatalf("%d sets: %x, added until %d, is not there at %d", sets, w, ends, sure)
				}
			case 3:
				c.remove(w)
				delete(model, w)
			default:
				now := at()
				if ends, added := model[w]; c.has(w, c.coarse(now)) && (!added || now >= ends) {
					t.Fatalf("%d sets: %x is there at %d; added %v, until %d", sets, w, now, added, ends)
				}
			}
		}
	}
}

// TestCacheNeverLate adds a word until some time, and asks at another: it is
// there for no longer, and for almost as long.
func TestCacheNeverLate(t *testing.T) {
	rng := seeded(t)
	for _, sets := range []int64{2, 4, 5, 100, 4096, 5000, 1 << 20} {
		for _, base := range []int64{0, 1, second - 1, 1_790_000_000*second + 1, math.MaxInt64 / 2, math.MaxInt64 - 1} {
			c := cacheOf(t, sets, base)
			unit := second << c.shift
			for range 1_000_000 / (7 * 6) { // of so many caches
				w, ends := rng.Uint64()|1, min(after(rng, base), forever-1)
				now := max(base, []int64{after(rng, base), after(rng, ends), ends - rng.Int64N(3*unit)}[rng.IntN(3)])
				c.add(w, ends)
				has := c.has(w, c.coarse(now))
				if has && now >= ends {
					t.Fatalf("%d sets, base %d: added until %d, and there at %d", sets, base, ends, now)
				}
				// Unsigned: the differences may be more than an int64.
				left, gone := uint64(ends)-uint64(now), uint64(now)-uint64(base)
				if !has && now < ends && left >= uint64(unit) && c.never > 1 && gone < uint64(unit)*uint64(c.never-2) {
					t.Fatalf("%d sets, base %d: added until %d, and not there at %d", sets, base, ends, now)
				}
				c.remove(w)
			}
		}
	}
}

// after is a time at or after another, at all distances.
func after(rng *rand.Rand, at int64) int64 {
	d := rng.Uint64() >> rng.IntN(64)
	if room := uint64(forever) - uint64(at); d > room {
		return forever
	}
	return int64(uint64(at) + d)
}

// TestCacheForever: what never expires is there at every time, whatever the
// number of sets; and so is what expires before a clock that went back.
func TestCacheForever(t *testing.T) {
	base := 1_790_000_000 * second
	for _, sets := range setCounts {
		c := cacheOf(t, sets, base)
		c.add(1, forever)
		c.add(math.MaxUint64, forever)
		for _, now := range []int64{0, base - 1, base, base + second, math.MaxInt64 - 1, math.MaxInt64} {
			if !c.has(1, c.coarse(now)) || !c.has(math.MaxUint64, c.coarse(now)) {
				t.Errorf("%d sets: what never expires is not there at %d", sets, now)
			}
		}
		c.add(2, base+second<<c.shift)
		if got, want := c.has(2, c.coarse(0)), sets >= 4; got != want {
			t.Errorf("%d sets: before the base an entry that expires is there: %v, want %v", sets, got, want)
		}
	}
}

// TestCacheTiny makes caches that are too small for stamps.
func TestCacheTiny(t *testing.T) {
	for _, bytes := range []int64{0, 1, 64, 127, 128, 3 * 64} {
		c, err := newCache(bytes, 0)
		must(t, err)
		c.add(7, 3600*second)
		c.add(8, math.MaxInt64-1)
		if c.has(7, 0) || c.has(8, 0) {
			t.Errorf("%d bytes: what expires is there, without room for when", bytes)
		}
		c.add(7, forever)
		c.add(7, 3600*second) // nothing: it would be there for too short, or too long
		if !c.has(7, c.coarse(math.MaxInt64)) {
			t.Errorf("%d bytes: what never expires is not there", bytes)
		}
		if c.worn(math.MaxInt64) {
			t.Errorf("%d bytes: worn, without a stamp", bytes)
		}
	}
}

// TestCacheWorn: half of the stamps is never less than half an hour.
func TestCacheWorn(t *testing.T) {
	base := 1_790_000_000*second + 12345
	for _, x := range []struct{ sets, seconds int64 }{
		{4, 2048}, {7, 2048}, {1000, 2048}, {4095, 2048}, {4096, 2048}, {8191, 2048}, {8192, 4096}, {1 << 20, 1 << 19},
	} {
		c := cacheOf(t, x.sets, base)
		at := base - base%(second<<c.shift) + x.seconds*second
		if c.worn(0) || c.worn(base) || c.worn(at-1) || !c.worn(at) || !c.worn(math.MaxInt64) {
			t.Errorf("%d sets: not worn from %d s on", x.sets, x.seconds)
		}
	}
}

// TestCacheRange has the TTLs of crawls, in caches of the default size and of
// the smallest: none is cut short before the cache is worn.
func TestCacheRange(t *testing.T) {
	const hour, day = 3600 * second, 24 * 3600 * second
	base := 1_790_000_000*second + 12345
	for _, x := range []struct {
		sets, worn int64
	}{
		{MinMemoryBytes * cacheShare / 64 / 64, 2048 * second},
		{defaultMemoryBytes * cacheShare / 64 / 64, 1 << 19 * second},
	} {
		c := cacheOf(t, x.sets, base)
		start := base - base%second
		for i, ttl := range []int64{second, 5 * second, 60 * second, hour, day, 90 * day, 10 * 365 * day} {
			w := word(i + 1)
			for _, from := range []int64{start, start + x.worn - second} {
				ends := from + ttl // a whole second, as the end of a time span
				c.add(w, ends)
				last := min(ends-1, start+x.worn-1)
				if !c.has(w, c.coarse(last)) {
					t.Errorf("%d sets: ttl %v is not there before its end and the cache's", x.sets, time.Duration(ttl))
				}
				if c.has(w, c.coarse(ends)) {
					t.Errorf("%d sets: ttl %v is there at its end", x.sets, time.Duration(ttl))
				}
			}
		}
	}
}

// TestCacheReplace adds a word again, until another time.
func TestCacheReplace(t *testing.T) {
	c := cacheOf(t, 4096, 0)
	const a, b, other = 1, 2, 3 // of one set
	there := func(w word, at int64, want bool) {
		t.Helper()
		if got := c.has(w, c.coarse(at*second)); got != want {
			t.Errorf("%d is there at %d: %v", w, at, got)
		}
	}
	c.add(a, 100*second)
	c.add(b, 50*second)
	there(b, 49, true)
	there(b, 50, false)
	c.remove(a) // leaves a way free before that of b, or behind it
	c.add(b, 70*second)
	there(b, 69, true)
	there(b, 70, false)
	c.add(b, 60*second)
	there(b, 60, false)
	c.add(b, forever)
	there(b, 4000, true)
	c.add(b, second/2) // the past
	there(b, 4000, true)
	c.add(b, 60*second)
	c.add(other, 60*second)
	there(b, 60, false)
	c.remove(b)
	there(b, 0, false)
	there(other, 59, true)
	c.remove(other)
	empty(t, c)
}

func TestCacheRemove(t *testing.T) {
	c := cacheOf(t, 4096, 0)
	for w := word(1); w <= cacheWays; w++ { // a full set
		c.add(w, int64(w)*1000*second)
		c.add(w, int64(w)*1000*second) // once is enough
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
	// Two that add a word at once may leave it twice, one with each stamp.
	set, last := c.set(99)
	set[0], set[5] = last-1, last-2
	c.remove(99)
	if c.has(99, 0) {
		t.Error("a word that was there more than once is still there")
	}
}

// TestCacheAtOnce adds, removes and asks at the same time: nothing is there
// that was not added, or after its end.
func TestCacheAtOnce(t *testing.T) {
	for _, sets := range []int64{4, 17, 128} {
		t.Run(fmt.Sprint(sets), func(t *testing.T) { cacheAtOnce(t, cacheOf(t, sets, 0)) })
	}
}

func cacheAtOnce(t *testing.T, c *cache) {
	rng := seeded(t)
	unit := second << c.shift
	words := randomWords(rng, 500)
	// The i-th word is added until several times, of which this is the last.
	end := func(i int) stamp { return 1 + stamp(i)%(c.never-1) }
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			for range 20 {
				for i, w := range words {
					c.add(w, int64(end(i))*unit)
					c.touch(w)
					c.add(w, (1+int64(g))*int64(end(i))*unit/2)
					if i%3 == g {
						c.remove(w)
					}
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				for i, w := range words {
					if c.has(w, end(i)) {
						t.Errorf("%x is there at its end", w)
					}
					if c.has(w-1, 0) { // even, so not one of them
						t.Errorf("%x was never added", w-1)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, w := range words {
		c.remove(w)
		if c.has(w, 0) {
			t.Errorf("%x is there after it was removed", w)
		}
	}
	empty(t, c)
}

// TestCacheRemoveAgainstAdd removes a word while others add it with ever other
// stamps, and take it back when they see that it was removed, as a look does.
func TestCacheRemoveAgainstAdd(t *testing.T) {
	c := cacheOf(t, 4096, 0)
	const w = 12345
	for range 500 {
		var removed atomic.Bool
		var ready, wg sync.WaitGroup
		for g := range 2 {
			ready.Add(1)
			wg.Go(func() {
				for i := 1; !removed.Load(); i++ {
					c.add(w, int64(1+(i+g*1000)%4000)*second)
					if removed.Load() {
						c.remove(w)
					}
					if i == 1 {
						ready.Done()
					}
					runtime.Gosched()
				}
			})
		}
		ready.Wait()
		removed.Store(true)
		c.remove(w)
		wg.Wait()
		empty(t, c)
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
