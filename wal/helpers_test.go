package wal

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var seedFlag = flag.Uint64("seed", 0, "replay a random test")

// newRand returns a source whose seed is logged with how to use it again.
func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay: go test -run '^%s$' ./wal -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

const testKind = FirstCallerKind

var testStore = [16]byte{'t', 'e', 's', 't', ' ', 's', 't', 'o', 'r', 'e', 1, 2, 3, 4, 5, 6}

var firstStart = Start{File: 1, FirstLSN: 1}

func testMeta(n byte) (m [MetaBytes]byte) {
	copy(m[:], "meta")
	m[MetaBytes-1] = n
	return m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newLog creates a log in the root of fs that is closed with the test.
func newLog(t testing.TB, fs vfs.FS, first Start, o Options) *Log {
	t.Helper()
	o.StoreID = testStore
	l, err := Create(fs, "", first, o)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// payload returns the payload that tests give to the record of an LSN, of a
// size that makes the padding differ from one to the next.
func payload(n LSN) []byte {
	return fmt.Appendf(nil, "record %d %s", n, bytes.Repeat([]byte{'.'}, int(n%7)))
}

// add appends records with payloads that checkRecords knows, and waits until
// they are written.
func add(t testing.TB, l *Log, n int) {
	t.Helper()
	for range n {
		l.Append(testKind, payload(l.Next()))
	}
	must(t, l.WaitWritten(l.Last()))
}

func mustSync(t testing.TB, l *Log) {
	t.Helper()
	must(t, l.WaitSynced(l.Last()))
}

func mustSwitch(t testing.TB, l *Log) {
	t.Helper()
	must(t, l.Prepare(testMeta(byte(l.File()+1))))
	l.Switch()
}

// replay returns the LSNs of all records of c, whose payloads are those of
// payload.
func replay(t testing.TB, c *Chain) []LSN {
	t.Helper()
	var got []LSN
	for i := range c.Files {
		must(t, c.Replay(i, func(r Record) error {
			if !bytes.Equal(r.Payload, payload(r.LSN)) {
				t.Errorf("record %d has payload %q, want %q", r.LSN, r.Payload, payload(r.LSN))
			}
			got = append(got, r.LSN)
			return nil
		}))
	}
	return got
}

func readFile(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	must(t, err)
	return b
}

func writeFile(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(bytes.Clone(b))
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}
