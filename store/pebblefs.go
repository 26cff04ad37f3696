package store

import (
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFS is the file system that Pebble sees.
//
// While Pebble runs, a call that fails and that it cannot go on from is fatal
// here, and does not return. Pebble would call Fatalf too, but a little later and
// under the lock that whoever ends a Get may need.
type pebbleFS struct {
	vfs.FS
	events *pebbleEvents
}

// Lock does nothing: the store has a lock of its own, and Pebble creates a
// file for its lock even where it must not write.
func (pebbleFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Pebble's markers are empty files whose names say which MANIFEST, and which
// version, counts. Pebble makes the file that a marker names, makes the new
// marker, removes the old one and syncs the directory, once. A file system may
// make those steps durable in another order, and then the marker names a file
// that is not there, or there is none: so that each is durable before the next
// is taken, the directory is synced in between.
const (
	markerPrefix   = "marker."
	manifestPrefix = "MANIFEST-"
)

// Create makes what was made before durable, if it is to make a marker.
func (f pebbleFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	marker := strings.HasPrefix(f.PathBase(name), markerPrefix)
	isOwn := f.PathBase(f.PathDir(name)) == pebbleDir // and not a snapshot's
	if !isOwn || !marker && !strings.HasPrefix(f.PathBase(name), manifestPrefix) {
		return f.FS.Create(name, c)
	}
	if marker {
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return nil, f.events.vital("sync of the directory", err)
		}
	}
	file, err := f.FS.Create(name, c)
	if err != nil {
		return nil, f.events.vital("create", err)
	}
	return pebbleVitalFile{file, f.events}, nil
}

// Remove makes the new marker durable, if it is to remove the old one.
func (f pebbleFS) Remove(name string) error {
	if strings.HasPrefix(f.PathBase(name), markerPrefix) {
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return err
		}
	}
	return f.FS.Remove(name)
}

// OpenDir opens a directory whose failing sync is fatal if it is Pebble's own,
// and not a snapshot's. Left alone, Pebble panics when it cannot sync the
// directory behind a marker.
func (f pebbleFS) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if err != nil || f.PathBase(name) != pebbleDir {
		return d, err
	}
	return pebbleDirFile{d, f.events}, nil
}

// Unwrap returns the file system underneath.
func (f pebbleFS) Unwrap() vfs.FS { return f.FS }

type pebbleDirFile struct {
	vfs.File
	events *pebbleEvents
}

// Sync does not return where it fails.
func (d pebbleDirFile) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.events.Fatalf("sync of the directory: %w", err)
	}
	return nil
}

// vital is what becomes of the error of a call that Pebble cannot do without: it is
// Open's, or it does not return.
func (e *pebbleEvents) vital(what string, err error) error {
	if err != nil && e.running.Load() {
		e.Fatalf(what+": %w", err)
	}
	return err
}

// pebbleVitalFile is a MANIFEST or a marker.
type pebbleVitalFile struct {
	vfs.File
	events *pebbleEvents
}

// Write is vital.
func (f pebbleVitalFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.events.vital("write", err)
}

// Sync is vital.
func (f pebbleVitalFile) Sync() error { return f.events.vital("sync", f.File.Sync()) }

// SyncData is vital.
func (f pebbleVitalFile) SyncData() error { return f.events.vital("sync", f.File.SyncData()) }

// SyncTo is vital.
func (f pebbleVitalFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.events.vital("sync", err)
}
