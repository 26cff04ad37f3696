package store

import (
	"math/bits"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/dchest/siphash"
)

// A Digest is the fixed-width hash of a key: the identity that a store keeps.
// It means something in the store that made it only.
type Digest uint64

// A word is the keyed 64-bit form of (namespace incarnation, digest): what is
// stored, and where. Words are uniform, so that position = value in every
// structure that is laid out in word order.
//
// Word 0 does not exist: it means "empty" in the memtable and in the cache.
type word = uint64

// hasher turns keys into digests and digests into words. Read-only after it
// is made.
type hasher struct {
	hash   Hash
	k0, k1 uint64 // SipHash's key
	mix    uint64 // key of the words
}

// digest hashes a key. 31 ns for a URL of 70 bytes with SipHash, 10 with
// XXH64; see BenchmarkDigest.
func (h *hasher) digest(key string) Digest {
	if h.hash == HashXXH64 {
		return Digest(xxhash.Sum64String(key))
	}
	// SipHash only reads the slice, and does not keep it.
	b := unsafe.Slice(unsafe.StringData(key), len(key))
	return Digest(siphash.Hash(h.k0, h.k1, b))
}

// incarnationKey is what the words of one incarnation of a namespace are
// mixed with. It is made once for a namespace and not for a key.
func (h *hasher) incarnationKey(incarnation uint64) uint64 {
	return mix64(h.mix + incarnation*0x9e3779b97f4a7c15)
}

// wordOf is a bijection of the digest for each incarnation but for the one
// digest whose word would be 0 and becomes 1: two digests in 2^64 share a
// word, which adds nothing that a reader could notice to the odds of two keys
// sharing a digest.
func wordOf(incarnationKey uint64, d Digest) word {
	w := mix64(uint64(d) ^ incarnationKey)
	if w == 0 {
		return 1
	}
	return w
}

// mix64 is the finalizer "variant 13" of David Stafford, "Better Bit Mixing -
// Improving on MurmurHash3's 64-bit Finalizer" (2011): a bijection in which
// each bit of the input flips each bit of the output with a probability near
// one half.
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x
}

// fastrange maps a uniform word to [0, n), in word order (Daniel Lemire,
// "Fast Random Integer Generation in an Interval", ACM TOMACS 2019).
func fastrange(w word, n uint64) uint64 {
	hi, _ := bits.Mul64(w, n)
	return hi
}
