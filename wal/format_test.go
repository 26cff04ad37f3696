package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var update = flag.Bool("update", false, "write the golden files")

func TestFileName(t *testing.T) {
	for n, want := range map[uint64]string{
		1: "0000000001.log", 42: "0000000042.log", 9999999999: "9999999999.log",
	} {
		if got := fileName(n); got != want {
			t.Errorf("file %d is named %q, want %q", n, got, want)
		}
		if got, ok := parseFileName(want); got != n || !ok {
			t.Errorf("%q is file %d, %v, want %d", want, got, ok, n)
		}
	}
	for _, name := range []string{
		"", ".log", "1.log", "000000001.log", "00000000001.log", "0000000000.log",
		"0000000001.log.bad", "0000000001.log.2.bad", "0000000001.LOG", "-000000001.log",
		"+000000001.log", "000000000x.log", "0000000001", "MANIFEST", "99999999999999999999.log",
	} {
		if n, ok := parseFileName(name); ok {
			t.Errorf("%q is taken for file %d", name, n)
		}
	}
}

func goldenHeader() *header {
	return &header{
		store: testStore, file: 7, firstLSN: 1234, chain: 0x0123456789abcdef, sealedEnd: 4096, meta: testMeta(0xff),
	}
}

// checkGolden compares b with a file in testdata, which holds a hex dump.
func checkGolden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	got := hex.Dump(b)
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs; the format of existing logs has changed. got:\n%swant:\n%s", path, got, want)
	}
}

// readGolden returns the bytes that a golden file holds.
func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
	must(t, err)
	var b []byte
	for line := range strings.Lines(string(text)) {
		if len(line) < 60 {
			continue
		}
		part, err := hex.DecodeString(strings.ReplaceAll(line[10:58], " ", ""))
		must(t, err)
		b = append(b, part...)
	}
	return b
}

func TestGolden(t *testing.T) {
	salt := fileSalt(testStore, 7)
	var next [switchPayload]byte
	putSwitch(next[:], 8)
	record, _ := appendFrame(nil, salt, &frame{
		kind: testKind + 1, lsn: 1234, synced: 1200, prev: 0x0123456789abcdef, payload: []byte("https://example.org/"),
	})
	mark, _ := appendFrame(nil, salt, &frame{kind: kindMark, lsn: 1234, synced: 1234, prev: 0xfedcba9876543210})
	end, _ := appendFrame(nil, salt, &frame{kind: kindSwitch, lsn: 1235, synced: 1234, prev: 1, payload: next[:]})
	checkGolden(t, "header", appendHeader(nil, goldenHeader()))
	checkGolden(t, "frame", record)
	checkGolden(t, "mark", mark)
	checkGolden(t, "switch", end)

	fs := vfs.NewMem()
	l := newLog(t, fs, Start{File: 1, FirstLSN: 1, Meta: testMeta(1)}, Options{})
	add(t, l, 2)
	mustSync(t, l)
	add(t, l, 1)
	mustSwitch(t, l)
	add(t, l, 1)
	must(t, l.Close())
	checkGolden(t, "file1", readFile(t, fs, fileName(1)))
	checkGolden(t, "file2", readFile(t, fs, fileName(2)))
}

// TestGoldenRead opens with today's code what version 1 wrote.
func TestGoldenRead(t *testing.T) {
	fs := vfs.NewMem()
	writeFile(t, fs, fileName(1), readGolden(t, "file1"))
	writeFile(t, fs, fileName(2), readGolden(t, "file2"))
	c, err := Read(fs, "", testStore)
	must(t, err)
	if got := fmt.Sprint(replay(t, c)); got != "[1 2 3 5]" || c.Synced != 5 || c.Torn != nil {
		t.Errorf("got records %s, synced %d, torn %v", got, c.Synced, c.Torn)
	}
	h, err := decodeHeader(readGolden(t, "header"))
	if err != nil || h != *goldenHeader() {
		t.Errorf("got header %+v, %v", h, err)
	}
}

// set returns b with v at offset off.
func set(b []byte, off int, v ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[off:], v)
	return b
}

