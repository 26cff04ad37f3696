package store

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

const day = 24 * time.Hour

// A sitting is a store time under test, with its clock. It can be closed and
// opened as a store is, and knows what is written down.
type sitting struct {
	*storeTime
	clock   *fakeClock
	written clockStamp
}

// sit opens a new store on a clock that is right, runs it for a while and closes it.
func sit(t testing.TB) *sitting {
	t.Helper()
	s := &sitting{clock: newFakeClock()}
	s.open()
	if got, want := s.now(), s.clock.Wall().UnixNano(); got != want || !s.dropsAllowed() {
		t.Fatalf("a new store: got time %v, drops %v, want %v, true", utc(got), s.dropsAllowed(), utc(want))
	}
	s.run(time.Hour)
	s.close()
	return s
}

func (s *sitting) open() { s.storeTime = newStoreTime(s.clock, s.written) }

// close writes down what passes through the codec.
func (s *sitting) close() {
	s.write()
	s.storeTime = nil
}

func (s *sitting) write() { s.written = decodeClockStamp(appendClockStamp(nil, s.stamp())) }

// run is the maintainer's life for a while. It reports whether the clock was
// found to have been set.
func (s *sitting) run(d time.Duration) (stepped bool) {
	for d > 0 {
		step := d
		if next := s.nextTick(); next > 0 {
			step = min(d, next)
		}
		s.clock.pass(step)
		d -= step
		stepped = s.tick() || stepped
	}
	return stepped
}

// check compares store time with the wall clock, and what may be dropped.
func (s *sitting) check(t testing.TB, what string, ahead time.Duration, drops bool) {
	t.Helper()
	want := s.clock.Wall().Add(ahead)
	if got := utc(s.now()); got.Sub(want).Abs() > time.Millisecond {
		t.Errorf("%s: store time is %v, want %v, which is %v ahead of the wall clock", what, got, want, ahead)
	}
	if got := s.dropsAllowed(); got != drops {
		t.Errorf("%s: drops allowed: got %v, want %v", what, got, drops)
	}
	c := s.stats()
	if c.StoreTime.UnixNano() != s.now() || !c.Wall.Equal(utc(wallNanos(s.clock))) || c.DropsAllowed != drops {
		t.Errorf("%s: Stats say %+v", what, c)
	}
	if wrong := !drops || ahead.Abs() > aheadAtMost; (c.Warning != "") != wrong {
		t.Errorf("%s: Stats warn %q", what, c.Warning)
	}
}

func (c *fakeClock) forgetBoot() { c.bootID = [16]byte{} }

// TestStoreTimeAtOpen lists what an open finds.
func TestStoreTimeAtOpen(t *testing.T) {
	for _, tc := range []struct {
		name   string
		closed func(c *fakeClock)
		ahead  time.Duration // store time less wall clock
		drops  bool
		left   time.Duration // of the probation; -1: no end
	}{
		{"at once", func(c *fakeClock) {}, 0, true, 0},
		{"closed 40 days", func(c *fakeClock) { c.pass(40 * day) }, 0, true, 0},
		{"asleep 40 days", func(c *fakeClock) { c.sleep(40 * day) }, 0, true, 0},
		{"set forward in one boot", func(c *fakeClock) { c.pass(time.Hour); c.step(365 * day) }, -365 * day, true, 0},
		{"set back in one boot", func(c *fakeClock) { c.pass(time.Hour); c.step(-365 * day) }, 365 * day, true, 0},
		{"booted again", func(c *fakeClock) { c.reboot(40 * day) }, 0, false, probation},
		{"booted again at once", func(c *fakeClock) { c.reboot(0) }, 0, false, probation},
		{"boot clock of another namespace", func(c *fakeClock) { c.pass(time.Hour); c.boot -= 2 * time.Hour }, 0, false, probation},
		{"boot not known any more", func(c *fakeClock) { c.pass(time.Hour); c.forgetBoot() }, 0, false, probation},
		{"booted with a clock a year ahead", func(c *fakeClock) { c.reboot(0); c.step(365 * day) }, 0, false, probation},
		{"booted with a clock a bit behind", func(c *fakeClock) { c.reboot(0); c.step(-time.Hour) }, time.Hour, false, probation},
		{"booted with a clock far behind", func(c *fakeClock) { c.reboot(0); c.step(-3 * time.Hour) }, 0, false, -1},
		{"booted in 1970", func(c *fakeClock) { c.reboot(0); c.wall = time.Unix(1, 0) }, 0, false, -1},
		{"booted in 1969", func(c *fakeClock) { c.reboot(0); c.wall = time.Unix(-1, 0) }, time.Second, false, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sit(t)
			tc.closed(s.clock)
			s.open()
			s.check(t, "open", tc.ahead, tc.drops)
			s.run(time.Second)
			s.check(t, "a second later", tc.ahead, tc.drops)
			from := s.stats().DropsFrom
			if want := s.clock.Wall().Add(tc.left - time.Second); tc.left > 0 && from.Sub(want).Abs() > time.Millisecond {
				t.Errorf("drops are allowed from %v, want %v", from, want)
			}
			switch tc.left {
			case probation:
				s.run(probation - time.Second - 1)
				s.check(t, "before the probation's end", tc.ahead, false)
				s.run(1)
				s.check(t, "at the probation's end", tc.ahead, true)
			case -1:
				if !from.IsZero() {
					t.Errorf("drops are allowed from %v, want never", from)
				}
				s.run(30 * time.Minute)
				s.check(t, "half an hour later", tc.ahead, false)
			}
		})
	}
}

