package wal

import (
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestLogRoundTrip(t *testing.T) {
	for _, where := range []string{"memory", "disk"} {
		t.Run(where, func(t *testing.T) {
			var fs vfs.FS = vfs.NewMem()
			dir := ""
			if where == "disk" {
				fs, dir = vfs.Default, t.TempDir()
			}
			l, err := Create(fs, dir, firstStart, Options{StoreID: testStore})
			must(t, err)
			defer l.Close()
			var want []LSN
			for file := range 3 {
				for range 5 {
					want = append(want, l.Next())
					add(t, l, 1)
				}
				if file < 2 {
					mustSwitch(t, l)
				}
			}
			must(t, l.Close())
			c, err := Read(fs, dir, testStore)
			must(t, err)
			if got := replay(t, c); !slices.Equal(got, want) {
				t.Errorf("got records %v, want %v", got, want)
			}
			if c.Torn != nil || c.Last != 17 || c.Synced != 17 || len(c.Files) != 3 {
				t.Errorf("got %d files, last %d, synced %d, torn %v", len(c.Files), c.Last, c.Synced, c.Torn)
			}
			for i, f := range c.Files {
				if f.Size != f.End || f.Dropped != 0 || f.Switched != (i < 2) {
					t.Errorf("file %d: size %d, end %d, dropped %d, switched %v", f.File, f.Size, f.End, f.Dropped, f.Switched)
				}
			}
			l2, err := Create(fs, dir, c.Next(testMeta(9)), Options{StoreID: testStore})
			must(t, err)
			add(t, l2, 2)
			must(t, l2.Close())
			must(t, Remove(fs, dir, 1))
			c, err = Read(fs, dir, testStore)
			must(t, err)
			if got := replay(t, c); !slices.Equal(got, []LSN{7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19}) {
				t.Errorf("after reopening, got %v", got)
			}
			if c.Files[2].Meta != testMeta(9) {
				t.Errorf("meta is %q", c.Files[2].Meta)
			}
		})
	}
}

// TestConcurrent appends, waits, reserves, prepares and switches from many
// goroutines at once.
func TestConcurrent(t *testing.T) {
	fs := vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{PreallocateBytes: 4 << 10})
	const workers, each = 8, 200
	var mu sync.Mutex // the caller's lock
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				if err := l.Reserve(200); err != nil {
					t.Error(err)
				}
				if i%50 == w {
					if err := l.Prepare(testMeta(0)); err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				if i%50 == w && l.Prepared() {
					l.Switch()
				}
				lsn := l.Append(testKind, payload(l.Next()))
				mu.Unlock()
				if i%2 == 0 {
					if err := l.WaitWritten(lsn); err != nil || l.Written() < lsn {
						t.Errorf("wait for %d: %v, written %d", lsn, err, l.Written())
					}
				} else if err := l.WaitSynced(lsn); err != nil || l.Synced() < lsn {
					t.Errorf("wait for %d: %v, synced %d", lsn, err, l.Synced())
				}
				_ = l.Stats()
			}
		})
	}
	wg.Wait()
	must(t, l.Close())
	c, err := Read(fs, "", testStore)
	must(t, err)
	if got := len(replay(t, c)); got != workers*each {
		t.Errorf("got %d records, want %d", got, workers*each)
	}
	if len(c.Files) < 2 || c.Torn != nil {
		t.Errorf("got %d files, torn %v", len(c.Files), c.Torn)
	}
}
