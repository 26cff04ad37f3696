package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/wal"
)

// A snapshotDir is the directory of a snapshot that is being made. Like that of
// a store that is being made it is marked, STORE comes last, and then the mark
// goes; what is new is that only then the directory gets its name.
type snapshotDir struct {
	fs       vfs.FS // minds the space of the directory's disk, not the store's
	space    *space
	at       func(point string)
	dir, tmp string
	lock     io.Closer
	owned    bool // what is in tmp is ours to remove

	linked, copied int64 // bytes
}

// beginSnapshot makes the directory under its first name, and holds its lock.
func (s *Store) beginSnapshot(dir string) (*snapshotDir, error) {
	raw := s.opts
	raw.seams.FS = s.space.fs
	d := &snapshotDir{dir: dir, tmp: dir + ".tmp", at: s.opts.seams.At}
	names, err := examineLeft(raw.seams.FS, d.tmp)
	if err != nil {
		return nil, err
	}
	if err := raw.seams.FS.MkdirAll(d.tmp, 0o700); err != nil {
		return nil, openError("make", d.tmp, err)
	}
	d.owned = len(names) == 0
	d.space = newSpace(&raw, d.tmp)
	d.fs = d.space.mind(&raw).seams.FS
	if d.lock, err = lockStore(d.fs, d.tmp, false); err != nil {
		if errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("store: snapshot: %w", err)
		}
		return nil, openError("make", d.tmp, d.end(err))
	}
	if err := d.begin(); err != nil {
		return nil, openError("make", d.tmp, d.end(err))
	}
	return d, nil
}

// examineLeft refuses a directory that a snapshot, or its process's end, cannot
// have left, or that is whole. It returns what is in it.
func examineLeft(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("store: snapshot: %w", err)
	case slices.Contains(names, identityName):
		return nil, fmt.Errorf("store: %s is in the way, and holds a whole store: rename it, or remove it: %w", dir, fs.ErrExist)
	}
	if err := creatable(fsys, dir, names); err != nil {
		return nil, fmt.Errorf("store: the snapshot's first name is taken: %w", err)
	}
	return names, nil
}

// begin marks the directory as one of ours and empties it.
func (d *snapshotDir) begin() error {
	names, err := examineLeft(d.fs, d.tmp) // once more, with the lock
	if err != nil {
		return err
	}
	d.owned = true
	if err := beginCreation(d.fs, d.tmp, names); err != nil {
		return err
	}
	for _, sub := range []string{logDir, pebbleDir, tmpDir} {
		if err := d.fs.MkdirAll(d.fs.PathJoin(d.tmp, sub), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// copyTables copies the tables of Pebble, and what says which of them count.
func (d *snapshotDir) copyTables(ctx context.Context, from string) error {
	names, err := d.fs.List(from)
	if err != nil {
		return err
	}
	to := d.fs.PathJoin(d.tmp, pebbleDir)
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if filepath.Ext(name) == ".log" {
			continue // Pebble's own, which is off: empty, and gone when Pebble likes
		}
		if err := d.copyTable(d.fs.PathJoin(from, name), d.fs.PathJoin(to, name)); err != nil {
			return err
		}
	}
	return syncDir(d.fs, to)
}

// copyTable links a table, and copies what Pebble may write to.
func (d *snapshotDir) copyTable(from, to string) error {
	info, err := d.fs.Stat(from)
	if err != nil {
		return err
	}
	if isTable(from) {
		linked, err := linkOrCopy(d.fs, from, to)
		if linked {
			d.linked += info.Size()
		} else {
			d.copied += info.Size()
		}
		return err
	}
	if err := d.space.check(info.Size()); err != nil {
		return err
	}
	d.copied += info.Size()
	return vfs.Copy(d.fs, from, to)
}

// copyLog copies the log up to the moment's position, reads the copy, and begins
// the next file, whose header says where the copy ends: so that it ends there
// and is not torn.
func (d *snapshotDir) copyLog(ctx context.Context, c *moment, id [16]byte) error {
	to := d.fs.PathJoin(d.tmp, logDir)
	last := wal.LSN(c.origin.LSN)
	if err := d.space.check(c.logBytes); err != nil {
		return err
	}
	for n := c.first; n <= c.last; n++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		bytes, err := wal.CopyFile(d.fs, c.log, to, n, id, last)
		if err != nil {
			return wrapLog(err)
		}
		d.copied += bytes
	}
	chain, err := wal.Read(d.fs, to, id)
	if err != nil {
		return wrapLog(err)
	}
	if chain.Last != last || chain.Torn != nil {
		return &CorruptError{
			Path: c.log, Offset: -1, LSN: uint64(chain.Last + 1),
			Reason: fmt.Sprintf("the log cannot be read up to LSN %d", last),
		}
	}
	log, err := wal.Create(d.fs, to, chain.Next(c.meta), wal.Options{StoreID: id})
	if err != nil {
		return err
	}
	return log.Close()
}

// publish makes the copy a store, and gives it its name.
func (d *snapshotDir) publish(id *identity) error {
	if err := publishFile(d.fs, d.tmp, identityName, appendIdentity(nil, id)); err != nil {
		return err
	}
	d.at("snapshot-whole")
	if err := d.fs.Remove(d.fs.PathJoin(d.tmp, creatingName)); err != nil {
		return err
	}
	if err := syncDir(d.fs, d.tmp); err != nil {
		return err
	}
	if err := d.fs.Rename(d.tmp, d.dir); err != nil {
		return err
	}
	d.at("snapshot-renamed")
	if err := syncDir(d.fs, d.fs.PathDir(d.dir)); err != nil {
		return errors.Join(err, d.fs.Rename(d.dir, d.tmp))
	}
	return nil
}

// end lets the directory go: as it is, or without a trace if there was an
// error.
func (d *snapshotDir) end(err error) error {
	if err != nil && d.owned {
		err = errors.Join(err, d.remove())
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// remove removes what there is. The mark goes last: if it is cut short, what
// it leaves is known for ours.
func (d *snapshotDir) remove() error {
	names, err := d.fs.List(d.tmp)
	if err != nil {
		return err
	}
	if i := slices.Index(names, identityName); i > 0 {
		names[0], names[i] = names[i], names[0]
	}
	for _, name := range names {
		if name != creatingName {
			err = errors.Join(err, d.fs.RemoveAll(d.fs.PathJoin(d.tmp, name)))
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(d.fs.RemoveAll(d.tmp), syncDir(d.fs, d.fs.PathDir(d.tmp)))
}
