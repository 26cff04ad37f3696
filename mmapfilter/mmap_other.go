//go:build !linux

package mmapfilter

import (
	"os"
	"unsafe"
)

// The stand-in of mmap_linux.go elsewhere: plain, and correct.

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

// allocate leaves it to the caller to write zeros.
func allocate(*os.File, int64) error { return errNoFallocate }

// datasync is a full sync, which on Darwin also empties the drive's cache.
func datasync(f *os.File) error { return f.Sync() }

// startSync does nothing here.
func startSync(*os.File, int64, int64) {}
