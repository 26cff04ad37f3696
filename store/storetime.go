package store

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"dedupstore/internal/planted"
)

// Store time is what expiry runs by. While the store is open it advances by the
// monotonic clock, whatever is done to the wall clock. What passed while it was
// closed is the gap since the last stamp:
//
//   - In one and the same boot it is what the boot clock says. It is believed.
//   - After another boot, or where the boot is not known, it is what the wall
//     clock says, which may be wrong until somebody sets it. Answers follow it at
//     once, but for the next ten minutes of running, the probation, nothing may
//     be dropped for expiry, and the stamp of before the gap is kept. So a wrong
//     clock costs nothing that the right one does not give back: when it is set,
//     in these minutes or before a later open, the gap is reckoned anew.
//   - A wall clock that is more than an hour behind the stamp, or in the year
//     2200, is not believed at all. Until it has been set, or somebody accepts
//     it, nothing is dropped, and store time runs on from the wall clock's or the
//     stamp's, whichever is earlier.
//
// Where clocks leave a choice, less time has passed: a URL may expire late, but
// not early. What remains is a wrong wall clock that nobody sets in ten minutes.
const (
	// probation is how long an operator and NTP have to set the wall clock.
	probation = 10 * time.Minute
	// wallStep tells a clock that was set from one that is slewed.
	wallStep = time.Minute
	// aheadAtMost is how far behind the stamp the wall clock may be. It was set
	// back a little, then, and the gap counts as none.
	aheadAtMost = time.Hour
	// probationKept is how long a probation may lie between two openings. A
	// process that runs for a minute a day gets through it; but where the wall
	// clock has leapt, what an earlier opening has seen of it proves nothing.
	probationKept = 24 * time.Hour

	// maxStoreTime is the beginning of 2200, in ns since 1970: far enough from
	// the end of int64 that an age of running can be added to it.
	maxStoreTime int64 = 7_258_118_400_000_000_000

	doubtTick = 2 * time.Second // how soon a clock that was set is noticed
	sleepTick = time.Minute     // how soon the machine's sleep is
)

// storeTime tells the time. Its methods may be called by any number of
// goroutines at once.
type storeTime struct {
	clock Clock
	// base is the store time when the monotonic clock was 0.
	base atomic.Int64
	// allowed says that drops are. Nothing takes that back before the next open.
	allowed atomic.Bool

	mu sync.Mutex // held by whoever changes base or allowed, and for:
	// believed is the last stamp before the gap that is in doubt. It and the
	// next three matter until drops are allowed.
	believed clockStamp
	wrong    bool          // the wall clock is, and is not believed
	left     time.Duration // of the probation, when it began
	began    struct {      // what the clocks said then
		mono  time.Duration
		wall  time.Time
		store int64
	}
	// bootID is the boot that the store was opened in, and awake the largest
	// difference between its clock and the monotonic one that base knows of.
	bootID [16]byte
	awake  time.Duration
}

// newStoreTime begins with what passed since the last stamp. A stamp of zeros is
// that of a new store, whose time is the wall clock's.
func newStoreTime(c Clock, last clockStamp) *storeTime {
	t := &storeTime{clock: c, believed: last.bounded()}
	// The boot clock after the monotonic one, as catchUpLocked does not: what
	// passes in between makes the sleep shorter, never longer.
	mono := c.Monotonic()
	boot, id := c.Boot()
	t.bootID, t.awake = id, boot-mono
	if last == (clockStamp{}) {
		t.acceptLocked()
		return t
	}
	trust := t.reckonLocked()
	t.left = t.believed.leftAt(wallNanos(c))
	t.allowed.Store(trust == gapConfirmed && last.left == 0 || planted.ClockBelieved)
	return t
}

// now is the store time, in ns since 1970. It takes two loads and a read of the
// monotonic clock. It never goes back, but in a tick that says so and in accept.
func (t *storeTime) now() int64 { return t.base.Load() + int64(t.clock.Monotonic()) }

// dropsAllowed reports whether what has expired may be dropped, or left out of
// anything.
func (t *storeTime) dropsAllowed() bool { return t.allowed.Load() }

