package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A logImage is the files of a log, and what is in them.
type logImage struct {
	files   map[uint64][]byte
	records map[LSN]string // payloads; "switch" and the like have none
	frames  map[uint64][]imageFrame
	last    LSN
}

type imageFrame struct {
	from, to int64
	kind     Kind
	lsn      LSN
}

// salvageImage is a log of five files: switched twice, closed, continued, and
// continued again.
func salvageImage(t testing.TB) *logImage {
	t.Helper()
	fs := vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{})
	add(t, l, 5)
	mustSync(t, l)
	add(t, l, 3)
	mustSwitch(t, l)
	add(t, l, 4)
	mustSync(t, l)
	mustSwitch(t, l)
	add(t, l, 3)
	must(t, l.Close())
	for range 2 {
		c, err := Read(fs, "", testStore)
		must(t, err)
		l = newLog(t, fs, c.Next(testMeta(9)), Options{})
		add(t, l, 4)
		must(t, l.Close())
	}
	im := &logImage{files: map[uint64][]byte{}, records: map[LSN]string{}, frames: map[uint64][]imageFrame{}}
	nums, err := listFiles(fs, "")
	must(t, err)
	for _, n := range nums {
		b := readFile(t, fs, fileName(n))
		im.files[n] = b
		for at := headerBytes; at < len(b); {
			f, size, err := decodeFrame(b[at:], fileSalt(testStore, n))
			if err != nil {
				break
			}
			im.frames[n] = append(im.frames[n], imageFrame{int64(at), int64(at + size), f.kind, f.lsn})
			im.last = max(im.last, f.lsn)
			if f.kind >= FirstCallerKind {
				im.records[f.lsn] = string(f.payload)
			}
			at += size
		}
	}
	if len(im.files) != 5 || len(im.records) != 23 {
		t.Fatalf("the log has %d files and %d records", len(im.files), len(im.records))
	}
	return im
}

// salvage writes the files, salvages them, and checks what must hold whatever
// the damage: each record is one that was written, and no LSN up to the last
// on record is neither there nor in a gap.
func (im *logImage) salvage(t testing.TB, files map[uint64][]byte, needed Needed) (map[LSN]string, []Gap, *Chain) {
	t.Helper()
	fs := vfs.NewMem()
	for n, b := range files {
		writeFile(t, fs, fileName(n), b)
	}
	c, gaps, err := Salvage(fs, "", testStore, needed)
	if err != nil {
		t.Fatalf("Salvage: %v", err)
	}
	got := map[LSN]string{}
	last := LSN(0)
	for i := range c.Files {
		must(t, c.Replay(i, func(r Record) error {
			if want, ok := im.records[r.LSN]; !ok || want != string(r.Payload) || r.LSN <= last {
				t.Errorf("record %d is %q behind record %d, want %q", r.LSN, r.Payload, last, want)
			}
			last = r.LSN
			got[r.LSN] = string(r.Payload)
			return nil
		}))
	}
	for n, frames := range im.frames {
		for _, f := range frames {
			if f.kind < FirstCallerKind || n < needed.File || got[f.lsn] != "" {
				continue
			}
			if f.lsn > c.Last {
				continue // the very end, of which nothing else is on record
			}
			if !slices.ContainsFunc(gaps, func(g Gap) bool {
				return g.AtMost == -1 && f.lsn >= g.FirstLSN || f.lsn >= g.FirstLSN && f.lsn <= g.LastLSN
			}) {
				t.Errorf("record %d of file %d is not there, and in no gap of %+v", f.lsn, n, gaps)
			}
		}
	}
	if c.Last < last {
		t.Errorf("the last record is %d, yet there is %d", c.Last, last)
	}
	return got, gaps, c
}

func (im *logImage) clone() map[uint64][]byte {
	files := maps.Clone(im.files)
	for n, b := range files {
		files[n] = bytes.Clone(b)
	}
	return files
}

