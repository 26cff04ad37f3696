package store

import (
	"encoding/hex"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// bootClock returns the time since boot, suspend included, and the boot's id.
// Both are zero where the kernel does not tell.
func bootClock() (ns int64, id [16]byte) {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0, id
	}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, id
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(b) != len(id) {
		return 0, id
	}
	return ts.Nano(), [16]byte(b)
}
