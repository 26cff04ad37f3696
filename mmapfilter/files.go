//go:build unix

package mmapfilter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// files is the Device of real mapped files. A page of one must never be a
// hole: storing into a hole of a full disk is a SIGBUS at the store. So a
// file is allocated before it is mapped.
//
// On a copy-on-write file system (Btrfs, ZFS, bcachefs, a reflinked file) an
// allocated page may still need space when it is overwritten. SetSorted turns
// the signal into an error there too.
type files struct {
	// fallocate is put in by tests. Nil: allocate of this platform.
	fallocate func(f *os.File, size int64) error
}

// errNoFallocate is what allocate returns where the file system cannot, and
// the file has to be written full of zeros.
var errNoFallocate = errors.New("fallocate is not supported")

func (d files) Create(path string, size int64) (_ Mapping, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(path))
		}
	}()
	if err := d.reserve(f, size); err != nil {
		return nil, fmt.Errorf("allocate %d bytes for %s: %w", size, path, err)
	}
	if err := syncDir(path); err != nil {
		return nil, err
	}
	return mapFile(f, false)
}

// reserve makes f size bytes of allocated zeros.
func (d files) reserve(f *os.File, size int64) error {
	// Asked for more than there is, ext4 hands out what it has before it says
	// so, and for that moment nobody else can write. So look first.
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if free := float64(st.Bavail) * float64(st.Bsize); free < float64(size) {
		return fmt.Errorf("%.0f bytes are free: %w", free, unix.ENOSPC)
	}
	fallocate := d.fallocate
	if fallocate == nil {
		fallocate = allocate
	}
	err := fallocate(f, size)
	if errors.Is(err, errNoFallocate) {
		err = writeZeros(f, size)
	}
	return err
}

// writeZeros writes size zeros to an empty file.
func writeZeros(f *os.File, size int64) error {
	buf := make([]byte, min(size, 1<<20)) // 1 MiB
	for off := int64(0); off < size; {
		n, err := f.WriteAt(buf[:min(int64(len(buf)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

func (files) Open(path string, readOnly bool) (Mapping, error) {
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	m, err := mapFile(f, readOnly)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

// mapFile maps the whole of f, which the mapping then owns.
func mapFile(f *os.File, readOnly bool) (Mapping, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := st.Size()
	if size <= 0 || size%8 != 0 || size > math.MaxInt {
		return nil, fmt.Errorf("map %s: a size of %d bytes cannot be mapped as words", f.Name(), size)
	}
	// No advice is given. With MADV_RANDOM, the usual one for a filter, pages
	// come in one by one: 256 MB took 3.5 s instead of 0.13 s for a pass in
	// order, which a flush is, and 4.0 s instead of 0.18 s for lookups until
	// all was in memory, where it is meant to be. 2,000 lookups in a cold file
	// took the same 0.15 s.
	prot := unix.PROT_READ
	if !readOnly {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return &mapping{f: f, bytes: b, words: wordsOf(b)}, nil
}

func (files) Peek(path string, p []byte) (n int, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() // nothing was written
	st, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	n, err = io.ReadFull(f, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, st.Size(), err
}

func (files) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (files) Rename(oldPath, newPath string) error {
	// One process owns the directory, so nobody comes between the two.
	switch _, err := os.Lstat(newPath); {
	case err == nil:
		return &os.LinkError{Op: "rename", Old: oldPath, New: newPath, Err: fs.ErrExist}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.Rename(oldPath, newPath); err != nil {
		return err
	}
	if err := syncDir(newPath); err != nil {
		return errors.Join(err, os.Rename(newPath, oldPath))
	}
	return nil
}

func (files) Remove(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return syncDir(path)
}

// syncDir makes the entry of path in its directory durable.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// A mapping is a mapped file and the descriptor that it is synced through.
type mapping struct {
	f     *os.File
	bytes []byte
	words []uint64
}

func (m *mapping) Words() []uint64 { return m.words }

// Sync starts with msync, which takes the pages that were stored to, and ends
// with fdatasync, which takes the file's size and what a file system that
// tells the two apart has kept back. Linux reports a failed write-back once
// for each open file; whichever of the two calls hears of it, Sync returns it.
func (m *mapping) Sync() error {
	if m.bytes == nil {
		return ErrClosed
	}
	if err := unix.Msync(m.bytes, unix.MS_SYNC); err != nil {
		return &os.PathError{Op: "msync", Path: m.f.Name(), Err: err}
	}
	if err := datasync(m.f); err != nil {
		return &os.PathError{Op: "fdatasync", Path: m.f.Name(), Err: err}
	}
	return nil
}

func (m *mapping) StartSync(off, n int64) { startSync(m.f, off, n) }

func (m *mapping) Linked(path string) (bool, error) {
	mapped, err := m.f.Stat()
	if err != nil {
		return false, err
	}
	at, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(mapped, at), nil
}

func (m *mapping) Close() error {
	if m.bytes == nil {
		return nil
	}
	// To unmap is to hold up whoever else has a page fault, for as long as the
	// pages take that are mapped: so those go first, some at a time.
	const step = 8 << 20 // 8 MiB
	for rest := m.bytes; len(rest) > 0; rest = rest[min(step, len(rest)):] {
		_ = unix.Madvise(rest[:min(step, len(rest))], unix.MADV_DONTNEED) // a hint
	}
	err := unix.Munmap(m.bytes)
	if err != nil {
		err = &os.PathError{Op: "munmap", Path: m.f.Name(), Err: err}
	}
	m.bytes, m.words = nil, nil
	return errors.Join(err, m.f.Close())
}
