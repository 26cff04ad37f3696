package store

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBytes is where anonymous memory begins to be worth a mapping of its own:
// huge pages save a miss of the address cache for each random probe.
const hugeBytes = 4 << 20 // 4 MiB

// allocWords returns n zeroed words. Large ones are mapped outside Go's heap,
// on huge pages where the kernel gives them, and are counted as used when they
// are first touched. free gives them back; nobody may touch them after it.
func allocWords(n int) (words []uint64, free func() error, err error) {
	if n*8 < hugeBytes {
		return make([]uint64, n), func() error { return nil }, nil
	}
	b, err := unix.Mmap(-1, 0, n*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("store: map %d bytes of memory: %w", n*8, err)
	}
	// A kernel without huge pages refuses; ordinary pages do as well.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	words = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
	return words, func() error { return unix.Munmap(b) }, nil
}
