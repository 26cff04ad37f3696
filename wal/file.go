package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A logFile is a log file that is open for appending. Its figures are guarded
// by Log.mu; w is used by who has the write turn, s by who has the sync turn,
// and both by the latter once the file is retired.
type logFile struct {
	num  uint64
	path string
	salt uint64

	// Two handles of one file, since a vfs.File takes either a write or a sync
	// at a time, and a write should not wait for the disk.
	w, s vfs.File

	size     int64 // bytes of the header and of the frames appended
	reserved int64 // bytes preallocated
	hidden   int64 // of them, for the log's own frames that are still to come
}

// room returns what is left for the caller's frames.
func (f *logFile) room() int64 { return f.reserved - f.size - f.hidden }

// finish gives back what was preallocated and not used, and syncs the file.
// Its end must be written.
func (f *logFile) finish(size int64) error {
	// Not every File can be truncated; then the rest stays until the unlink.
	if t, ok := f.w.(interface{ Truncate(int64) error }); ok {
		if err := t.Truncate(size); err != nil {
			return fmt.Errorf("truncate %s: %w", f.path, err)
		}
	}
	if err := f.s.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", f.path, err)
	}
	return nil
}

// close releases the handles. What was to be safe is synced by now, so that
// an error means nothing more.
func (f *logFile) close() error {
	return errors.Join(f.w.Close(), f.s.Close())
}

// putSwitch encodes the payload of a switch record.
func putSwitch(dst []byte, next uint64) { binary.LittleEndian.PutUint64(dst, next) }

// getSwitch decodes the payload of a switch record.
func getSwitch(src []byte) uint64 { return binary.LittleEndian.Uint64(src) }

// preallocate reserves n bytes of the disk for f from offset on. The size of
// the file stays what was written: an fdatasync after a write of 8 KiB takes
// 173 us so, 175 us where the size grows at once, and 220 us without
// preallocation; zeros written beforehand make it 130 us at the price of
// twice the bytes (BenchmarkPreallocate, ext4).
func preallocate(f vfs.File, offset, n int64) error {
	for {
		err := f.Preallocate(offset, n)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return nil
		}
		return err
	}
}

// makeFile makes a log file that holds header h, and makes it durable, its
// directory entry included: what a switch record or an LSN may rest on then.
// On an error no file is left, as far as that can be had.
//
// A file that continues others takes its name when it is whole, and from the
// file that may have it: one that was prepared and is to be dropped. Removing
// that one first would leave, after a crash between the two, a log without the
// file that others count on.
func makeFile(fs vfs.FS, dir string, h *header, step int64) (_ *logFile, err error) {
	path := fs.PathJoin(dir, fileName(h.file))
	made := path
	if !h.prepared() {
		made += newSuffix
	}
	f := &logFile{
		num:      h.file,
		path:     path,
		salt:     fileSalt(h.store, h.file),
		size:     headerBytes,
		reserved: headerBytes + hiddenBytes + step,
		hidden:   hiddenBytes,
	}
	f.w, err = fs.Create(made, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, noSpace("create", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.w.Close()
			if f.s != nil {
				_ = f.s.Close()
			}
			_ = fs.Remove(made)
		}
	}()
	if err := preallocate(f.w, 0, f.reserved); err != nil {
		return nil, noSpace("preallocate", path, err)
	}
	b := appendHeader(nil, h)
	if n, err := f.w.Write(b); err != nil {
		return nil, noSpace("write", path, err)
	} else if n != len(b) {
		return nil, noSpace("write", path, io.ErrShortWrite)
	}
	if err := f.w.Sync(); err != nil {
		return nil, noSpace("sync", path, err)
	}
	f.s, err = fs.Open(made)
	if err != nil {
		return nil, noSpace("open", path, err)
	}
	if made != path {
		if err := fs.Rename(made, path); err != nil {
			return nil, noSpace("rename", path, err)
		}
	}
	if err := syncDir(fs, dir); err != nil {
		return nil, err
	}
	return f, nil
}

