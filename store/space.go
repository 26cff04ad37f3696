package store

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/planted"
	"dedupstore/mmapfilter"
)

// A full disk must not end a store. What it writes is of two kinds. Tables,
// bitmaps and the preallocation of log files can be put off: they are refused
// while less than MinFreeBytes would stay free, so that the store itself never
// fills the disk. Pebble's MANIFEST and a record of the log cannot: Pebble does
// not come back from a MANIFEST that it cannot write. They may take what is
// left, and if somebody else has taken that too, the reserve, a file that holds
// nothing but its place.
//
// Both are minded where all writes pass, in a file system and a device laid
// around those of the store, which tell the files by their names.

const (
	// defaultMinFreeBytes is for what may come at once below it: 4 MiB of a
	// log file and a step of a flush and of a compaction that asked at the same
	// time, and what others write meanwhile. A small disk cannot spare
	// so much: of one that has less than 256 MiB it is minFreeShare.
	defaultMinFreeBytes = 16 << 20
	minFreeShare        = 16 // one part in so many

	// A step is how much of a table is written from one look at the disk to
	// the next: a sixteenth of the floor, within these bounds. A look is one
	// statfs(2), some microseconds; a megabyte takes hundreds.
	minStep = 64 << 10
	maxStep = 1 << 20

	// manifestBytes is what a compaction that was asked for leaves, below the
	// floor and in small steps: a thousand changes of Pebble's MANIFEST, or a
	// new one that names as many tables.
	manifestBytes = 256 << 10

	reserveName = "reserve"
	// reserveBytes is enough for the MANIFEST that Pebble begins with each
	// open, at 100 bytes a table for ten thousand tables, and small against
	// the bitmap of an empty store.
	reserveBytes = 1 << 20
)

// space minds what is free on the disk of a store.
type space struct {
	fs     vfs.FS // the one underneath
	dir    string
	floor  int64
	step   int64
	known  bool // the disk says what is free
	logger *slog.Logger

	// digging counts what is under way that may write tables below the floor:
	// calls of Compact, and drops.
	digging atomic.Int32

	mu      sync.Mutex // held to make the reserve and to give it up
	stocked atomic.Bool
}

func newSpace(o *Options, dir string) *space {
	d := &space{fs: o.seams.FS, dir: dir, floor: o.MinFreeBytes, logger: o.Logger}
	u, err := d.fs.GetDiskUsage(dir)
	d.known = err == nil
	switch {
	case d.floor == 0 && d.known:
		d.floor = int64(min(defaultMinFreeBytes, u.TotalBytes/minFreeShare))
	case d.floor == 0:
		d.floor = defaultMinFreeBytes
	}
	d.step = min(max(d.floor/16, minStep), maxStep)
	d.stocked.Store(d.known && d.hasReserve())
	return d
}

// mind returns the options with this space around their file system and their
// device.
func (d *space) mind(o *Options) *Options {
	c := *o
	c.seams.FS = spaceFS{o.seams.FS, d}
	c.seams.Device = spaceDevice{o.seams.Device, d}
	return &c
}

// free is what the disk has free, if it says so.
func (d *space) free() (bytes int64, known bool) {
	u, err := d.fs.GetDiskUsage(d.dir)
	return int64(min(u.AvailBytes, 1<<62)), err == nil
}