// stamp is what is written down of the time now. During a doubt it is the stamp
// of before, with what is left of the probation.
func (t *storeTime) stamp() clockStamp {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.catchUpLocked()
	if t.allowed.Load() || planted.StampInDoubt {
		c := clockStamp{store: boundTime(t.now()), wall: wallNanos(t.clock)}
		boot, id := t.clock.Boot()
		c.boot, c.bootID = int64(boot), id
		return c
	}
	c := t.believed
	// Only a tick ends the probation, so it is never written down as over.
	c.left = uint32(max(1, (t.leftLocked()+time.Millisecond-1)/time.Millisecond))
	c.latest = uint32(min(max(0, wallNanos(t.clock)-c.wall)/int64(time.Second), math.MaxUint32))
	return c
}

// tick ends the probation when it is over. If the wall clock was set during a
// doubt it reckons the gap anew, starts the probation over and reports that:
// store time may have gone back. (Not only at the probation's end: most wrong
// clocks are set right within seconds of a boot, and until then every URL may
// have expired.) It also adds what the machine has slept. See nextTick.
func (t *storeTime) tick() (stepped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.catchUpLocked()
	switch {
	case t.allowed.Load():
		return false
	case t.steppedLocked() || t.wrong && !t.stillWrongLocked():
		t.reckonLocked()
		return true
	}
	if t.leftLocked() == 0 {
		t.allowed.Store(true)
	}
	return false
}

// nextTick is how long tick can wait. 0: for ever.
func (t *storeTime) nextTick() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.allowed.Load():
		return max(time.Millisecond, min(t.leftLocked(), doubtTick))
	case t.bootID != [16]byte{}:
		return sleepTick
	}
	return 0
}

// accept takes the wall clock for right, whatever it says, and allows drops. It
// returns the store time, which may have leapt to and fro. It is not for good
// before a stamp of it is written down.
func (t *storeTime) accept() (at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.catchUpLocked() // or the next tick would add a sleep that the wall clock has in it
	return t.acceptLocked()
}

func (t *storeTime) acceptLocked() (at int64) {
	at = wallNanos(t.clock)
	t.setLocked(at)
	t.allowed.Store(true)
	return at
}

func (t *storeTime) setLocked(at int64) { t.base.Store(at - int64(t.clock.Monotonic())) }

// reckonLocked sets store time to what follows from the stamp that is believed,
// and begins the probation.
func (t *storeTime) reckonLocked() trust {
	at, trust := t.believed.reckon(t.clock)
	t.setLocked(at)
	t.wrong, t.left = trust == wallWrong, probation
	t.began.mono, t.began.wall, t.began.store = t.clock.Monotonic(), t.clock.Wall().Round(0), at
	return trust
}

// leftLocked is what is left of the probation: all of it while it cannot be
// believed that it has begun.
func (t *storeTime) leftLocked() time.Duration {
	if t.wrong || t.steppedLocked() {
		return probation
	}
	return max(0, t.left-(t.clock.Monotonic()-t.began.mono))
}

// steppedLocked reports whether the wall clock was set since the doubt began.
func (t *storeTime) steppedLocked() bool {
	passed := time.Duration(t.now() - t.began.store)
	by := t.clock.Wall().Round(0).Sub(t.began.wall) - passed
	return by > wallStep || by < -wallStep
}

// stillWrongLocked reports whether the wall clock is, by now.
func (t *storeTime) stillWrongLocked() bool {
	_, trust := t.believed.reckon(t.clock)
	return trust == wallWrong
}

// catchUpLocked adds the time that the machine has slept since the last call,
// in which the boot clock went on and the monotonic one did not.
func (t *storeTime) catchUpLocked() {
	boot, id := t.clock.Boot()
	awake := boot - t.clock.Monotonic()
	if id != t.bootID || id == [16]byte{} || awake <= t.awake {
		return
	}
	t.setLocked(addTime(t.now(), int64(awake-t.awake)))
	t.awake = awake
}

// trust is how far the gap since a stamp is known.
type trust uint8

const (
	gapConfirmed trust = iota // by the boot clock
	gapInDoubt                // as the wall clock says
	wallWrong                 // or the stamp is
)

