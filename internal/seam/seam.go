// Package seam holds what this module's own tests put in place of the real
// world under a store: the file system, the mapped files, the sizes, and a
// call at named points that widens the window of a race. Outside this module
// nobody can make one, so the store's public Options stay free of test hooks.
package seam

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/mmapfilter"
)

// Seams are the places where a test takes over. The zero value is the real
// world.
type Seams struct {
	// FS is where everything but mapped files lives. Nil: the real one.
	FS vfs.FS
	// Device makes the mapped files. Nil: real mapped files.
	Device mmapfilter.Device
	// Point is called, when not nil, at the named points of the store's code,
	// possibly under its lock. A test blocks, yields or counts there.
	Point func(name string)
	// MemtableWords is the capacity of a memtable in words. 0: from the
	// store's MemoryBytes.
	MemtableWords int
	// BuildWords is how many words a step of a build scans. 0: as designed.
	BuildWords int
	// SelfCheckEvery is how many denied words pass between two self-checks. 0:
	// as designed.
	SelfCheckEvery int
	// SpanWords is the size span of a segment in words. 0: as designed.
	SpanWords int64
	// ExciseWords is how many words are worth an excision when they are
	// dropped. 0: as designed.
	ExciseWords int64
	// StatusInterval is the time between two publications of STATUS. 0: as
	// designed, and none at all where a test has put in an FS, whose calls it
	// may count.
	StatusInterval time.Duration
}

// At calls Point, if there is one.
func (s *Seams) At(name string) {
	if s.Point != nil {
		s.Point(name)
	}
}
