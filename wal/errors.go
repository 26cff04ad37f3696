package wal

import (
	"errors"
	"fmt"
	"syscall"
)

// The errors that callers test for with errors.Is.
var (
	// ErrClosed means that the Log was closed before it got so far.
	ErrClosed = errors.New("wal: closed")
	// ErrCorrupt means that bytes which were promised durable do not verify.
	// The error is a *CorruptError.
	ErrCorrupt = errors.New("wal: corrupt")
	// ErrVersion means that a file is of another version of the format.
	ErrVersion = errors.New("wal: format version not known")
	// ErrForeign means that a file belongs to another store. The error is a
	// *CorruptError too.
	ErrForeign = errors.New("wal: log file of another store")
	// ErrNoSpace means that there is no room on the disk. Nothing has changed
	// and the call may be repeated.
	ErrNoSpace = errors.New("wal: no space on the disk")
	// ErrPoisoned means that an earlier write or sync failed. Only reading the
	// log again heals it.
	ErrPoisoned = errors.New("wal: poisoned by a failed write or sync")
)

// A CorruptError says which log file is damaged, where and how. It is
// ErrCorrupt.
type CorruptError struct {
	Path   string
	Offset int64 // in bytes
	LSN    LSN   // of the record that should be there; 0 if that is not known
	Reason string
	Err    error // the cause, may be nil
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("wal: %s at offset %d", e.Path, e.Offset)
	if e.LSN != 0 {
		s += fmt.Sprintf(" (LSN %d)", e.LSN)
	}
	s += ": corrupt: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports that a CorruptError is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// isNoSpace reports whether err says that the disk, or a quota, is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// noSpace returns err as the result of op, as ErrNoSpace where it is that.
func noSpace(op, path string, err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("%w: %s %s: %w", ErrNoSpace, op, path, err)
	}
	return fmt.Errorf("wal: %s %s: %w", op, path, err)
}
