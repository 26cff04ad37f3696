package mmapfilter

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// Errors of this package. Test for them with errors.Is.
var (
	// ErrCorrupt is what every *CorruptError is.
	ErrCorrupt = errors.New("mmapfilter: corrupt")
	// ErrVersion is a file of a format version that this package does not
	// know.
	ErrVersion = errors.New("mmapfilter: unknown format version")
	// ErrForeign is a sound file that belongs to another store.
	ErrForeign = errors.New("mmapfilter: file of another store")
	// ErrNoSpace is a file that the file system has no room for. Nothing of
	// it is left behind.
	ErrNoSpace = errors.New("mmapfilter: no space")
	// ErrFault is what every *FaultError is.
	ErrFault = errors.New("mmapfilter: fault in the mapping")
	// ErrReadOnly is a change to a filter that was opened read-only.
	ErrReadOnly = errors.New("mmapfilter: read-only")
	// ErrClosed is the use of a closed filter.
	ErrClosed = errors.New("mmapfilter: closed")
	// ErrParams is a geometry outside the bounds of Params.
	ErrParams = errors.New("mmapfilter: parameters out of bounds")
)

// A CorruptError is a file that is not what was written: where, and in what
// way.
type CorruptError struct {
	Path   string
	Offset int64 // in the file, of the field that is wrong
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("mmapfilter: corrupt: %s at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// corruptf makes the CorruptError of a decoder, which knows no path yet.
func corruptf(offset int64, format string, args ...any) error {
	return &CorruptError{Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// withPath adds the path to a decoder's error.
func withPath(path string, err error) error {
	var corrupt *CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &corrupt):
		corrupt.Path = path
		return err
	}
	return fmt.Errorf("%w: %s", err, path)
}

// A FaultError is a page of the mapping that could not be read or written: an
// I/O error of the device, a file that was cut short under the mapping, or no
// space behind a page of a copy-on-write file system.
type FaultError struct {
	Path   string
	Offset int64 // in the file, of the access that failed
	Err    error // what the runtime made of the signal
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("mmapfilter: fault in the mapping of %s at offset %d: %v", e.Path, e.Offset, e.Err)
}

// Is reports whether target is ErrFault.
func (e *FaultError) Is(target error) bool { return target == ErrFault }

// Unwrap returns the runtime's error.
func (e *FaultError) Unwrap() error { return e.Err }

// faultIn tells a fault inside the mapping, which is the device's doing, from
// any other panic, which is ours. It returns nil for the latter.
func faultIn(words []uint64, path string, recovered any) *FaultError {
	err, ok := recovered.(runtime.Error)
	if !ok {
		return nil
	}
	at, ok := recovered.(interface{ Addr() uintptr })
	if !ok {
		return nil
	}
	off, ok := offsetIn(words, at.Addr())
	if !ok {
		return nil
	}
	return &FaultError{Path: path, Offset: off, Err: err}
}

// isNoSpace reports whether err is one of the ways in which a file system
// says that it is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
