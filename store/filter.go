package store

import (
	"errors"
	"sync/atomic"

	"dedupstore/internal/planted"
	"dedupstore/mmapfilter"
)

// A filter is the bitmap or a segment filter in use. One that has no file, the
// zero value, lets every word through: answers then come from Pebble.
type filter struct {
	*mmapfilter.Filter
	path string
	// doubt is why the file is to be replaced by a build; nil if it is not.
	doubt atomic.Pointer[doubt]
}

// A doubt is what speaks against a filter whose answers still count, or why
// there is none.
type doubt struct {
	unverified bool // nothing is known against it, but nothing for it either
	reason     string
}

// maybe reports that a word may be in the filter. Where it does not, the page
// that says so was checked, and before it was asked: between a Has that misses a
// lost bit and a Sure behind it the maintainer may heal the page.
func (f *filter) maybe(w word) bool {
	return f.Filter == nil || !planted.PagesUnchecked && !f.Sure(w) || f.Has(w)
}

// touch loads the line of a word, see mmapfilter.Filter.Touch.
func (f *filter) touch(w word) uint64 {
	if f.Filter == nil {
		return 0
	}
	return f.Touch(w)
}

// header returns the zero header for a filter without a file.
func (f *filter) header() mmapfilter.Header {
	if f.Filter == nil {
		return mmapfilter.Header{}
	}
	return f.Header()
}

// bytes is the size of its file.
func (f *filter) bytes() int64 {
	if f.Filter == nil {
		return 0
	}
	return f.Bytes()
}

func (f *filter) close() error {
	if f.Filter == nil {
		return nil
	}
	return f.Close()
}

// setSorted sets the bits of ascending words, if there is a file.
func (f *filter) setSorted(words []word) error {
	if f.Filter == nil {
		return nil
	}
	return f.SetSorted(words)
}

// doubts makes a build replace the filter. The first reason counts, but for
// one that only says "unverified".
func (f *filter) doubts(d doubt) {
	old := f.doubt.Load()
	if old == nil || old.unverified && !d.unverified {
		f.doubt.CompareAndSwap(old, &d)
	}
}

// fault is the error of a fault in the filter's mapping, nil for any other
// panic. A page that the disk does not give is a reason to replace the file.
func (f *filter) fault(recovered any) error {
	if f.Filter == nil {
		return nil
	}
	e, ok := errors.AsType[*mmapfilter.FaultError](f.Fault(recovered))
	if !ok {
		return nil
	}
	f.doubts(doubt{reason: "the disk does not give a page"})
	return &CorruptError{Path: e.Path, Offset: e.Offset, Reason: "the disk does not give the page", Err: e.Err}
}
