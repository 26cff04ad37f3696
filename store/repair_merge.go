package store

import (
	"context"
	"slices"
)

// All words of all sources, in order and once.

// A wordSource gives words in order.
type wordSource struct {
	at      keyPlace
	flushed bool // the registry counts them
	advance func() (keyPlace, bool, error)
}

// mergeWords calls fn with each word of the sources once, in order.
func mergeWords(ctx context.Context, sources []*wordSource, fn func(p keyPlace, flushed bool) error) error {
	var heap []*wordSource
	down := func(i int) {
		for {
			least := i
			for _, c := range []int{2*i + 1, 2*i + 2} {
				if c < len(heap) && heap[c].at.compare(heap[least].at) < 0 {
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
		p, flushed := heap[0].at, false
		for len(heap) > 0 && heap[0].at == p {
			flushed = flushed || heap[0].flushed
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
		if err := fn(p, flushed); err != nil {
			return err
		}
	}
	return nil
}

// sourceOf gives the words of a segment, which may be in any order and more
// than once.
func sourceOf(id segmentID, words []word, flushed bool) *wordSource {
	slices.Sort(words)
	words = slices.Compact(words)
	return &wordSource{flushed: flushed, advance: func() (keyPlace, bool, error) {
		if len(words) == 0 {
			return keyPlace{}, false, nil
		}
		p := keyPlace{id, words[0]}
		words = words[1:]
		return p, true, nil
	}}
}
