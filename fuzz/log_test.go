package fuzz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"dedupstore/internal/crashfs"
	"dedupstore/store"
)

// A base is a store whose log an input of FuzzLog takes the place of.
type base struct {
	disk  *crashfs.Disk
	id    [16]byte
	first uint64   // number of the lowest log file
	logs  []string // the paths of three log files from there on
	names []string // keys in Pebble
}

const (
	baseFresh   = iota // nothing was ever added
	baseFlushed        // 40 keys in two segments, three ingests
	baseKinds

	// fixUp is the bit of FuzzLog's first argument that has the checksums made
	// good before the store sees the files.
	fixUp = 0x80
)

var bases = [baseKinds]func(testing.TB) *base{}

func init() {
	for kind := range bases {
		var once sync.Once
		var b *base
		bases[kind] = func(tb testing.TB) *base {
			once.Do(func() { b = newBase(tb, kind) })
			return b
		}
	}
}

func newBase(tb testing.TB, kind int) *base {
	tb.Helper()
	b := &base{disk: crashfs.New()}
	s := create(tb, b.disk, byte(10+kind), options(b.disk, store.Sync, 400, 15))
	if kind == baseFlushed {
		for i := range 40 {
			b.names = append(b.names, fmt.Sprintf("http://base.example/%d", i))
			if _, err := s.Add(context.Background(), b.names[i]); err != nil {
				tb.Fatal(err)
			}
			if i%20 == 19 {
				if err := s.Flush(context.Background()); err != nil {
					tb.Fatal(err)
				}
			}
		}
	}
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
	b.id = [16]byte(b.disk.Read(path.Join(dir, "STORE"))[16:])
	there := slices.Sorted(maps.Keys(b.disk.Contents(path.Join(dir, "log"))))
	if _, err := fmt.Sscanf(path.Base(there[0]), "%d.log", &b.first); err != nil {
		tb.Fatal(err)
	}
	for i := range uint64(3) {
		b.logs = append(b.logs, path.Join(dir, "log", fmt.Sprintf("%010d.log", b.first+i)))
	}
	return b
}

func FuzzLog(f *testing.F) {
	f.Fuzz(func(t *testing.T, kind byte, one, two, three []byte) {
		within(60*time.Second, "the input", func() { runLog(t, kind, one, two, three) })
	})
}

func runLog(tb testing.TB, kind byte, files ...[]byte) {
	b := bases[kind&0x7f%baseKinds](tb)
	disk := b.disk.Clone()
	fixed := kind&fixUp != 0
	if fixed {
		files = b.fixUp(files)
	}
	for i, content := range files {
		if i == 0 || len(content) > 0 {
			if err := disk.Write(b.logs[i], content); err != nil {
				tb.Fatal(err)
			}
		}
	}
	before := disk.Contents(dir)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	allocated := mem.TotalAlloc
	s, err := store.Open(dir, options(disk, store.Sync, 400, 1<<30))
	runtime.ReadMemStats(&mem)
	if n := mem.TotalAlloc - allocated; n > 256<<20 {
		tb.Fatalf("open of %d bytes of log allocated %d bytes", len(files[0])+len(files[1])+len(files[2]), n)
	}
	if err != nil {
		typedError(tb, err, fixed)
		if diff := crashfs.Diff(before, disk.Contents(dir), "LOCK"); diff != "" {
			tb.Fatalf("open failed with %v, and %s", err, diff)
		}
		return
	}
	urls := b.check(tb, s)
	if !fixed {
		verify(tb, s)
		if counts := b.prefixes(files); !counts[urls] {
			tb.Fatalf("%d URLs, want one of %v", urls, slices.Sorted(maps.Keys(counts)))
		}
	}
	if err := s.Close(); err != nil {
		tb.Fatalf("close: %v", err)
	}
	if s, err = store.Open(dir, options(disk, store.Sync, 400, 1<<30)); err != nil {
		tb.Fatalf("open again: %v", err)
	}
	if again := b.check(tb, s); again != urls {
		tb.Fatalf("%d URLs, and after another open %d", urls, again)
	}
	if err := s.Close(); err != nil {
		tb.Fatalf("close again: %v", err)
	}
}

