package store

import (
	"strings"
	"testing"
	"time"
)

// What a store answers by a clock that is right, wrong, set, frozen or asleep.

const year = 365 * day

// A scene has an hour's keys, 0 to 9, a month's, 10 to 19, and some for ever, 20
// to 29, in Pebble, and as many behind them, from 30 on, in the log.
type scene struct {
	t *testing.T
	w *world
	c *fakeClock
	s *testStore
}

func newScene(t *testing.T) *scene {
	w, c := clocked(inMemory(t))
	sc := &scene{t, w, c, w.open()}
	for i := range 2 {
		sc.s.with(time.Hour).add(New, keys(30*i, 30*i+10)...)
		sc.s.with(30*day).add(New, keys(30*i+10, 30*i+20)...)
		sc.s.add(New, keys(30*i+20, 30*i+30)...)
		if i == 0 {
			sc.s.flush()
		}
	}
	return sc
}

// sees checks which of them are seen, those for ever always.
func (sc *scene) sees(when string, hour, month bool) {
	sc.t.Helper()
	want := map[bool]Answer{false: New, true: Seen}
	n := 20
	for i := range 2 {
		sc.s.has(want[hour], keys(30*i, 30*i+10)...)
		sc.s.has(want[month], keys(30*i+10, 30*i+20)...)
		sc.s.has(Seen, keys(30*i+20, 30*i+30)...)
	}
	for _, more := range []bool{hour, month} {
		if more {
			n += 20
		}
	}
	if got := sc.s.Stats().URLs; got < int64(n) {
		sc.t.Errorf("%s: %d URLs, want %d", when, got, n)
	}
	if sc.t.Failed() {
		sc.t.Fatal(when)
	}
}

// reopen closes, has something happen to the clock, and opens.
func (sc *scene) reopen(meanwhile func()) {
	sc.t.Helper()
	sc.s.close()
	meanwhile()
	sc.s = sc.w.open()
}

// runs lets time pass while the store is open, and the maintainer see it.
func (sc *scene) runs(d time.Duration) {
	sc.t.Helper()
	sc.c.pass(d)
	sc.steps()
}

// steps has the maintainer look at the clock, and come to its end.
func (sc *scene) steps() {
	sc.t.Helper()
	_, err := sc.s.step()
	for more := true; more && err == nil; {
		more, err = sc.s.step()
	}
	must(sc.t, err)
}

// says checks whether drops are allowed, and what is said of the clock.
func (sc *scene) says(when string, drops bool, warning string) {
	sc.t.Helper()
	x := sc.s.time.stats()
	if x.DropsAllowed != drops || !strings.Contains(x.Warning, warning) || warning == "" && x.Warning != "" {
		sc.t.Fatalf("%s: got %+v, want drops %v and %q", when, x, drops, warning)
	}
}

// dropped checks that what has expired was dropped, or that nothing was.
func (sc *scene) dropped(when string, segments int) {
	sc.t.Helper()
	sc.steps()
	if rows := sc.s.segmentRows(); len(rows) != segments {
		sc.t.Fatalf("%s: %d segments are left, want %d: %+v", when, len(rows), segments, rows)
	}
}

// TestExpiryByTheClock has a TTL of an hour and one of a month.
func TestExpiryByTheClock(t *testing.T) {
	sc := newScene(t)
	sc.runs(time.Hour - time.Nanosecond)
	sc.sees("an instant before an hour", true, true)
	sc.runs(time.Minute + time.Hour/24)
	sc.sees("after 61 minutes and a 24th", false, true)
	sc.dropped("after 61 minutes and a 24th", 2)
	sc.runs(30*day - 2*time.Hour)
	sc.sees("before a month", false, true)
	sc.runs(day + 6*time.Hour)
	sc.sees("after a month", false, false)
	sc.dropped("after a month", 1)
}

// TestClosedForLong closes a store for 40 days: in one boot that is known, and
// after another it takes ten minutes until something is dropped.
func TestClosedForLong(t *testing.T) {
	sc := newScene(t)
	sc.reopen(func() { sc.c.pass(40 * day) })
	sc.says("in the same boot", true, "")
	sc.sees("in the same boot", false, false)
	sc.dropped("in the same boot", 1)

	sc = newScene(t)
	sc.reopen(func() { sc.c.pass(20 * day); sc.c.reboot(20 * day) })
	sc.says("after another boot", false, "wall clock alone")
	sc.sees("after another boot", false, false)
	sc.dropped("after another boot", 3)
	sc.runs(probation - time.Second)
	sc.dropped("before ten minutes", 3)
	sc.runs(2 * time.Second)
	sc.steps()
	sc.says("after ten minutes", true, "")
	sc.dropped("after ten minutes", 1)
	sc.sees("after ten minutes", false, false)
}

