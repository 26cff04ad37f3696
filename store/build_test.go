package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dedupstore/mmapfilter"
)

// small makes a world whose bitmap is sized for a hundred URLs, and whose
// builds take several steps.
func (w *world) small() *world {
	w.o.ExpectedURLs, w.memtableWords, w.buildWords = 100, 500, 300
	return w
}

// TestGrow adds a hundred times what the bitmap was made for.
func TestGrow(t *testing.T) {
	for _, w := range []*world{onDisk(t).small(), inMemory(t).small()} {
		s := w.open()
		const n = 10_000
		for i := 0; i < n; i += 100 {
			s.add(New, keys(i, i+100)...)
		}
		s.flush()
		eventually(t, "the last build", func() bool { return s.Stats().Bitmap.Load <= 1 })
		x := s.Stats()
		if x.Build.Builds < 4 || x.Bitmap.Capacity < n || x.Bitmap.Capacity >= 4*n {
			t.Errorf("after %d builds the bitmap is sized for %d URLs and holds %d", x.Build.Builds, x.Bitmap.Capacity, n)
		}
		s.has(Seen, keys(0, n)...)
		s.has(New, keys(n, 2*n)...)
		s.urls(n)
		names, err := w.options().withDefaults().seams.Device.List(w.dir)
		must(t, err)
		bitmaps := 0
		for _, name := range names {
			if isBitmapName(name) {
				bitmaps++
			}
		}
		if bitmaps != 1 {
			t.Errorf("%d bitmaps are on disk: %q", bitmaps, names)
		}
		s.close()
		s = w.open()
		s.add(Seen, keys(0, n)...)
		s.add(New, keys(n, n+100)...)
	}
}

// TestGrowWhileAsked unmaps bitmaps as often as it can, while many ask and
// add.
func TestGrowWhileAsked(t *testing.T) {
	w := inMemory(t).small()
	s := w.open()
	var wg sync.WaitGroup
	var stop atomic.Bool
	s.add(New, keys(0, 100)...)
	for range 8 {
		wg.Go(func() {
			for !stop.Load() {
				s.has(Seen, keys(0, 50)...)
				s.has(New, "never added", "nor this")
			}
		})
	}
	for i := 100; i < 30_000; i += 100 {
		s.add(New, keys(i, i+100)...)
	}
	stop.Store(true)
	wg.Wait()
	s.urls(30_000)
	eventually(t, "the last build", func() bool { return s.Stats().Bitmap.Load <= 1 })
}

// TestFlushDuringBuild flushes words into places that the scan of a build has
// passed: nine of its ten steps are done, and the last one waits for the flush.
func TestFlushDuringBuild(t *testing.T) {
	w := inMemory(t)
	w.o.ExpectedURLs, w.memtableWords, w.buildWords = 100, 500, 10
	var s *testStore
	steps, released := 0, false // of the maintainer alone
	ninth := make(chan struct{})
	w.point = func(at string) {
		switch {
		case at == "build-step":
			if steps++; steps == 9 {
				close(ninth)
			}
		case at == "released" && steps == 9:
			released = true
		case at == "step" && steps == 9 && released:
			s.maintainer.build.next = time.Time{}
		case at == "step" && steps == 9:
			s.maintainer.build.next = time.Now().Add(time.Hour)
		}
	}
	s = w.open()
	s.add(New, keys(0, 100)...)
	s.flush()
	s.add(New, keys(100, 190)...)
	s.kick()
	within(t, "nine steps", ninth)
	s.flush()
	eventually(t, "the build's end", func() bool { s.kick(); return s.Stats().Build.Builds > 0 })
	if x := s.Stats(); x.Build.Builds != 1 || x.Bitmap.Capacity != 200 {
		t.Errorf("got %+v for %d URLs", x.Build, x.Bitmap.Capacity)
	}
	s.has(Seen, keys(0, 190)...)
}

// TestGrowOnFullDisk has no room for a larger bitmap: adds go on, answers stay
// exact, Stats says so, and with room it grows.
func TestGrowOnFullDisk(t *testing.T) {
	w := inMemory(t).small()
	var full atomic.Bool
	s := w.open()
	w.twin.Fail = func(op, path string) error {
		if op == "create" && full.Load() {
			return syscall.ENOSPC
		}
		return nil
	}
	full.Store(true)
	s.add(New, keys(0, 5000)...)
	s.has(Seen, keys(0, 5000)...)
	s.has(New, keys(5000, 6000)...)
	if x := s.Stats(); x.Build.GivenUp == 0 || x.Build.Builds != 0 || len(x.Warnings) == 0 {
		t.Errorf("got %+v and warnings %q", x.Build, x.Warnings)
	}
	full.Store(false)
	s.maintainer.mu.Lock()
	s.maintainer.noBuildBefore = s.maintainer.noBuildBefore.Add(-buildRetry)
	s.maintainer.mu.Unlock()
	s.kick()
	eventually(t, "a build", func() bool { return s.Stats().Build.Builds > 0 })
	s.has(Seen, keys(0, 5000)...)
}

// TestCloseEndsBuild closes a store whose bitmap is far too small as soon as
// it is: Close waits for the build.
func TestCloseEndsBuild(t *testing.T) {
	w := inMemory(t).small()
	w.buildWords = 10
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.close()
	h, err := onlyBitmap(w)
	must(t, err)
	if float64(h.Capacity)*overfull < 1000 {
		t.Errorf("the bitmap is sized for %d URLs and holds 1000", h.Capacity)
	}
}

// onlyBitmap is the header of the world's only bitmap.
func onlyBitmap(w *world) (mmapfilter.Header, error) {
	o := w.options().withDefaults()
	names, err := o.seams.Device.List(w.dir)
	if err != nil {
		return mmapfilter.Header{}, err
	}
	for _, name := range names {
		if isBitmapName(name) {
			h, _, err := mmapfilter.ReadHeader(o.seams.Device, o.seams.FS.PathJoin(w.dir, name))
			return h, err
		}
	}
	return mmapfilter.Header{}, errors.New("no bitmap")
}
