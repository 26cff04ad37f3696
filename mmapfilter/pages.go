package mmapfilter

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/bits-and-blooms/bitset"
	"github.com/cespare/xxhash/v2"
)

// Page sums: behind the blocks stands one checksum for each page of them, made
// by Sync. They are good for a file at rest: while it is in use pages are
// written back whenever the kernel likes, with bits that no sum knows of yet.
// So the caller says, after Open, whether the file was left in order (see
// TrustSums), and from then on each page is checked once, before it is changed
// or believed.

// ErrUnverified is a filter whose page sums do not count.
var ErrUnverified = errors.New("mmapfilter: the page sums do not count")

// pages is what is known of a filter's pages. Most of its life a filter has
// none that is unchecked or bad, and then doubtful is 0.
type pages struct {
	// doubtful is how many pages are unchecked or bad.
	doubtful atomic.Int64

	// mu is held while a page is checked. The maintainer changes an unchecked
	// page only after it has checked it: so the page whose sum is being made
	// under mu does not change meanwhile.
	mu        sync.Mutex
	unchecked []atomic.Uint64 // a bit for each page; none if none ever was
	bad       []atomic.Uint64
	badPages  atomic.Int64

	// Of the maintainer alone.
	changed *bitset.BitSet // since the last Sync
	last    uint64         // the page that was changed last; noPage at first
	next    uint64         // the page that CheckPages goes on at
}

const noPage = ^uint64(0)

func bitOf(set []atomic.Uint64, page uint64) bool {
	return len(set) > 0 && set[page/64].Load()>>(page%64)&1 != 0
}

// pageOf returns the page that the block of a word is in.
func (f *Filter) pageOf(word uint64) uint64 { return blockOf(word, f.blocks) / BlocksPerPage }

func (f *Filter) pageCount() uint64 { return f.blocks / BlocksPerPage }

// zeroSum is the checksum of a page without bits. Sums are kept as differences
// from it, so that those of a new file are the zeros that it is made of.
var zeroSum = xxhash.Sum64(make([]byte, pageBytes))

// sumOf makes the sum of a page from its bytes.
func (f *Filter) sumOf(page uint64) uint64 {
	return xxhash.Sum64(bytesOf(f.body[page*pageWords:(page+1)*pageWords])) ^ zeroSum
}

// sumOfSums is the checksum over all sums, which the header holds.
func (f *Filter) sumOfSums() uint64 { return xxhash.Sum64(bytesOf(f.sums)) }

// TrustSums is called once, after Open and before anything else, if the file
// was left in order: no bit was set after its last Sync. From then on a page
// is checked before it is changed, and Sure checks it before it is believed.
// The error is ErrUnverified if the last Sync has said that its sums do not
// count, and ErrCorrupt if the sums are not those of the header.
func (f *Filter) TrustSums() error {
	if f.unverified {
		return ErrUnverified
	}
	var got uint64
	if err := f.guard(func() { got = f.sumOfSums() }); err != nil {
		return err
	}
	if got != f.openSums {
		return withPath(f.path, corruptf(pageBytes+int64(f.blocks)*blockBytes,
			"checksum of the page sums is %016x, want %016x", got, f.openSums))
	}
	n := f.pageCount()
	f.pages.unchecked = make([]atomic.Uint64, (n+63)/64)
	for page := range n {
		f.pages.unchecked[page/64].Or(1 << (page % 64))
	}
	f.pages.doubtful.Store(int64(n))
	f.pages.changed.ClearAll()
	return nil
}

// MarkUnverified has the header say, from the next Sync on, that nobody knows
// whether all bits are there: the page sums do not count, and none is made.
// That holds for the life of the file.
func (f *Filter) MarkUnverified() { f.unverified = true }

// Sure reports whether a "no" for the word counts: it does not if the page that
// it comes from is bad. An unchecked page is checked first. Any goroutine may
// call it; a page that cannot be read is a fault, see Filter.Fault.
//
// It is called before Has: a page may be bad when Has reads it, and healed by the
// time that Sure does.
func (f *Filter) Sure(word uint64) bool {
	if f.pages.doubtful.Load() == 0 {
		return true
	}
	page := f.pageOf(word)
	f.check(page)
	return !bitOf(f.pages.bad, page)
}

// check checks a page that is unchecked.
func (f *Filter) check(page uint64) {
	p := &f.pages
	if !bitOf(p.unchecked, page) {
		return
	}
	// The disk is waited for here, and not by everybody behind the lock.
	_ = atomic.LoadUint64(&f.body[page*pageWords])
	p.mu.Lock()
	defer p.mu.Unlock() // also if the page cannot be read
	if !bitOf(p.unchecked, page) {
		return
	}
	good := f.sumOf(page) == f.sums[page]
	if !good {
		f.setBad(page)
	}
	p.unchecked[page/64].And(^(uint64(1) << (page % 64)))
	if good {
		p.doubtful.Add(-1)
	}
}

