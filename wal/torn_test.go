package wal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The tests in this file damage a small log at every byte. What a reader must
// say is worked out by an oracle that knows, from when the log was made, which
// frame is where and what was synced, and nothing of how the log is read.

// A builtFrame is what the oracle knows of a frame.
type builtFrame struct {
	file       int // index
	start, end int
	lsn        LSN // of the last record when it is there
	synced     LSN
	record     bool // one of the caller's
}

// A builtFile is what the oracle knows of a file.
type builtFile struct {
	bytes  []byte
	end    int // of the last frame
	named  bool
	seals  LSN  // LSN that the header vouches for, 0 if none
	sealed bool // the next file vouches for this one
}

// A builder makes a log and what the oracle knows of it.
type builder struct {
	t      *testing.T
	fs     *vfs.MemFS
	l      *Log
	files  []builtFile
	frames []builtFrame
}

func newBuilder(t *testing.T) *builder {
	b := &builder{t: t, fs: vfs.NewMem()}
	b.l = newLog(t, b.fs, firstStart, Options{})
	b.files = []builtFile{{end: headerBytes}}
	return b
}

func (b *builder) frame(payload int, lsn, synced LSN, record bool) {
	f := &b.files[len(b.files)-1]
	end := f.end + int(FrameBytes(payload))
	b.frames = append(b.frames, builtFrame{
		file: len(b.files) - 1, start: f.end, end: end, lsn: lsn, synced: synced, record: record,
	})
	f.end = end
}

func (b *builder) add(n int) {
	for range n {
		synced := b.l.Synced()
		add(b.t, b.l, 1)
		b.frame(len(payload(b.l.Last())), b.l.Last(), synced, true)
	}
}

func (b *builder) sync() { mustSync(b.t, b.l) }

func (b *builder) change() {
	synced := b.l.Synced()
	mustSwitch(b.t, b.l)
	must(b.t, b.l.WaitWritten(b.l.Last()))
	b.frame(switchPayload, b.l.Last(), synced, false)
	b.files = append(b.files, builtFile{end: headerBytes, named: true})
}

// reopen closes the log, or gives it up if it crashed, and goes on in a file
// of its own.
func (b *builder) reopen(crash bool) {
	if !crash {
		synced, last := b.l.Synced(), b.l.Last()
		must(b.t, b.l.Close())
		if n := len(b.frames) - 1; b.frames[n].synced < last || synced < last {
			b.frame(0, last, last, false)
		}
	}
	c, err := Read(b.fs, "", testStore)
	must(b.t, err)
	b.l = newLog(b.t, b.fs, c.Next(testMeta(0)), Options{})
	b.files[len(b.files)-1].sealed = true
	b.files = append(b.files, builtFile{end: headerBytes, seals: c.Last})
}

// done ends the files with some zeros and keeps their bytes.
func (b *builder) done() *builder {
	for i := range b.files {
		f := &b.files[i]
		f.bytes = readFile(b.t, b.fs, fileName(uint64(i+1)))
		if len(f.bytes) != f.end {
			b.t.Fatalf("file %d has %d bytes, the oracle knows %d", i+1, len(f.bytes), f.end)
		}
		f.bytes = append(f.bytes, make([]byte, 48)...)
	}
	return b
}

// A verdict is what a reader must say.
type verdict struct {
	err  error // ErrCorrupt, ErrVersion or nil
	last LSN
	torn bool
}

// judge is the oracle: file i is good up to offset at only. For a flip, bytes
// behind the frame that it hit are still there; for a truncation they are not.
func (b *builder) judge(i, at int, flip bool) verdict {
	f := &b.files[i]
	final := i == len(b.files)-1
	if at < headerBytes {
		empty := f.end == headerBytes
		switch {
		case flip && at >= headerVersionOff && at < headerFlagsOff:
			return verdict{err: ErrVersion}
		case flip && !empty, i == 0, f.named, !final:
			return verdict{err: ErrCorrupt}
		}
		return verdict{last: b.files[i].seals} // nothing tells it from one that was never finished
	}
	all := b.frames[len(b.frames)-1].lsn
	if final && len(b.frames) > 0 && b.frames[len(b.frames)-1].file < i {
		all = max(all, f.seals)
	}
	if at >= f.end {
		return verdict{last: all, torn: flip && final}
	}
	// The first frame that is not whole any more.
	k := slices.IndexFunc(b.frames, func(f builtFrame) bool { return f.file == i && at < f.end })
	last := LSN(0)
	if k > 0 {
		last = b.frames[k-1].lsn
	}
	if f.sealed {
		return verdict{err: ErrCorrupt}
	}
	var synced LSN
	for _, f := range b.files {
		synced = max(synced, f.seals)
	}
	for j, f := range b.frames {
		if j < k || f.file > i || flip && j > k {
			synced = max(synced, f.synced)
		}
	}
	if synced > last {
		return verdict{err: ErrCorrupt}
	}
	return verdict{last: last, torn: flip || !final || at > b.frames[k].start}
}

