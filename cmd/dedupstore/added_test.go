package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A memAdded is a file of which a write may be cut.
type memAdded struct {
	data []byte
	left int // bytes that are written before the cut; below 0: there is none
}

var errCut = errors.New("cut")

func (m *memAdded) WriteAt(p []byte, at int64) (n int, err error) {
	if m.left >= 0 && len(p) > m.left {
		p, err = p[:m.left], errCut
	}
	if m.left >= 0 {
		m.left -= len(p)
	}
	if grow := int(at) + len(p) - len(m.data); len(p) > 0 && grow > 0 {
		m.data = append(m.data, make([]byte, grow)...)
	}
	return copy(m.data[min(int(at), len(m.data)):], p), err
}

func (m *memAdded) ReadAt(p []byte, at int64) (int, error) { return copy(p, m.data[at:]), nil }
func (m *memAdded) Truncate(int64) error                   { return errCut } // as after a kill
func (m *memAdded) Sync() error                            { return nil }
func (m *memAdded) Close() error                           { return nil }

// keysIn are the keys of a file's lines, as forget reads them.
func keysIn(t *testing.T, data []byte) (keys []string) {
	t.Helper()
	err := rawKeys().eachBatch(t.Context(), newInput(nil, bytes.NewReader(data)), func(b *batch) error {
		for _, err := range b.failed {
			t.Errorf("%q: %v", data, err)
		}
		for _, key := range b.keys {
			keys = append(keys, strings.Clone(key))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestAddedKeys writes keys that would be something else as a line, and reads
// them again.
func TestAddedKeys(t *testing.T) {
	odd := []string{
		"https://a/", "a\r", "\r", "a\r\r", "a\x00b", "\x00", " ", "\xff", bom, bom + "a", bom + bom,
		"\x1f", "\x1f\x8b", "\x1f\x8bzip", "\x28\xb5\x2f\xfd", "\x5a\x2a\x4d\x18", "\x28\xb5\x2f",
	}
	for _, first := range odd {
		a := &addedFile{file: &memAdded{left: -1}}
		want := append([]string{first}, odd...)
		for _, at := range [][]int{{0, 1}, {}, {2, 3, 4}} {
			if err := a.write(&batch{keys: want}, at); err != nil {
				t.Fatal(err)
			}
		}
		got := keysIn(t, a.file.(*memAdded).data)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want[:5]) {
			t.Errorf("got %q, want %q", got, want[:5])
		}
	}
}

// TestAddedCut cuts the writes of a batch at every byte: what is in the file is
// whole keys, and no beginnings of keys.
func TestAddedCut(t *testing.T) {
	keys := []string{"https://a/", "https://a/b", "https://a/b/c\r", "https://a/b/c/d"}
	for cut := range 100 {
		m := &memAdded{left: -1}
		a := &addedFile{file: m}
		if err := a.write(&batch{keys: keys}, []int{0}); err != nil {
			t.Fatal(err)
		}
		m.left = cut
		err := a.write(&batch{keys: keys}, []int{1, 2, 3})
		if done := cut >= len("https://a/b\nhttps://a/b/c\r\r\nhttps://a/b/c/d\n"); (err == nil) != done {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		for i, got := range keysIn(t, m.data) {
			if strings.Contains(got, "\x00") {
				continue
			}
			if i >= len(keys) || got != keys[i] {
				t.Errorf("cut at %d: key %d is %q", cut, i, got)
			}
		}
	}
}

// TestAddedFails remembers nothing of what could not be written.
func TestAddedFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	p := &program{stdin: strings.NewReader("a\nb\na\n"), stdout: io.Discard, stderr: io.Discard, dir: dir}
	a := &addedFile{file: &memAdded{left: 3}}
	into, err := p.openMarked(rawAdding(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.runLines(t.Context(), newInput(nil, p.stdin), false, into, newMarker(into, a.write).ask); !errors.Is(err, errCut) {
		t.Errorf("got %v", err)
	}
	if got := filterAll(t, dir, "a\nb\n"); got != "a\nb\n" {
		t.Errorf("then filter prints %q", got)
	}
}

// TestImportTakenBack kills or interrupts imports at random moments, and takes
// back what they have added: all of it, and nothing else.
func TestImportTakenBack(t *testing.T) {
	r := killRandom(t)
	data := manyLines(60_000)
	lines := distinct(data)
	before := strings.Join(lines[:len(lines)/3], "")
	list := filepath.Join(t.TempDir(), "lines")
	write(t, list, data)
	inside, rounds := 0, 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		dir, added := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "added")
		if got := filterAll(t, dir, before); got != before {
			t.Fatalf("the first third: %d bytes", len(got))
		}
		for range 1 + r.IntN(3) {
			cmd := exec.CommandContext(t.Context(), "dedupstore", "import", "--quiet", "--store", dir, "--added-to", added, list)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			sig := os.Signal(syscall.SIGKILL)
			if round%4 == 0 {
				sig = os.Interrupt
			}
			kill := time.AfterFunc(time.Duration(r.Int64N(int64(150*time.Millisecond))), func() { cmd.Process.Signal(sig) })
			cmd.Wait()
			kill.Stop()
		}
		switch urls := killStats(t, dir).URLs; {
		case urls < int64(len(lines)/3):
			t.Errorf("%d URLs, %d were there", urls, len(lines)/3)
		case urls > int64(len(lines)/3) && urls < int64(len(lines)):
			inside++
		}
		cmd := exec.CommandContext(t.Context(), "dedupstore", "forget", "--store", dir)
		taken, err := os.ReadFile(added)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it was killed before it began
			t.Fatal(err)
		}
		cmd.Stdin = bytes.NewReader(taken)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("forget: %v, %s", err, out)
		}
		if urls := killStats(t, dir).URLs; urls != int64(len(lines)/3) {
			t.Errorf("%d URLs after what was added is taken back, want %d", urls, len(lines)/3)
		}
		if got, want := filterAll(t, dir, data), strings.Join(lines[len(lines)/3:], ""); got != want {
			t.Errorf("round %d: then filter prints %d bytes, want %d", round, len(got), len(want))
		}
	}
	t.Logf("%d of %d were cut inside the list", inside, rounds)
}
