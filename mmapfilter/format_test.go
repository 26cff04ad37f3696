package mmapfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew")

// goldenFile is a filter of one page that holds goldenWords, synced as 41 and
// then as 42, of which the second set one word more.
var (
	goldenFile   = filepath.Join("testdata", "v2.filter")
	goldenHeader = Header{
		StoreID:    [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		Generation: 3,
		Ingest:     40,
		Params:     Params{Blocks: 64, Probes: 7, Seed: 0x0123456789abcdef, Capacity: 2730},
	}
	goldenWords = []uint64{0, 0x8000000000000000, 0xfedcba9876543215}
)

// TestGolden makes the golden file again, byte for byte, and reads it.
func TestGolden(t *testing.T) {
	path := tempPath(t)
	f, err := Create(Files, path, goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(f.SetSorted(goldenWords[:2]), f.Sync(41), f.SetSorted(goldenWords[2:]), f.Sync(42), f.Close())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(goldenFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s and the file as it is written now differ", goldenFile)
	}

	f, err = Open(Files, goldenFile, goldenHeader.StoreID, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := goldenHeader
	h.Ingest, h.Ones = 42, 21
	if f.Header() != h {
		t.Errorf("header is %+v, want %+v", f.Header(), h)
	}
	for _, w := range goldenWords {
		if !f.Has(w) {
			t.Errorf("word %#x is not found", w)
		}
	}
	if ones, err := f.CountBits(t.Context()); ones != h.Ones || err != nil {
		t.Errorf("%d bits are set, want %d; error %v", ones, h.Ones, err)
	}
}

// goldenPage returns the header page of the golden file, and the file's size.
func goldenPage(t testing.TB) ([]byte, int64) {
	t.Helper()
	b, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	return b[:pageBytes], int64(len(b))
}

// seal makes the checksum of the header in half i of the page right.
func seal(page []byte, i int) {
	src := page[i*slotBytes:]
	binary.LittleEndian.PutUint64(src[offChecksum:], xxhash.Sum64(src[:offChecksum]))
}

// both applies damage to both headers of a page.
func both(damage func(header []byte)) func(page []byte) {
	return func(page []byte) {
		for i := range 2 {
			damage(page[i*slotBytes:])
		}
	}
}

// sealed is both with checksums that are right again.
func sealed(damage func(header []byte)) func(page []byte) {
	return func(page []byte) {
		both(damage)(page)
		seal(page, 0)
		seal(page, 1)
	}
}

func TestDecodePage(t *testing.T) {
	le := binary.LittleEndian
	put32 := func(off int, v uint32) func([]byte) { return func(h []byte) { le.PutUint32(h[off:], v) } }
	put64 := func(off int, v uint64) func([]byte) { return func(h []byte) { le.PutUint64(h[off:], v) } }
	for _, c := range []struct {
		name   string
		damage func(page []byte)
		size   int64 // what is added to the file's size
		want   error // nil: ErrCorrupt
		offset int64
		reason string
	}{
		{name: "magic", damage: both(func(h []byte) { h[0] = 'd' }), offset: 0, reason: `magic is "dDFILTER", want "DDFILTER"`},
		{name: "zero", damage: func(p []byte) { clear(p) }, offset: 0, reason: "magic is"},
		{name: "version", damage: sealed(put32(offVersion, 3)), want: ErrVersion, reason: "got 3, want 2"},
		{name: "version 0", damage: sealed(put32(offVersion, 0)), want: ErrVersion, reason: "got 0, want 2"},
		{name: "version before checksum", damage: both(put32(offVersion, 9)), want: ErrVersion, reason: "got 9"},
		{name: "version before damage", damage: func(p []byte) { p[0] = 0; p[slotBytes+offVersion] = 3 }, want: ErrVersion, reason: "got 3"},
		{name: "checksum", damage: both(func(h []byte) { h[offChecksum] ^= 1 }), offset: offChecksum, reason: "header checksum is"},
		{name: "checksum before parameters", damage: both(put64(offBlocks, 0)), offset: offChecksum, reason: "header checksum is"},
		{name: "flags", damage: sealed(put32(offFlags, 2)), offset: offFlags, reason: "flags are 0x2"},
		{name: "sums that do not count", damage: sealed(put32(offFlags, 1)), offset: offSums, reason: "checksum of page sums that do not count"},
		{name: "reserved", damage: sealed(put32(offReserved, 1)), offset: offReserved, reason: "reserved field is 0x1"},
		{name: "no blocks", damage: sealed(put64(offBlocks, 0)), offset: offBlocks, reason: "0 blocks"},
		{name: "part of a page", damage: sealed(put64(offBlocks, 63)), offset: offBlocks, reason: "63 blocks"},
		{name: "too many blocks", damage: sealed(put64(offBlocks, MaxBlocks+64)), offset: offBlocks, reason: "4294967360 blocks"},
		{name: "blocks that overflow", damage: sealed(put64(offBlocks, 1<<58+64)), offset: offBlocks, reason: "288230376151711808 blocks"},
		{name: "most blocks", damage: sealed(put64(offBlocks, MaxBlocks)), offset: offBlocks, reason: "file of 8200 bytes, want 275414781952"},
		{name: "other blocks", damage: sealed(put64(offBlocks, 128)), offset: offBlocks, reason: "file of 8200 bytes, want 12304"},
		{name: "no probes", damage: sealed(put32(offProbes, 0)), offset: offProbes, reason: "0 probes"},
		{name: "too many probes", damage: sealed(put32(offProbes, MaxProbes+1)), offset: offProbes, reason: "8 probes"},
		{name: "no capacity", damage: sealed(put64(offCapacity, 0)), offset: offCapacity, reason: "capacity of 0"},
		{name: "more words than bits", damage: sealed(put64(offCapacity, 64*512+1)), offset: offCapacity, reason: "capacity of 32769"},
		{name: "more ones than bits", damage: sealed(put64(offOnes, 64*512+1)), offset: offOnes, reason: "32769 bits set"},
		{name: "truncated", damage: func([]byte) {}, size: -1, offset: offBlocks, reason: "file of 8199 bytes"},
		{name: "too long", damage: func([]byte) {}, size: 4096, offset: offBlocks, reason: "file of 12296 bytes"},
		{name: "sequence in the wrong half", damage: sealed(func(h []byte) { h[offSequence] ^= 1 }), offset: offSequence, reason: "sequence number"},
		{name: "two stores", damage: func(p []byte) { p[offStoreID]++; seal(p, 0) }, reason: "different files", offset: slotBytes},
		{name: "two generations", damage: func(p []byte) { p[offGeneration]++; seal(p, 0) }, reason: "different files", offset: slotBytes},
		{name: "two seeds", damage: func(p []byte) { p[offSeed]++; seal(p, 0) }, reason: "different files", offset: slotBytes},
		{name: "ingest goes back", damage: func(p []byte) { p[offIngest] += 2; seal(p, 0) }, reason: "goes back from 43 to 42", offset: slotBytes + offIngest},
		{name: "gap", damage: func(p []byte) { p[headerBytes] = 1 }, reason: "byte 0x1 in the unused part", offset: headerBytes},
		{name: "end of page", damage: func(p []byte) { p[pageBytes-1] = 0xff }, reason: "byte 0xff in the unused part", offset: pageBytes - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			page, size := goldenPage(t)
			c.damage(page)
			s, torn, err := decodePage(page, size+c.size)
			if err == nil {
				t.Fatalf("decoded as %+v, torn %t", s, torn)
			}
			if s != (slot{}) || torn {
				t.Errorf("an error and the value %+v, torn %t", s, torn)
			}
			if !strings.Contains(err.Error(), c.reason) {
				t.Errorf("error %q does not say %q", err, c.reason)
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
			if corrupt.Offset != c.offset {
				t.Errorf("offset is %d, want %d: %v", corrupt.Offset, c.offset, err)
			}
		})
	}
}

// TestDecodeShortPage cuts the page at every length.
func TestDecodeShortPage(t *testing.T) {
	page, size := goldenPage(t)
	for n := range page {
		if _, _, err := decodePage(page[:n], int64(n)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes of header page: error %v, want ErrCorrupt", n, err)
		}
	}
	if _, _, err := decodePage(page, size); err != nil {
		t.Fatal(err)
	}
}

// TestHeaderBitFlips flips every bit of the header page. Of a flip within one
// header the other one is left, reported as torn; one outside is corruption.
func TestHeaderBitFlips(t *testing.T) {
	page, size := goldenPage(t)
	for bit := range len(page) * 8 {
		page[bit/8] ^= 1 << (bit % 8)
		s, torn, err := decodePage(page, size)
		inside := bit/8%slotBytes < headerBytes
		want := uint64(42)
		if bit/8 >= slotBytes { // where the newer one is
			want = 41
		}
		switch {
		case !inside && !errors.Is(err, ErrCorrupt):
			t.Fatalf("bit %d: error %v, want ErrCorrupt", bit, err)
		case inside && (err != nil || !torn || s.Ingest != want):
			t.Fatalf("bit %d: ingest number %d, torn %t, error %v", bit, s.Ingest, torn, err)
		}
		page[bit/8] ^= 1 << (bit % 8)
	}
}

// TestHeaderUpdateCrash stops an update of the header after every subset of
// its 8-byte stores. What is read is the header before it or the one after it,
// and the latter only if all of it is there.
func TestHeaderUpdateCrash(t *testing.T) {
	old := slot{Header: goldenHeader, sequence: 7}
	page := appendPage(nil, old)
	next := old
	next.Ingest, next.Ones, next.sequence = 77, 1234, 8
	at := next.index() * slotBytes
	update := appendSlot(nil, next)
	var changed []int
	for i := 0; i < headerBytes; i += 8 {
		if !bytes.Equal(page[at+i:at+i+8], update[i:i+8]) {
			changed = append(changed, i)
		}
	}
	if len(changed) != 4 { // ingest number, ones, sequence, checksum; not the sums
		t.Errorf("%d words change, want 4", len(changed))
	}
	for subset := range 1 << len(changed) {
		torn := slices.Clone(page)
		for j, i := range changed {
			if subset>>j&1 != 0 {
				copy(torn[at+i:at+i+8], update[i:])
			}
		}
		want, wantTorn := old, subset != 0
		if subset == 1<<len(changed)-1 {
			want, wantTorn = next, false
		}
		got, gotTorn, err := decodePage(torn, goldenHeader.FileBytes())
		if err != nil || got != want || gotTorn != wantTorn {
			t.Errorf("subset %b: %+v, torn %t, error %v", subset, got, gotTorn, err)
		}
	}
}

// FuzzDecodeHeader decodes any page. It takes the two headers apart, so that
// the corpus is small, and makes their checksums right where seals says so, so
// that the checks behind them are reached.
func FuzzDecodeHeader(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte, size int64, seals uint8) {
		page := make([]byte, pageBytes)
		copy(page[:slotBytes], a)
		copy(page[slotBytes:], b)
		for i := range 2 {
			if seals>>i&1 != 0 {
				seal(page, i)
			}
		}
		s, torn, err := decodePage(page, size)
		if err != nil {
			if s != (slot{}) || torn {
				t.Errorf("error %v and the value %+v", err, s)
			}
			if errors.Is(err, ErrCorrupt) == errors.Is(err, ErrVersion) {
				t.Errorf("error %v is not one of two", err)
			}
			return
		}
		if err := s.validate(); err != nil || s.FileBytes() != size || s.Ones > s.Bits() {
			t.Errorf("%+v decoded from a file of %d bytes; %v", s, size, err)
		}
		at := s.index() * slotBytes
		if !bytes.Equal(appendSlot(nil, s), page[at:at+headerBytes]) {
			t.Errorf("%+v does not encode to what it was decoded from", s)
		}
	})
}
