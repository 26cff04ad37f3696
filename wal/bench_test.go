package wal

import (
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkAppend appends records and waits until every 64th is written.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{8, 8 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			l, err := Create(vfs.Default, b.TempDir(), firstStart, Options{})
			must(b, err)
			defer l.Close()
			payload := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%64 == 0 {
					must(b, l.WaitWritten(l.Last()))
					if l.Stats().Bytes > int64(l.File())<<28 {
						mustSwitch(b, l)
						mustSync(b, l)
						must(b, Remove(vfs.Default, l.dir, l.File()-1))
					}
					must(b, l.Reserve(64*FrameBytes(size)))
				}
				l.Append(testKind, payload)
			}
		})
	}
}

// BenchmarkAppendOnly is Append without the writes.
func BenchmarkAppendOnly(b *testing.B) {
	for _, size := range []int{8, 8 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			l := newLog(b, discardFS{vfs.NewMem()}, firstStart, Options{})
			payload := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%64 == 0 {
					must(b, l.WaitWritten(l.Last()))
				}
				l.Append(testKind, payload)
			}
		})
	}
}

// discardFS throws away what is written to files.
type discardFS struct{ vfs.FS }

func (fs discardFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return discardFile{f}, err
}

type discardFile struct{ vfs.File }

func (f discardFile) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkWaitSynced is group commit: many goroutines, each of which waits
// for each of its records.
func BenchmarkWaitSynced(b *testing.B) {
	for _, workers := range []int{2, 16} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			l, err := Create(vfs.Default, b.TempDir(), firstStart, Options{})
			must(b, err)
			defer l.Close()
			payload := make([]byte, 64)
			b.SetParallelism(workers / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := l.WaitSynced(l.Append(testKind, payload)); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/float64(l.Stats().Syncs), "records/sync")
		})
	}
}

// BenchmarkRead reads and replays a log that is in the page cache.
func BenchmarkRead(b *testing.B) {
	const total = 64 << 20
	for _, size := range []int{8, 8 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			dir := b.TempDir()
			l, err := Create(vfs.Default, dir, firstStart, Options{StoreID: testStore})
			must(b, err)
			payload := make([]byte, size)
			for range total / FrameBytes(size) {
				if l.Append(testKind, payload)%1000 == 0 {
					must(b, l.WaitWritten(l.Last()))
				}
			}
			must(b, l.Close())
			for _, replay := range []bool{false, true} {
				name := "read"
				if replay {
					name = "replay"
				}
				b.Run(name, func(b *testing.B) {
					c, err := Read(vfs.Default, dir, testStore)
					must(b, err)
					b.SetBytes(total)
					b.ReportAllocs()
					for b.Loop() {
						if replay {
							must(b, c.Replay(0, func(Record) error { return nil }))
						} else if _, err := Read(vfs.Default, dir, testStore); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// TestAppendAllocates: in the steady state neither Append nor the waits do.
func TestAppendAllocates(t *testing.T) {
	l := newLog(t, discardFS{vfs.NewMem()}, firstStart, Options{})
	payload := make([]byte, 8<<10)
	step := func() {
		var lsn LSN
		for range 10 {
			lsn = l.Append(testKind, payload)
		}
		if err := l.WaitSynced(lsn); err != nil {
			t.Fatal(err)
		}
	}
	step()
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations for 10 appends and a wait, want 0", n)
	}
}