// TestStoreTimeRuns does to the clock of an open store what can be done to one.
func TestStoreTimeRuns(t *testing.T) {
	s := sit(t)
	s.open()
	s.clock.step(365 * day)
	if s.run(time.Hour) {
		t.Error("a clock that was set moves an open store's time")
	}
	s.check(t, "a year forward", -365*day, true)
	s.clock.step(-2 * 365 * day)
	s.run(time.Hour)
	s.check(t, "a year back", 365*day, true)
	s.clock.step(365 * day)
	s.clock.sleep(8 * time.Hour)
	if got, want := utc(s.now()), s.clock.Wall().Add(-8*time.Hour); !got.Equal(want) {
		t.Errorf("asleep: got %v, want %v", got, want)
	}
	s.run(time.Second)
	s.check(t, "awake", 0, true)
	s.clock.sleep(8 * time.Hour)
	s.close()
	s.open()
	s.check(t, "closed after a sleep", 0, true)
	before := s.now()
	s.tick()
	if s.now() != before {
		t.Errorf("a frozen clock: got %v, want %v", s.now(), before)
	}
}

// TestStoreTimeSleepUnknown has a machine sleep that does not know its boots.
// Store time is late then, never early, and a doubt makes good for it.
func TestStoreTimeSleepUnknown(t *testing.T) {
	s := &sitting{clock: newFakeClock()}
	s.clock.forgetBoot()
	s.open()
	if got := s.nextTick(); got != 0 {
		t.Errorf("a tick is due in %v, want never", got)
	}
	s.clock.sleep(8 * time.Hour)
	s.run(time.Second)
	s.check(t, "asleep", -8*time.Hour, true)
	s.close()
	s.clock.pass(time.Hour)
	s.open()
	s.check(t, "opened again", -8*time.Hour, false)
	s.clock.sleep(time.Hour)
	if !s.run(time.Second) {
		t.Error("a sleep in a doubt is not noticed")
	}
	s.check(t, "asleep in a doubt", -8*time.Hour, false)
}