// reckon returns the store time that follows from a stamp that is bounded.
func (c clockStamp) reckon(clock Clock) (at int64, _ trust) {
	boot, id := clock.Boot()
	wall := wallNanos(clock)
	// A boot clock can be behind in another time namespace.
	if id == c.bootID && id != [16]byte{} && int64(boot) >= c.boot {
		return addTime(c.store, int64(boot)-c.boot), gapConfirmed
	}
	if wall == maxStoreTime {
		return c.store, wallWrong
	}
	at = addTime(c.store, max(0, wall-c.wall))
	// The stamp's wall clock too: its store time may be behind it, if that was
	// set forward while the store ran.
	if max(at, c.wall)-wall > int64(aheadAtMost) {
		return min(at, wall), wallWrong
	}
	return at, gapInDoubt
}

// leftAt is what is left of the probation at an open.
func (c clockStamp) leftAt(wall int64) time.Duration {
	leapt := wall - c.wall - int64(c.latest)*int64(time.Second)
	if c.left == 0 || leapt < -int64(aheadAtMost) || leapt > int64(probationKept) {
		return probation
	}
	return time.Duration(c.left) * time.Millisecond
}

// bounded is a stamp that can be reckoned with, whatever a file says. One that no
// clock can have made is not confirmed by any.
func (c clockStamp) bounded() clockStamp {
	b := c
	b.store, b.wall = boundTime(c.store), boundTime(c.wall)
	if b.store != c.store || b.wall != c.wall || c.boot < 0 {
		b.boot, b.bootID = 0, [16]byte{}
	}
	b.left = min(c.left, uint32(probation/time.Millisecond))
	return b
}

func boundTime(ns int64) int64 { return min(max(0, ns), maxStoreTime) }

// addTime adds what is not negative to a time, as far as the bound.
func addTime(at, ns int64) int64 { return at + min(ns, max(0, maxStoreTime-at)) }

// wallNanos is the wall clock in ns since 1970, or the nearest time in bounds.
func wallNanos(c Clock) int64 {
	wall := c.Wall()
	switch s := wall.Unix(); {
	case s < 0:
		return 0
	case s >= maxStoreTime/int64(time.Second):
		return maxStoreTime
	}
	return wall.UnixNano()
}

// ClockStats say what time it is for the store, and how far it believes that.
type ClockStats struct {
	// StoreTime is what expiry runs by, Wall what the machine says.
	StoreTime time.Time `json:"store_time"`
	Wall      time.Time `json:"wall"`
	// DropsAllowed says that what has expired may be dropped. If not, it is new
	// all the same, and what is dropped later gives its space back.
	DropsAllowed bool `json:"drops_allowed"`
	// DropsFrom is when they will be, by the wall clock, if the store is open
	// until then and the wall clock is not set. Zero: they are, or will not be
	// before that clock has been set or accepted.
	DropsFrom time.Time `json:"drops_from,omitzero"`
	// Warning says in words what is wrong, and what to do about it.
	Warning string `json:"warning,omitempty"`
}

// stats reads clocks and does no I/O.
func (t *storeTime) stats() ClockStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.catchUpLocked()
	now, wall := t.now(), wallNanos(t.clock)
	c := ClockStats{StoreTime: utc(now), Wall: utc(wall), DropsAllowed: t.allowed.Load()}
	const remedy = "dedupstore expire --accept-clock"
	switch ahead := time.Duration(now - wall).Round(time.Second); {
	case c.DropsAllowed && ahead.Abs() > aheadAtMost:
		way := "behind"
		if ahead > 0 {
			way = "ahead of"
		}
		c.Warning = fmt.Sprintf("store time is %v %s the wall clock, which was set while the store was open; "+
			"if the wall clock is right, accept it with %q", ahead.Abs(), way, remedy)
	case c.DropsAllowed:
	case t.wrong:
		c.Warning = fmt.Sprintf("the store was open at %s by its own time and at %s by the wall clock, which now says %s; "+
			"nothing that has expired is dropped before the wall clock has been set right, or accepted with %q",
			utc(t.believed.store).Format(time.RFC3339), utc(t.believed.wall).Format(time.RFC3339),
			c.Wall.Format(time.RFC3339), remedy)
	default:
		left := t.leftLocked()
		c.DropsFrom = c.Wall.Add(left)
		c.Warning = fmt.Sprintf("how long the store was closed is known from the wall clock alone, which says %s; "+
			"nothing that has expired is dropped before the store has been open for another %v",
			c.Wall.Format(time.RFC3339), left.Round(time.Second))
	}
	return c
}

func utc(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// isBehind reports that the wall clock is far behind the store's time, and not
// believed.
func (t *storeTime) isBehind() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wrong
}
