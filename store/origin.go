package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"dedupstore/wal"
)

// The file SNAPSHOT says of a store that it began as a snapshot, of what, and
// which files of filters were left out: that these are missing is then no
// damage. A build makes the next generation, of which it says nothing. Nothing
// else rests on it, and it stays.

const (
	snapshotName   = "SNAPSHOT"
	originFormat   = 1
	maxOriginBytes = 4 << 10
	leftOutReason  = "a snapshot leaves it out"
)

// An origin is what SNAPSHOT says.
type origin struct {
	Format   int       `json:"format"`
	Made     time.Time `json:"made"`
	LSN      uint64    `json:"lsn"` // of the last record that is in it
	URLs     int64     `json:"urls"`
	Bitmap   uint64    `json:"bitmap"`   // its generation
	Counters uint64    `json:"counters"` // their generation; 0: there were none
}

// originLocked is that of a snapshot that is cut at this moment.
func (s *Store) originLocked(last wal.LSN) origin {
	r := s.mu.registry
	return origin{
		Format: originFormat, Made: s.opts.Clock.Wall().UTC().Round(0), LSN: uint64(last),
		URLs: s.urlsLocked(), Bitmap: r.bitmapGeneration, Counters: r.counterGen,
	}
}

func appendOrigin(dst []byte, o *origin) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("bug: a snapshot's origin does not encode: %v", err))
	}
	return append(append(dst, b...), '\n')
}

// decodeOrigin reports false for what is no origin of a known format.
func decodeOrigin(src []byte) (o origin, ok bool) {
	err := json.Unmarshal(src, &o)
	return o, err == nil && o.Format == originFormat
}

// readOrigin returns what SNAPSHOT says; the zero value, which names no
// generation, if it is not there or says nothing.
func (s *Store) readOrigin() (origin, error) {
	path := s.opts.seams.FS.PathJoin(s.dir, snapshotName)
	b, err := readSmallFile(s.opts.seams.FS, path, maxOriginBytes)
	if isSystem(err) {
		return origin{}, fmt.Errorf("store: read %s: %w", path, err)
	}
	if o, ok := decodeOrigin(b); ok && err == nil {
		return o, nil
	}
	return origin{}, nil
}

// isLeftOut reports whether err says that a file of a generation is missing that
// a snapshot has left out.
func isLeftOut(err error, generation, leftOut uint64) bool {
	return generation == leftOut && errors.Is(err, fs.ErrNotExist)
}