// TestStoreTimeWrongClock boots with a clock that is wrong and is set right in
// the end. Nothing of the wrong time may be left.
func TestStoreTimeWrongClock(t *testing.T) {
	for _, wrong := range []time.Duration{365 * day, 2 * time.Hour, -90 * time.Minute, -3 * time.Hour, -365 * day, -60 * 365 * day} {
		for _, tc := range []struct {
			name   string
			served bool // a minute of the probation, unless the clock has leapt too far
			life   func(s *sitting)
		}{
			{"set while open", false, func(s *sitting) {
				s.run(probation - doubtTick)
				s.clock.step(-wrong)
				if !s.run(doubtTick) {
					t.Error("not noticed")
				}
			}},
			{"set while open, at the probation's end", false, func(s *sitting) {
				s.run(probation - 1)
				s.clock.step(-wrong)
				if !s.run(1) {
					t.Error("not noticed")
				}
			}},
			{"set while closed", true, func(s *sitting) {
				s.run(time.Minute)
				s.close()
				s.clock.pass(day)
				s.clock.step(-wrong)
				s.open()
			}},
			{"set while off", true, func(s *sitting) {
				s.run(time.Minute)
				s.close()
				s.clock.reboot(day)
				s.clock.step(-wrong)
				s.open()
			}},
			{"set, closed before a tick", false, func(s *sitting) {
				s.run(time.Minute)
				s.clock.step(-wrong)
				s.close()
				s.open()
			}},
			{"set after a crash", false, func(s *sitting) {
				s.write()
				s.run(time.Minute)
				s.clock.reboot(day)
				s.clock.step(-wrong)
				s.open()
			}},
		} {
			t.Run(tc.name+" by "+wrong.String(), func(t *testing.T) {
				s := sit(t)
				believed := s.written
				s.clock.reboot(time.Hour)
				s.clock.step(wrong)
				s.open()
				tc.life(s)
				s.check(t, "set right", 0, false)
				if got := s.stamp(); got.store != believed.store || got.bootID != believed.bootID {
					t.Errorf("in the doubt is written down %+v, want the stamp of before, %+v", got, believed)
				}
				left := probation
				if tc.served && wrong > 0 && wrong < probationKept {
					left -= time.Minute
				}
				s.run(left - time.Millisecond)
				s.check(t, "before the probation's end", 0, false)
				s.run(time.Millisecond)
				s.check(t, "at the probation's end", 0, true)
			})
		}
	}
}

// TestStoreTimeProbation counts it across openings.
func TestStoreTimeProbation(t *testing.T) {
	s := sit(t)
	s.clock.reboot(time.Hour)
	for i := range 9 {
		s.open()
		s.run(time.Minute)
		s.check(t, "a minute", 0, false)
		s.close()
		if i%2 == 0 {
			s.clock.reboot(12 * time.Hour)
		} else {
			s.clock.pass(12 * time.Hour)
		}
	}
	s.open()
	s.run(time.Minute - time.Millisecond)
	s.check(t, "the tenth minute", 0, false)
	if got, want := s.stamp().left, uint32(1); got != want {
		t.Errorf("left of the probation: got %d ms, want %d", got, want)
	}
	s.clock.pass(time.Hour) // no tick
	if got, want := s.stamp().left, uint32(1); got != want || s.dropsAllowed() {
		t.Errorf("left of the probation before the tick: got %d ms, want %d", got, want)
	}
	if s.nextTick() == 0 {
		t.Error("the tick that ends the probation is due never")
	}
	s.tick()
	s.check(t, "at its end", 0, true)
	s.close()
	s.clock.pass(day)
	s.open()
	s.check(t, "later", 0, true)
}

// TestStoreTimeLeap has the clock leap between two openings, in the same boot
// and in another: what was served of the probation does not count.
func TestStoreTimeLeap(t *testing.T) {
	for _, tc := range []struct {
		by   time.Duration
		left time.Duration
	}{
		{0, time.Minute},
		{probationKept, time.Minute},
		{probationKept + 2*time.Second, probation},
		{365 * day, probation},
		{-aheadAtMost, time.Minute},
		{-aheadAtMost - 2*time.Second, probation},
	} {
		s := sit(t)
		s.clock.reboot(2 * day)
		s.open()
		s.run(probation - time.Minute)
		s.close()
		s.clock.step(tc.by)
		s.open()
		s.run(tc.left - time.Millisecond)
		s.check(t, "before the end, leapt by "+tc.by.String(), 0, false)
		s.run(time.Millisecond)
		s.check(t, "at the end, leapt by "+tc.by.String(), 0, true)
	}
	s := sit(t)
	s.clock.reboot(2 * day)
	s.open()
	s.run(probation - time.Minute)
	s.close()
	s.open()
	s.clock.step(time.Hour)
	s.run(probation - doubtTick)
	s.check(t, "set while open, before the end", 0, false)
	s.run(2 * doubtTick)
	s.check(t, "set while open, at the end", 0, true)
}