func TestDecodeHeader(t *testing.T) {
	good := appendHeader(nil, goldenHeader())
	sum := func(b []byte) []byte {
		return binary.LittleEndian.AppendUint64(b[:headerChecksumOff:headerChecksumOff], xxhash.Sum64(b[:headerChecksumOff]))
	}
	prepared := appendHeader(nil, &header{store: testStore, file: 8})
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"good", good, nil},
		{"prepared", prepared, nil},
		{"more behind it", append(bytes.Clone(good), 1), nil},
		{"empty", nil, errShort},
		{"short", good[:headerBytes-1], errShort},
		{"magic", set(good, 3, 'X'), errMagic},
		{"magic before version", set(set(good, 3, 'X'), headerVersionOff, 2), errMagic},
		{"version", set(good, headerVersionOff, 2), ErrVersion},
		{"version before checksum", sum(set(good, headerVersionOff, 0)), ErrVersion},
		{"checksum", set(good, headerChecksumOff, good[headerChecksumOff]^1), errChecksum},
		{"meta", set(good, headerMetaOff+63, 0), errChecksum},
		{"checksum before flags", set(good, headerFlagsOff, 1), errChecksum},
		{"flags", sum(set(good, headerFlagsOff, 1)), errInvalid},
		{"sealed end in the header", sum(set(good, headerSealedEndOff, 8, 0)), errInvalid},
		{"sealed end not aligned", sum(set(good, headerSealedEndOff, 1)), errInvalid},
		{"sealed end negative", sum(set(good, headerSealedEndOff+7, 0x80)), errInvalid},
		{"prepared with chain", sum(set(prepared, headerChainOff, 1)), errInvalid},
		{"prepared with sealed end", sum(set(prepared, headerSealedEndOff, 0, 1)), errInvalid},
		{"zeros", make([]byte, headerBytes), errMagic},
	} {
		h, err := decodeHeader(c.b)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
		if err != nil && h != (header{}) {
			t.Errorf("%s: got both a header and an error", c.name)
		}
		if err == nil && !bytes.Equal(appendHeader(nil, &h), c.b[:headerBytes]) {
			t.Errorf("%s: encoded again it differs", c.name)
		}
	}
}

func TestDecodeFrame(t *testing.T) {
	const salt = 99
	encode := func(f frame) []byte { b, _ := appendFrame(nil, salt, &f); return b }
	sum := func(b []byte) []byte {
		prev := binary.LittleEndian.Uint64(b[framePrevOff:])
		binary.LittleEndian.PutUint64(b[frameChecksumOff:], frameChecksum(b, salt^prev))
		return b
	}
	good := encode(frame{kind: 20, lsn: 9, synced: 5, prev: 77, payload: []byte("abc")})
	mark := encode(frame{kind: kindMark, lsn: 9, synced: 9, prev: 77})
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"good", good, nil},
		{"more behind it", append(bytes.Clone(good), 1, 2, 3), nil},
		{"mark", mark, nil},
		{"switch", encode(frame{kind: kindSwitch, lsn: 9, payload: make([]byte, 8)}), nil},
		{"no payload", encode(frame{kind: 255, lsn: 1}), nil},
		{"zeros", make([]byte, 64), errMagic},
		{"empty", nil, errShort},
		{"header cut", good[:framePayloadOff-1], errShort},
		{"payload cut", good[:len(good)-1], errShort},
		{"magic", set(good, 0, 0), errMagic},
		{"kind 0", sum(set(good, frameKindOff, 0)), errInvalid},
		{"kind reserved", sum(set(good, frameKindOff, 15)), errInvalid},
		{"reserved byte", sum(set(good, frameReservedOff, 1)), errInvalid},
		{"length beyond the constant", sum(set(good, frameLengthOff, 1, 0, 0, 1)), errInvalid},
		{"length beyond the bytes", sum(set(good, frameLengthOff, 9)), errShort},
		{"mark with payload", sum(set(good, frameKindOff, byte(kindMark))), errInvalid},
		{"switch with odd payload", sum(set(good, frameKindOff, byte(kindSwitch))), errInvalid},
		{"padding", sum(set(good, len(good)-1, 1)), errInvalid},
		{"padding, checksum first", set(good, len(good)-1, 1), errChecksum},
		{"record synced before written", sum(set(good, frameSyncedOff, 9)), errInvalid},
		{"mark synced before written", sum(set(mark, frameSyncedOff, 10)), errInvalid},
		{"LSN", set(good, frameLSNOff, 8), errChecksum},
		{"previous", set(good, framePrevOff, 78), errChecksum},
		{"payload", set(good, framePayloadOff, 'b'), errChecksum},
	} {
		f, n, err := decodeFrame(c.b, salt)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
		if err != nil && (n != 0 || f.payload != nil || f.lsn != 0) {
			t.Errorf("%s: got both a frame and an error", c.name)
		}
		if err == nil && !bytes.Equal(encode(f), c.b[:n]) {
			t.Errorf("%s: encoded again it differs", c.name)
		}
		if _, _, err := decodeFrame(c.b, salt+1); err == nil {
			t.Errorf("%s: verifies in another file too", c.name)
		}
	}
}

func TestFrameBytes(t *testing.T) {
	for payload, want := range map[int]int64{0: 40, 1: 48, 8: 48, 9: 56, MaxPayload: 40 + 16<<20} {
		if got := FrameBytes(payload); got != want {
			t.Errorf("a payload of %d bytes takes %d, want %d", payload, got, want)
		}
	}
}
