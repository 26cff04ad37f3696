package mmapfilter

import "sync/atomic"

// A pageState says what is known of a page of blocks. It goes from unchecked to
// good or bad, from good to bad and back, and never to unchecked again.
type pageState uint64

const (
	// pageGood is as it was written, or nothing is known against it.
	pageGood pageState = iota
	// pageUnchecked has not been compared with its sum.
	pageUnchecked
	// pageBad is not as it was written: bits may be missing.
	pageBad
)

// pageStates holds two bits for each page, to be used by any goroutine. The
// zero value of a page is good.
type pageStates []atomic.Uint64

const (
	stateBits    = 2
	stateMask    = 1<<stateBits - 1
	statesInWord = 64 / stateBits
)

func newPageStates(pages uint64) pageStates {
	return make(pageStates, (pages+statesInWord-1)/statesInWord)
}

func (s pageStates) get(page uint64) pageState {
	return pageState(s[page/statesInWord].Load() >> (page % statesInWord * stateBits) & stateMask)
}

// move gives a page another state if it has the one that it is thought to
// have, and reports whether it had.
func (s pageStates) move(page uint64, from, to pageState) bool {
	word, shift := &s[page/statesInWord], page%statesInWord*stateBits
	for {
		old := word.Load()
		if pageState(old>>shift&stateMask) != from {
			return false
		}
		if word.CompareAndSwap(old, old^uint64(from^to)<<shift) {
			return true
		}
	}
}

// next returns the first page of a state, which is not pageGood, at page or
// behind it.
func (s pageStates) next(page uint64, state pageState) (uint64, bool) {
	for page/statesInWord < uint64(len(s)) {
		word := s[page/statesInWord].Load() >> (page % statesInWord * stateBits)
		if word == 0 { // all good
			page = (page/statesInWord + 1) * statesInWord
			continue
		}
		if pageState(word&stateMask) == state {
			return page, true
		}
		page++
	}
	return 0, false
}
