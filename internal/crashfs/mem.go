package crashfs

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A MemFS is Pebble's crashable file system in memory, of which a crash image
// may be taken at any moment. Pebble's own hangs where CrashClone meets Link or
// Lock: both take one read lock twice, and no second one is to be had while a
// writer waits.
type MemFS struct {
	*vfs.MemFS
	twice sync.RWMutex // held shared by what takes that lock twice
}

// NewMem returns an empty file system.
func NewMem() *MemFS { return &MemFS{MemFS: vfs.NewCrashableMem()} }

// Link implements vfs.FS.
func (f *MemFS) Link(oldName, newName string) error {
	f.twice.RLock()
	defer f.twice.RUnlock()
	return f.MemFS.Link(oldName, newName)
}

// Lock implements vfs.FS.
func (f *MemFS) Lock(name string) (io.Closer, error) {
	f.twice.RLock()
	defer f.twice.RUnlock()
	return f.MemFS.Lock(name)
}

// CrashClone returns what a crash at this moment leaves.
func (f *MemFS) CrashClone(cfg vfs.CrashCloneCfg) *MemFS {
	f.twice.Lock()
	defer f.twice.Unlock()
	return &MemFS{MemFS: f.MemFS.CrashClone(cfg)}
}
