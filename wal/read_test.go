package wal

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestRead runs the cases of testdata/read. Commands:
//
//	build          makes a log; lines are: append N, sync, prepare, switch,
//	               close, reopen, crash (go on without a close)
//	damage         lines are: flip FILE OFFSET, cut FILE SIZE, zero FILE FROM TO,
//	               tail FILE BYTES (appends zeros), junk FILE BYTES (appends
//	               0xff), splice FILE FROM TO (takes bytes out), remove FILE,
//	               rename FILE FILE, foreign FILE (gives it another store id),
//	               copy FILE FILE
//	frames FILE    prints where the frames are
//	read           prints what Read and Replay find
func TestRead(t *testing.T) {
	datadriven.Walk(t, "testdata/read", func(t *testing.T, path string) {
		var fs *vfs.MemFS
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "build":
				fs = vfs.NewMem()
				build(t, fs, d.Input)
			case "damage":
				for line := range strings.Lines(d.Input) {
					damage(t, fs, strings.Fields(line))
				}
			case "frames":
				n, err := strconv.ParseUint(d.CmdArgs[0].Key, 10, 64)
				must(t, err)
				printFrames(t, &out, fs, n)
			case "read":
				printRead(t, &out, fs)
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			return out.String()
		})
	})
}

func build(t *testing.T, fs vfs.FS, script string) {
	l := newLog(t, fs, firstStart, Options{})
	for line := range strings.Lines(script) {
		switch f := strings.Fields(line); f[0] {
		case "append":
			n, err := strconv.Atoi(f[1])
			must(t, err)
			add(t, l, n)
		case "sync":
			mustSync(t, l)
		case "prepare":
			must(t, l.Prepare(testMeta(0)))
		case "switch":
			mustSwitch(t, l)
			must(t, l.WaitWritten(l.Last()))
		case "close":
			must(t, l.Close())
		case "reopen", "crash":
			if f[0] == "reopen" {
				must(t, l.Close())
			}
			c, err := Read(fs, "", testStore)
			must(t, err)
			l = newLog(t, fs, c.Next(testMeta(0)), Options{})
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	// The log is left as a kill would leave it.
}

func damage(t *testing.T, fs vfs.FS, f []string) {
	args := make([]int, 4)
	for i, s := range f[1:] {
		n, err := strconv.Atoi(s)
		must(t, err)
		args[i] = n
	}
	path, a, b := fileName(uint64(args[0])), args[1], args[2]
	if f[0] == "remove" {
		must(t, fs.Remove(path))
		return
	}
	data := readFile(t, fs, path)
	switch f[0] {
	case "flip":
		data[a] ^= 1
	case "cut":
		data = data[:a]
	case "zero":
		clear(data[a:b])
	case "tail":
		data = append(data, make([]byte, a)...)
	case "junk":
		data = append(data, bytes.Repeat([]byte{0xff}, a)...)
	case "splice":
		data = append(data[:a:a], data[b:]...)
	case "foreign":
		h, err := decodeHeader(data)
		must(t, err)
		h.store[0]++
		data = append(appendHeader(nil, &h), data[headerBytes:]...)
	case "rename", "copy":
		if f[0] == "rename" {
			must(t, fs.Remove(path))
		}
		path = fileName(uint64(a))
	default:
		t.Fatalf("unknown damage %q", f)
	}
	writeFile(t, fs, path, data)
}

func printFrames(t *testing.T, out *strings.Builder, fs vfs.FS, n uint64) {
	w, err := openWindow(fs, fileName(n))
	must(t, err)
	defer w.close()
	w.seek(headerBytes)
	walk := walk{window: w, salt: fileSalt(testStore, n)}
	for {
		f, at, err := walk.next()
		if err != nil {
			fmt.Fprintf(out, "%d: %v\n", at, err)
			return
		}
		fmt.Fprintf(out, "%d: kind %d LSN %d synced %d\n", at, f.kind, f.lsn, f.synced)
	}
}

func printRead(t *testing.T, out *strings.Builder, fs vfs.FS) {
	c, err := Read(fs, "", testStore)
	if err != nil {
		fmt.Fprintf(out, "error: %v\n", err)
		for _, e := range []struct {
			name string
			err  error
		}{{"ErrCorrupt", ErrCorrupt}, {"ErrVersion", ErrVersion}, {"ErrForeign", ErrForeign}} {
			if errors.Is(err, e.err) {
				fmt.Fprintf(out, "is %s\n", e.name)
			}
		}
		return
	}
	for i, f := range c.Files {
		fmt.Fprintf(out, "file %d:", f.File)
		if f.Prepared || f.Discard {
			fmt.Fprintf(out, " prepared %v, discard %v", f.Prepared, f.Discard)
		} else {
			fmt.Fprintf(out, " LSN %d to %d, good up to %d of %d, switched %v", f.FirstLSN, f.LastLSN, f.End, f.Size, f.Switched)
		}
		if f.Dropped > 0 {
			fmt.Fprintf(out, ", dropped %d", f.Dropped)
		}
		fmt.Fprintln(out)
		var got []string
		must(t, c.Replay(i, func(r Record) error {
			got = append(got, fmt.Sprintf("%d@%d", r.LSN, r.Offset))
			return nil
		}))
		if got != nil {
			fmt.Fprintf(out, "  records %s\n", strings.Join(got, " "))
		}
	}
	fmt.Fprintf(out, "last %d, synced %d\n", c.Last, c.Synced)
	if c.Torn != nil {
		fmt.Fprintf(out, "torn at LSN %d: %s at offset %d: %s; dropped %d bytes in files %v\n",
			c.Torn.LSN, c.Torn.Path, c.Torn.Offset, c.Torn.Reason, c.Torn.Bytes, c.Torn.Files)
	}
}

// TestChain: a frame that verifies by itself is still not the next one if one
// is missing, or if it follows another.
func TestChain(t *testing.T) {
	fs := vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{})
	add(t, l, 1)
	from := readFile(t, fs, fileName(1))
	add(t, l, 1)
	to := readFile(t, fs, fileName(1))
	mustSync(t, l)
	add(t, l, 2)
	all := readFile(t, fs, fileName(1))
	must(t, l.Close())

	missing := append(bytes.Clone(from), all[len(to):]...)
	twice := append(bytes.Clone(to), all[len(from):]...)
	other, _ := appendFrame(bytes.Clone(to), fileSalt(testStore, 1), &frame{
		kind: testKind, lsn: 3, synced: 2, prev: 4711, payload: payload(3),
	})
	for name, b := range map[string][]byte{"missing": missing, "twice": twice, "other": other} {
		writeFile(t, fs, fileName(1), b)
		c, err := Read(fs, "", testStore)
		switch {
		case name == "missing" && !errors.Is(err, ErrCorrupt):
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		case name != "missing" && (err != nil || c.Torn == nil || c.Last != 2):
			t.Errorf("%s: got %+v, %v, want a torn tail behind record 2", name, c, err)
		}
	}
}

// TestContinues: a created file must say exactly where the one before ended,
// and that one must have been part of the log.
func TestContinues(t *testing.T) {
	for name, c := range map[string]struct {
		prepare bool
		change  func(s *Start)
		want    string
	}{
		"good":      {false, func(*Start) {}, ""},
		"LSN":       {false, func(s *Start) { s.FirstLSN++ }, "ends before LSN 3"},
		"chain":     {false, func(s *Start) { s.Chain++ }, "ends before LSN 3"},
		"end":       {false, func(s *Start) { s.SealedEnd -= 8 }, "it was good up to offset 240"},
		"later end": {false, func(s *Start) { s.SealedEnd += 8 }, "had 256 good bytes"},
		"left-over": {true, func(s *Start) { s.File, s.SealedEnd = 3, headerBytes }, "no switch record names it"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := newLog(t, fs, firstStart, Options{})
			add(t, l, 2)
			read, err := Read(fs, "", testStore)
			must(t, err)
			if c.prepare {
				must(t, l.Prepare(testMeta(0)))
			}
			s := read.Next(testMeta(0))
			c.change(&s)
			newLog(t, fs, s, Options{})
			_, err = Read(fs, "", testStore)
			if c.want == "" {
				must(t, err)
			} else if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestTornBelowSynced: what was synced and is bad is an error and not dropped.
func TestTornBelowSynced(t *testing.T) {
	fs := vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{})
	add(t, l, 2)
	mustSync(t, l)
	add(t, l, 1)
	b := readFile(t, fs, fileName(1))
	b[headerBytes+framePayloadOff]++
	writeFile(t, fs, fileName(1), b)
	_, err := Read(fs, "", testStore)
	e, ok := errors.AsType[*CorruptError](err)
	if !ok || e.LSN != 1 || e.Offset != headerBytes || e.Path != fileName(1) || !errors.Is(err, errChecksum) {
		t.Errorf("got %v, want a CorruptError at LSN 1 and offset %d", err, headerBytes)
	}
}

// TestReadBoundedMemory: neither a long file nor a length that lies makes the
// reader allocate.
func TestReadBoundedMemory(t *testing.T) {
	fs := vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{})
	big := make([]byte, 64<<10)
	for range 256 {
		l.Append(testKind, big)
	}
	must(t, l.Close())
	b := readFile(t, fs, fileName(1))
	lies, _ := appendFrame(bytes.Clone(b[:headerBytes]), 0, &frame{kind: testKind, lsn: 1, payload: make([]byte, 64)})
	copy(lies[headerBytes+frameLengthOff:], []byte{0, 0, 0, 1}) // 16 MiB
	for name, b := range map[string][]byte{"long": b, "lies": lies} {
		writeFile(t, fs, fileName(1), b)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := Read(fs, "", testStore)
		must(t, err)
		for i := range c.Files {
			must(t, c.Replay(i, func(Record) error { return nil }))
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
			t.Errorf("%s: reading a file of %d bytes allocated %d", name, len(b), got)
		}
	}
}

// TestReplayVerifies: a file that changes between Read and Replay is noticed.
func TestReplayVerifies(t *testing.T) {
	fs := vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{})
	add(t, l, 3)
	must(t, l.Close())
	c, err := Read(fs, "", testStore)
	must(t, err)
	b := readFile(t, fs, fileName(1))
	for _, damaged := range [][]byte{set(b, 200, 0xee), b[:200]} {
		writeFile(t, fs, fileName(1), damaged)
		if err := c.Replay(0, func(Record) error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Errorf("got %v, want ErrCorrupt", err)
		}
	}
	writeFile(t, fs, fileName(1), b)
	stop := errors.New("stop")
	if err := c.Replay(0, func(Record) error { return stop }); err != stop {
		t.Errorf("got %v, want the error of the function", err)
	}
}

// TestScanFindsFrames: frames behind bad bytes are found at any distance from
// the window's edge, and what looks like one in random bytes is not taken.
func TestScanFindsFrames(t *testing.T) {
	rng := newRand(t)
	salt := fileSalt(testStore, 1)
	one, _ := appendFrame(nil, salt, &frame{kind: testKind, lsn: 500, synced: 400, payload: make([]byte, 100)})
	for range 60 {
		b := make([]byte, windowBytes-256+rng.IntN(64)*8)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		for range 50 { // looks like a frame
			copy(b[rng.IntN(len(b)/8-8)*8:], one[:8])
		}
		want := int64(len(b) + len(one))
		b = append(append(b, one...), make([]byte, rng.IntN(100))...)
		w := &window{f: vfs.NewMemFile(b), end: int64(len(b))}
		e, err := w.scan(0, 450, salt)
		must(t, err)
		if e.frames != 1 || e.synced != 400 || e.end != want {
			t.Fatalf("got %+v, want one frame, synced 400, end %d", e, want)
		}
	}
}
