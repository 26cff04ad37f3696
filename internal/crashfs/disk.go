// Package crashfs is a disk in memory for tests that cut the power, damage
// files and make calls fail: Pebble's crashable MemFS for files and the twin
// of mmapfilter for mapped ones, held together so that one crash image shows
// both at the same instant.
//
// An [Op] is announced to the hook before it happens. The hook may take a
// crash image there, or return the error that the operation is to fail with.
package crashfs

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/seam"
	"dedupstore/mmapfilter"
)

// An Op is one call of the file system. Calls on mapped files have a Kind that
// begins with "map-".
type Op struct {
	Kind string
	Path string
}

// Changes reports whether the operation changes what is on the disk.
func (o Op) Changes() bool {
	switch o.Kind {
	case "open", "read", "list", "stat", "map-open", "map-peek", "map-list":
		return false
	}
	return true
}

// A Hook is told of an operation before it happens. An error makes it fail
// without effect. It may be called by many goroutines at once, and not while a
// crash image is being taken.
type Hook func(Op) error

// A Disk is a file system and a device of mapped files that lose power
// together. Its methods may be called by any number of goroutines.
type Disk struct {
	mem  *MemFS
	twin *mmapfilter.Twin
	hook atomic.Pointer[Hook]

	// gate is held shared by each operation and exclusively while an image is
	// taken.
	gate sync.RWMutex
}

// New returns an empty disk.
func New() *Disk {
	return &Disk{mem: NewMem(), twin: mmapfilter.NewTwin()}
}

// SetHook sets the hook; nil takes it away.
func (d *Disk) SetHook(h Hook) {
	if h == nil {
		d.hook.Store(nil)
		return
	}
	d.hook.Store(&h)
}

// Seams returns the seams of a store on this disk.
func (d *Disk) Seams() seam.Seams { return seam.Seams{FS: d.FS(), Device: d.Device()} }

// FS returns the file system.
func (d *Disk) FS() vfs.FS { return diskFS{d.mem, d} }

// Device returns the device of mapped files.
func (d *Disk) Device() mmapfilter.Device { return device{d} }

// SetFree sets how many bytes the disk says that it has free. Without it the
// disk does not say.
func (d *Disk) SetFree(bytes uint64) {
	d.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 40, UsedBytes: 1<<40 - bytes})
}

// Crash returns what is there after the power went at this moment: all that
// was synced, and of what was not, each block and directory entry by itself in
// percent of 100 cases. The disk goes on being usable, also meanwhile.
func (d *Disk) Crash(rng *rand.Rand, percent int) *Disk {
	d.gate.Lock()
	defer d.gate.Unlock()
	twin := d.twin.Crash(rng, percent)
	return &Disk{
		mem:  d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}),
		twin: twin,
	}
}

// Clone returns the disk as it is: what a killed process leaves behind, with
// everything that was written.
func (d *Disk) Clone() *Disk { return d.Crash(rand.New(rand.NewPCG(1, 1)), 100) }

// CutIn does op and returns what a crash before the n-th change in it, from 1,
// would have left; nil if op makes fewer.
func (d *Disk) CutIn(op func(), n int, rng *rand.Rand, percent int) *Disk {
	var mu sync.Mutex // a call that is still under way after op may be in the hook
	var image *Disk
	d.SetHook(func(o Op) error {
		mu.Lock()
		defer mu.Unlock()
		if o.Changes() {
			if n--; n == 0 {
				image = d.Crash(rng, percent)
			}
		}
		return nil
	})
	op()
	d.SetHook(nil)
	mu.Lock()
	defer mu.Unlock()
	return image
}

// Contents returns every file by its path, and every directory by its path
// and a slash with nil for content.
func (d *Disk) Contents(dir string) map[string][]byte {
	all := make(map[string][]byte)
	d.walk(dir, all)
	return all
}

func (d *Disk) walk(dir string, all map[string][]byte) {
	names, err := d.mem.List(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		path := d.mem.PathJoin(dir, name)
		if st, err := d.mem.Stat(path); err == nil && st.IsDir() {
			all[path+"/"] = nil
			d.walk(path, all)
			continue
		}
		all[path] = d.Read(path)
	}
	mapped, err := d.twin.List(dir)
	if err != nil {
		return
	}
	for _, name := range mapped {
		path := d.mem.PathJoin(dir, name)
		all[path] = d.Read(path)
	}
}

// Diff describes the first difference between two results of Contents, the
// files whose names end with skip aside; "" if there is none.
func Diff(before, after map[string][]byte, skip string) string {
	paths := make(map[string]bool)
	for p := range before {
		paths[p] = true
	}
	for p := range after {
		paths[p] = true
	}
	sorted := make([]string, 0, len(paths))
	for p := range paths {
		sorted = append(sorted, p)
	}
	slices.Sort(sorted)
	for _, p := range sorted {
		if skip != "" && strings.HasSuffix(p, skip) {
			continue
		}
		b, was := before[p]
		a, is := after[p]
		switch {
		case !is:
			return p + " is gone"
		case !was:
			return p + " is new"
		case !bytes.Equal(a, b):
			return p + " has changed"
		}
	}
	return ""
}

// Mapped reports whether the file is one of the device's.
func (d *Disk) Mapped(path string) bool {
	var b [1]byte
	_, _, err := d.twin.Peek(path, b[:])
	return err == nil
}

// Read returns a file's content, nil if it is not there.
func (d *Disk) Read(path string) []byte {
	if d.Mapped(path) {
		m, err := d.twin.Open(path, true)
		if err != nil {
			return nil
		}
		var b []byte
		for i := range m.Words() {
			b = binary.LittleEndian.AppendUint64(b, atomic.LoadUint64(&m.Words()[i]))
		}
		return b
	}
	f, err := d.mem.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil
	}
	return b
}

// Write replaces a file's content, durably. A mapped file's is cut to a
// multiple of eight bytes. For files that nobody has open.
func (d *Disk) Write(path string, content []byte) error {
	if d.Mapped(path) {
		if err := d.twin.Remove(path); err != nil {
			return err
		}
		m, err := d.twin.Create(path, int64(len(content)))
		if err != nil {
			return err
		}
		for i := range m.Words() {
			m.Words()[i] = binary.LittleEndian.Uint64(content[i*8:])
		}
		return m.Sync()
	}
	f, err := d.mem.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := f.Write(slices.Clone(content)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return d.syncDir(path)
}

// Remove unlinks a file, durably.
func (d *Disk) Remove(path string) error {
	if d.Mapped(path) {
		return d.twin.Remove(path)
	}
	if err := d.mem.Remove(path); err != nil {
		return err
	}
	return d.syncDir(path)
}

// Flip inverts one bit of a file.
func (d *Disk) Flip(path string, offset int64, bit uint) error {
	b := d.Read(path)
	b[offset] ^= 1 << bit
	return d.Write(path, b)
}

func (d *Disk) syncDir(path string) error {
	dir, err := d.mem.OpenDir(d.mem.PathDir(path))
	if err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return err
	}
	return dir.Close()
}

// do announces an operation and does it, unless the hook says otherwise.
func (d *Disk) do(kind, path string, op func() error) error {
	if h := d.hook.Load(); h != nil {
		if err := (*h)(Op{Kind: kind, Path: path}); err != nil {
			return err
		}
	}
	d.gate.RLock()
	defer d.gate.RUnlock()
	return op()
}
