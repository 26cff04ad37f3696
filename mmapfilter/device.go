package mmapfilter

// A Device makes the mapped files of filters. Files is the real one; Twin is
// for crash tests.
type Device interface {
	// Create makes a file of the given size, all zero, every block of it
	// allocated, and maps it for writing. An existing file is an error.
	Create(path string, size int64) (Mapping, error)
	// Open maps an existing file.
	Open(path string, readOnly bool) (Mapping, error)
	// Rename renames a file and syncs its directory.
	Rename(oldPath, newPath string) error
	// Remove unlinks a file and syncs its directory.
	Remove(path string) error
}

// A Mapping is a file in memory.
type Mapping interface {
	// Words returns the whole file as little-endian 64-bit words.
	Words() []uint64
	// Sync makes every store to the mapping that it follows durable.
	Sync() error
	Close() error
}

// Files is the Device of real mapped files.
var Files Device
