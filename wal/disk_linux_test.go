package wal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// TestTailGivenBack: what was preallocated and not used is free again once a
// file has its end.
func TestTailGivenBack(t *testing.T) {
	dir := t.TempDir()
	blocks := func(n uint64) int64 {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(dir, fileName(n)), &st))
		return st.Blocks * 512
	}
	l, err := Create(vfs.Default, dir, firstStart, Options{})
	must(t, err)
	defer l.Close()
	add(t, l, 1)
	if blocks(1) < defaultPreallocateBytes {
		t.Skip("the file system does not preallocate")
	}
	mustSwitch(t, l)
	mustSync(t, l)
	must(t, l.Close())
	for n := range uint64(2) {
		if got := blocks(n + 1); got > 64<<10 {
			t.Errorf("file %d takes %d bytes of the disk", n+1, got)
		}
	}
}

// BenchmarkPreallocate compares ways to make room for a log: what an
// fdatasync after an 8 KiB write costs with each of them. It measures the
// file system only and is the source of the choice in preallocate.
func BenchmarkPreallocate(b *testing.B) {
	const step, unit = 4 << 20, 8 << 10
	modes := []struct {
		name string
		grow func(f *os.File, off int64) error
	}{
		{"none", func(*os.File, int64) error { return nil }},
		{"keep-size", func(f *os.File, off int64) error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, step)
		}},
		{"grow-size", func(f *os.File, off int64) error {
			return unix.Fallocate(int(f.Fd()), 0, off, step)
		}},
		{"write-zeros", func(f *os.File, off int64) error {
			_, err := f.WriteAt(make([]byte, step), off)
			return err
		}},
	}
	for _, m := range modes {
		b.Run(m.name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "log"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			buf := make([]byte, unit)
			for i := range buf {
				buf[i] = byte(i) | 1
			}
			var off, end int64
			for b.Loop() {
				if off+unit > end {
					if err := m.grow(f, end); err != nil {
						b.Fatal(err)
					}
					end += step
				}
				if _, err := f.WriteAt(buf, off); err != nil {
					b.Fatal(err)
				}
				off += unit
				if err := unix.Fdatasync(int(f.Fd())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
