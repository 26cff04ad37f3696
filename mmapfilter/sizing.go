package mmapfilter

import (
	"fmt"
	"math"
	"math/bits"
)

// The geometry that ParamsFor gives.
//
// At 12 bits a word a block of 512 bits holds 42.7 words on average, and the
// rate of a blocked filter at capacity is (BlockedRate)
//
//	probes    5        6        7        8        9
//	rate      0.523 %  0.441 %  0.409 %  0.407 %  0.426 %
//
// Eight is the minimum, by half a percent of the rate. Seven is taken: seven
// times 9 bits come out of one multiplication, a hit costs one probe less, a
// filter that is filled past its capacity does better (7.7 against 9.1 % at
// twice of it), and the loss at capacity is 0.00002 of all lookups.
const (
	// BitsPerWord is what a filter has for each word of its capacity.
	BitsPerWord = 12
	// DefaultProbes is the number of bits that a word sets.
	DefaultProbes = 7
)

// Bounds of Params, for what is asked and for what a file says alike.
const (
	// MaxBlocks bounds a filter at 256 GiB, which is 183e9 words.
	MaxBlocks = 1 << 32
	// MaxProbes is how many 9-bit positions one 64-bit hash gives.
	MaxProbes = 7
	// BlocksPerPage is the number of blocks in a page of 4096 bytes. Blocks
	// come in whole pages.
	BlocksPerPage = pageBytes / blockBytes
)

const (
	blockBytes = 64
	blockBits  = 8 * blockBytes
	blockWords = blockBytes / 8
)

// Params is the geometry of a filter. It is fixed when the file is made.
type Params struct {
	// Blocks is the number of 64-byte blocks: a multiple of BlocksPerPage, at
	// most MaxBlocks.
	Blocks uint64
	// Probes is the number of bits that a word sets: 1 to MaxProbes.
	Probes uint32
	// Seed sets filters apart: that a word misleads one says nothing about
	// another of a different seed. (Measured on seeds that differ in one bit:
	// up to 5 % likelier than by chance; on random ones: as by chance.)
	Seed uint64
	// Capacity is the number of words that the filter was made for, from 1
	// to one for each bit. More may be set; the rate of false positives grows.
	Capacity uint64
}

// ParamsFor returns the geometry for a capacity, in words: 12 bits for each,
// rounded up to whole pages. A capacity of 0 is taken for 1, and one beyond
// what MaxBlocks hold is cut to that.
func ParamsFor(capacity, seed uint64) Params {
	const most = MaxBlocks * blockBits / BitsPerWord
	capacity = min(max(capacity, 1), most)
	const pageBits = BlocksPerPage * blockBits
	pages := (capacity*BitsPerWord + pageBits - 1) / pageBits
	return Params{
		Blocks:   pages * BlocksPerPage,
		Probes:   DefaultProbes,
		Seed:     seed,
		Capacity: capacity,
	}
}

// validate checks p against the bounds. The error is ErrParams.
func (p Params) validate() error {
	_, err := p.check()
	return err
}

// check is validate that also names the field at fault by its offset within
// an encoded header.
func (p Params) check() (offset int, err error) {
	switch {
	case p.Blocks == 0 || p.Blocks > MaxBlocks || p.Blocks%BlocksPerPage != 0:
		return offBlocks, fmt.Errorf("%w: %d blocks, want a multiple of %d up to %d",
			ErrParams, p.Blocks, BlocksPerPage, uint64(MaxBlocks))
	case p.Probes == 0 || p.Probes > MaxProbes:
		return offProbes, fmt.Errorf("%w: %d probes, want 1 to %d", ErrParams, p.Probes, MaxProbes)
	case p.Capacity == 0 || p.Capacity > p.Bits():
		return offCapacity, fmt.Errorf("%w: capacity of %d words, want 1 to %d", ErrParams, p.Capacity, p.Bits())
	}
	return 0, nil
}

// Bits returns the number of bits of the filter.
func (p Params) Bits() uint64 { return p.Blocks * blockBits }

