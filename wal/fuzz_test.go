package wal

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FuzzDecodeFrame: whatever the bytes are, there is a frame or an error, and a
// frame encodes to the bytes that it came from. The checksum is made right
// first where asked for, so that what is behind it is reached.
func FuzzDecodeFrame(f *testing.F) {
	for _, name := range []string{"frame", "mark", "switch"} {
		f.Add(readGolden(f, name), fileSalt(testStore, 7), true)
		f.Add(readGolden(f, name), fileSalt(testStore, 7), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, salt uint64, repair bool) {
		if repair {
			b = repairFrame(bytes.Clone(b), salt)
		}
		in := bytes.Clone(b)
		fr, n, err := decodeFrame(b, salt)
		if !bytes.Equal(in, b) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if n != 0 || fr.payload != nil || fr.kind != 0 {
				t.Fatalf("both a frame and %v", err)
			}
			return
		}
		if n < framePayloadOff || n > len(b) || n%alignment != 0 || int64(n) != FrameBytes(len(fr.payload)) {
			t.Fatalf("a frame of %d bytes with %d of payload out of %d", n, len(fr.payload), len(b))
		}
		again, sum := appendFrame(nil, salt, &fr)
		if !bytes.Equal(again, b[:n]) || sum != fr.checksum {
			t.Fatalf("encoded again, it is %x, not %x", again, b[:n])
		}
	})
}

// repairFrame makes the checksum right of the frame that b begins with.
func repairFrame(b []byte, salt uint64) []byte {
	if n, err := frameLen(b); err == nil && n <= len(b) {
		prev := binary.LittleEndian.Uint64(b[framePrevOff:])
		binary.LittleEndian.PutUint64(b[frameChecksumOff:], frameChecksum(b[:n], salt^prev))
	}
	return b
}

// repairFile makes the header of file n right but for its parameters, and the
// checksums of the frames that follow each other from there.
func repairFile(b []byte, n uint64) []byte {
	if len(b) < headerBytes {
		return b
	}
	copy(b, fileMagic)
	binary.LittleEndian.PutUint32(b[headerVersionOff:], formatVersion)
	copy(b[headerStoreOff:], testStore[:])
	binary.LittleEndian.PutUint64(b[headerFileOff:], n)
	binary.LittleEndian.PutUint64(b[headerChecksumOff:], xxhash.Sum64(b[:headerChecksumOff]))
	prev := binary.LittleEndian.Uint64(b[headerChainOff:])
	for at := headerBytes; at+framePayloadOff <= len(b); {
		frame := b[at:]
		n1, err := frameLen(frame)
		if err != nil || n1 > len(frame) {
			break
		}
		if prev != 0 {
			binary.LittleEndian.PutUint64(frame[framePrevOff:], prev)
		}
		repairFrame(frame, fileSalt(testStore, n))
		prev = binary.LittleEndian.Uint64(frame[frameChecksumOff:])
		at += n1
	}
	return b
}

// FuzzRead: any bytes as the log files of a directory are a chain or an error,
// never both and never a panic, and a chain can be replayed and continued.
func FuzzRead(f *testing.F) {
	one, two := readGolden(f, "file1"), readGolden(f, "file2")
	for _, repair := range []bool{true, false} {
		f.Add(one, two, repair)
		f.Add(two, []byte(nil), repair)
		f.Add(one[:len(one)-20], two, repair)
		f.Add(append(bytes.Clone(one), make([]byte, 100)...), two[:headerBytes], repair)
	}
	f.Fuzz(func(t *testing.T, one, two []byte, repair bool) {
		fs := vfs.NewMem()
		files := [][]byte{bytes.Clone(one)}
		if len(two) > 0 {
			files = append(files, bytes.Clone(two))
		}
		for i, b := range files {
			if repair {
				b = repairFile(b, uint64(i+1))
			}
			writeFile(t, fs, fileName(uint64(i+1)), b)
		}
		c, err := Read(fs, "", testStore)
		if err != nil {
			if c != nil {
				t.Fatalf("both a chain and %v", err)
			}
			return
		}
		lsn := LSN(0)
		for i, info := range c.Files {
			if info.End > info.Size && info.Size >= headerBytes || info.Start > info.End {
				t.Fatalf("file %d is good from %d to %d of %d", info.File, info.Start, info.End, info.Size)
			}
			var records int64
			must(t, c.Replay(i, func(r Record) error {
				records++
				if r.LSN <= lsn || r.LSN > c.Last || r.LSN < info.FirstLSN || r.LSN > info.LastLSN || r.Kind < FirstCallerKind {
					t.Fatalf("record %d of kind %d behind %d in file %+v", r.LSN, r.Kind, lsn, info)
				}
				lsn = r.LSN
				return nil
			}))
			if info.Switched {
				records++
			}
			if records != info.Records {
				t.Fatalf("%d records replayed, %d read", records, info.Records)
			}
		}
		if c.Torn != nil && c.Synced > c.Last {
			t.Fatalf("torn behind %d, synced through %d", c.Last, c.Synced)
		}
		if c.Last > maxLSN/2 {
			return // nobody appends that many
		}
		goesOn(t, "fuzz", fs, c)
	})
}
