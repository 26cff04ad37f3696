package counting

import (
	"fmt"
	"io"
)

// Words is a source of words in ascending order. Each call returns the next of
// them, any number, in a slice that is good until the next call; with io.EOF the
// last of them, or none. A word may occur more than once. Another error ends the
// pass.
type Words func() ([]uint64, error)

// SliceWords is a source of what is in memory.
func SliceWords(words []uint64) Words {
	return func() ([]uint64, error) { return words, io.EOF }
}

// A stream is what is left of a source.
type stream struct {
	next  Words // nil when it has ended
	batch []uint64
	last  uint64 // the word before the batch
	what  string // is done with the words
}

func streams(sources []Words, what string) []stream {
	s := make([]stream, 0, len(sources))
	for _, next := range sources {
		if next != nil {
			s = append(s, stream{next: next, what: what})
		}
	}
	return s
}

// eachRun takes from the streams all words up to last, and hands them to use in
// runs. It returns how many there were.
func eachRun(streams []stream, last uint64, use func(run []uint64)) (n uint64, err error) {
	for i := range streams {
		for {
			run, err := streams[i].run(last)
			if err != nil {
				return n, err
			}
			if len(run) == 0 {
				break
			}
			use(run)
			n += uint64(len(run))
		}
	}
	return n, nil
}

// run returns the next words up to last, as many as are at hand. None: there
// are no more of them.
func (s *stream) run(last uint64) ([]uint64, error) {
	for len(s.batch) == 0 {
		if s.next == nil {
			return nil, nil
		}
		batch, err := s.next()
		switch err {
		case nil:
		case io.EOF:
			s.next = nil
		default:
			return nil, fmt.Errorf("counting: words to %s: %w", s.what, err)
		}
		s.batch = batch
	}
	n, before := 0, s.last
	for ; n < len(s.batch) && s.batch[n] <= last; n++ {
		if s.batch[n] < before {
			return nil, fmt.Errorf("%w: words to %s: %#x behind %#x", ErrOrder, s.what, s.batch[n], before)
		}
		before = s.batch[n]
	}
	run := s.batch[:n]
	s.batch, s.last = s.batch[n:], before
	return run, nil
}
