package store

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// All words of all sources, in order and once.

// A wordVersion is what a source says of a word: that it is there, or gone. Of
// several the one of the higher rank counts, and then that of the higher sequence
// number.
type wordVersion struct {
	keyPlace
	rank wordRank
	seq  uint64
	gone bool
	was  bool // the log says that it was there before
}

type wordRank uint8

const (
	rankNone  wordRank = iota
	rankAside          // a copy, which counts where nothing else can be read
	rankTable
	rankLog // above what is flushed
)

func (v *wordVersion) newer(than *wordVersion) bool {
	if v.rank != than.rank {
		return v.rank > than.rank
	}
	return v.seq > than.seq || v.seq == than.seq && !v.gone
}

// A wordSource gives words in order.
type wordSource struct {
	at      wordVersion
	advance func() (wordVersion, bool, error)
}

// mergeWords calls fn with each word of the sources once, in order: with what
// counts of all of them, and with what counts of those below the log, whose rank
// is none if there is nothing.
func mergeWords(ctx context.Context, sources []*wordSource, fn func(all, stored *wordVersion) error) error {
	var heap []*wordSource
	down := func(i int) {
		for {
			least := i
			for _, c := range []int{2*i + 1, 2*i + 2} {
				if c < len(heap) && heap[c].at.compare(heap[least].at.keyPlace) < 0 {
					least = c
				}
			}
			if least == i {
				return
			}
			heap[i], heap[least] = heap[least], heap[i]
			i = least
		}
	}
	for _, src := range sources {
		p, ok, err := src.advance()
		if err != nil {
			return err
		}
		if ok {
			src.at = p
			heap = append(heap, src)
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		down(i)
	}
	for n := 0; len(heap) > 0; n++ {
		if n%sortedPart == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		p := heap[0].at.keyPlace
		var all, stored wordVersion
		for len(heap) > 0 && heap[0].at.keyPlace == p {
			if v := heap[0].at; v.rank != rankNone {
				if v.newer(&all) {
					all = v
				}
				if v.rank < rankLog && v.newer(&stored) {
					stored = v
				}
			}
			next, ok, err := heap[0].advance()
			if err != nil {
				return err
			}
			if ok {
				heap[0].at = next
			} else {
				heap[0] = heap[len(heap)-1]
				heap = heap[:len(heap)-1]
			}
			down(0)
		}
		if all.rank == rankNone {
			continue
		}
		if err := fn(&all, &stored); err != nil {
			return err
		}
	}
	return nil
}

// A loggedWord is what the log says of a word of a segment.
type loggedWord struct {
	word    word
	gone    bool // it was forgotten
	flushed bool // by a file that is in Pebble
}

// sourceOf gives what the log says, in its order, of the words of a segment: of
// each the last, of the files that are flushed and of those that are not.
func sourceOf(id segmentID, words []loggedWord) *wordSource {
	slices.SortStableFunc(words, func(a, b loggedWord) int { return cmp.Compare(a.word, b.word) })
	return &wordSource{advance: func() (wordVersion, bool, error) {
		if len(words) == 0 {
			return wordVersion{}, false, nil
		}
		first, n := words[0], 1
		for n < len(words) && words[n].word == first.word && words[n].flushed == first.flushed {
			n++
		}
		v := wordVersion{keyPlace{id, first.word}, rankLog, math.MaxUint64, words[n-1].gone, first.gone}
		if first.flushed {
			v.rank, v.was = rankAside, false
		}
		words = words[n:]
		return v, true, nil
	}}
}