// TestStoreTimeBackInItsBoot takes a store to another machine in the middle of
// its boot, and back: the gap is known, and the doubt remains.
func TestStoreTimeBackInItsBoot(t *testing.T) {
	s := sit(t)
	home := s.clock
	s.clock = newFakeClock()
	s.clock.bootID = [16]byte{9}
	s.clock.step(40 * day)
	s.open()
	s.run(time.Minute)
	s.check(t, "away", 0, false)
	s.close()
	s.clock = home
	home.pass(2 * time.Hour)
	home.step(time.Hour)
	s.open()
	s.check(t, "back", -time.Hour, false)
	s.run(probation)
	s.check(t, "at the probation's end", -time.Hour, true)
}

// TestStoreTimeBehind lists how an end comes to a clock that is behind.
func TestStoreTimeBehind(t *testing.T) {
	for _, tc := range []struct {
		name  string
		life  func(s *sitting) (stepped bool)
		ahead time.Duration
		drops bool
	}{
		{"set right", func(s *sitting) bool { s.clock.step(3 * time.Hour); return s.run(time.Second) }, 0, false},
		{"set, still behind", func(s *sitting) bool { s.clock.step(-day); return s.run(time.Second) }, 0, false},
		{"not set", func(s *sitting) bool { return s.run(time.Hour) }, 0, false},
		{"late enough by itself", func(s *sitting) bool { return s.run(2*time.Hour + doubtTick) }, aheadAtMost, false},
		{"accepted", func(s *sitting) bool {
			s.run(time.Hour)
			want := s.clock.Wall().UnixNano()
			return s.accept() != want || s.run(time.Hour)
		}, 0, true},
		{"accepted, opened again", func(s *sitting) bool {
			s.accept()
			s.close()
			s.clock.pass(day)
			s.open()
			return false
		}, 0, true},
		{"accepted, booted again", func(s *sitting) bool {
			s.accept()
			s.close()
			s.clock.reboot(day)
			s.open()
			return s.run(probation)
		}, 0, true},
		{"opened again, set right", func(s *sitting) bool {
			s.run(time.Hour)
			s.close()
			s.clock.step(3 * time.Hour)
			s.open()
			return s.run(probation - time.Second)
		}, 0, false},
	} {
		s := sit(t)
		s.clock.reboot(0)
		s.clock.step(-3 * time.Hour)
		s.open()
		s.check(t, tc.name+": open", 0, false)
		stepped := tc.life(s)
		s.check(t, tc.name, tc.ahead, tc.drops)
		if want := tc.name == "set right" || tc.name == "set, still behind" || tc.name == "late enough by itself"; stepped != want {
			t.Errorf("%s: stepped: got %v, want %v", tc.name, stepped, want)
		}
	}
}

// TestStoreTimeStampAhead opens with a clock that is behind that of the stamp,
// but not behind its store time, which began in 1970.
func TestStoreTimeStampAhead(t *testing.T) {
	s := &sitting{clock: newFakeClock()}
	right := s.clock.wall
	s.clock.wall = time.Unix(0, 0)
	s.open()
	s.clock.step(right.Sub(s.clock.wall))
	s.run(time.Hour)
	s.close()
	s.clock.reboot(0)
	s.clock.step(-365 * day)
	s.open()
	if got, want := utc(s.now()), time.Unix(3600, 0); !got.Equal(want) || s.dropsAllowed() {
		t.Errorf("got store time %v, drops %v, want %v, false", got, s.dropsAllowed(), want)
	}
	s.run(day)
	if s.dropsAllowed() {
		t.Error("drops are allowed")
	}
	s.clock.step(365 * day)
	s.run(time.Second)
	if got, want := utc(s.now()), time.Unix(3600, 0).Add(day+time.Second); !got.Equal(want) {
		t.Errorf("set right: got store time %v, want %v", got, want)
	}
}

