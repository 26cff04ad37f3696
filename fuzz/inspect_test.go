package fuzz

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
	"dedupstore/store"
)

// FuzzInspect inspects files of arbitrary bytes. It must print a bounded number
// of facts of a bounded size, which are JSON, in a bounded time, and change
// nothing.
func FuzzInspect(f *testing.F) {
	for _, b := range inspectSeeds(f) {
		f.Add(b)
	}
	dir := f.TempDir() // one for all inputs: they come one after the other
	if err := os.MkdirAll(filepath.Join(dir, "s", "log"), 0o777); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			t.Skip("longer says no more")
		}
		names := []string{"STORE", "LOCK", "STATUS", "bitmap-0000000001", "log/0000000001.log"}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, "s", name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range []struct {
			inspect func(context.Context, string, func(store.Fact) error) error
			name    string
		}{
			{store.InspectLog, "log/0000000001.log"},
			{store.InspectFilter, "bitmap-0000000001"},
			{store.InspectStore, "STORE"},
			{store.InspectStore, "."},
		} {
			path := filepath.Join(dir, "s", i.name)
			facts, size := 0, 0
			within(30*time.Second, "inspect "+i.name, func() {
				err := i.inspect(t.Context(), path, func(fact store.Fact) error {
					text, err := json.Marshal(fact)
					facts, size = facts+1, size+len(text)
					return err
				})
				if err != nil {
					t.Errorf("%s: %v", i.name, err)
				}
			})
			if most := 20 + len(b)/20; facts > most || size > 1000*most {
				t.Errorf("%s: %d facts of %d bytes of a file of %d", i.name, facts, size, len(b))
			}
		}
		for _, name := range names {
			if after, err := os.ReadFile(filepath.Join(dir, "s", name)); err != nil || string(after) != string(b) {
				t.Errorf("%s has changed: %v", name, err)
			}
		}
		_, _ = store.ReadStatus(filepath.Join(dir, "s"))
	})
}

// inspectSeeds are the files of a small store.
func inspectSeeds(f *testing.F) (seeds [][]byte) {
	d := crashfs.New()
	o := options(d, store.Sync, 50, 50)
	s := create(f, d, 1, o)
	answers := make([]store.Answer, 60)
	keys := make([]string, len(answers))
	for i := range keys {
		keys[i] = key(i)
	}
	if err := s.AddBatch(f.Context(), keys, answers); err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	files := d.Contents(dir)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !strings.Contains(path, "pebble") {
			seeds = append(seeds, files[path])
		}
	}
	return append(seeds, []byte("pid 1\nhost h\n"), []byte(`{"when":"2026-01-01T00:00:00Z"}`))
}
