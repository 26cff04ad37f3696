package main

// What else could answer "is this URL new?", in bytes that are computed from
// how it stores a key, not quoted.

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/dustin/go-humanize"
)

// A rival is one other way to store the URLs of a plan.
type rival struct {
	Name        string  `json:"name"`
	MemoryBytes int64   `json:"memory_bytes"`
	PerURL      float64 `json:"bytes_per_url"`
	// Filters is how many a lookup asks, 0 for what is no Bloom filter.
	Filters int `json:"filters,omitempty"`
	// LostURLs is how many of the URLs are expected to be taken for seen when
	// they are new, while all of them are added: pages that are never fetched.
	LostURLs float64 `json:"lost_urls"`
	// Expires reports whether one URL can be new again after a TTL.
	Expires bool `json:"expires"`
}

// Lengths of the keys that crawlers use, in bytes.
const (
	digestBytes = 8
	md5Bytes    = 32 // in hexadecimal
)

// falseRates are those that the Bloom filters are made for.
var falseRates = []float64{0.01, 0.001, 0.0001}

// rivals are the other ways for n URLs of so many bytes. RedisBloom's chain
// begins with a filter for start of them.
func rivals(n, urlBytes, start int64) (all []rival) {
	add := func(r rival) {
		r.PerURL = float64(r.MemoryBytes) / float64(n)
		all = append(all, r)
	}
	r := redis{quantum: 8}
	for _, key := range []struct {
		name  string
		bytes int64
		lost  float64
	}{
		{"8-byte digests", digestBytes, math.Ldexp(float64(n)*float64(n), -65)},
		{"MD5 in hexadecimal", md5Bytes, math.Ldexp(float64(n)*float64(n), -129)},
		{"whole URLs", urlBytes, 0},
	} {
		add(rival{Name: "Redis SET, " + key.name, MemoryBytes: r.set(n, key.bytes), LostURLs: key.lost})
		add(rival{Name: "Redis SET NX EX, " + key.name, MemoryBytes: r.expiring(n, key.bytes), LostURLs: key.lost, Expires: true})
	}
	for _, rate := range falseRates {
		c := bloomChain{rate: rate, start: start}.of(n)
		add(rival{
			Name:        fmt.Sprintf("RedisBloom, %s from %s", percent(rate), humanize.Comma(start)),
			MemoryBytes: c.bytes, Filters: c.filters, LostURLs: c.lost,
		})
	}
	for _, rate := range falseRates {
		add(rival{
			Name:        "Bloom filter of this size, " + percent(rate),
			MemoryBytes: int64(math.Ceil(bloomBits(rate) * float64(n) / 8)), Filters: 1,
			LostURLs: float64(n) * meanRate(rate, 1),
		})
	}
	return all
}

// redis is Redis 7.0 with an allocator whose smallest size classes are so many
// bytes apart: 8 in the jemalloc that comes with it (deps/Makefile,
// --with-lg-quantum=3), 16 in jemalloc as Debian has it.
type redis struct{ quantum int64 }

const (
	dictEntryBytes = 24 // src/dict.h: dictEntry, a key, a value and the next
	bucketBytes    = 8  // src/dict.h: dict.ht_table, pointers to them
)

// set is a hash table of members (src/t_set.c: setTypeAdd): a set that is not of
// integers, and has more members than a listpack takes.
func (r redis) set(n, keyBytes int64) int64 {
	return r.dict(n) + n*r.sds(keyBytes)
}

// expiring is a key with an end (src/db.c: dbAdd, setExpire): two tables, of keys
// and of ends, that share the key. The value is a small number, for which all
// keys share one object (src/object.c: tryObjectEncoding).
func (r redis) expiring(n, keyBytes int64) int64 {
	return 2*r.dict(n) + n*r.sds(keyBytes)
}

// dict is a table of n entries at rest: it has a power of two of buckets, and
// grows when there are more entries (src/dict.c: _dictExpandIfNeeded).
func (r redis) dict(n int64) int64 {
	buckets := int64(1) << bits.Len64(uint64(max(n, 4)-1))
	return buckets*bucketBytes + n*r.class(dictEntryBytes)
}

// sds is a string (src/sds.h: sdshdr5 up to 31 bytes, sdshdr8 and sdshdr16), with
// a zero byte behind it.
func (r redis) sds(n int64) int64 {
	header := int64(1)
	switch {
	case n >= 1<<16:
		header = 9
	case n >= 1<<8:
		header = 5
	case n >= 1<<5:
		header = 3
	}
	return r.class(header + n + 1)
}

// class is the size class of an allocation: multiples of the quantum up to eight
// of 16 bytes, or of 8, and from there on four for each doubling (jemalloc(3),
// "IMPLEMENTATION NOTES").
func (r redis) class(n int64) int64 {
	step := r.quantum
	if n > 8*r.quantum {
		step = int64(1) << (bits.Len64(uint64(n-1)) - 3)
	}
	return (n + step - 1) / step * step
}

// bloomBits is what a Bloom filter takes for each of the items that it is made
// for: 1.44 * log2(1/rate).
func bloomBits(rate float64) float64 { return -math.Log(rate) / (math.Ln2 * math.Ln2) }

// meanRate is the mean rate of false positives of a filter made for a rate, while
// the given part of its items is added.
func meanRate(rate, part float64) float64 {
	const steps = 1000
	probes := math.Ceil(-math.Log2(rate))
	sum := 0.0
	for i := range steps {
		load := part * (float64(i) + 0.5) / steps
		sum += math.Pow(-math.Expm1(-probes*load/bloomBits(rate)), probes)
	}
	return sum / steps
}

// A bloomChain is what BF.RESERVE makes, and BF.ADD where there is none: filters,
// each for twice as many items (EXPANSION 2) at half the rate as the one before,
// and the first of them for half the rate that was asked for (RedisBloom,
// docs/commands/bf.reserve.md; src/sb.c: SB_NewChain, SBChain_Add). A lookup
// asks all of them.
type bloomChain struct {
	rate  float64
	start int64
}

// chainOf is a chain that has taken in some items.
type chainOf struct {
	bytes   int64
	filters int
	lost    float64
}

const (
	bloomExpansion  = 2
	bloomTightening = 0.5
)

func (b bloomChain) of(n int64) (c chainOf) {
	before := 0.0 // rate of the filters that are full
	rate, capacity := b.rate*bloomTightening, float64(b.start)
	for left := float64(n); left > 0; c.filters++ {
		items := min(left, capacity)
		c.bytes += int64(math.Ceil(capacity*bloomBits(rate)/64)) * 8
		c.lost += items * (before + meanRate(rate, items/capacity))
		before += rate
		left -= items
		rate, capacity = rate*bloomTightening, capacity*bloomExpansion
	}
	return c
}

func percent(rate float64) string { return fmt.Sprintf("%g %%", 100*rate) }
