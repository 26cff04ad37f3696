package wal

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestCopyFile copies a log of three files, which goes on meanwhile, up to each
// of its records.
func TestCopyFile(t *testing.T) {
	mem := vfs.NewMem()
	l := newLog(t, mem, firstStart, Options{})
	switched := []LSN{}
	for range 2 {
		add(t, l, 5)
		mustSync(t, l)
		add(t, l, 3)
		mustSwitch(t, l)
		switched = append(switched, l.Last())
	}
	add(t, l, 4)
	last := l.Last()
	must(t, mem.MkdirAll("staged", 0o700))
	for file := uint64(1); file <= 3; file++ {
		must(t, LinkFile(mem, "", "staged", file))
	}
	add(t, l, 5)
	must(t, Remove(mem, "", 1))

	for upto := LSN(1); upto <= last; upto++ {
		dir := "copy"
		must(t, mem.RemoveAll(dir))
		must(t, mem.MkdirAll(dir, 0o700))
		files := uint64(1)
		for _, lsn := range switched {
			if upto >= lsn { // the next file is named then
				files++
			}
		}
		for file := uint64(1); file <= files; file++ {
			n, err := CopyFile(mem, "staged", dir, file, testStore, upto)
			must(t, err)
			info, err := mem.Stat(mem.PathJoin(dir, fileName(file)))
			must(t, err)
			if info.Size() != n {
				t.Errorf("up to %d: file %d has %d bytes, and it was said to have %d", upto, file, info.Size(), n)
			}
		}
		c, err := Read(mem, dir, testStore)
		must(t, err)
		if c.Last != upto || c.Torn != nil {
			t.Errorf("up to %d: the copy ends with %d, torn: %+v", upto, c.Last, c.Torn)
		}
		if lsns := replay(t, c); slices.Contains(lsns, upto+1) {
			t.Errorf("up to %d: the copy has %v", upto, lsns)
		}
		n, err := Create(mem, dir, c.Next(testMeta(9)), Options{StoreID: testStore})
		must(t, err)
		must(t, n.Close())
		if c, err = Read(mem, dir, testStore); err != nil || c.Last != upto || c.Synced < upto {
			t.Errorf("up to %d, with the next file: %+v, %v", upto, c, err)
		}
	}
}

// TestCopyFileErrors meets files that are not what they should be, and a full
// disk.
func TestCopyFileErrors(t *testing.T) {
	mem := vfs.NewMem()
	l := newLog(t, mem, firstStart, Options{})
	add(t, l, 5)
	b := readFile(t, mem, fileName(1))
	must(t, mem.MkdirAll("to", 0o700))
	full := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	writeFile(t, mem, fileName(2), b)
	writeFile(t, mem, fileName(3), b[:headerBytes/2])
	for _, c := range []struct {
		name string
		fs   vfs.FS
		file uint64
		id   [16]byte
		want error
	}{
		{"another file's", mem, 2, testStore, ErrCorrupt},
		{"half a header", mem, 3, testStore, ErrCorrupt},
		{"missing", mem, 4, testStore, fs.ErrNotExist},
		{"another store's", mem, 1, [16]byte{1}, ErrForeign},
		{"a full disk", full, 1, testStore, ErrNoSpace},
	} {
		if _, err := CopyFile(c.fs, "", "to", c.file, c.id, 5); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	if err := LinkFile(mem, "", "to", 9); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("link of a missing file: got %v", err)
	}
}