// TestStoreTimeEnd runs and sleeps past the bound.
func TestStoreTimeEnd(t *testing.T) {
	s := &sitting{clock: newFakeClock()}
	s.clock.wall = utc(maxStoreTime - int64(time.Hour))
	s.open()
	s.clock.sleep(day)
	s.tick()
	s.run(time.Hour)
	s.clock.sleep(day)
	s.tick()
	if got, want := utc(s.now()), utc(maxStoreTime).Add(time.Hour); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.close()
	s.open()
	if got, want := utc(s.now()), utc(maxStoreTime); !got.Equal(want) {
		t.Errorf("opened again: got %v, want %v", got, want)
	}
}

// TestStoreTimeAccept accepts a clock that an open store does not follow.
func TestStoreTimeAccept(t *testing.T) {
	s := sit(t)
	s.open()
	s.clock.sleep(time.Hour) // which the wall clock has in it
	for _, by := range []time.Duration{365 * day, -2 * 365 * day} {
		s.clock.step(by)
		if got, want := s.accept(), s.clock.Wall().UnixNano(); got != want {
			t.Errorf("accept: got %v, want %v", utc(got), utc(want))
		}
		s.check(t, "accepted", 0, true)
		s.run(time.Minute)
		s.check(t, "a minute later", 0, true)
	}
}

// TestStoreTimeNoWall boots with a wall clock that no store can follow.
func TestStoreTimeNoWall(t *testing.T) {
	for _, tc := range []struct {
		wall time.Time
		want time.Time // of the store; zero: what the stamp said
	}{
		{time.Time{}, time.Unix(0, 0)},
		{time.Unix(math.MinInt64, 0), time.Unix(0, 0)},
		{utc(-1), time.Unix(0, 0)},
		{utc(0), time.Unix(0, 0)},
		{utc(maxStoreTime), time.Time{}},
		{time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
		{time.Unix(math.MaxInt64, 0), time.Time{}},
	} {
		s := sit(t)
		s.clock.reboot(0)
		s.clock.wall = tc.wall
		if tc.want.IsZero() {
			tc.want = utc(s.written.store)
		}
		s.open()
		if got := utc(s.now()); !got.Equal(tc.want) {
			t.Errorf("wall clock %v: got store time %v, want %v", tc.wall, got, tc.want)
		}
		if s.run(day) || !utc(s.now()).Equal(tc.want.Add(day)) || s.dropsAllowed() {
			t.Errorf("wall clock %v: a day later store time is %v, drops %v", tc.wall, utc(s.now()), s.dropsAllowed())
		}
		s.clock.wall = utc(s.written.store).Add(day)
		if !s.run(time.Second) {
			t.Errorf("wall clock %v: not noticed that it was set", tc.wall)
		}
		s.check(t, "set right", 0, false)
	}
}

// absurdStamps are what a file may hold.
func absurdStamps() (stamps []clockStamp) {
	good := newFakeClock()
	wall := good.wall.UnixNano()
	times := []int64{math.MinInt64, -1, 0, 1, wall, maxStoreTime, maxStoreTime + 1, math.MaxInt64}
	for _, store := range times {
		for _, w := range times {
			for _, boot := range []int64{math.MinInt64, -1, 0, int64(good.boot), math.MaxInt64} {
				for _, left := range []uint32{0, 1, math.MaxUint32} {
					stamps = append(stamps, clockStamp{store, w, boot, good.bootID, left, left}, clockStamp{store, w, boot, good.bootID, left, 0})
				}
			}
		}
	}
	return stamps
}

// TestStoreTimeAbsurd opens with each of them. What comes of it must be a time,
// and nothing may be dropped for a stamp that no clock can have made.
func TestStoreTimeAbsurd(t *testing.T) {
	for _, stamp := range absurdStamps() {
		s := &sitting{clock: newFakeClock(), written: stamp}
		s.open()
		sane := stamp.store == boundTime(stamp.store) && stamp.wall == boundTime(stamp.wall) && stamp.boot >= 0
		checkStoreTime(t, s, stamp)
		if s.dropsAllowed() && !(sane && stamp.left == 0) {
			t.Errorf("%+v: drops are allowed", stamp)
		}
		s.run(probation)
		checkStoreTime(t, s, stamp)
		if !s.dropsAllowed() && !s.wrong {
			t.Errorf("%+v: drops are not allowed after the probation", stamp)
		}
	}
}

// checkStoreTime checks what holds of any store time.
func checkStoreTime(t testing.TB, s *sitting, from clockStamp) {
	t.Helper()
	if now := s.now(); now < 0 || now > maxStoreTime+int64(day) {
		t.Fatalf("%+v: store time is %v", from, utc(now))
	}
	if stamp := s.stamp(); stamp != stamp.bounded() || !s.dropsAllowed() && stamp.left == 0 {
		t.Fatalf("%+v: drops %v, is followed by %+v", from, s.dropsAllowed(), stamp)
	}
	if d := s.nextTick(); d < 0 || d > sleepTick {
		t.Fatalf("%+v: the next tick is in %v", from, d)
	}
	if c := s.stats(); c.DropsAllowed != s.dropsAllowed() || !c.DropsAllowed && c.Warning == "" {
		t.Fatalf("%+v: Stats are %+v", from, c)
	}
}

// TestStoreTimeAtOnce has many ask for the time while it is set.
func TestStoreTimeAtOnce(t *testing.T) {
	s := sit(t)
	s.clock.reboot(0)
	s.open()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := s.now()
			for range 2000 {
				now := s.now()
				if now < last {
					t.Errorf("store time went back from %v to %v", utc(last), utc(now))
				}
				last = now
				s.stamp()
				s.stats()
				s.nextTick()
			}
		})
	}
	wg.Go(func() {
		for range 2000 {
			s.clock.pass(time.Second)
			s.clock.sleep(time.Second)
			s.tick()
		}
	})
	wg.Wait()
	s.check(t, "at the end", 0, true)
}