// setBad notes a bad page. p.mu is held.
func (f *Filter) setBad(page uint64) {
	p := &f.pages
	p.bad[page/64].Or(1 << (page % 64))
	p.badPages.Add(1)
}

// CheckPages has the maintainer check up to n pages that are unchecked, in the
// order of the file, and reports whether there are more. A page that cannot be
// read is a *FaultError and stays unchecked; the next call goes on behind it.
func (f *Filter) CheckPages(n int) (more bool, err error) {
	if f.body == nil {
		return false, ErrClosed
	}
	p := &f.pages
	err = f.guard(func() {
		for len(p.unchecked) > 0 && p.next < f.pageCount() && n > 0 {
			page := p.next
			p.next++
			if bitOf(p.unchecked, page) {
				f.check(page)
				n--
			}
		}
	})
	return f.Unchecked() > 0 && p.next < f.pageCount(), err
}

// Unchecked returns how many pages are unchecked.
func (f *Filter) Unchecked() int {
	return int(f.pages.doubtful.Load() - f.pages.badPages.Load())
}

// BadPages returns the pages that are bad, in order. It costs nothing where
// there is none.
func (f *Filter) BadPages() (bad []uint64) {
	p := &f.pages
	if p.badPages.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for page := range f.pageCount() {
		if bitOf(p.bad, page) {
			bad = append(bad, page)
		}
	}
	return bad
}

// MarkBad says that a bit of the word was lost: its page is bad from now on. Any
// goroutine may call it.
func (f *Filter) MarkBad(word uint64) {
	page := f.pageOf(word)
	f.check(page)
	f.markBad(page)
}

// markBad has a page bad that is not unchecked.
func (f *Filter) markBad(page uint64) {
	p := &f.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bitOf(p.bad, page) {
		p.doubtful.Add(1)
		f.setBad(page)
	}
}

// Healed has the maintainer say that the bits of all words of a bad page were
// set again. It counts as changed.
func (f *Filter) Healed(page uint64) {
	p := &f.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bitOf(p.bad, page) {
		return
	}
	p.bad[page/64].And(^(uint64(1) << (page % 64)))
	p.badPages.Add(-1)
	p.doubtful.Add(-1)
	p.changed.Set(uint(page))
}

// PageRange returns the first and the last word whose blocks are in the page.
func (f *Filter) PageRange(page uint64) (first, last uint64) {
	first = firstOf(page*BlocksPerPage, f.blocks)
	if page+1 == f.pageCount() {
		return first, ^uint64(0)
	}
	return first, firstOf((page+1)*BlocksPerPage, f.blocks) - 1
}

// firstOf returns the smallest word of a block: the inverse of blockOf.
func firstOf(block, blocks uint64) uint64 {
	q, r := bits.Div64(block, 0, blocks)
	if r > 0 {
		q++
	}
	return q
}

// PageOffset returns where in the file a page begins.
func (f *Filter) PageOffset(page uint64) int64 { return int64(page+1) * pageBytes }

// Linked reports whether the path still leads to the file that is mapped.
func (f *Filter) Linked() (bool, error) {
	if f.body == nil {
		return false, ErrClosed
	}
	return f.m.Linked(f.path)
}

// changePage is called before a bit of a page is set. A page that was not
// changed since the last Sync is checked, once more if it was before: what has
// become of it meanwhile would be in its next sum.
func (f *Filter) changePage(page uint64) {
	p := &f.pages
	p.last = page
	if p.changed.Test(uint(page)) {
		return
	}
	switch {
	case bitOf(p.unchecked, page):
		f.check(page)
	case !f.unverified && f.sumOf(page) != f.sums[page]:
		f.markBad(page)
	}
	p.changed.Set(uint(page))
}

// updateSums makes the sums of the pages that were changed since the last Sync.
// That of a bad one is made wrong: the next to open the file must see that bits
// are missing, also if they were before its sum was made.
func (f *Filter) updateSums() {
	p := &f.pages
	for _, page := range f.BadPages() {
		p.changed.Set(uint(page))
	}
	for page := range p.changed.EachSet() {
		sum := f.sumOf(uint64(page))
		if bitOf(p.bad, uint64(page)) {
			sum = ^sum
		}
		atomic.StoreUint64(&f.sums[page], sum)
	}
}

// synced is called after a Sync.
func (p *pages) synced() {
	p.changed.ClearAll()
	p.last = noPage
}

// newPages is the state of the pages of a filter that was made or opened: if
// opened, every sum may be older than its page.
func newPages(n uint64, opened bool) pages {
	changed := bitset.New(uint(n))
	if opened {
		changed.FlipRange(0, uint(n))
	}
	return pages{changed: changed, last: noPage, bad: make([]atomic.Uint64, (n+63)/64)}
}