// TestSalvageSound: nothing is missing in a log that is sound.
func TestSalvageSound(t *testing.T) {
	im := salvageImage(t)
	got, gaps, c := im.salvage(t, im.files, Needed{})
	if len(gaps) > 0 || len(got) != len(im.records) || c.Last != im.last {
		t.Fatalf("%d records of %d through %d, gaps %+v", len(got), len(im.records), c.Last, gaps)
	}
}

// TestSalvageFlips flips a bit of every byte: the frame that it is in is lost,
// and nothing else is.
func TestSalvageFlips(t *testing.T) {
	im := salvageImage(t)
	for n, b := range im.files {
		for at := range b {
			files := im.clone()
			files[n][at] ^= 1 << (at % 8)
			got, gaps, _ := im.salvage(t, files, Needed{})
			i := slices.IndexFunc(im.frames[n], func(f imageFrame) bool { return int64(at) >= f.from && int64(at) < f.to })
			lost := 0
			if i >= 0 && im.frames[n][i].kind >= FirstCallerKind {
				lost = 1
				if got[im.frames[n][i].lsn] != "" {
					t.Errorf("file %d, offset %d: record %d is there", n, at, im.frames[n][i].lsn)
				}
			}
			if len(got) != len(im.records)-lost {
				t.Errorf("file %d, offset %d: %d records of %d, want %d lost", n, at, len(got), len(im.records), lost)
			}
			if len(gaps) != 1 {
				t.Errorf("file %d, offset %d: gaps %+v, want one", n, at, gaps)
				continue
			}
			g := gaps[0]
			if g.File != n || int64(at) < g.Offset || int64(at) >= g.Offset+g.Bytes {
				t.Errorf("file %d, offset %d: the gap is %+v", n, at, g)
			}
			uses := int64(0) // a mark has no LSN of its own
			if i >= 0 && im.frames[n][i].kind != kindMark {
				uses = 1
			}
			if g.AtMost >= 0 && (g.AtLeast > uses || g.AtMost < uses) || g.AtMost < 0 && g.AtLeast > uses {
				t.Errorf("file %d, offset %d: the gap is %+v, want %d records", n, at, g, uses)
			}
			if n > 1 && n < 5 && (g.AtLeast != uses || g.AtMost != uses) {
				t.Errorf("file %d, offset %d: the gap is %+v, want %d records exactly", n, at, g, uses)
			}
		}
	}
}

// TestSalvageMissing takes files away, one and two at a time.
func TestSalvageMissing(t *testing.T) {
	im := salvageImage(t)
	for a := uint64(1); a <= 5; a++ {
		for b := a; b <= 5; b++ {
			files := im.clone()
			delete(files, a)
			delete(files, b)
			got, gaps, c := im.salvage(t, files, Needed{File: 1, LSN: 1})
			want := 0
			for n := range files {
				for _, f := range im.frames[n] {
					if f.kind >= FirstCallerKind {
						want++
					}
				}
			}
			if len(got) != want || len(gaps) == 0 && len(files) > 0 && b < 5 {
				t.Errorf("without %d and %d: %d records, want %d; gaps %+v", a, b, len(got), want, gaps)
			}
			for _, g := range gaps {
				if g.File != a && g.File != b || g.Bytes != 0 {
					t.Errorf("without %d and %d: the gap is %+v", a, b, g)
				}
			}
			if len(files) > 0 && c.Last == 0 {
				t.Errorf("without %d and %d: no last record", a, b)
			}
		}
	}
}

// TestSalvageNothing: a log with no file at all is a gap without an end.
func TestSalvageNothing(t *testing.T) {
	im := &logImage{}
	_, gaps, c := im.salvage(t, nil, Needed{File: 7, LSN: 40})
	if len(gaps) != 1 || gaps[0].File != 7 || gaps[0].FirstLSN != 40 || gaps[0].AtMost != -1 || c.Last != 39 {
		t.Errorf("gaps %+v, last %d", gaps, c.Last)
	}
}