// A walker does to a store and its machine at random what can be done to them.
type walker struct {
	t   *testing.T
	rng *rand.Rand
	*sitting
	setsClock bool // somebody does, and accepts clocks
	knowsBoot bool

	now   time.Time     // the right one
	slept time.Duration // and not caught up on
	// written down, the last that was not in a doubt: how wrong store time and
	// wall clock were
	sure struct{ storeAhead, wallAhead time.Duration }
	// unsure is the time of running since the first gap that is not confirmed; -1:
	// there is none.
	unsure time.Duration
}

func (w *walker) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *walker) wallAhead() time.Duration { return w.clock.Wall().Sub(w.now) }

func (w *walker) storeAhead() time.Duration { return utc(w.sitting.now()).Sub(w.now) }

// walkTime is between a millisecond and some weeks.
func (w *walker) walkTime() time.Duration {
	return time.Duration(math.Exp(w.rng.Float64()*21)) * time.Millisecond
}

// step takes one step of the walk.
func (w *walker) step() {
	d := w.walkTime()
	switch p := w.rng.IntN(100); {
	case p < 10 && w.setsClock:
		// A step that is not noticed as one is less than a minute: not here.
		w.clock.step(time.Duration(1-2*w.rng.IntN(2)) * (wallStep + time.Second + d*10))
	case p < 25 && w.setsClock:
		w.clock.step(-w.wallAhead())
	case p < 35:
		w.clock.sleep(d)
		w.pass(d)
		if w.storeTime != nil {
			w.slept += d
		}
	case w.storeTime == nil:
		w.stepClosed(p, d)
	default:
		w.stepOpen(p, d)
	}
}

func (w *walker) stepClosed(p int, d time.Duration) {
	switch {
	case p < 55:
		w.clock.pass(d)
		w.pass(d)
	case p < 70:
		w.clock.reboot(d)
		w.pass(d)
	default:
		last := w.written
		w.open()
		boot, id := w.clock.Boot()
		known := id != [16]byte{} && id == last.bootID && int64(boot) >= last.boot
		if w.unsure < 0 && !known && last != (clockStamp{}) {
			w.unsure = 0
		}
		if last.left > 0 && w.dropsAllowed() {
			w.t.Fatal("an open ends a probation")
		}
	}
}

