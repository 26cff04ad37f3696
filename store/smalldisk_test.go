package store

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/mmapfilter"
)

// A smallDisk is a file system and a device in memory that hold so many bytes
// together and no more, and say how many are free.
type smallDisk struct {
	vfs.FS
	twin   *mmapfilter.Twin
	before func(op, path string) // is called before each change, when not nil

	mu               sync.Mutex
	total, used, low int64 // low is the least that was ever free
	places           map[string]*place
}

// A place is what a file takes: the more of what was written and what was
// preallocated.
type place struct {
	bytes, written int64
	links          int
}

func newSmallDisk(total int64) *smallDisk {
	return &smallDisk{
		FS: vfs.NewMem(), twin: mmapfilter.NewTwin(),
		total: total, low: total, places: map[string]*place{},
	}
}

func (d *smallDisk) Unwrap() vfs.FS { return d.FS }

// takeLocked takes n bytes, or says ENOSPC.
func (d *smallDisk) takeLocked(n int64) error {
	if d.used+n > d.total {
		return syscall.ENOSPC
	}
	d.used += n
	d.low = min(d.low, d.total-d.used)
	return nil
}

// others leaves so many bytes free, as other programs may.
func (d *smallDisk) others(leave int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total = d.used + leave
	d.low = leave
}

func (d *smallDisk) lowest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.low
}

func (d *smallDisk) step(op, path string) {
	d.mu.Lock()
	before := d.before
	d.mu.Unlock()
	if before != nil {
		before(op, path)
	}
}

func (d *smallDisk) setBefore(f func(op, path string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := uint64(d.total - d.used)
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: uint64(d.total), UsedBytes: uint64(d.used)}, nil
}

func (d *smallDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.step("create", name)
	file, err := d.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropLocked(name)
	d.places[name] = &place{links: 1}
	return &smallFile{file, d, d.places[name], name}, nil
}

func (d *smallDisk) dropLocked(name string) {
	p := d.places[name]
	if p == nil {
		return
	}
	if p.links--; p.links == 0 {
		d.used -= p.bytes
	}
	delete(d.places, name)
}

func (d *smallDisk) Remove(name string) error {
	d.step("remove", name)
	err := d.FS.Remove(name)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.dropLocked(name)
	}
	return err
}

func (d *smallDisk) Rename(from, to string) error {
	d.step("rename", to)
	err := d.FS.Rename(from, to)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.dropLocked(to)
		d.places[to] = d.places[from]
		delete(d.places, from)
	}
	return err
}

// RemoveAll removes a directory, whose files it frees.
func (d *smallDisk) RemoveAll(name string) error {
	d.step("remove", name)
	err := d.FS.RemoveAll(name)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		for path := range d.places {
			if path == name || strings.HasPrefix(path, name+"/") {
				d.dropLocked(path)
			}
		}
	}
	return err
}

func (d *smallDisk) Link(from, to string) error {
	d.step("link", to)
	err := d.FS.Link(from, to)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.places[to] = d.places[from]
		d.places[to].links++
	}
	return err
}

// size is that of a file, -1 if there is none.
func (d *smallDisk) size(name string) int64 {
	info, err := d.FS.Stat(name)
	if err != nil {
		return -1
	}
	return info.Size()
}

type smallFile struct {
	vfs.File
	d    *smallDisk
	p    *place
	name string
}

func (f *smallFile) Write(b []byte) (int, error) {
	f.d.step("write", f.name)
	f.d.mu.Lock()
	end := f.p.written + int64(len(b))
	err := f.d.growLocked(f.p, end)
	if err == nil {
		f.p.written = end
	}
	f.d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (d *smallDisk) growLocked(p *place, bytes int64) error {
	if bytes <= p.bytes {
		return nil
	}
	if err := d.takeLocked(bytes - p.bytes); err != nil {
		return err
	}
	p.bytes = bytes
	return nil
}

func (f *smallFile) Preallocate(offset, n int64) error {
	f.d.step("preallocate", f.name)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.growLocked(f.p, offset+n)
}

func (f *smallFile) Truncate(size int64) error {
	f.d.step("truncate", f.name)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.used -= f.p.bytes - size
	f.p.bytes = size
	return nil
}

// smallDevice is the device of a smallDisk.
type smallDevice struct {
	*mmapfilter.Twin
	d *smallDisk
}

func (v smallDevice) Create(path string, size int64) (mmapfilter.Mapping, error) {
	v.d.step("map-create", path)
	v.d.mu.Lock()
	err := v.d.takeLocked(size)
	if err == nil {
		v.d.places[path] = &place{bytes: size, links: 1}
	}
	v.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return v.Twin.Create(path, size)
}

func (v smallDevice) Rename(from, to string) error {
	v.d.step("map-rename", to)
	err := v.Twin.Rename(from, to)
	if err == nil {
		v.d.mu.Lock()
		defer v.d.mu.Unlock()
		v.d.places[to] = v.d.places[from]
		delete(v.d.places, from)
	}
	return err
}

func (v smallDevice) Remove(path string) error {
	v.d.step("map-remove", path)
	err := v.Twin.Remove(path)
	if err == nil {
		v.d.mu.Lock()
		defer v.d.mu.Unlock()
		v.d.dropLocked(path)
	}
	return err
}

// onSmallDisk is a world on a disk of so many bytes.
func onSmallDisk(t testing.TB, total int64) (*world, *smallDisk) {
	d := newSmallDisk(total)
	return &world{t: t, dir: "/store", o: smallOptions(), disk: d, memtableWords: 6000}, d
}
