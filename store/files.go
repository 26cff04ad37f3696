package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// The names in a store's directory: STORE (the identity), LOCK, STATUS, SNAPSHOT, log/,
// pebble/, tmp/, reserve, the bitmap and the segment filters, whose names hold
// their generation.

const logDir = "log"

const bitmapPrefix = "bitmap-"

func bitmapName(generation uint64) string { return fmt.Sprintf(bitmapPrefix+"%010d", generation) }

// isBitmapName reports whether bitmapName makes such a name.
func isBitmapName(name string) bool {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, bitmapPrefix), 10, 64)
	return err == nil && bitmapName(n) == name
}

// ours reports whether a store's creation could have left the name.
func ours(name string) bool {
	switch name {
	case lockName, logDir, pebbleDir, tmpDir, creatingName, creatingName + newSuffix, identityName + newSuffix,
		statusName, statusName + newSuffix, snapshotName, snapshotName + newSuffix:
		return true
	}
	return strings.HasPrefix(name, bitmapPrefix)
}

// newSuffix marks a file that is not published yet.
const newSuffix = ".new"

// publishFile writes a small file of mode 0600 and gives it its name when it
// is whole: write, sync, rename, sync the directory. After a crash there is
// the old file or the new one, and perhaps an unpublished one beside it.
func publishFile(fsys vfs.FS, dir, name string, content []byte) error {
	if err := replaceFile(fsys, dir, name, content, true); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

// replaceFile does the same up to the rename. Who reads the file finds the old
// one or the new one; without a sync, that does not hold for a power loss.
func replaceFile(fsys vfs.FS, dir, name string, content []byte, synced bool) error {
	path := fsys.PathJoin(dir, name)
	f, err := fsys.Create(path+newSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if fd := f.Fd(); fd != vfs.InvalidFd {
		err = unix.Fchmod(int(fd), 0o600)
	}
	if err == nil {
		_, err = f.Write(slices.Clone(content))
	}
	if err == nil && synced {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fsys.Rename(path+newSuffix, path)
}

// syncDir makes creations, renames and unlinks in a directory durable.
func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeIfThere unlinks a file that may not be there.
func removeIfThere(fsys vfs.FS, path string) error {
	err := fsys.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
