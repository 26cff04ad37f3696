package store

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// The errors that callers test for with errors.Is.
var (
	ErrClosed          = errors.New("store: closed")
	ErrLocked          = errors.New("store: held by another process")
	ErrReadOnly        = errors.New("store: opened read-only")
	ErrCorrupt         = errors.New("store: corrupt")
	ErrVersion         = errors.New("store: format version not known")
	ErrOptionsMismatch = errors.New("store: option differs from the one recorded at creation")
	ErrDiskFull        = errors.New("store: disk full")
	ErrPoisoned        = errors.New("store: an earlier write failed; reopen to go on")
	ErrEmptyKey        = errors.New("store: empty key")
	ErrKeyTooLong      = errors.New("store: key longer than 1 MiB")
	ErrNotExist        = errors.New("store: does not exist")
	ErrNotStore        = errors.New("store: neither empty nor a store")
	ErrClaimed         = errors.New("store: somebody holds a claim on the key")
	ErrClaimLost       = errors.New("store: the claim does not hold any more")
	ErrClock           = errors.New("store: the clock is far behind the store's time")
	ErrInsideStore     = errors.New("store: a snapshot cannot be in the store's own directory")
	ErrTooManyClaims   = errors.New("store: too many claims are held")
)

// A LockedError says who holds the store. It is ErrLocked.
type LockedError struct {
	Path  string
	PID   int // 0 if the lock file does not tell
	Host  string
	Since time.Time
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("store: %s is held by another process", e.Path)
	}
	return fmt.Sprintf("store: %s is held by process %d on %s since %s",
		e.Path, e.PID, e.Host, e.Since.Format(time.RFC3339))
}

// Is reports that a LockedError is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// A CorruptError says which file is damaged, where and how. It is ErrCorrupt.
type CorruptError struct {
	Path   string
	Offset int64  // in bytes; -1 if it concerns the whole file
	LSN    uint64 // of the log record; 0 if it is not one
	Reason string
	Err    error // the cause, may be nil
}

func (e *CorruptError) Error() string {
	s := "store: " + e.Path
	if e.Offset >= 0 {
		s += fmt.Sprintf(" at offset %d", e.Offset)
	}
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

// A MismatchError names an option that differs from the recorded one. It is
// ErrOptionsMismatch.
type MismatchError struct {
	Field, Stored, Asked string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("store: made with %s %q, asked for %q", e.Field, e.Stored, e.Asked)
}

// Is reports that a MismatchError is ErrOptionsMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrOptionsMismatch }

// isSystem reports that an error says that the process may not, or that the
// machine cannot at this moment: nothing about what is in the file.
func isSystem(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return false
	}
	switch errno {
	case syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EMFILE, syscall.ENFILE,
		syscall.ENOMEM, syscall.EIO, syscall.ENOSPC, syscall.EDQUOT:
		return true
	}
	return false
}