// TestClockAhead boots with a clock that is a year ahead. It is set right in the
// same opening, or before another one: all is as before.
func TestClockAhead(t *testing.T) {
	for _, open := range []bool{false, true} {
		sc := newScene(t)
		sc.reopen(func() { sc.c.reboot(time.Minute); sc.c.step(year) })
		sc.sees("a year ahead", false, false)
		sc.dropped("a year ahead", 3)
		sc.s.with(30*day).add(New, keys(10, 15)...) // again, by the wrong clock
		sc.s.flush()
		sc.runs(time.Minute)
		if open {
			sc.c.step(-year)
			sc.steps()
		} else {
			sc.reopen(func() { sc.c.step(-year) })
		}
		sc.sees("set right", true, true)
		sc.says("set right", false, "wall clock alone")
		sc.runs(probation + time.Second)
		sc.steps()
		sc.says("set right, after ten minutes", true, "")
		sc.sees("set right, after ten minutes", true, true)
		sc.runs(2 * time.Hour)
		sc.sees("two hours later", false, true)
	}
}

// TestClockAheadBelieved boots with a clock that is a year ahead, which nobody
// sets before it is believed. What it has stamped is not immortal when it is set
// right and accepted.
func TestClockAheadBelieved(t *testing.T) {
	for _, crash := range []bool{false, true} {
		sc := newScene(t)
		sc.reopen(func() { sc.c.reboot(time.Minute); sc.c.step(year) })
		sc.runs(probation + time.Second)
		sc.steps()
		sc.says("believed", true, "")
		sc.dropped("believed", 1)
		sc.s.with(30*day).add(New, keys(10, 20)...)
		sc.s.flush()
		sc.s.with(30*day).add(New, keys(40, 50)...)
		sc.reopen(func() { sc.c.reboot(time.Minute); sc.c.step(-year) })
		sc.says("set right", false, "accepted")
		sc.sees("set right", false, true)
		_, err := sc.s.Expire(t.Context(), ExpireOptions{})
		is(t, "Expire", err, ErrClock)
		sc.runs(3 * time.Hour)
		sc.says("set right, hours later", false, "accepted")
		_, err = sc.s.Expire(t.Context(), ExpireOptions{AcceptClock: true})
		must(t, err)
		sc.says("accepted", true, "")
		sc.sees("accepted", false, true)
		if crash { // it is accepted for good
			w := sc.w.crash(seeded(t), 0)
			sc.s.abandon()
			sc.w = w
			sc.s = w.open()
		} else {
			sc.reopen(func() { sc.c.reboot(probation) })
			sc.runs(probation + time.Second)
			sc.steps()
		}
		sc.says("accepted and opened again", true, "")
		sc.sees("accepted and opened again", false, true)
		sc.runs(2 * 30 * day)
		sc.sees("after twice the TTL", false, false)
		sc.dropped("after twice the TTL", 1)
	}
}

// TestClockBehind boots with a clock that is a year behind: nothing expires, and
// that is said, until it has been set right.
func TestClockBehind(t *testing.T) {
	for _, open := range []bool{false, true} {
		sc := newScene(t)
		sc.reopen(func() { sc.c.reboot(time.Minute); sc.c.step(-year) })
		sc.says("a year behind", false, "set right")
		sc.sees("a year behind", true, true)
		sc.runs(3 * time.Hour)
		sc.sees("hours later", true, true)
		sc.dropped("hours later", 3)
		sc.s.with(time.Hour).add(New, key(100)) // stamped with the wall clock
		if open {
			sc.c.step(year)
			sc.steps()
		} else {
			sc.reopen(func() { sc.c.step(year) })
		}
		sc.says("set right", false, "wall clock alone")
		sc.sees("set right", false, true)
		sc.s.has(New, key(100))
		sc.runs(probation + time.Second)
		sc.steps()
		sc.says("after ten minutes", true, "")
		sc.dropped("after ten minutes", 2)
		sc.sees("after ten minutes", false, true)
	}
}

