package store

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestPlan compares what was planned with the files and the memory of stores.
func TestPlan(t *testing.T) {
	const million = 1_000_000
	for _, c := range []struct {
		name string
		in   PlanInput
		live int // at a time, with a TTL
		add  int
	}{
		{"growing", PlanInput{MemoryBytes: 16 << 20, ExpectedURLs: million / 10}, million, million},
		{"sized", PlanInput{MemoryBytes: 8 << 20, ExpectedURLs: million / 2}, million / 2, million / 2},
		{"with a TTL", PlanInput{MemoryBytes: 4 << 20, ExpectedURLs: million / 20, TTL: 30 * 24 * time.Hour}, million / 4, million * 3 / 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, clock := clocked(onDisk(t))
			w.exciseWords, c.in.exciseWords = 1000, 1000 // spans are small here
			w.o.MemoryBytes, w.o.ExpectedURLs, w.o.TTL = c.in.MemoryBytes, c.in.ExpectedURLs, c.in.TTL
			s := w.open()
			const batch = 1000
			var memory MemoryStats // the most: a memtable that was flushed is let go in a while
			for i := 0; i < c.add; i += batch {
				s.add(New, keys(i, i+batch)...)
				clock.pass(c.in.TTL / time.Duration(c.live/batch))
				if now := s.Stats().Memory; now.Anonymous > memory.Anonymous {
					memory = now
				}
			}
			_, err := s.Expire(context.Background(), ExpireOptions{})
			must(t, err)
			s.close()
			s = w.open()
			x := s.Stats()
			memory.FileBacked = x.Memory.FileBacked

			c.in.URLs = x.URLs
			p, err := NewPlan(c.in)
			must(t, err)
			asPlanned(t, "memtables", p.Memory.Memtables, memory.Memtables)
			asPlanned(t, "anonymous memory", p.Memory.Anonymous, memory.Anonymous)
			asPlanned(t, "all memory", p.Memory.Anonymous+p.Memory.FileBacked, memory.Anonymous+memory.FileBacked)
			asPlanned(t, "words", p.Disk.Pebble, x.Disk.Pebble)
			asPlanned(t, "bitmap", p.Disk.Bitmap, x.Disk.Bitmap)
			asPlanned(t, "all of the disk", p.Disk.Total, x.Disk.Total-x.Disk.Log)
			if p.Peak.Total < p.Disk.Total {
				t.Errorf("%d bytes at most, and %d at rest", p.Peak.Total, p.Disk.Total)
			}
		})
	}
}

// asPlanned allows a plan 15 %.
func asPlanned(t *testing.T, what string, planned, measured int64) {
	t.Helper()
	t.Logf("%s: planned %d bytes, measured %d", what, planned, measured)
	if ratio := float64(planned) / float64(measured); math.Abs(ratio-1) > 0.15 {
		t.Errorf("%s: planned %d bytes, measured %d", what, planned, measured)
	}
}

// TestPlanTableBytes compares what words are said to take in a table with what
// they take, of 2^20 words as they stand in segments of up to 2^36.
func TestPlanTableBytes(t *testing.T) {
	s := onDisk(t).open()
	const n = 1 << 20
	rng := rand.New(rand.NewPCG(1, 1))
	words := make([]word, n)
	for dense := 0; dense <= 16; dense += 4 {
		for i := range words {
			words[i] = rng.Uint64() >> dense
		}
		slices.Sort(words)
		table, err := s.newTable(s.tmpTable(1, dense))
		must(t, err)
		for _, x := range words {
			table.key = appendWordKey(table.key[:0], 1, x)
			if err := table.w.Set(table.key, nil); err != nil {
				t.Fatal(err)
			}
		}
		bytes, err := table.finish()
		must(t, err)
		must(t, removeIfThere(s.opts.seams.FS, table.path))
		measured, planned := float64(bytes)/n, tableBytesOf(n<<dense)/float64(uint64(n)<<dense)
		if math.Abs(planned/measured-1) > 0.03 {
			t.Errorf("2^%d words: planned %.2f bytes each, measured %.2f", 20+dense, planned, measured)
		}
	}
}

func TestPlanInput(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		in        PlanInput
		urls, new int64 // 0: refused
	}{
		{PlanInput{URLs: 1}, 1, 0},
		{PlanInput{URLs: 5, TTL: Forever}, 5, 0},
		{PlanInput{URLs: MaxExpectedURLs, MemoryBytes: MinMemoryBytes}, MaxExpectedURLs, 0},
		{PlanInput{URLs: 3000, TTL: 30 * day}, 3000, 100},
		{PlanInput{NewPerDay: 100, TTL: 30 * day}, 3000, 100},
		{PlanInput{URLs: 3, TTL: 30 * day}, 3, 1},
		{PlanInput{URLs: 3000, TTL: 1}, 3000, 2 * MaxExpectedURLs},
		{PlanInput{}, 0, 0},
		{PlanInput{NewPerDay: 100}, 0, 0},
		{PlanInput{URLs: -1}, 0, 0},
		{PlanInput{URLs: 1, NewPerDay: -1}, 0, 0},
		{PlanInput{URLs: 1, TTL: -1}, 0, 0},
		{PlanInput{URLs: 1, MemoryBytes: 1}, 0, 0},
		{PlanInput{URLs: 1, ExpectedURLs: -1}, 0, 0},
		{PlanInput{URLs: MaxExpectedURLs + 1}, 0, 0},
		{PlanInput{NewPerDay: math.MaxInt64, TTL: 1000 * day}, 0, 0},
	} {
		p, err := NewPlan(c.in)
		if (err == nil) != (c.urls > 0) {
			t.Errorf("%+v: error %v", c.in, err)
		}
		if err != nil {
			continue
		}
		if p.Input.URLs != c.urls || p.Input.NewPerDay != c.new {
			t.Errorf("%+v: got %d URLs and %d new a day, want %d and %d", c.in, p.Input.URLs, p.Input.NewPerDay, c.urls, c.new)
		}
		if p.Disk.Total < p.Disk.Pebble || p.Peak.Total < p.Disk.Total || p.BitmapCapacity < c.urls || p.Spans < 1 ||
			(p.DeviceBytesPerDay > 0) != (c.new > 0) {
			t.Errorf("%+v: got %+v", c.in, p)
		}
	}
}

// TestPlanAny goes through inputs of all sizes: none panics, and many more URLs
// do not take less.
func TestPlanAny(t *testing.T) {
	for _, memory := range []int64{MinMemoryBytes, 1 << 30, 1 << 40} {
		for _, ttl := range []time.Duration{1, time.Second, time.Hour, 1000 * time.Hour, Forever / 2, Forever} {
			before := int64(0)
			for urls := int64(1); urls <= MaxExpectedURLs; urls *= 37 {
				p, err := NewPlan(PlanInput{URLs: urls, TTL: ttl, MemoryBytes: memory, NewPerDay: urls})
				must(t, err)
				if p.Disk.Pebble < before || p.DeviceBytesPerDay <= 0 || p.Peak.Total < p.Disk.Total {
					t.Errorf("%d URLs, %v, %d bytes: got %+v", urls, ttl, memory, p)
				}
				before = p.Disk.Pebble / 3 // small spans are planned for twice
			}
		}
	}
}
