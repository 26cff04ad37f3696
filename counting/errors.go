package counting

import (
	"errors"
	"fmt"
)

// Errors of this package. Test for them with errors.Is.
var (
	// ErrCorrupt is what every *CorruptError is.
	ErrCorrupt = errors.New("counting: corrupt")
	// ErrVersion is a file of a format version that this package does not
	// know.
	ErrVersion = errors.New("counting: unknown format version")
	// ErrForeign is a sound file that belongs to another store.
	ErrForeign = errors.New("counting: file of another store")
	// ErrMismatch is a sound file of this store that the counters asked for
	// cannot be made from.
	ErrMismatch = errors.New("counting: counters do not go together")
	// ErrParams is a geometry outside the bounds of Geometry.
	ErrParams = errors.New("counting: parameters out of bounds")
	// ErrOrder is a source whose words are not in ascending order.
	ErrOrder = errors.New("counting: words out of order")
)

// A CorruptError is a file that is not what was written: where, and in what
// way.
type CorruptError struct {
	Path   string
	Offset int64 // in the file, of the field or the page that is wrong
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("counting: corrupt: %s at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// corruptf makes the CorruptError of a decoder, which knows neither the path
// nor where in the file it is.
func corruptf(offset int64, format string, args ...any) error {
	return &CorruptError{Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// withPath adds to a decoder's error the path and the offset of what it decoded.
func withPath(path string, start int64, err error) error {
	var corrupt *CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &corrupt):
		corrupt.Path, corrupt.Offset = path, corrupt.Offset+start
		return err
	}
	return fmt.Errorf("%w: %s", err, path)
}
