package store

import (
	"testing"
	"time"
)

// FuzzStoreTime opens with any stamp on any clock, and lives any life: whatever
// comes of it is a time, runs with the monotonic clock, and allows no drop that
// a probation or somebody has not allowed.
func FuzzStoreTime(f *testing.F) {
	good := newFakeClock()
	sane := clockStamp{good.wall.UnixNano(), good.wall.UnixNano(), int64(good.boot), good.bootID, 0, 0}
	doubt := sane
	doubt.bootID[0], doubt.left, doubt.latest = 9, 60_000, 86_400
	for _, stamp := range append(absurdStamps()[:3], clockStamp{}, sane, doubt) {
		f.Add(appendClockStamp(nil, stamp), good.wall.Unix(), int64(good.boot), []byte{0, 100, 1, 200, 2, 255, 3, 4, 5, 0, 255})
	}
	f.Fuzz(func(t *testing.T, b []byte, wall, boot int64, life []byte) {
		if len(b) != clockStampBytes || len(life) > 1000 {
			return
		}
		s := &sitting{clock: newFakeClock(), written: decodeClockStamp(b)}
		if got := appendClockStamp(nil, s.written); string(got) != string(b) {
			t.Fatalf("%x decodes to %+v, and that is encoded as %x", b, s.written, got)
		}
		s.clock.wall, s.clock.boot = time.Unix(wall, 0), time.Duration(max(0, boot))
		from := s.written
		s.open()
		var ran time.Duration // since the open
		free := s.dropsAllowed()
		for i, step := range life {
			checkStoreTime(t, s, from)
			before := s.now()
			d := time.Duration(step) * time.Second
			switch i % 6 {
			case 0:
				s.clock.pass(d)
				if ran += d; s.now() != before+int64(d) {
					t.Fatalf("%+v: store time ran %v in %v", from, time.Duration(s.now()-before), d)
				}
			case 1:
				s.clock.sleep(d * 60)
			case 2:
				s.clock.step(time.Duration(int8(step)) * 24 * time.Hour)
			case 3:
				if !s.tick() && s.now() < before {
					t.Fatalf("%+v: a tick takes the time back from %v to %v", from, utc(before), utc(s.now()))
				}
			case 4:
				if step == 0 {
					s.accept()
					free = true
				}
			case 5:
				if step == 0 {
					s.close()
					s.clock.reboot(time.Minute)
					s.open()
				}
			}
			left := probation
			if from.left > 0 {
				left = from.bounded().leftAt(from.bounded().wall + int64(from.latest)*int64(time.Second))
			}
			if s.dropsAllowed() && !free && ran < left {
				t.Fatalf("%+v: drops are allowed after %v", from, ran)
			}
			free = free || s.dropsAllowed() // what has been allowed is written down
		}
	})
}
