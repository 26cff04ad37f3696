package store

import (
	"encoding/hex"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// bootClock returns the time since boot, suspend included, and the boot's id.
// Both are zero where the kernel does not tell.
func bootClock() (ns int64, id [16]byte) {
	var ts unix.Timespec
	id = bootID()
	if id == [16]byte{} || unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0, [16]byte{}
	}
	return ts.Nano(), id
}

// bootID is read once: a process that has run out of file descriptors would
// not know it, and would make the next open doubt the time.
var bootID = sync.OnceValue(func() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(b) != len(id) {
		return id
	}
	return [16]byte(b)
})