// check returns an error that is ErrDiskFull if n bytes more would leave less
// than the floor.
func (d *space) check(n int64) error {
	if err := d.leaves(d.floor, n); err != nil {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return nil
}

// leaves returns an error if n bytes more would leave less than the floor. It
// is ENOSPC, for those underneath the store who know no other.
func (d *space) leaves(floor, n int64) error {
	free, known := d.free()
	if !known || free-n >= floor {
		return nil
	}
	return fmt.Errorf("%d bytes are needed in %s, where %d are free and %d are to stay so: %w",
		n, d.dir, free, floor, syscall.ENOSPC)
}

// claim looks whether n bytes of a table may be written, and returns how many
// may be until the next look.
func (d *space) claim(path string, n int64) (bytes int64, err error) {
	if d.digging.Load() > 0 && (isIn(path, pebbleDir) || isIn(path, tmpDir)) {
		n = max(n, minStep)
		return n, d.leaves(manifestBytes, n)
	}
	n = max(n, d.step)
	if planted.NoFloor {
		return n, nil
	}
	return n, d.leaves(d.floor, n)
}

// isIn reports whether a file is in the store's directory of that name.
func isIn(path, dir string) bool { return filepath.Base(filepath.Dir(path)) == dir }

func isTable(path string) bool { return filepath.Ext(path) == ".sst" }

// stock makes the reserve if it is not there and there is space. That it
// cannot is no error: the store does without.
func (d *space) stock() {
	if !d.wantsReserve() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hasSpaceForReserve() {
		return
	}
	path := d.fs.PathJoin(d.dir, reserveName)
	if err := writeReserve(d.fs, path); err != nil {
		d.logger.Warn("store: no reserve", "err", errors.Join(err, removeIfThere(d.fs, path)))
		return
	}
	d.stocked.Store(true)
}

func (d *space) hasSpaceForReserve() bool {
	free, known := d.free()
	return known && free-reserveBytes >= d.floor && d.digging.Load() == 0
}

func (d *space) hasReserve() bool {
	info, err := d.fs.Stat(d.fs.PathJoin(d.dir, reserveName))
	return err == nil && info.Size() == reserveBytes
}

// wantsReserve reports that the reserve is missing. Where the disk does not
// say what is free there is none.
func (d *space) wantsReserve() bool { return d.known && !d.stocked.Load() }

// reserved is what the reserve takes.
func (d *space) reserved() int64 {
	if d.stocked.Load() {
		return reserveBytes
	}
	return 0
}

// writeReserve writes noise, of which a file system that compresses makes
// nothing smaller.
func writeReserve(fsys vfs.FS, path string) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	noise := make([]byte, reserveBytes)
	_, err = rand.NewChaCha8([32]byte{}).Read(noise)
	if err == nil {
		_, err = f.Write(noise)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// giveUp removes the reserve for something that cannot wait.
func (d *space) giveUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stocked.Swap(false) {
		return
	}
	err := removeIfThere(d.fs, d.fs.PathJoin(d.dir, reserveName))
	d.logger.Warn("store: the reserve is given up", "dir", d.dir, "err", err)
}

// below lets tables be written below the floor, with the reserve given up, for
// what gives space back. What it returns ends that.
func (d *space) below() (end func()) {
	d.digging.Add(1)
	d.giveUp()
	return func() {
		d.digging.Add(-1)
		d.stock()
	}
}

// spaceFS is a store's file system that minds its space.
type spaceFS struct {
	vfs.FS
	space *space
}

// Unwrap returns the file system underneath.
func (f spaceFS) Unwrap() vfs.FS { return f.FS }

// Create refuses tables below the floor, and gives the reserve for whatever
// cannot be put off. A log file can: its preallocation says whether.
func (f spaceFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if isTable(name) {
		left, err := f.space.claim(name, 0)
		if err != nil {
			return nil, err
		}
		file, err := f.FS.Create(name, c)
		if err != nil {
			return nil, err
		}
		return &tableFile{File: file, path: name, space: f.space, left: left}, nil
	}
	file, err := f.FS.Create(name, c)
	if isDiskFull(err) && !isIn(name, logDir) {
		f.space.giveUp()
		file, err = f.FS.Create(name, c)
	}
	if err != nil {
		return nil, err
	}
	return &urgentFile{file, f.space}, nil
}

// A tableFile is a table that is being written.
type tableFile struct {
	vfs.File
	path  string
	space *space
	left  int64 // until the next look at the disk
}

func (f *tableFile) Write(p []byte) (int, error) {
	if n := int64(len(p)); f.left < n {
		more, err := f.space.claim(f.path, n)
		if err != nil {
			return 0, err
		}
		f.left += more
	}
	n, err := f.File.Write(p)
	f.left -= int64(n)
	return n, err
}

// An urgentFile is one whose writes cannot be put off.
type urgentFile struct {
	vfs.File
	space *space
}

// Write gives the reserve where there is no space, and writes the rest once
// more. (Only a sync must not be tried again: a write says what it has done.)
func (f *urgentFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if !isDiskFull(err) {
		return n, err
	}
	f.space.giveUp()
	more, err := f.File.Write(p[n:])
	return n + more, err
}

// Preallocate can be put off, but for some sync marks of an idle log.
func (f *urgentFile) Preallocate(offset, n int64) error {
	if n >= minStep {
		if err := f.space.leaves(f.space.floor, n); err != nil {
			return err
		}
	}
	return f.File.Preallocate(offset, n)
}

// Truncate gives back what was preallocated, where the file can.
func (f *urgentFile) Truncate(size int64) error {
	if t, ok := f.File.(interface{ Truncate(int64) error }); ok {
		return t.Truncate(size)
	}
	return nil
}

// spaceDevice is a store's device that minds its space.
type spaceDevice struct {
	mmapfilter.Device
	space *space
}

// Create refuses a file that would go below the floor.
func (d spaceDevice) Create(path string, size int64) (mmapfilter.Mapping, error) {
	if err := d.space.leaves(d.space.floor, size); err != nil {
		return nil, err
	}
	return d.Device.Create(path, size)
}

// A backoff says when a disk that was full is worth another try: soon after
// there is more space than at the last one, and else after a pause, for a
// quota does not show in the free space. The pause is so long that trying
// costs a twentieth of the time at most, whatever one try costs.
type backoff struct {
	free int64     // when the last try began
	next time.Time // when the pause is over; zero: the last try did not fail
}

const (
	diskFullRetry = time.Second // from one look to the next
	backoffShare  = 20
)

// failed notes a try.
func (b *backoff) failed(free int64, took time.Duration) {
	b.free, b.next = free, time.Now().Add(backoffShare*took)
}

// due reports whether it is time for another try.
func (b *backoff) due(d *space) bool {
	if !time.Now().Before(b.next) {
		return true
	}
	free, known := d.free()
	return known && free >= b.free+b.free/8+minStep
}
