package store

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// TestDigestVectors holds the two hashes to their published values: those of
// SipHash's reference code (its key is 00 01 .. 0f and its input 00 01 ..),
// and of xxHash's.
func TestDigestVectors(t *testing.T) {
	sip := hasher{hash: HashSipHash, k0: 0x0706050403020100, k1: 0x0f0e0d0c0b0a0908}
	input := make([]byte, 16)
	for i := range input {
		input[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5,
	} {
		if got := sip.digest(string(input[:n])); uint64(got) != want {
			t.Errorf("SipHash of %d bytes: got %016x, want %016x", n, got, want)
		}
	}
	xx := hasher{hash: HashXXH64, k0: 1, k1: 2}
	for key, want := range map[string]uint64{
		"":     0xef46db3751d8e999,
		"a":    0xd24ec4f1a98c6e5b,
		"as":   0x1c330fb2d66be179,
		"asd":  0x631c37ce72a97393,
		"asdf": 0x415872f599cea71e,
		"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02a2e85470d6fd96,
	} {
		if got := xx.digest(key); uint64(got) != want {
			t.Errorf("XXH64 of %q: got %016x, want %016x", key, got, want)
		}
	}
}

// collidingURLs have one XXH64 under every seed: whoever chooses the URLs can
// make a store with that hash lose one.
var collidingURLs = [2]string{
	"https://example.com/search?qq=xx00001G000123456789abcdefghijklmnX0000av00123456789abcdefghijklmn",
	"https://example.com/search?qq=xx0000a0xE0123456789abcdefghijklmn0D25N60y0123456789abcdefghijklmn",
}

func TestDigestCollision(t *testing.T) {
	for hash, want := range map[Hash]Answer{HashXXH64: Seen, HashSipHash: New} {
		w := inMemory(t)
		w.o.Hash = hash
		s := w.open()
		s.add(New, collidingURLs[0])
		s.add(want, collidingURLs[1])
	}
}

// unmix64 is the inverse of mix64.
func unmix64(x uint64) uint64 {
	unshift := func(x uint64, by int) uint64 {
		y := x
		for i := by; i < 64; i += by {
			y = x ^ y>>by
		}
		return y
	}
	inverse := func(a uint64) uint64 { // of an odd number, modulo 2^64
		x := a
		for range 6 {
			x *= 2 - a*x
		}
		return x
	}
	x = unshift(x, 31)
	x *= inverse(0x94d049bb133111eb)
	x = unshift(x, 27)
	x *= inverse(0xbf58476d1ce4e5b9)
	return unshift(x, 30)
}

// TestWordBijection checks that different digests have different words: mix64
// has an inverse.
func TestWordBijection(t *testing.T) {
	rng := seeded(t)
	values := []uint64{0, 1, 2, math.MaxUint64, 1 << 63}
	for range 100_000 {
		values = append(values, rng.Uint64())
	}
	key := rng.Uint64()
	for _, x := range values {
		if got := unmix64(mix64(x)); got != x {
			t.Fatalf("unmix64(mix64(%x)) is %x", x, got)
		}
		if w := wordOf(key, Digest(x)); w != 1 && unmix64(w)^key != x {
			t.Fatalf("word %x does not lead back to digest %x", w, x)
		}
	}
}

// TestWordZero checks the one digest whose word would mean "empty".
func TestWordZero(t *testing.T) {
	const key = 0x123456789abcdef
	if mix64(0) != 0 {
		t.Fatal("mix64(0) is not 0")
	}
	if w := wordOf(key, Digest(key)); w != 1 {
		t.Errorf("got word %x, want 1", w)
	}
	if w := wordOf(key, Digest(key+1)); w <= 1 {
		t.Errorf("got word %x", w)
	}
}

// TestWordIncarnations gives one digest another word in each incarnation, and
// in each store.
func TestWordIncarnations(t *testing.T) {
	seen := map[word]bool{}
	for _, mix := range []uint64{1, 2, math.MaxUint64} {
		h := hasher{mix: mix}
		for incarnation := range uint64(1000) {
			seen[wordOf(h.incarnationKey(incarnation), 42)] = true
		}
	}
	if len(seen) != 3000 {
		t.Errorf("got %d words, want 3000", len(seen))
	}
}

// TestWordUniform counts words in equal ranges: position = value needs them
// uniform, also for keys that differ little. The chi-square of 1023 degrees of
// freedom exceeds 1250 with a probability of one in a million.
func TestWordUniform(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := hasher{hash: HashSipHash, k0: rng.Uint64(), k1: rng.Uint64(), mix: rng.Uint64()}
	const ranges, n = 1024, 1 << 18
	var counts [ranges]int
	k := h.incarnationKey(1)
	for i := range n {
		counts[fastrange(wordOf(k, h.digest(key(i))), ranges)]++
	}
	chi := 0.0
	for _, c := range counts {
		d := float64(c) - n/ranges
		chi += d * d / (n / ranges)
	}
	if chi > 1250 {
		t.Errorf("chi-square is %.0f", chi)
	}
}

func TestFastrange(t *testing.T) {
	for _, n := range []uint64{1, 7, 1000, 1 << 40} {
		if fastrange(0, n) != 0 || fastrange(math.MaxUint64, n) != n-1 {
			t.Errorf("n=%d: the ends are %d and %d", n, fastrange(0, n), fastrange(math.MaxUint64, n))
		}
		last := uint64(0)
		for w := range uint64(1000) {
			at := fastrange(w<<54, n)
			if at < last {
				t.Fatalf("n=%d: not in word order", n)
			}
			last = at
		}
	}
}

// TestOdds checks the formulas that Stats and the documentation give for
// digests of 64 bits at digests of 32, where there is something to count: the
// next new key is wrongly seen with n/2^bits, and n keys have n^2/2^(bits+1)
// pairs with one digest. Both are within four standard deviations.
func TestOdds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	h := hasher{hash: HashSipHash, k0: rng.Uint64(), k1: rng.Uint64(), mix: rng.Uint64()}
	k := h.incarnationKey(1)
	const n, asked, bits = 400_000, 4_000_000, 32
	short := func(i int) uint32 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		return uint32(wordOf(k, h.digest(string(b[:]))) >> (64 - bits))
	}
	stored := make(map[uint32]struct{}, n)
	pairs := 0
	for i := range n {
		w := short(i)
		if _, ok := stored[w]; ok {
			pairs++
		}
		stored[w] = struct{}{}
	}
	wrong := 0
	for i := range asked {
		if _, ok := stored[short(n+i)]; ok {
			wrong++
		}
	}
	near := func(what string, got int, want float64) {
		t.Logf("%s: got %d, want %.1f", what, got, want)
		if math.Abs(float64(got)-want) > 4*math.Sqrt(want) {
			t.Errorf("%s: got %d, want %.1f", what, got, want)
		}
	}
	near("pairs", pairs, math.Ldexp(float64(n)*float64(n), -bits-1))
	near("wrongly seen", wrong, asked*math.Ldexp(n, -bits))

	w := inMemory(t)
	s := w.open()
	s.add(New, keys(0, 1000)...)
	x := s.Stats()
	if x.FalseSeenOdds != math.Ldexp(1000, -64) || x.AnyCollisionOdds != math.Ldexp(1e6, -65) {
		t.Errorf("Stats: got %g and %g", x.FalseSeenOdds, x.AnyCollisionOdds)
	}
}
