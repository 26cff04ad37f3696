package mmapfilter

import (
	"context"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// This file compares pages with their sums. Who may do it when:
//
// A page that is not dirty has the bits that its sum was made of, if nothing
// has damaged it. The maintainer checks it before its first change since the
// last Sync (beginChange), and only then it becomes dirty. So damage is found
// before the next sum would bless it.
//
// A lookup checks a page that is unchecked (checkShared), and may read it while
// the maintainer changes it. Then it may find bits, or a sum, that do not fit
// each other, and must not call the page bad for that. It does not: the
// maintainer has moved the page out of unchecked before it stored anything, and
// no page becomes unchecked again. So whoever read any of that store is behind
// the move, and its own move, which is from unchecked only, fails: the state
// that is there counts. If its move succeeds, the page was unchecked from the
// first load to the last, and neither its bits nor its sum have changed
// meanwhile. All of it is atomic, and Go's atomics have one order.

// noPage is no page's number.
const noPage = ^uint64(0)

// sumOf returns the sum of a page's bytes. The page's number is in it, so that
// a page in another's place is noticed.
func sumOf(page uint64, b []byte) uint64 {
	var h xxhash.Digest
	h.ResetWithSeed(page)
	_, _ = h.Write(b) // it never fails
	return h.Sum64()
}

// pageSum returns the sum of a page as it is. The maintainer calls it, or
// whoever knows that nothing is being set: it reads the page where it lies.
func (f *Filter) pageSum(page uint64) uint64 {
	return sumOf(page, bytesOf(f.body[page*pageWords:][:pageWords]))
}

// fits reports whether a page has the bits that its sum was made of. It is for
// the callers of pageSum.
func (f *Filter) fits(page uint64) bool { return f.pageSum(page) == f.sums[page] }

// storeFirstSums stores the sums of a file of zeros.
func (f *Filter) storeFirstSums() {
	zeros := make([]byte, pageBytes)
	for page := range uint64(len(f.sums)) {
		atomic.StoreUint64(&f.sums[page], sumOf(page, zeros))
	}
	f.sumsSum = xxhash.Sum64(bytesOf(f.sums))
}

// storeSums stores the sums of the pages that are dirty. That of a bad page is
// stored inverted, so that it is found bad when the filter is opened again.
func (f *Filter) storeSums() {
	for _, page := range f.BadPages() {
		f.dirty.Set(uint(page))
	}
	for page, ok := f.dirty.NextSet(0); ok; page, ok = f.dirty.NextSet(page + 1) {
		sum := f.pageSum(uint64(page))
		if f.states.get(uint64(page)) == pageBad {
			sum = ^sum
		}
		atomic.StoreUint64(&f.sums[page], sum)
	}
	f.sumsSum = xxhash.Sum64(bytesOf(f.sums))
	f.dirty.ClearAll()
	f.changing = noPage
}

// beginChange runs before a page is changed, once for a run of changes to it.
func (f *Filter) beginChange(page uint64) {
	f.changing = page
	if f.dirty.Test(uint(page)) {
		return
	}
	if !f.hooks.uncheckedChanges {
		f.check(page)
	}
	f.dirty.Set(uint(page))
}

// check compares a page with its sum. The maintainer calls it, of a page that
// is not dirty.
func (f *Filter) check(page uint64) {
	to := pageGood
	if !f.fits(page) {
		to = pageBad
	}
	if !f.move(page, pageUnchecked, to) && to == pageBad {
		f.move(page, pageGood, pageBad) // damaged since it was checked
	}
}

// checkShared compares an unchecked page with its sum, beside others that do
// the same and the maintainer, and returns the state that counts.
func (f *Filter) checkShared(page uint64) pageState {
	if f.hooks.checking != nil {
		f.hooks.checking(page)
	}
	var words [pageWords]uint64
	for i := range words {
		words[i] = atomic.LoadUint64(&f.body[page*pageWords+uint64(i)])
	}
	to := pageBad
	if sumOf(page, bytesOf(words[:])) == atomic.LoadUint64(&f.sums[page]) {
		to = pageGood
	}
	f.move(page, pageUnchecked, to)
	return f.states.get(page)
}

// move is pageStates.move, and counts. A page counts before it is unsure or
// bad and until it is so no more, so that neither number is ever too low.
func (f *Filter) move(page uint64, from, to pageState) bool {
	f.count(to, +1)
	moved := f.states.move(page, from, to)
	if moved {
		f.count(from, -1)
	} else {
		f.count(to, -1)
	}
	return moved
}

func (f *Filter) count(s pageState, n int64) {
	if s == pageGood {
		return
	}
	f.unsure.Add(n)
	if s == pageBad {
		f.bad.Add(n)
	}
}

// TrustSums says that the filter was left by a clean close: its last Sync
// returned nil, and nothing was set after it. It is called right after Open,
// before any other use. If the sums are those that the header speaks of, and
// the header is not Unverified, all pages count as unchecked from now on, and
// the answer is true. If not, nothing changes.
//
// It reads 8 bytes for each page.
func (f *Filter) TrustSums() bool {
	if f.body == nil || f.unverified.Load() {
		return false
	}
	var sum uint64
	err := f.guard(func() { sum = xxhash.Sum64(bytesOf(f.sums)) })
	if err != nil || sum != f.sumsSum {
		return false
	}
	f.dirty.ClearAll()
	for page := range f.fixed.Pages() {
		f.move(page, pageGood, pageUnchecked)
	}
	f.next, f.changing = 0, noPage
	return true
}

// MarkUnverified makes the header say Unverified from the next Sync on, for
// good: the caller does not know whether all bits are there that should be.
func (f *Filter) MarkUnverified() { f.mistrusted = true }

// AllSure reports whether Sure is true of all words. It costs one load.
func (f *Filter) AllSure() bool { return f.unsure.Load() == 0 }

// Sure reports whether a "definitely not" about a word can be believed: whether
// its page is as it was written, or nothing is known against it, as after an
// Open without TrustSums. If nobody has compared the page yet, it does; that reads
// the page (0.5 µs where that is in memory) and may fault as Has may.
//
// It must be called before Has: a page may be bad when Has asks it, and have
// been healed before Sure is. After AllSure or Sure, each later Has is sure.
func (f *Filter) Sure(word uint64) bool {
	return f.unsure.Load() == 0 || f.sure(blockOf(word, f.blocks)/BlocksPerPage)
}

func (f *Filter) sure(page uint64) bool {
	state := f.states.get(page)
	if state == pageUnchecked {
		state = f.checkShared(page)
	}
	return state == pageGood
}

// CheckPages checks up to n pages that are unchecked, in order, and reports
// whether there may be more. One takes 0.2 µs where it is in memory. A page that cannot be read is a *FaultError; it
// stays unchecked, and the next call goes on behind it.
func (f *Filter) CheckPages(n int) (more bool, err error) {
	if f.body == nil {
		return false, ErrClosed
	}
	err = f.guard(func() {
		for ; n > 0; n-- {
			page, ok := f.states.next(f.next, pageUnchecked)
			if !ok {
				f.next = f.fixed.Pages()
				return
			}
			f.next = page + 1
			f.check(page)
		}
	})
	return f.next < f.fixed.Pages(), err
}

// Unchecked returns how many pages nobody has checked yet.
func (f *Filter) Unchecked() int { return int(max(0, f.unsure.Load()-f.bad.Load())) }

// BadPages returns the pages that were found bad and not healed since,
// ascending. If there are none, it costs one load.
func (f *Filter) BadPages() []uint64 {
	if f.bad.Load() == 0 {
		return nil
	}
	var bad []uint64
	for page, ok := f.states.next(0, pageBad); ok; page, ok = f.states.next(page+1, pageBad) {
		bad = append(bad, page)
	}
	return bad
}

// MarkBad says that a word was set and is not there: its page is bad. It
// reports whether that is news.
func (f *Filter) MarkBad(word uint64) bool {
	page := blockOf(word, f.blocks) / BlocksPerPage
	// Each can fail once: a page never goes back to unchecked.
	return f.move(page, pageUnchecked, pageBad) || f.move(page, pageGood, pageBad)
}

// PageRange returns the first and the last word that a page is asked for.
func (f *Filter) PageRange(page uint64) (first, last uint64) { return f.fixed.PageRange(page) }

// Healed says that every word of a page's range that was ever set has been set
// again, since the page was found bad: it is good. Bits too many, if it had
// any, stay; they cost false positives.
func (f *Filter) Healed(page uint64) {
	f.dirty.Set(uint(page)) // its sum, and if no bit was missing, still
	f.move(page, pageBad, pageGood)
}

// VerifySums compares all pages with their sums, and changes nothing. It is for
// a filter that nothing was set in after its last Sync, and reads all of the
// file. sums is false if the sums are not those that the header speaks of: a
// crash has left them behind, or they are damaged. Then no page is compared.
func (f *Filter) VerifySums(ctx context.Context) (bad []uint64, sums bool, err error) {
	if f.body == nil {
		return nil, false, ErrClosed
	}
	err = f.guard(func() { sums = xxhash.Sum64(bytesOf(f.sums)) == f.sumsSum })
	if err != nil || !sums {
		return nil, false, err
	}
	const step = 1024 // 4 MiB between two looks at ctx
	for page := uint64(0); page < f.fixed.Pages(); {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		err := f.guard(func() {
			for end := min(page+step, f.fixed.Pages()); page < end; page++ {
				if !f.fits(page) {
					bad = append(bad, page)
				}
			}
		})
		if err != nil {
			return nil, false, err
		}
	}
	return bad, true, nil
}