func (w *walker) stepOpen(p int, d time.Duration) {
	before := w.sitting.now()
	switch {
	case p < 60:
		w.run(min(d, 20*time.Minute))
		return
	case p < 70:
		w.tickOnce()
		return
	case p < 80:
		w.writeDown()
	case p < 81 && w.setsClock:
		if w.accept() != wallNanos(w.clock) {
			w.t.Fatal("accept: not the wall clock")
		}
		w.unsure, w.slept = -1, 0
		return
	case p < 91:
		w.writeDown()
		w.storeTime, w.slept = nil, w.sleepLost()
		return
	case p < 95:
		w.storeTime = nil // a crash
		w.slept = w.sleepLost()
		return
	}
	if now := w.sitting.now(); now < before {
		w.t.Fatalf("store time went back from %v to %v", utc(before), utc(now))
	}
}

// sleepLost is the sleep that no open makes good for.
func (w *walker) sleepLost() time.Duration {
	if w.knowsBoot {
		return 0
	}
	return w.slept
}

// run lets the store run, with its ticks.
func (w *walker) run(d time.Duration) {
	for d > 0 {
		step := min(d, 30*time.Second)
		before := w.sitting.now()
		w.clock.pass(step)
		w.pass(step)
		if w.unsure >= 0 {
			w.unsure += step
		}
		if now := w.sitting.now(); now != before+int64(step) {
			w.t.Fatalf("store time ran %v in %v", time.Duration(now-before), step)
		}
		d -= step
		w.tickOnce()
	}
}

func (w *walker) tickOnce() {
	before, allowed := w.sitting.now(), w.dropsAllowed()
	stepped := w.tick()
	w.slept = w.sleepLost()
	if now := w.sitting.now(); now < before && !stepped {
		w.t.Fatalf("store time went back from %v to %v in a tick", utc(before), utc(now))
	}
	if allowed && (stepped || !w.dropsAllowed()) {
		w.t.Fatal("a tick takes back that drops are allowed")
	}
}

func (w *walker) writeDown() {
	last := w.written
	w.write()
	if w.knowsBoot {
		w.slept = 0
	}
	if w.written.left == 0 {
		w.sure.storeAhead, w.sure.wallAhead = w.storeAhead(), w.wallAhead()
		w.unsure = -1
		return
	}
	w.written.left, w.written.latest, last.left, last.latest = 0, 0, 0, 0
	if w.written != last {
		w.t.Fatalf("in a doubt %+v is followed by %+v", last, w.written)
	}
}

// look checks what holds at any moment.
func (w *walker) look() {
	if w.storeTime == nil {
		return
	}
	checkStoreTime(w.t, w.sitting, w.written)
	if w.unsure >= 0 && w.unsure < probation && w.dropsAllowed() {
		w.t.Fatalf("drops are allowed after %v of running", w.unsure)
	}
	if !w.setsClock {
		if late := -w.storeAhead(); late < 0 || late > w.slept {
			w.t.Fatalf("store time is %v late, with %v of sleep", late, w.slept)
		}
		if w.wrong {
			w.t.Fatal("a clock that was always right is behind")
		}
		return
	}
	// The stamp was right, and so is the clock, set or not.
	if !w.dropsAllowed() && w.knowsBoot && w.sure.storeAhead == 0 && w.sure.wallAhead == 0 && w.wallAhead() == 0 {
		w.tickOnce()
		if by := w.storeAhead(); by.Abs() > wallStep {
			w.t.Fatalf("a wrong clock was set right, and store time is %v ahead", by)
		}
	}
}

// TestStoreTimeWalk takes random walks.
func TestStoreTimeWalk(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		setsClock, knowsBoot bool
	}{
		{"right clock", false, true},
		{"right clock, boot not known", false, false},
		{"wrong clocks", true, true},
		{"wrong clocks, boot not known", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &walker{
				t: t, rng: seeded(t), sitting: &sitting{clock: newFakeClock()},
				setsClock: tc.setsClock, knowsBoot: tc.knowsBoot, unsure: -1,
			}
			w.now = w.clock.Wall()
			if !tc.knowsBoot {
				w.clock.forgetBoot()
			}
			w.open()
			w.writeDown()
			for range 100_000 {
				w.step()
				w.look()
			}
		})
	}
}