// typedError fails unless the error says which file is damaged, and how. A log
// with good checksums is believed: if it knows of an ingest that Pebble does
// not, the MANIFEST is the one that is damaged.
func typedError(tb testing.TB, err error, fixed bool) {
	tb.Helper()
	if c, ok := errors.AsType[*store.CorruptError](err); ok {
		if fixed && strings.HasPrefix(c.Path, dir+"/pebble/MANIFEST") && strings.Contains(c.Reason, dir+"/log/") {
			return
		}
		missing := c.Offset < 0 && strings.Contains(c.Reason, "missing")
		if !strings.HasPrefix(c.Path, dir+"/log") || c.Offset < 0 && !missing {
			tb.Fatalf("the error does not name a log file and an offset: %v", err)
		}
		return
	}
	if !errors.Is(err, store.ErrVersion) || !strings.Contains(err.Error(), dir+"/log/") {
		tb.Fatalf("the error is neither ErrCorrupt nor ErrVersion with a file: %v", err)
	}
}

// check looks at the keys that are in Pebble and returns the number of URLs.
func (b *base) check(tb testing.TB, s *store.Store) int64 {
	tb.Helper()
	if len(b.names) > 0 {
		answers := make([]store.Answer, len(b.names))
		if err := s.HasBatch(context.Background(), b.names, answers); err != nil {
			tb.Fatal(err)
		}
		for i, a := range answers {
			if a != store.Seen {
				tb.Fatalf("%s is %v", b.names[i], a)
			}
		}
	}
	return s.Stats().URLs
}

// What follows knows the format by its description, and not from the code that
// reads it: the layout of a header and of a frame.
const (
	headerLen    = 136
	headerSum    = 128
	headerSealed = 56
	frameHead    = 40
	frameMagic   = 0xd7c5
	kindSwitch   = 2
	kindMark     = 1
	kindAdds     = 16
)

func (b *base) salt(file uint64) uint64 {
	return xxhash.Sum64(binary.LittleEndian.AppendUint64(slices.Clone(b.id[:]), file))
}

func frameSum(frame []byte, seed uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(frame[:32])
	_, _ = d.Write(frame[frameHead:])
	return d.Sum64()
}

// frameAt returns the frame at the start of src as far as its length is
// plausible.
func frameAt(src []byte) ([]byte, bool) {
	if len(src) < frameHead || binary.LittleEndian.Uint16(src) != frameMagic {
		return nil, false
	}
	n := (int(binary.LittleEndian.Uint32(src[4:])) + 7) &^ 7
	if n > 16<<20 || frameHead+n > len(src) {
		return nil, false
	}
	return src[:frameHead+n], true
}

// fixUp makes identities and checksums good, and the chain.
func (b *base) fixUp(files [][]byte) [][]byte {
	le := binary.LittleEndian
	fixed := make([][]byte, len(files))
	var chain uint64
	end := 0
	for i, file := range files {
		file = slices.Clone(file)
		fixed[i] = file
		if len(file) < headerLen {
			continue
		}
		copy(file, "DEDUPWAL")
		le.PutUint32(file[8:], 1)
		copy(file[16:], b.id[:])
		le.PutUint64(file[32:], b.first+uint64(i))
		if i > 0 && le.Uint64(file[40:]) != 0 {
			le.PutUint64(file[48:], chain)
			le.PutUint64(file[headerSealed:], uint64(end))
		} else if i == 0 {
			chain = le.Uint64(file[48:])
		}
		le.PutUint64(file[headerSum:], xxhash.Sum64(file[:headerSum]))
		end = headerLen
		for {
			frame, ok := frameAt(file[end:])
			if !ok {
				break
			}
			le.PutUint64(frame[24:], chain)
			chain = frameSum(frame, b.salt(b.first+uint64(i))^chain)
			le.PutUint64(frame[32:], chain)
			end += len(frame)
		}
	}
	return fixed
}

