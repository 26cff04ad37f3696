package mmapfilter

// A Device makes the mapped files of filters. Files is the real one; Twin is
// for crash tests. A name is durable when the call that made, changed or
// removed it has returned.
type Device interface {
	// Create makes a file of the given size, all zero, every block of it
	// allocated, and maps it for writing. An existing file is an error. One
	// that the file system has no room for is syscall.ENOSPC or EDQUOT, and
	// nothing of it is left.
	Create(path string, size int64) (Mapping, error)
	// Open maps an existing file.
	Open(path string, readOnly bool) (Mapping, error)
	// Peek reads up to len(p) bytes from the start of a file without mapping
	// it, and returns how many they were and the file's size.
	Peek(path string, p []byte) (n int, size int64, err error)
	// List returns the names of the files in a directory, sorted.
	List(dir string) ([]string, error)
	// Rename renames a file and syncs its directory. An existing file of the
	// new name is an error. After an error the file has its old name.
	Rename(oldPath, newPath string) error
	// Remove unlinks a file and syncs its directory.
	Remove(path string) error
}

// A Mapping is a file in memory.
type Mapping interface {
	// Words returns the whole file as little-endian 64-bit words.
	Words() []uint64
	// Sync makes every store to the mapping that precedes it durable. After
	// an error nobody knows what is, and a second Sync must not be believed.
	Sync() error
	// StartSync begins to write n bytes from an offset to the device, and does
	// not wait: a hint, so that a later Sync has less to do.
	StartSync(off, n int64)
	// Linked reports whether the path leads to this file.
	Linked(path string) (bool, error)
	// Close unmaps the file. Words is not to be touched any more.
	Close() error
}

// Files is the Device of real mapped files.
var Files Device = files{}