// checkStart verifies that a log may begin at s, and syncs the files before.
func checkStart(fs vfs.FS, dir string, s *Start) error {
	if s.File == 0 || s.FirstLSN == 0 {
		return fmt.Errorf("wal: a log starts with file %d and LSN %d, want 1 or more", s.File, s.FirstLSN)
	}
	if s.SealedEnd != 0 && (s.SealedEnd < headerBytes || s.SealedEnd%alignment != 0) {
		return fmt.Errorf("wal: no log file ends at offset %d", s.SealedEnd)
	}
	if err := removeUnpublished(fs, dir); err != nil {
		return err
	}
	nums, err := listFiles(fs, dir)
	if err != nil {
		return err
	}
	if n := len(nums); s.Replaces && n > 0 && nums[n-1] == s.File {
		nums = nums[:n-1]
	}
	if len(nums) == 0 {
		return nil
	}
	if n := nums[len(nums)-1]; n >= s.File {
		return fmt.Errorf("wal: create %s: file %d is there: %w",
			fs.PathJoin(dir, fileName(s.File)), n, iofs.ErrExist)
	}
	if s.SealedEnd == 0 {
		return fmt.Errorf("wal: create %s: file %d is there and it is not said where it ends",
			fs.PathJoin(dir, fileName(s.File)), nums[len(nums)-1])
	}
	for _, n := range nums {
		if err := syncFile(fs, fs.PathJoin(dir, fileName(n))); err != nil {
			return err
		}
	}
	return nil
}

// removeUnpublished removes what a Create that did not end has left.
func removeUnpublished(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("wal: list %s: %w", dir, err)
	}
	for _, name := range names {
		base, ok := strings.CutSuffix(name, newSuffix)
		if _, ours := parseFileName(base); !ok || !ours {
			continue
		}
		if err := fs.Remove(fs.PathJoin(dir, name)); err != nil {
			return fmt.Errorf("wal: remove %s: %w", fs.PathJoin(dir, name), err)
		}
	}
	return nil
}

func syncFile(fs vfs.FS, path string) error {
	f, err := fs.Open(path)
	if err != nil {
		return fmt.Errorf("wal: open %s: %w", path, err)
	}
	err = f.Sync()
	if err != nil {
		err = fmt.Errorf("wal: sync %s: %w", path, err)
	}
	return errors.Join(err, f.Close())
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("wal: open %s: %w", dir, err)
	}
	err = d.Sync()
	if err != nil {
		err = fmt.Errorf("wal: sync %s: %w", dir, err)
	}
	return errors.Join(err, d.Close())
}

// Remove unlinks a log file that is needed no more. Something in a later file
// must be synced by then, for a reader takes the lowest file for the one that
// everything begins with.
func Remove(fs vfs.FS, dir string, file uint64) error {
	path := fs.PathJoin(dir, fileName(file))
	if err := fs.Remove(path); err != nil {
		return fmt.Errorf("wal: remove %s: %w", path, err)
	}
	return syncDir(fs, dir)
}

// Quarantine renames a log file out of the way of Read, under a name that is
// not taken yet, which it returns.
func Quarantine(fs vfs.FS, dir string, file uint64) (newName string, err error) {
	return setAside(fs, dir, file, fs.Rename)
}

// KeepCopy gives a log file that a Create will replace a second name, as
// Quarantine would have given it.
func KeepCopy(fs vfs.FS, dir string, file uint64) (newName string, err error) {
	return setAside(fs, dir, file, func(path, newPath string) error { return vfs.LinkOrCopy(fs, path, newPath) })
}

func setAside(fs vfs.FS, dir string, file uint64, move func(path, newPath string) error) (newName string, err error) {
	path := fs.PathJoin(dir, fileName(file))
	names, err := fs.List(dir)
	if err != nil {
		return "", fmt.Errorf("wal: list %s: %w", dir, err)
	}
	taken := make(map[string]bool, len(names))
	for _, n := range names {
		taken[n] = true
	}
	newName = fileName(file) + badSuffix
	for i := 2; taken[newName]; i++ {
		newName = fmt.Sprintf("%s.%d%s", fileName(file), i, badSuffix)
	}
	if err := move(path, fs.PathJoin(dir, newName)); err != nil {
		return "", fmt.Errorf("wal: quarantine %s: %w", path, err)
	}
	return newName, syncDir(fs, dir)
}
