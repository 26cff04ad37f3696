package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// LinkFile gives a log file the same name in another directory, or copies it
// where it cannot have two. What is appended to it is in both if it was linked.
// The directory is the caller's to sync.
func LinkFile(fs vfs.FS, from, to string, file uint64) error {
	name := fileName(file)
	if err := vfs.LinkOrCopy(fs, fs.PathJoin(from, name), fs.PathJoin(to, name)); err != nil {
		return noSpace("link", fs.PathJoin(from, name), err)
	}
	return nil
}

// CopyFile copies a log file from one directory to another, up to the record
// last if it has that one, and syncs the copy. It returns the copy's size. The
// record must be written; what a Log appends behind it meanwhile is not copied,
// nor is a torn tail. The copy's directory is the caller's to sync.
//
// Frames are verified on the way, but not that there are as many as there
// should be: Read of the copy tells, by Chain.Last.
func CopyFile(fs vfs.FS, from, to string, file uint64, storeID [16]byte, last LSN) (bytes int64, err error) {
	name := fileName(file)
	path := fs.PathJoin(from, name)
	h, _, err := readHeader(fs, path, file, storeID)
	if errors.Is(err, errUnfinished) {
		return 0, corrupt(path, 0, 0, "bad header", err)
	}
	if err != nil {
		return 0, err
	}
	bytes, err = endOf(fs, path, &h, last)
	if err != nil {
		return 0, err
	}
	if err := vfs.LimitedCopy(fs, path, fs.PathJoin(to, name), bytes); err != nil {
		return 0, noSpace("copy", path, err)
	}
	return bytes, nil
}

// endOf is where the good frames up to a record end in a file.
func endOf(fs vfs.FS, path string, h *header, last LSN) (int64, error) {
	w, err := openWindow(fs, path)
	if err != nil {
		return 0, err
	}
	defer w.close()
	w.seek(headerBytes)
	walk := walk{window: w, salt: fileSalt(h.store, h.file), want: h.firstLSN, prev: h.chain}
	for end := int64(headerBytes); ; end = w.off {
		f, _, err := walk.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errZeros), isBroken(err):
			return end, nil
		case err != nil:
			return 0, fmt.Errorf("wal: copy %s: %w", path, err)
		case f.lsn > last:
			return end, nil
		case f.kind == kindSwitch, f.lsn == last && f.kind != kindMark:
			return w.off, nil
		}
	}
}
