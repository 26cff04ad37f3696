package store

import (
	"os"
	"syscall"
	"testing"

	"dedupstore/mmapfilter"
)

// TestHealedWhileAsked heals a page while a word whose bit it has lost is asked
// for. No answer may be the "no" of before and the "sure" of after.
func TestHealedWhileAsked(t *testing.T) {
	const w = 1 << 63
	for round := range 3000 {
		d := mmapfilter.NewTwin()
		m, err := mmapfilter.Create(d, "filter", mmapfilter.Header{Params: mmapfilter.ParamsFor(1, 1)})
		if err != nil {
			t.Fatal(err)
		}
		m.MarkBad(w)
		f := &filter{Filter: m}
		asking, healed := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(healed)
			<-asking
			if err := m.SetSorted([]uint64{w}); err != nil {
				t.Error(err)
			}
			m.Healed(0)
		}()
		for i, done := 0, false; !done; i++ {
			select {
			case <-healed:
				done = true
			default:
			}
			for range 100 {
				if !f.maybe(w) {
					t.Errorf("round %d: a word that is set was denied", round)
					done = true
					break
				}
			}
			if i == 0 {
				close(asking)
			}
		}
		<-healed
		must(t, f.close())
		if t.Failed() {
			return
		}
	}
}

// TestUnreadablePage takes away the end of the bitmap while its pages are being
// checked, as a disk does that cannot read them, and the room for the build that
// would replace it: the check ends none the less.
func TestUnreadablePage(t *testing.T) {
	w := onDisk(t)
	w.o.ExpectedURLs = 5_000_000 // more pages than are checked at once
	s := w.open()
	s.add(New, keys(0, 100)...)
	s.flush()
	s.healthy()
	path := s.bitmapPath(s.mu.registry)
	s.close()
	checks := 0
	w.point = func(at string) {
		if at != "pages-checked" {
			return
		}
		if checks++; checks == 1 {
			must(t, os.Truncate(path, 4096+(checkPart+1)*4096))
		}
	}
	o := w.options()
	o.seams.Device = noRoom{mmapfilter.Files}
	full := mustOpen(t, w.dir, o)
	defer full.Close() // cannot sync what is not there
	rounds := func() int {
		full.mu.Lock()
		defer full.mu.Unlock()
		return int(full.mu.tries)
	}
	eventually(t, "the bitmap is degraded", func() bool { return len(full.Stats().Degraded) > 0 })
	before := rounds()
	eventually(t, "the maintainer comes to an end", func() bool {
		full.kick()
		return rounds() > before+1
	})
	if checks != 2 {
		t.Errorf("checked %d times, want once, and until the first fault", checks)
	}
}

// noRoom is a Device that has no room for a new file.
type noRoom struct{ mmapfilter.Device }

func (noRoom) Create(string, int64) (mmapfilter.Mapping, error) { return nil, syscall.ENOSPC }
