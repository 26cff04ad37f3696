package crashfs

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/mmapfilter"
)

// diskFS is the file system of a Disk. It shows the mapped files too, and
// removes them: on a real disk they are in the same directories.
type diskFS struct {
	vfs.FS
	d *Disk
}

func (f diskFS) Unwrap() vfs.FS { return f.FS }

func (f diskFS) Create(name string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.d.do("create", name, func() error { file, err = f.FS.Create(name, c); return err })
	return f.wrap(file, name, err)
}

func (f diskFS) wrap(file vfs.File, name string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &diskFile{File: file, d: f.d, path: name}, nil
}

func (f diskFS) Link(oldName, newName string) error {
	return f.d.do("link", newName, func() error { return f.FS.Link(oldName, newName) })
}

func (f diskFS) Open(name string, opts ...vfs.OpenOption) (file vfs.File, err error) {
	err = f.d.do("open", name, func() error { file, err = f.FS.Open(name, opts...); return err })
	return f.wrap(file, name, err)
}

func (f diskFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (file vfs.File, err error) {
	err = f.d.do("open-write", name, func() error { file, err = f.FS.OpenReadWrite(name, c, opts...); return err })
	return f.wrap(file, name, err)
}

func (f diskFS) OpenDir(name string) (file vfs.File, err error) {
	err = f.d.do("open", name, func() error { file, err = f.FS.OpenDir(name); return err })
	return f.wrap(file, name, err)
}

func (f diskFS) Remove(name string) error {
	return f.d.do("remove", name, func() error {
		if f.d.Mapped(name) {
			return f.d.twin.Remove(name)
		}
		return f.FS.Remove(name)
	})
}

func (f diskFS) RemoveAll(name string) error {
	return f.d.do("remove", name, func() error {
		if f.d.Mapped(name) {
			return f.d.twin.Remove(name)
		}
		return f.FS.RemoveAll(name)
	})
}

func (f diskFS) Rename(oldName, newName string) error {
	return f.d.do("rename", newName, func() error { return f.FS.Rename(oldName, newName) })
}

func (f diskFS) ReuseForWrite(oldName, newName string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.d.do("rename", newName, func() error { file, err = f.FS.ReuseForWrite(oldName, newName, c); return err })
	return f.wrap(file, newName, err)
}

func (f diskFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.d.do("mkdir", dir, func() error { return f.FS.MkdirAll(dir, perm) })
}

func (f diskFS) Lock(name string) (c io.Closer, err error) {
	err = f.d.do("lock", name, func() error { c, err = f.FS.Lock(name); return err })
	return c, err
}

func (f diskFS) List(dir string) (names []string, err error) {
	err = f.d.do("list", dir, func() error { names, err = f.FS.List(dir); return err })
	if err != nil {
		return nil, err
	}
	mapped, err := f.d.twin.List(dir)
	return append(names, mapped...), err
}

func (f diskFS) Stat(name string) (info vfs.FileInfo, err error) {
	err = f.d.do("stat", name, func() error { info, err = f.FS.Stat(name); return err })
	return info, err
}

// diskFile is an open file of a Disk.
type diskFile struct {
	vfs.File
	d    *Disk
	path string
}

func (f *diskFile) Read(p []byte) (n int, err error) {
	err = f.d.do("read", f.path, func() error { n, err = f.File.Read(p); return err })
	return n, err
}

func (f *diskFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.d.do("read", f.path, func() error { n, err = f.File.ReadAt(p, off); return err })
	return n, err
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.d.do("write", f.path, func() error { n, err = f.File.Write(p); return err })
	return n, err
}

func (f *diskFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.d.do("write", f.path, func() error { n, err = f.File.WriteAt(p, off); return err })
	return n, err
}

func (f *diskFile) Preallocate(off, n int64) error {
	return f.d.do("preallocate", f.path, func() error { return f.File.Preallocate(off, n) })
}

func (f *diskFile) Sync() error {
	return f.d.do("sync", f.path, f.File.Sync)
}

func (f *diskFile) SyncData() error {
	return f.d.do("sync", f.path, f.File.SyncData)
}

// device is the Device of a Disk.
type device struct{ d *Disk }

func (v device) Create(path string, size int64) (m mmapfilter.Mapping, err error) {
	err = v.d.do("map-create", path, func() error { m, err = v.d.twin.Create(path, size); return err })
	return v.wrap(m, path, err)
}

func (v device) wrap(m mmapfilter.Mapping, path string, err error) (mmapfilter.Mapping, error) {
	if err != nil {
		return nil, err
	}
	return mapping{m, v.d, path}, nil
}

func (v device) Open(path string, readOnly bool) (m mmapfilter.Mapping, err error) {
	err = v.d.do("map-open", path, func() error { m, err = v.d.twin.Open(path, readOnly); return err })
	return v.wrap(m, path, err)
}

func (v device) Peek(path string, p []byte) (n int, size int64, err error) {
	err = v.d.do("map-peek", path, func() error { n, size, err = v.d.twin.Peek(path, p); return err })
	return n, size, err
}

func (v device) List(dir string) (names []string, err error) {
	err = v.d.do("map-list", dir, func() error { names, err = v.d.twin.List(dir); return err })
	return names, err
}

func (v device) Rename(oldPath, newPath string) error {
	return v.d.do("map-rename", newPath, func() error { return v.d.twin.Rename(oldPath, newPath) })
}

func (v device) Remove(path string) error {
	return v.d.do("map-remove", path, func() error { return v.d.twin.Remove(path) })
}

type mapping struct {
	mmapfilter.Mapping
	d    *Disk
	path string
}

func (m mapping) Sync() error { return m.d.do("map-sync", m.path, m.Mapping.Sync) }
