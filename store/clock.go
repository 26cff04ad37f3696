package store

import (
	"encoding/binary"
	"time"
)

// A Clock is what a store tells the time by. Options.Clock puts another one in
// place of the machine's: a simulation's, or a test's that wants a month to
// pass. Its methods may be called by any number of goroutines at once: Monotonic
// with every batch, the others every few seconds.
type Clock interface {
	// Wall is the time of day, which somebody may set, wrongly too. The store
	// asks it how long it was closed, and believes it after a while.
	Wall() time.Time
	// Monotonic is the time since any moment, the same one for as long as the
	// process lives. Nobody sets it and it never goes back. Expiry and the
	// leases of claims run by it. It may stand still while the machine sleeps.
	Monotonic() time.Duration
	// Boot is the time since the machine was booted, sleep included, which
	// nobody sets either, and what tells this boot from any other one. With it
	// the store knows without the wall clock how long it was closed, and how
	// long the machine slept. An id of zeros: not known.
	Boot() (since time.Duration, id [16]byte)
}

// machineClock is the machine's.
type machineClock struct{}

// opened is where its monotonic clock begins.
var opened = time.Now()

func (machineClock) Wall() time.Time { return time.Now() }

func (machineClock) Monotonic() time.Duration { return time.Since(opened) }

func (machineClock) Boot() (since time.Duration, id [16]byte) {
	ns, id := bootClock()
	return time.Duration(ns), id
}

// clockStamp is what is kept of time with every log file and every flush, so
// that a later open can tell how much time has passed and whether the clock
// was changed meanwhile.
type clockStamp struct {
	store, wall, boot int64 // ns: store time and wall since 1970, boot clock
	bootID            [16]byte
	// left is what is left, in ms of running, until a gap since this stamp is
	// believed that no boot clock has confirmed, and latest the wall clock in
	// that time, in s from that of the stamp. 0: there is no such gap.
	left, latest uint32
}

// isLater reports that c was made after another stamp. In one boot its clock
// says so, also where the store's time has gone back because somebody has
// accepted an earlier one.
func (c clockStamp) isLater(than clockStamp) bool {
	if c.bootID == than.bootID && c.bootID != [16]byte{} && c.boot != than.boot {
		return c.boot > than.boot
	}
	return c.store > than.store
}

const (
	clockStampBytes = 48
	// clockStampBytes2 is the length of what rows and records of version 2 had:
	// they did not know of a doubt.
	clockStampBytes2 = 40
)

func appendClockStamp(dst []byte, c clockStamp) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.store))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.wall))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.boot))
	dst = append(dst, c.bootID[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, c.left)
	return binary.LittleEndian.AppendUint32(dst, c.latest)
}

// decodeClockStamp reads the first clockStampBytes of src.
func decodeClockStamp(src []byte) clockStamp {
	c := decodeClockStamp2(src)
	c.left = binary.LittleEndian.Uint32(src[clockStampBytes2:])
	c.latest = binary.LittleEndian.Uint32(src[clockStampBytes2+4:])
	return c
}

// decodeClockStamp2 reads the first clockStampBytes2 of src.
func decodeClockStamp2(src []byte) (c clockStamp) {
	c.store = int64(binary.LittleEndian.Uint64(src))
	c.wall = int64(binary.LittleEndian.Uint64(src[8:]))
	c.boot = int64(binary.LittleEndian.Uint64(src[16:]))
	copy(c.bootID[:], src[24:40])
	return c
}
