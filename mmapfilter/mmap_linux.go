package mmapfilter

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The unsafe code of the package, and what Linux does its own way. Of any one
// build it is in one file: this or mmap_other.go.

// wordsOf returns the 64-bit words that lie in b, which starts at a page and
// is whole words long.
func wordsOf(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// bytesOf returns the bytes of words.
func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
}

// offsetIn returns the offset in bytes of an address within words, and whether
// it lies there.
func offsetIn(words []uint64, addr uintptr) (int64, bool) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(words)))
	if addr < start || addr-start >= uintptr(len(words))*8 {
		return 0, false
	}
	return int64(addr - start), true
}

// allocate gives f size bytes, every block of them allocated and zero.
func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return errNoFallocate
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// datasync makes the file's data, and its size, durable.
func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// startSync begins to write back a part of the file.
func startSync(f *os.File, off, n int64) {
	// It is a hint: what cannot be written is Sync's to report.
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