// check reads the log with file i replaced by bytes and compares with what
// the oracle says.
func (b *builder) check(what string, i int, damaged []byte, want verdict) {
	b.t.Helper()
	fs := vfs.NewMem()
	for j, f := range b.files {
		if j == i {
			f.bytes = damaged
		}
		writeFile(b.t, fs, fileName(uint64(j+1)), f.bytes)
	}
	c, err := Read(fs, "", testStore)
	if want.err != nil || err != nil {
		if !errors.Is(err, want.err) || want.err == nil {
			b.t.Errorf("%s: got error %v, want %v", what, err, want.err)
		}
		if e, ok := errors.AsType[*CorruptError](err); ok && (e.Path == "" || e.Reason == "" || e.Offset < 0) {
			b.t.Errorf("%s: no place in %#v", what, e)
		}
		if c != nil && err != nil {
			b.t.Errorf("%s: got both a chain and an error", what)
		}
		return
	}
	if c.Last != want.last || (c.Torn != nil) != want.torn {
		b.t.Errorf("%s: got last %d, torn %+v, want %+v", what, c.Last, c.Torn, want)
	}
	var records []LSN
	for _, f := range b.frames {
		if f.record && f.lsn <= want.last {
			records = append(records, f.lsn)
		}
	}
	if got := replay(b.t, c); !slices.Equal(got, records) {
		b.t.Errorf("%s: got records %v, want %v", what, got, records)
	}
	if c.Torn != nil && (c.Torn.LSN != want.last+1 || len(c.Torn.Files) == 0 || c.Torn.Bytes == 0) {
		b.t.Errorf("%s: got %+v behind LSN %d", what, c.Torn, want.last)
	}
	goesOn(b.t, what, fs, c)
}

// goesOn continues a log that was read, as recovery does, and reads it again.
func goesOn(t testing.TB, what string, fs vfs.FS, c *Chain) {
	t.Helper()
	for _, f := range slices.Backward(c.Files) {
		switch {
		case f.Prepared:
			must(t, Remove(fs, "", f.File))
		case f.Discard:
			_, err := Quarantine(fs, "", f.File)
			must(t, err)
		}
	}
	l, err := Create(fs, "", c.Next(testMeta(0)), Options{StoreID: testStore})
	must(t, err)
	add(t, l, 1)
	must(t, l.Close())
	again, err := Read(fs, "", testStore)
	if err != nil {
		t.Errorf("%s: going on and reading again: %v", what, err)
		return
	}
	if again.Last != c.Last+1 || again.Torn != nil || again.Synced != again.Last {
		t.Errorf("%s: after going on from %d: last %d, synced %d, torn %+v",
			what, c.Last, again.Last, again.Synced, again.Torn)
	}
}

// everywhere damages the log at every byte.
func (b *builder) everywhere() {
	for i, f := range b.files {
		headers := map[int]bool{}
		for at := range headerBytes {
			headers[at] = true
		}
		for _, fr := range b.frames {
			if fr.file == i {
				for at := range framePayloadOff {
					headers[fr.start+at] = true
				}
			}
		}
		for at := range f.bytes {
			b.check(fmt.Sprintf("file %d cut at %d", i+1, at), i, f.bytes[:at], b.judge(i, at, false))
			for bit := range 8 {
				if bit != at%8 && !headers[at] {
					continue
				}
				damaged := bytes.Clone(f.bytes)
				damaged[at] ^= 1 << bit
				b.check(fmt.Sprintf("file %d, bit %d of byte %d flipped", i+1, bit, at), i, damaged, b.judge(i, at, true))
			}
			if b.t.Failed() {
				b.t.FailNow()
			}
		}
	}
}

// TestTornEverywhere damages a log that was syncing now and then when it
// crashed: what is above the synced position on record is torn, the rest is
// corruption.
func TestTornEverywhere(t *testing.T) {
	b := newBuilder(t)
	b.add(2)
	b.sync()
	b.add(1)
	b.change()
	b.add(1)
	b.change()
	b.add(2)
	b.done().everywhere()
}

// TestTornEverywhereSynced has a sync behind the first switch and a mark at
// the end, so that only the end can be torn.
func TestTornEverywhereSynced(t *testing.T) {
	b := newBuilder(t)
	b.add(2)
	b.change()
	b.add(1)
	b.sync()
	b.add(2)
	b.sync()
	b.add(1)
	b.done().everywhere()
}

// TestTornEverywhereSealed has files that recoveries ended, after a close and
// after a crash.
func TestTornEverywhereSealed(t *testing.T) {
	b := newBuilder(t)
	b.add(1)
	b.reopen(false)
	b.add(2)
	b.reopen(true)
	b.add(1)
	b.sync()
	b.add(1)
	b.done().everywhere()
}

// TestTornEverywhereReopened has only the header of the last file to tell that
// everything was synced.
func TestTornEverywhereReopened(t *testing.T) {
	b := newBuilder(t)
	b.add(2)
	b.change()
	b.add(1)
	b.reopen(true)
	b.done().everywhere()
}
