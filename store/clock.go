package store

import (
	"encoding/binary"
	"time"
)

// clockStamp is what is kept of time with every log file and every flush, so
// that a later open can tell how much time has passed and whether the clock
// was changed meanwhile.
type clockStamp struct {
	store, wall, boot int64 // ns: store time and wall since 1970, boot clock
	bootID            [16]byte
}

const (
	clockStampBytes  = 48
	clockStampBytes2 = 40
)

func appendClockStamp(dst []byte, c clockStamp) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.store))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.wall))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.boot))
	return append(append(dst, c.bootID[:]...), make([]byte, 8)...)
}

// decodeClockStamp reads the first clockStampBytes of src.
func decodeClockStamp(src []byte) (c clockStamp) {
	c.store = int64(binary.LittleEndian.Uint64(src))
	c.wall = int64(binary.LittleEndian.Uint64(src[8:]))
	c.boot = int64(binary.LittleEndian.Uint64(src[16:]))
	copy(c.bootID[:], src[24:40])
	return c
}

func decodeClockStamp2(src []byte) (c clockStamp) { return decodeClockStamp(src) }

// opened is where the process's monotonic clock begins.
var opened = time.Now()

// monotonic is the time that leases run by. Nobody sets it.
func monotonic() time.Duration { return time.Since(opened) }

// stampClock reads the clocks. Nothing expires yet, so store time is the wall.
func stampClock() clockStamp {
	now := time.Now().UnixNano()
	c := clockStamp{store: now, wall: now}
	c.boot, c.bootID = bootClock()
	return c
}