// TestClockBehindAccepted accepts a clock that is a year behind: everything ends
// by it, a TTL from then at the latest.
func TestClockBehindAccepted(t *testing.T) {
	sc := newScene(t)
	sc.reopen(func() { sc.c.reboot(time.Minute); sc.c.step(-year) })
	_, err := sc.s.Expire(t.Context(), ExpireOptions{AcceptClock: true})
	must(t, err)
	sc.says("accepted", true, "")
	sc.sees("accepted", true, true)
	sc.runs(2 * time.Hour)
	sc.sees("two hours later", false, true)
	sc.reopen(func() { sc.c.reboot(time.Minute) })
	sc.says("opened again", false, "wall clock alone")
	sc.runs(2 * 30 * day)
	sc.sees("two months later", false, false)
	sc.dropped("two months later", 1)
}

// TestClockFrozen has a wall clock that stands still. In one boot that does not
// matter. After another one it is in doubt, so nothing expires that has not, too
// late and not too early, until it goes right.
func TestClockFrozen(t *testing.T) {
	sc := newScene(t)
	frozen := sc.c.Wall()
	freeze := func() { sc.c.step(frozen.Sub(sc.c.Wall())) }
	sc.c.pass(20 * time.Minute)
	freeze()
	sc.sees("20 minutes", true, true)
	sc.reopen(func() { sc.c.pass(20 * time.Minute); freeze() })
	sc.sees("40 minutes", true, true)
	sc.c.pass(30 * time.Minute)
	freeze()
	sc.sees("70 minutes", false, true)

	sc = newScene(t)
	sc.reopen(func() { sc.c.reboot(20 * time.Minute); freeze() })
	for range 7 {
		sc.sees("after another boot", true, true)
		sc.c.pass(10 * time.Minute)
		freeze()
		sc.steps()
	}
	sc.says("after another boot", false, "wall clock alone")
	sc.c.step(90 * time.Minute)
	sc.steps()
	sc.sees("set right", false, true)
}

// TestClockSetWhileOpen sets the wall clock to and fro while a store is open.
func TestClockSetWhileOpen(t *testing.T) {
	sc := newScene(t)
	for _, by := range []time.Duration{year, -2 * year, year} {
		sc.c.step(by)
		sc.runs(time.Minute)
		sc.sees("set while open", true, true)
	}
	sc.c.step(-year)
	sc.says("set while open", true, "ahead of")
	sc.runs(time.Hour + time.Hour/24)
	sc.sees("an hour later", false, true)
	sc.reopen(func() { sc.c.pass(time.Minute) })
	sc.sees("opened again in the same boot", false, true)
}

// TestMachineSleeps has the machine sleep for a day.
func TestMachineSleeps(t *testing.T) {
	sc := newScene(t)
	sc.c.sleep(day)
	sc.steps()
	sc.sees("after a day's sleep", false, true)
	sc.dropped("after a day's sleep", 2)
}

// TestBootIn1970 boots without a clock, as small machines do, and gets the time
// half a minute later.
func TestBootIn1970(t *testing.T) {
	sc := newScene(t)
	right := sc.c.Wall()
	sc.reopen(func() {
		sc.c.reboot(time.Minute)
		sc.c.step(time.Unix(0, 0).Sub(sc.c.Wall()))
	})
	sc.says("in 1970", false, "set right")
	sc.sees("in 1970", true, true)
	sc.s.with(time.Hour).add(New, key(100))
	sc.runs(30 * time.Second)
	sc.c.step(right.Add(2 * time.Hour).Sub(sc.c.Wall()))
	sc.steps()
	sc.sees("set", false, true)
	sc.runs(probation + time.Second)
	sc.steps()
	sc.says("ten minutes later", true, "")
	sc.dropped("ten minutes later", 2)
}

// TestLastStampCounts opens a store by the stamp of a log file's header, which is
// later than the last flush's.
func TestLastStampCounts(t *testing.T) {
	sc := newScene(t)
	sc.s.flush()
	sc.reopen(func() { sc.c.pass(10 * day) }) // its log file has the stamp of now
	sc.says("opened", true, "")
	sc.reopen(func() { sc.c.reboot(time.Minute); sc.c.step(-5 * day) })
	sc.says("five days behind the log file", false, "set right")
}
