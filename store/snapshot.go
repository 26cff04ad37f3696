package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Snapshot makes dir, which must not exist and whose parent must, a copy of the
// store as it is at one moment of the call: with every add that was answered
// before it, every namespace, TTL and forget, and without what came later.
// Claims are not in it. It takes seconds, however large the store is: tables,
// which never change, are linked, and copied only to another device. Filters
// and counters are left out: who opens the copy for writing builds them beside
// the first calls, which ask Pebble until then, and are exact all the same.
//
// The copy is a store like any other. A restore is a copy of it, by "cp -r" or
// by Snapshot of a store that was opened read-only, as often as need be. It has
// the id of the store, which its files carry: files of one must not be mixed
// with those of the other.
//
// Adds and lookups go on meanwhile. Flushes wait while the tables are linked,
// and not while anything is copied. Any number of snapshots may be under way.
//
// When Snapshot returns nil, the copy survives a power loss. Else there is no
// dir. It is made beside dir, in a directory with ".tmp" behind its name, which
// is removed on an error; one that a killed process has left is replaced by the
// next call, and any other directory of that name is refused. The error is
// fs.ErrExist if dir is there or if that directory holds a whole store,
// ErrNotStore if it holds something else, ErrLocked if another snapshot is made
// in it, ErrInsideStore if dir would be in the store's own directory,
// ErrDiskFull, ErrPoisoned, ErrClosed, or the context's. A store that takes no
// adds can be copied too, if it was opened read-only or on a full disk.
func (s *Store) Snapshot(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.waiting != nil {
		return s.waiting.call(func(s *Store) error { return s.Snapshot(ctx, dir) })
	}
	start := time.Now()
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.Err(); err != nil {
		return err // what was answered may be nowhere
	}
	dir = filepath.Clean(dir)
	if err := s.checkTarget(dir); err != nil {
		return err
	}
	d, err := s.beginSnapshot(dir)
	if err != nil {
		return err
	}
	x, err := s.fillSnapshot(ctx, d)
	if err == nil {
		err = d.publish(s.identity)
	}
	if err = d.end(err); err != nil {
		return s.snapshotError(ctx, dir, err)
	}
	x.Time = time.Since(start)
	s.counters.snapshots.Add(1)
	s.counters.snapshot.Store(x)
	return nil
}

// snapshotError is what a snapshot that failed returns.
func (s *Store) snapshotError(ctx context.Context, dir string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.Err() != nil:
		return s.Err()
	}
	return openError("make the snapshot", dir, err)
}

// checkTarget refuses a directory that no snapshot can become.
func (s *Store) checkTarget(dir string) error {
	fsys := s.opts.seams.FS
	switch _, err := fsys.Stat(dir); {
	case err == nil:
		return fmt.Errorf("store: snapshot: %s: %w", dir, fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("store: snapshot: %w", err)
	}
	parent := fsys.PathDir(dir)
	info, err := fsys.Stat(parent)
	switch {
	case err != nil:
		return fmt.Errorf("store: %s has no directory to be made in: %w", dir, err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no directory", ErrNotStore, parent)
	}
	inside, err := isInside(resolved(parent), resolved(s.dir))
	if err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	if inside {
		return fmt.Errorf("%w: %s is in %s", ErrInsideStore, dir, s.dir)
	}
	return nil
}

// resolved is a path without symbolic links, as far as the machine knows it.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// isInside reports whether path is dir, or below it.
func isInside(path, dir string) (bool, error) {
	path, err1 := filepath.Abs(path)
	dir, err2 := filepath.Abs(dir)
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel), nil
}

// fillSnapshot copies the store into the directory.
func (s *Store) fillSnapshot(ctx context.Context, d *snapshotDir) (_ *SnapshotStats, err error) {
	take := s.momentLive
	if s.refuse != nil {
		take = s.momentStill
	}
	c, err := take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.release()) }()
	s.opts.seams.At("snapshot-cut")
	if err := d.copyTables(ctx, c.tables); err != nil {
		return nil, err
	}
	if err := d.copyLog(ctx, c, s.identity.id); err != nil {
		return nil, err
	}
	s.opts.seams.At("snapshot-copied")
	if err := publishFile(d.fs, d.tmp, snapshotName, appendOrigin(nil, &c.origin)); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return &SnapshotStats{
		URLs: c.origin.URLs, LSN: c.origin.LSN, FlushesHeld: c.held, LinkedBytes: d.linked, CopiedBytes: d.copied,
	}, nil
}

// linkOrCopy gives a file a second name, or copies and syncs it where that
// cannot be had: on another device, or in a file system that knows no links.
func linkOrCopy(fsys vfs.FS, from, to string) (linked bool, err error) {
	err = fsys.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return false, vfs.Copy(fsys, from, to)
}
