package counting

import (
	"math/bits"

	"dedupstore/internal/planted"
)

const (
	blockBits  = 512
	blockWords = blockBits / 64     // of bits
	countWords = blockBits * 4 / 64 // of counters
	pageBlocks = BlocksPerPage
	pageWords  = pageBlocks * countWords
	pageBytes  = pageWords * 8

	maxCount = 15 // of a counter; from there on nobody knows
	lowBits  = 0x1111111111111111
)

// A page is the counters of 64 blocks, which is a page of bits.
type page [pageWords]uint64

// block returns the counters of a word's block, which is one of the page's.
func (p *page) block(g Geometry, word uint64) *[countWords]uint64 {
	b, _ := bits.Mul64(word, g.Blocks)
	return (*[countWords]uint64)(p[b%pageBlocks*countWords:])
}

// mixer is that of mmapfilter, as is the whole of positions: a counter that is
// not that of the bit would be worth nothing. A test compares them.
const mixer = 0x9e3779b97f4a7c15

// positions returns the positions of a word's bits within its block, 9 bits
// for each probe, the first in the low bits. A position that occurs twice
// counts twice.
func (g Geometry) positions(word uint64) uint64 {
	hi, lo := bits.Mul64(word^g.Seed, mixer)
	return hi ^ lo
}

// slot returns where in a block the counter of the position in the low 9 bits
// of h is: in which uint64, and how far up.
func slot(h uint64) (index, shift uint64) {
	return h>>4&28 | h&3, h & 60
}

// add counts each of the words once more.
func (p *page) add(g Geometry, words []uint64) {
	for _, w := range words {
		addFirst(p.block(g, w), g.positions(w), g.Probes)
	}
}

// addFirst counts the first n positions of h once more.
func addFirst(block *[countWords]uint64, h uint64, n uint32) {
	for ; n > 0; n-- {
		i, shift := slot(h)
		if c := block[i]; c>>shift&maxCount != maxCount {
			block[i] = c + 1<<shift
		}
		h >>= 9
	}
}

// take counts the word once less, unless a counter is 0: then it was not there,
// and what was taken so far is put back, for it was another word's.
func (p *page) take(g Geometry, word uint64) bool {
	block, h := p.block(g, word), g.positions(word)
	rest := h
	for n := range g.Probes {
		i, shift := slot(rest)
		switch c := block[i]; c >> shift & maxCount {
		case 0:
			// What was taken from is below 15 now, and what was at 15 still
			// is, so that adding is the reverse of taking.
			addFirst(block, h, n)
			return false
		case maxCount:
			if planted.CountersUnstuck {
				block[i] = c - 1<<shift
			}
		default:
			block[i] = c - 1<<shift
		}
		rest >>= 9
	}
	return true
}

// bits makes the bits of the page's blocks. It returns how many are set, and
// how many counters are 15.
//
// Of four uint64 of counters the k-th holds those of every fourth bit from k
// on: what says in the low bit of each nibble whether it is above 0 only has to
// be shifted by k. With the counters in the order of their bits it would have to
// be packed, which takes 1.7 times as long (3.7 us a page instead of 2.1).
func (p *page) bits(dst *[pageBlocks * blockWords]uint64) (ones, saturated int) {
	for j := range dst {
		c := (*[4]uint64)(p[4*j:])
		some := above0(c[0]) | above0(c[1])<<1 | above0(c[2])<<2 | above0(c[3])<<3
		full := at15(c[0]) | at15(c[1])<<1 | at15(c[2])<<2 | at15(c[3])<<3
		dst[j] = some
		ones += bits.OnesCount64(some)
		saturated += bits.OnesCount64(full)
	}
	return ones, saturated
}

// above0 returns, in the low bit of each nibble, whether it is above 0.
func above0(x uint64) uint64 {
	x |= x >> 2
	return (x | x>>1) & lowBits
}

// at15 returns, in the low bit of each nibble, whether it is 15.
func at15(x uint64) uint64 {
	x &= x >> 2
	return x & (x >> 1) & lowBits
}
