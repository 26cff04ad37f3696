package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// creatingName marks a directory in which a store is being made. The identity
// file comes last and the mark goes after it, so that a directory with the
// mark and no identity holds nothing that anybody was answered from.
const creatingName = "CREATING"

// creatingText is what the mark holds. Without it nothing is removed.
const creatingText = "dedupstore creates a store here; without STORE this directory may be removed\n"

// examineDir says whether dir holds a store, and returns an error that is
// ErrNotExist or ErrNotStore if it does not and none may be made there.
func examineDir(o *Options, dir string) (exists bool, err error) {
	fsys := o.seams.FS
	info, err := fsys.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if o.MustExist || o.ReadOnly {
			return false, fmt.Errorf("%w: %s", ErrNotExist, dir)
		}
		parent := fsys.PathDir(dir)
		if _, err := fsys.Stat(parent); err != nil {
			return false, fmt.Errorf("store: %s has no directory to be made in: %w", dir, err)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	if !info.IsDir() {
		return false, fmt.Errorf("%w: %s is no directory", ErrNotStore, dir)
	}
	names, err := fsys.List(dir)
	if err != nil {
		return false, fmt.Errorf("store: list %s: %w", dir, err)
	}
	if slices.Contains(names, identityName) {
		if o.MustCreate {
			return true, fmt.Errorf("store: %s holds a store: %w", dir, fs.ErrExist)
		}
		return true, nil
	}
	if err := creatable(fsys, dir, names); err != nil {
		return false, err
	}
	if o.MustExist || o.ReadOnly {
		return false, fmt.Errorf("%w: %s", ErrNotExist, dir)
	}
	return false, nil
}

// creatable returns an error if the directory holds what a creation that did
// not end cannot have left.
func creatable(fsys vfs.FS, dir string, names []string) error {
	marked := false
	if slices.Contains(names, creatingName) {
		b, err := readSmallFile(fsys, fsys.PathJoin(dir, creatingName), 4<<10)
		if isSystem(err) {
			return fmt.Errorf("store: read %s: %w", fsys.PathJoin(dir, creatingName), err)
		}
		marked = err == nil && string(b) == creatingText
	}
	for _, name := range names {
		var left bool
		var err error
		switch name {
		case "lost+found":
			left = true
		case lockName:
			left, err = begins(fsys, fsys.PathJoin(dir, name), holderPrefix, 4<<10)
		case creatingName + newSuffix:
			left, err = begins(fsys, fsys.PathJoin(dir, name), creatingText, len(creatingText))
		default:
			left = marked && ours(name)
		}
		if err != nil {
			return err
		}
		if !left {
			return fmt.Errorf("%w: %s holds %q and no %s", ErrNotStore, dir, name, identityName)
		}
	}
	return nil
}

// begins reports whether a file of at most limit bytes begins with text, or
// with what a crash may leave of it: less of it, or zeros.
func begins(fsys vfs.FS, path, text string, limit int) (bool, error) {
	b, err := readSmallFile(fsys, path, int64(limit))
	if isSystem(err) {
		return false, fmt.Errorf("store: read %s: %w", path, err)
	}
	if err != nil {
		return false, nil // too large, or no file
	}
	for i, c := range b[:min(len(b), len(text))] {
		if c != text[i] && c != 0 {
			return false, nil
		}
	}
	return true, nil
}

// create makes an empty store in dir, which exists and is locked.
func create(o *Options, dir string) error {
	id, err := newIdentity(o)
	if err != nil {
		return err
	}
	return createWith(o, dir, id, newRegistry(
		uint64(cmp.Or(o.ExpectedURLs, defaultExpectedURLs)), int64(cmp.Or(o.TTL, Forever)), newStoreTime(o.Clock, clockStamp{}).stamp()), nil)
}

// createWith makes a store with the given identity and registry. words, if not
// nil, writes the tables of the segments' words and returns their paths.
func createWith(o *Options, dir string, id *identity, r *registry, words func(*Store) ([]string, error)) error {
	fsys := o.seams.FS
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	if err := creatable(fsys, dir, names); err != nil {
		return err
	}
	if err := beginCreation(fsys, dir, names); err != nil {
		return err
	}
	for _, sub := range []string{logDir, pebbleDir, tmpDir} {
		if err := fsys.MkdirAll(fsys.PathJoin(dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := createBitmap(o, dir, id, r); err != nil {
		return err
	}
	if err := createPebble(o, dir, id, r, words); err != nil {
		return err
	}
	log, err := wal.Create(fsys, fsys.PathJoin(dir, logDir),
		wal.Start{File: r.flushed + 1, FirstLSN: 1, Meta: logMeta(r.clock)}, wal.Options{StoreID: id.id})
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	if err := publishFile(fsys, dir, identityName, appendIdentity(nil, id)); err != nil {
		return err
	}
	if err := fsys.Remove(fsys.PathJoin(dir, creatingName)); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

// beginCreation marks a creatable directory, and removes what an earlier
// creation has left.
func beginCreation(fsys vfs.FS, dir string, names []string) error {
	if err := publishFile(fsys, dir, creatingName, []byte(creatingText)); err != nil {
		return err
	}
	for _, name := range names {
		if name != "lost+found" && name != lockName && name != creatingName {
			if err := fsys.RemoveAll(fsys.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func createBitmap(o *Options, dir string, id *identity, r *registry) error {
	path := o.seams.FS.PathJoin(dir, bitmapName(r.bitmapGeneration))
	if err := o.seams.Device.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := mmapfilter.Create(o.seams.Device, path, mmapfilter.Header{
		StoreID: id.id, Generation: r.bitmapGeneration,
		Params: mmapfilter.ParamsFor(r.floor, id.hasher.mix),
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// createPebble makes a Pebble whose only content is the registry, and words.
func createPebble(o *Options, dir string, id *identity, r *registry, words func(*Store) ([]string, error)) error {
	// Pebble does not come back from a MANIFEST that it cannot write.
	if err := newSpace(o, dir).check(minStep); err != nil {
		return err
	}
	s := &Store{dir: dir, opts: *o, poisoned: make(chan struct{})}
	s.events = newPebbleEvents(s.poison, o.Logger)
	s.pebble = pebbleOptions(o.seams.FS, minCacheBytes, id.id, s.events, false)
	s.pebble.ErrorIfNotExists, s.pebble.ErrorIfExists = false, true
	r.ingest = 1
	err := s.events.apart(func() (err error) {
		if s.db, err = pebble.Open(o.seams.FS.PathJoin(dir, pebbleDir), s.pebble); err != nil {
			return err
		}
		rows := s.tmpTable(r.ingest, 0)
		paths := []string{rows}
		_, err = s.writeRows(rows, r)
		if err == nil && words != nil {
			var more []string
			more, err = words(s)
			paths = append(paths, more...)
		}
		if err == nil {
			err = s.db.Ingest(context.Background(), paths)
		}
		return errors.Join(err, s.db.Close())
	})
	return errors.Join(err, s.Err())
}