// FileBytes returns the size of the filter's file: the header's page, the
// blocks, and eight bytes for each page of them.
func (p Params) FileBytes() int64 {
	return int64(pageBytes + p.Blocks*blockBytes + p.Blocks/BlocksPerPage*8)
}

// BlockedRate returns the expected rate of false positives of a filter that
// holds n words.
//
// The source is Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient
// Bloom Filters" (WEA 2007), section 3: the number of words in a block is
// Poisson distributed about n/Blocks, and a block of i words is a standard
// filter of 512 bits, so the rate is the mixture
//
//	sum over i of Poisson(n/Blocks, i) * (1 - (1 - 1/512)^(i*Probes))^Probes
func BlockedRate(p Params, n uint64) float64 {
	if n == 0 || p.Blocks == 0 {
		return 0
	}
	lambda := float64(n) / float64(p.Blocks)
	k := float64(p.Probes)
	if lambda > 1e5 {
		return inBlockRate(lambda, k) // 1 - 1e-85 at most: the sum would be long
	}
	// All but 1e-30 of the distribution lies within 12 deviations; the
	// constant covers small means, where it is skewed.
	spread := 12*math.Sqrt(lambda) + 60
	lo, hi := math.Floor(max(0, lambda-spread)), math.Ceil(lambda+spread)
	rate, logLambda := 0.0, math.Log(lambda)
	for i := lo; i <= hi; i++ {
		lgamma, _ := math.Lgamma(i + 1)
		weight := math.Exp(i*logLambda - lambda - lgamma)
		rate += weight * inBlockRate(i, k)
	}
	return min(rate, 1)
}

// StandardRate returns the expected rate of false positives of a filter of as
// many bits whose probes are not confined to a block (Bloom, "Space/Time
// Trade-offs in Hash Coding with Allowable Errors", CACM 1970). What
// BlockedRate is above it is the price of one cache miss instead of seven.
func StandardRate(p Params, n uint64) float64 {
	if n == 0 || p.Blocks == 0 {
		return 0
	}
	k := float64(p.Probes)
	return math.Pow(-math.Expm1(-k*float64(n)/float64(p.Bits())), k)
}

// inBlockRate is the rate of a standard filter of one block that holds n
// words, with k probes.
func inBlockRate(n, k float64) float64 {
	return math.Pow(-math.Expm1(n*k*math.Log1p(-1.0/blockBits)), k)
}

// blockOf returns the block of a word: floor(word * blocks / 2^64), so that
// ascending words have ascending blocks (Lemire, "Fast Random Integer
// Generation in an Interval", 2019).
func blockOf(word, blocks uint64) uint64 {
	b, _ := bits.Mul64(word, blocks)
	return b
}

// mixer is an odd constant without structure: 2^64 over the golden ratio.
const mixer = 0x9e3779b97f4a7c15

// probesOf returns the positions of a word's bits within its block: MaxProbes
// times 9 bits, the first in the low bits; bit 63 is not used. A position may
// occur more than once, and does where there are fewer probes.
//
// The words of a block share their high bits, so the positions have to come
// from the low ones: the low half of the product carries these upwards, the
// high half carries them down, and their sum modulo 2 depends on all of them.
func probesOf(word, seed uint64, probes uint32) uint64 {
	hi, lo := bits.Mul64(word^seed, mixer)
	h := hi ^ lo
	if probes != MaxProbes {
		return repeatFirst(h, probes)
	}
	return h
}

// repeatFirst replaces the positions behind the first probes by the first, so
// that whoever takes all of them sets and tests no other bits.
func repeatFirst(h uint64, probes uint32) uint64 {
	first := h % blockBits
	for i := probes; i < MaxProbes; i++ {
		h = h&^((blockBits-1)<<(9*i)) | first<<(9*i)
	}
	return h
}

// Block returns the block of a word.
func (p Params) Block(word uint64) uint64 { return blockOf(word, p.Blocks) }

// Positions returns the positions of a word's bits within its block, MaxProbes
// of them, 9 bits each, the first in the low bits. Some may be the same.
func (p Params) Positions(word uint64) uint64 { return probesOf(word, p.Seed, p.Probes) }