// prefixes returns the numbers of URLs that there may be: those in Pebble and
// the words of the first so many records.
func (b *base) prefixes(files [][]byte) map[int64]bool {
	le := binary.LittleEndian
	words := make(map[uint64]bool)
	counts := map[int64]bool{int64(len(b.names)): true}
	for i, file := range files {
		if len(file) < headerLen {
			break
		}
		for at := headerLen; ; {
			frame, ok := frameAt(file[at:])
			if !ok || frameSum(frame, b.salt(b.first+uint64(i))^le.Uint64(frame[24:])) != le.Uint64(frame[32:]) {
				break
			}
			if payload := frame[frameHead:]; frame[2] == kindAdds && len(payload) > 8 {
				for p := 8; p < len(payload); p += 8 {
					words[le.Uint64(payload[p:])] = true
				}
			}
			counts[int64(len(b.names)+len(words))] = true
			at += len(frame)
		}
	}
	return counts
}

// logSeeds are the logs of killed stores, whole and damaged.
func logSeeds(tb testing.TB) map[string][]any {
	seeds := make(map[string][]any)
	for kind := range baseKinds {
		b := bases[kind](tb)
		name := []string{"fresh", "flushed"}[kind]
		closed := b.disk.Read(b.logs[0])
		put := func(what string, k byte, files ...[]byte) {
			for len(files) < 3 {
				files = append(files, []byte{})
			}
			seeds[name+"-"+what] = []any{k, files[0], files[1], files[2]}
		}
		put("closed", byte(kind), closed)
		put("empty", byte(kind), []byte{})
		for _, level := range []store.Durability{store.Sync, store.NoSync} {
			files := b.killed(tb, level)
			put("killed-"+level.String(), byte(kind), files...)
			put("fixed-"+level.String(), byte(kind)|fixUp, files...)
			short := slices.Clone(files)
			for i := range short {
				if n := len(short[i]); n > headerLen {
					short[i] = short[i][:headerLen+(n-headerLen)*2/3]
					put(fmt.Sprintf("cut-%v-%d", level, i), byte(kind), short...)
					put(fmt.Sprintf("cut-fixed-%v-%d", level, i), byte(kind)|fixUp, short...)
				}
				short = slices.Clone(files)
			}
			for i := range files {
				if len(files[i]) > headerLen+200 {
					bad := slices.Clone(files)
					bad[i] = slices.Clone(bad[i])
					bad[i][headerLen+100] ^= 4
					put(fmt.Sprintf("flip-%v-%d", level, i), byte(kind), bad...)
					put(fmt.Sprintf("flip-fixed-%v-%d", level, i), byte(kind)|fixUp, bad...)
				}
			}
		}
	}
	return seeds
}

// killed opens a copy of the base, adds, and returns the log files that a kill
// leaves.
func (b *base) killed(tb testing.TB, level store.Durability) [][]byte {
	tb.Helper()
	disk := b.disk.Clone()
	hold := make(chan struct{})
	o := options(disk, level, 12, 5)
	seams := disk.Seams()
	seams.MemtableWords, seams.SpanWords = 12, 5
	seams.Point = func(name string) {
		if name == "flush" {
			<-hold
		}
	}
	store.SetSeams(o, seams)
	s, err := store.Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range 18 {
		if _, err := s.Add(context.Background(), key(i)); err != nil {
			tb.Fatal(err)
		}
	}
	image := disk.Clone()
	close(hold)
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
	var files [][]byte
	for _, path := range b.logs {
		files = append(files, image.Read(path))
	}
	return files
}