// TestSalvageNeeded: what is wrong with a file that is not needed costs
// nothing, and a gap at its end does not reach into the next one.
func TestSalvageNeeded(t *testing.T) {
	im := salvageImage(t)
	files := im.clone()
	end := im.frames[1][len(im.frames[1])-1]
	files[1][end.from] ^= 1 // the switch record
	files[2][headerBytes] ^= 1
	_, gaps, _ := im.salvage(t, files, Needed{File: 2, LSN: 9})
	if len(gaps) != 2 || gaps[0].File != 1 || gaps[0].AtMost != 0 || gaps[1].File != 2 || gaps[1].AtMost != 1 {
		t.Errorf("gaps %+v", gaps)
	}
}

// TestSalvageZeroedEnd: what was synced and is zeros is counted.
func TestSalvageZeroedEnd(t *testing.T) {
	im := salvageImage(t)
	files := im.clone()
	clear(files[2][headerBytes:])
	_, gaps, _ := im.salvage(t, files, Needed{})
	if len(gaps) != 1 || gaps[0].AtLeast != 5 || gaps[0].AtMost != 5 || gaps[0].FirstLSN != 10 {
		t.Errorf("gaps %+v", gaps)
	}
}

// TestSalvageVersion: a newer format is no damage.
func TestSalvageVersion(t *testing.T) {
	im := salvageImage(t)
	b := bytes.Clone(im.files[1])
	b[headerVersionOff] = 2
	fs := vfs.NewMem()
	writeFile(t, fs, fileName(1), b)
	if _, gaps, err := Salvage(fs, "", testStore, Needed{}); err != nil || len(gaps) == 0 {
		t.Errorf("a damaged version: %v, gaps %+v", err, gaps)
	}
	h := appendHeader(nil, &header{store: testStore, file: 1})
	h[headerVersionOff] = 2
	copy(h[headerChecksumOff:], sumOf(h[:headerChecksumOff]))
	writeFile(t, fs, fileName(1), h)
	if _, _, err := Salvage(fs, "", testStore, Needed{}); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
}

// TestSalvageGoesOn: a log continues behind what was salvaged, and what was
// salvaged stays the same.
func TestSalvageGoesOn(t *testing.T) {
	im := salvageImage(t)
	for n := range im.files {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			fs := vfs.NewMem()
			for m, b := range im.clone() {
				if m == n {
					b[headerBytes+20] ^= 1
				}
				writeFile(t, fs, fileName(m), b)
			}
			c, gaps, err := Salvage(fs, "", testStore, Needed{})
			must(t, err)
			l := newLog(t, fs, c.Next(testMeta(7)), Options{})
			l.Append(testKind, []byte("behind"))
			must(t, l.Close())
			again, gapsAgain, err := Salvage(fs, "", testStore, Needed{})
			must(t, err)
			// A gap without an end has one now.
			if len(gaps) != len(gapsAgain) || again.Last != c.Last+1 || again.Files[len(again.Files)-1].Records != 1 {
				t.Errorf("gaps %+v, then %+v; last %d, then %d", gaps, gapsAgain, c.Last, again.Last)
			}
		})
	}
}

// FuzzSalvage: whatever is done to the files of a log, every record that comes
// back is one that was written, and the others are in a gap.
func FuzzSalvage(f *testing.F) {
	im := salvageImage(f)
	f.Add(uint64(1), uint32(200), []byte{1}, uint32(0), uint64(0))
	f.Add(uint64(2), uint32(0), bytes.Repeat([]byte{0xd7}, 300), uint32(30), uint64(3))
	f.Add(uint64(3), uint32(136), []byte{}, uint32(100), uint64(1))
	f.Add(uint64(4), uint32(144), im.files[4][136:260], uint32(0), uint64(5))
	f.Fuzz(func(t *testing.T, n uint64, at uint32, b []byte, cut uint32, gone uint64) {
		files := im.clone()
		if file := files[n]; int(at) < len(file) {
			copy(file[at:], b)
			files[n] = file[:max(0, len(file)-int(cut))]
		}
		delete(files, gone)
		im.salvage(t, files, Needed{File: 1, LSN: 1})
	})
}

// sumOf is the checksum of b as it stands in a header.
func sumOf(b []byte) []byte { return binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(b)) }
