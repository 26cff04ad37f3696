package counting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew")

// The golden file is of one page. Two words stayed of three, and a fourth came
// so often that its counters are at 15.
var (
	goldenFile   = filepath.Join("testdata", "v1.counters")
	goldenHeader = Header{
		StoreID:    [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		Generation: 3,
		Forget:     9,
		Geometry:   Geometry{Blocks: 64, Probes: 7, Seed: 0x0123456789abcdef},
	}
	goldenWords  = []uint64{0, 0x8000000000000000, 0xfedcba9876543215}
	goldenOften  = slices.Repeat([]uint64{0x4000000000000000}, 16)
	goldenCounts = Counts{Words: 18, Ones: 21, Saturated: 7}
)

// TestGolden makes the golden file again, byte for byte, and reads it.
func TestGolden(t *testing.T) {
	var before, file buffer
	h := goldenHeader
	h.Generation, h.Forget = 2, 8
	runJob(t, Job{Header: h, Plus: sources(goldenWords[:2], goldenOften), New: &before})
	runJob(t, Job{
		Old: before.reader(t), Header: goldenHeader, New: &file,
		Plus: sources(goldenWords[2:]), Minus: sources(goldenWords[1:2]),
	})
	if *rewrite {
		if err := os.WriteFile(goldenFile, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := golden(t)
	if !bytes.Equal(file.Bytes(), want) {
		t.Errorf("%s and the file as it is written now differ", goldenFile)
	}
	r, err := NewReader(bytes.NewReader(want), goldenFile, int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header() != goldenHeader {
		t.Errorf("header is %+v, want %+v", r.Header(), goldenHeader)
	}
	d, err := Compare(t.Context(), r, sources(goldenWords[:1], goldenWords[2:], goldenOften))
	if err != nil || d != (Difference{Counts: goldenCounts}) {
		t.Errorf("%+v, want no difference and %+v; %v", d, goldenCounts, err)
	}
}

func golden(tb testing.TB) []byte {
	tb.Helper()
	b, err := os.ReadFile(goldenFile)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// check reads a file to its end, of which it is said that it has size bytes.
func check(tb testing.TB, b []byte, size int64) error {
	r, err := NewReader(bytes.NewReader(b), "some/path", size)
	if err == nil {
		_, err = r.Check(tb.Context())
	}
	return err
}

// sealHeader makes the checksum of a header right.
func sealHeader(b []byte) {
	binary.LittleEndian.PutUint64(b[offChecksum:], xxhash.Sum64(b[:offChecksum]))
}

// sealTrailer makes the checksum of the trailer right.
func sealTrailer(b []byte) {
	at := len(b) - trailerBytes
	before := binary.LittleEndian.Uint64(b[at-sumBytes:])
	binary.LittleEndian.PutUint64(b[at+offTrailerChecksum:], chained(before, b[at:at+offTrailerChecksum]))
}

func TestDecode(t *testing.T) {
	le := binary.LittleEndian
	const trailer = headerBytes + pageBytes + sumBytes
	header := func(off int, v byte) func([]byte) { return func(b []byte) { b[off] = v; sealHeader(b) } }
	blocks := func(v uint64) func([]byte) {
		return func(b []byte) { le.PutUint64(b[offBlocks:], v); sealHeader(b) }
	}
	count := func(off int, v uint64) func([]byte) {
		return func(b []byte) { le.PutUint64(b[trailer+off:], v); sealTrailer(b) }
	}
	for _, c := range []struct {
		name   string
		damage func([]byte)
		size   int64 // what is added to the file's size
		want   error // nil: ErrCorrupt
		offset int64
		reason string
	}{
		{name: "magic", damage: func(b []byte) { b[0] = 'd' }, offset: 0, reason: `magic is "dDCOUNTS", want "DDCOUNTS"`},
		{name: "zero", damage: func(b []byte) { clear(b) }, offset: 0, reason: "magic is"},
		{name: "version", damage: header(offVersion, 2), want: ErrVersion, reason: "got 2, want 1: some/path"},
		{name: "version 0", damage: header(offVersion, 0), want: ErrVersion, reason: "got 0, want 1"},
		{name: "version before checksum", damage: func(b []byte) { b[offVersion] = 9 }, want: ErrVersion, reason: "got 9"},
		{name: "checksum", damage: func(b []byte) { b[offChecksum] ^= 1 }, offset: offChecksum, reason: "header checksum is"},
		{name: "checksum before parameters", damage: func(b []byte) { clear(b[offBlocks:offProbes]) }, offset: offChecksum, reason: "header checksum is"},
		{name: "flags", damage: header(offFlags, 1), offset: offFlags, reason: "flags are 0x1"},
		{name: "reserved", damage: header(offReserved, 1), offset: offReserved, reason: "reserved field is 0x1"},
		{name: "no blocks", damage: blocks(0), offset: offBlocks, reason: "0 blocks"},
		{name: "part of a page", damage: blocks(63), offset: offBlocks, reason: "63 blocks"},
		{name: "too many blocks", damage: blocks(MaxBlocks + 64), offset: offBlocks, reason: "4294967360 blocks"},
		{name: "blocks that overflow", damage: blocks(1<<56 + 64), offset: offBlocks, reason: "72057594037928000 blocks"},
		{name: "most blocks", damage: blocks(MaxBlocks), offset: offBlocks, reason: "file of 16504 bytes, want 1100048498800"},
		{name: "other blocks", damage: blocks(128), offset: offBlocks, reason: "file of 16504 bytes, want 32896"},
		{name: "no probes", damage: header(offProbes, 0), offset: offProbes, reason: "0 probes"},
		{name: "too many probes", damage: header(offProbes, MaxProbes+1), offset: offProbes, reason: "8 probes"},
		{name: "too long", damage: func([]byte) {}, size: 1, offset: offBlocks, reason: "file of 16505 bytes"},
		{name: "no size", damage: func([]byte) {}, size: -16504, offset: 0, reason: "file of 0 bytes ends within the header"},
		{name: "negative size", damage: func([]byte) {}, size: -16505, offset: 0, reason: "ends within the header"},
		{name: "another store", damage: header(offStoreID, 9), offset: headerBytes, reason: "page checksum is"},
		{name: "another generation", damage: header(offGeneration, 9), offset: headerBytes, reason: "page checksum is"},
		{name: "page", damage: func(b []byte) { b[headerBytes+100]++ }, offset: headerBytes, reason: "page checksum is"},
		{name: "trailer", damage: func(b []byte) { b[trailer]++ }, offset: trailer, reason: "trailer checksum is"},
		{name: "ones", damage: count(offOnes, 64*512+1), offset: trailer + offOnes, reason: "32769 counters above 0 of 32768"},
		{name: "saturated", damage: count(offSaturated, 22), offset: trailer + offSaturated, reason: "22 counters of 15, of 21 above 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := golden(t)
			c.damage(b)
			err := check(t, b, int64(len(b))+c.size)
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("error %v does not say %q", err, c.reason)
			}
			if c.want != nil {
				if !errors.Is(err, c.want) || errors.Is(err, ErrCorrupt) {
					t.Errorf("error %q is not %q alone", err, c.want)
				}
				return
			}
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) {
				t.Fatalf("error %q is not ErrCorrupt alone", err)
			}
			if corrupt.Offset != c.offset || corrupt.Path != "some/path" {
				t.Errorf("%s at %d, want %d: %v", corrupt.Path, corrupt.Offset, c.offset, err)
			}
		})
	}
}

// twoPages is a file of two pages with words in both.
func twoPages(tb testing.TB, generation uint64) []byte {
	var file buffer
	runJob(tb, Job{Header: smallHeader(generation), Plus: sources(goldenWords, goldenOften), New: &file})
	return file.Bytes()
}

// TestFlips flips a bit of every byte. It is found, in the header, the page or
// the trailer where it is, and no bits are made of a page that has it.
func TestFlips(t *testing.T) {
	b := twoPages(t, 1)
	size := int64(len(b))
	h := smallHeader(2)
	starts := []int64{0, headerBytes, headerBytes + pageBytes + sumBytes, size - trailerBytes, size}
	for i := range b {
		b[i] ^= 1 << (i % 8)
		unit := 0
		for int64(i) >= starts[unit+1] {
			unit++
		}
		pages := 0
		r, err := NewReader(bytes.NewReader(b), "some/path", size)
		if err == nil {
			_, err = Transform(t.Context(), Job{
				Old: r, Header: h, New: io.Discard,
				Bits: func(uint64, []uint64) error { pages++; return nil },
			})
		}
		var corrupt *CorruptError
		switch {
		case errors.Is(err, ErrVersion) && i >= offVersion && i < offFlags:
		case !errors.As(err, &corrupt):
			t.Fatalf("byte %d: error %v", i, err)
		case corrupt.Offset < starts[unit] || corrupt.Offset >= starts[unit+1]:
			t.Fatalf("byte %d: found at %d, want %d to %d", i, corrupt.Offset, starts[unit], starts[unit+1])
		case pages != max(0, unit-1):
			t.Fatalf("byte %d: %d pages before it was found", i, pages)
		}
		b[i] ^= 1 << (i % 8)
	}
	if err := check(t, b, size); err != nil {
		t.Fatal(err)
	}
}

// TestCuts cuts the file at every length: by its size, and though its size says
// otherwise.
func TestCuts(t *testing.T) {
	b := twoPages(t, 1)
	for n := range b {
		if err := check(t, b[:n], int64(n)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes: error %v", n, err)
		}
		var corrupt *CorruptError
		if err := check(t, b[:n], int64(len(b))); !errors.As(err, &corrupt) || corrupt.Offset != int64(n) {
			t.Fatalf("%d bytes of %d: error %v", n, len(b), err)
		}
	}
}

// TestPagesInPlace puts sound pages where they do not belong.
func TestPagesInPlace(t *testing.T) {
	const unit = pageBytes + sumBytes
	b, other := twoPages(t, 1), twoPages(t, 2)
	swapped := slices.Concat(b[:headerBytes], b[headerBytes+unit:headerBytes+2*unit], b[headerBytes:headerBytes+unit], b[headerBytes+2*unit:])
	older := slices.Concat(b[:headerBytes+unit], other[headerBytes+unit:headerBytes+2*unit], b[headerBytes+2*unit:])
	trailer := slices.Concat(b[:headerBytes+2*unit], other[headerBytes+2*unit:])
	for name, f := range map[string][]byte{"swapped": swapped, "of another generation": older, "trailer of another": trailer} {
		if err := check(t, f, int64(len(f))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestRanges holds that pages take turns: where the words of one end, those of
// the next begin, and each is in the block that its word says.
func TestRanges(t *testing.T) {
	for _, blocks := range []uint64{64, 128, 192, 64 * 1000003, MaxBlocks - 64, MaxBlocks} {
		g := Geometry{Blocks: blocks, Probes: 7}
		for _, n := range []uint64{0, 1, g.pages() / 2, g.pages() - 1} {
			if n >= g.pages() {
				continue
			}
			m := newModel(Geometry{Blocks: blocks, Probes: 1})
			for _, w := range []uint64{g.firstWord(n), g.lastWord(n)} {
				for bit := range m.bitsOf(w) {
					if bit/blockBits/pageBlocks != n {
						t.Errorf("%d blocks: %#x is in page %d, want %d", blocks, w, bit/blockBits/pageBlocks, n)
					}
				}
			}
			if n > 0 && g.firstWord(n) != g.lastWord(n-1)+1 {
				t.Errorf("%d blocks: page %d ends at %#x, the next begins at %#x", blocks, n-1, g.lastWord(n-1), g.firstWord(n))
			}
		}
		if g.firstWord(0) != 0 || g.lastWord(g.pages()-1) != 1<<64-1 {
			t.Errorf("%d blocks: the pages do not cover word space", blocks)
		}
	}
}
