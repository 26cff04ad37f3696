package mmapfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// This file is the codec of the header page: bytes in, values out, no I/O.

const (
	magic   = "DDFILTER"
	version = 2

	pageBytes   = 4096 // of the header, and before the first block
	pageWords   = pageBytes / 8
	slotBytes   = pageBytes / 2
	headerBytes = 112

	flagUnverified = 1 << 0

	offMagic      = 0
	offVersion    = 8
	offFlags      = 12
	offStoreID    = 16
	offGeneration = 32
	offIngest     = 40
	offBlocks     = 48
	offProbes     = 56
	offReserved   = 60
	offSeed       = 64
	offCapacity   = 72
	offOnes       = 80
	offSequence   = 88
	offSums       = 96
	offChecksum   = 104
)

// A Header says whose a filter is, what it covers, and its geometry.
//
//	the header page                     a header, little-endian
//	+------+------------------------+   +-----+------+---------------------------+
//	|    0 | header, even sequence  |   |   0 | [8]  | magic "DDFILTER"          |
//	|  112 | zero                   |   |   8 | u32  | version = 2               |
//	| 2048 | header, odd sequence   |   |  12 | u32  | flags: bit 0 unverified   |
//	| 2160 | zero                   |   |  16 | [16] | store id                  |
//	+------+------------------------+   |  32 | u64  | generation                |
//	| 4096 | Blocks * 64 bytes of   |   |  40 | u64  | ingest number             |
//	|      | bits: word b*8 + i/64, |   |  48 | u64  | blocks                    |
//	|      | bit i%64 is bit i of   |   |  56 | u32  | probes                    |
//	|      | block b                |   |  60 | u32  | zero                      |
//	+------+------------------------+   |  64 | u64  | seed                      |
//	|      | Blocks / 64 page sums, |   |  72 | u64  | capacity, words           |
//	|      | u64: xxh64 of the page |   |  80 | u64  | ones: bits set            |
//	|      | XOR xxh64 of a page of |   |  88 | u64  | sequence                  |
//	|      | zeros                  |   |  96 | u64  | xxh64 of all page sums    |
//	+------+------------------------+   | 104 | u64  | xxh64 of bytes 0 to 104   |
//	                                    +-----+------+---------------------------+
//
// In a file that is flagged unverified the page sums do not count, and their
// checksum is 0: a crash has left the file, and nobody knows whether all bits
// are there.
//
// A header is updated by stores into the mapping, and the kernel may write
// the page back between any two of them: one copy could reach the disk half
// old and half new, and a filter without a sound header has to be built anew.
// So there are two. An update takes the next sequence number and goes over
// the older copy, and the sound copy of the higher sequence number counts. A
// crash leaves the update or what was before it. The copies lie 2048 bytes
// apart, so that no 512-byte sector holds parts of both.
//
// A damaged copy counts as an update cut short: what is then read is the
// older copy, whose ingest number is lower, and a lower number only means
// that more bits are set again than needed. It never claims a bit that is not
// durable.
type Header struct {
	// StoreID is the store that the file belongs to.
	StoreID [16]byte
	// Generation numbers the filters that take each other's place.
	Generation uint64
	// Ingest is the number up to which every bit is durable.
	Ingest uint64
	Params
	// Ones is the number of bits set, as counted by SetSorted and CountBits.
	// After a crash it may lack bits that reached the disk after the last
	// Sync. It is never more than are set, unless pages were healed: a bit
	// that was lost and set again counts twice.
	Ones uint64
	// Unverified says that the page sums do not count, see MarkUnverified.
	Unverified bool
}

// A slot is one copy of the header as it stands in the page.
type slot struct {
	Header
	sequence uint64
	sums     uint64 // checksum of the page sums
}

// index returns which half of the page a slot belongs into.
func (s slot) index() int { return int(s.sequence & 1) }

// appendSlot appends the encoded header, headerBytes long.
func appendSlot(dst []byte, s slot) []byte {
	start := len(dst)
	le := binary.LittleEndian
	dst = append(dst, magic...)
	dst = le.AppendUint32(dst, version)
	var flags uint32
	if s.Unverified {
		flags |= flagUnverified
	}
	dst = le.AppendUint32(dst, flags)
	dst = append(dst, s.StoreID[:]...)
	dst = le.AppendUint64(dst, s.Generation)
	dst = le.AppendUint64(dst, s.Ingest)
	dst = le.AppendUint64(dst, s.Blocks)
	dst = le.AppendUint32(dst, s.Probes)
	dst = le.AppendUint32(dst, 0) // reserved
	dst = le.AppendUint64(dst, s.Seed)
	dst = le.AppendUint64(dst, s.Capacity)
	dst = le.AppendUint64(dst, s.Ones)
	dst = le.AppendUint64(dst, s.sequence)
	dst = le.AppendUint64(dst, s.sums)
	return le.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// decodeSlot decodes the copy of the header in half i of a page. Offsets in
// its errors count from the start of the page.
func decodeSlot(page []byte, i int, fileSize int64) (slot, error) {
	base := i * slotBytes
	src := page[base : base+headerBytes]
	le := binary.LittleEndian
	if string(src[:len(magic)]) != magic {
		return slot{}, corruptf(int64(base), "magic is %q, want %q", src[:len(magic)], magic)
	}
	if v := le.Uint32(src[offVersion:]); v != version {
		return slot{}, fmt.Errorf("%w: got %d, want %d", ErrVersion, v, version)
	}
	if got, want := le.Uint64(src[offChecksum:]), xxhash.Sum64(src[:offChecksum]); got != want {
		return slot{}, corruptf(int64(base+offChecksum), "header checksum is %016x, want %016x", got, want)
	}
	s := slot{
		Header: Header{
			StoreID:    [16]byte(src[offStoreID:]),
			Generation: le.Uint64(src[offGeneration:]),
			Ingest:     le.Uint64(src[offIngest:]),
			Params: Params{
				Blocks:   le.Uint64(src[offBlocks:]),
				Probes:   le.Uint32(src[offProbes:]),
				Seed:     le.Uint64(src[offSeed:]),
				Capacity: le.Uint64(src[offCapacity:]),
			},
			Ones: le.Uint64(src[offOnes:]),
		},
		sequence: le.Uint64(src[offSequence:]),
		sums:     le.Uint64(src[offSums:]),
	}
	flags := le.Uint32(src[offFlags:])
	if flags&^flagUnverified != 0 {
		return slot{}, corruptf(int64(base+offFlags), "flags are %#x", flags)
	}
	s.Unverified = flags&flagUnverified != 0
	if s.Unverified && s.sums != 0 {
		return slot{}, corruptf(int64(base+offSums), "checksum of page sums that do not count is %#x, want 0", s.sums)
	}
	if r := le.Uint32(src[offReserved:]); r != 0 {
		return slot{}, corruptf(int64(base+offReserved), "reserved field is %#x, want 0", r)
	}
	if off, err := s.check(); err != nil {
		return slot{}, corruptf(int64(base+off), "%v", err)
	}
	if s.Ones > s.Bits() {
		return slot{}, corruptf(int64(base+offOnes), "%d bits set of %d", s.Ones, s.Bits())
	}
	if s.index() != i {
		return slot{}, corruptf(int64(base+offSequence), "sequence number %d in half %d of the page", s.sequence, i)
	}
	// check has bounded Blocks, so this cannot overflow.
	if want := s.FileBytes(); fileSize != want {
		return slot{}, corruptf(int64(base+offBlocks), "file of %d bytes, want %d for %d blocks",
			fileSize, want, s.Blocks)
	}
	return s, nil
}

// decodePage decodes the header page of a file of fileSize bytes. torn reports
// that one of the two copies does not verify, and the other one is returned.
// If neither does, a version that is not known is the error before damage.
func decodePage(src []byte, fileSize int64) (s slot, torn bool, err error) {
	if len(src) < pageBytes {
		return slot{}, false, corruptf(int64(len(src)), "file of %d bytes ends within the header page", fileSize)
	}
	src = src[:pageBytes]
	a, errA := decodeSlot(src, 0, fileSize)
	b, errB := decodeSlot(src, 1, fileSize)
	switch {
	case errA != nil && errB != nil:
		if errors.Is(errB, ErrVersion) && !errors.Is(errA, ErrVersion) {
			errA = errB
		}
		return slot{}, false, errA
	case errA != nil:
		s = b
	case errB != nil:
		s = a
	default:
		if s, err = newer(a, b); err != nil {
			return slot{}, false, err
		}
	}
	for i := range 2 {
		from := i*slotBytes + headerBytes
		gap := src[from : (i+1)*slotBytes]
		if at := bytes.IndexFunc(gap, func(r rune) bool { return r != 0 }); at >= 0 {
			return slot{}, false, corruptf(int64(from+at), "byte %#x in the unused part of the header page", gap[at])
		}
	}
	return s, errA != nil || errB != nil, nil
}

// newer returns which of two sound copies counts. They are states of one file,
// or one of them is not of this file. Their sequence numbers mostly follow each
// other, but not where a write-back of the header failed.
func newer(a, b slot) (slot, error) {
	older, s := a, b
	if a.sequence > b.sequence {
		older, s = b, a
	}
	base := int64(s.index() * slotBytes)
	if older.StoreID != s.StoreID || older.Generation != s.Generation || older.Params != s.Params {
		return slot{}, corruptf(base, "the two headers are of different files")
	}
	if older.Ingest > s.Ingest {
		return slot{}, corruptf(base+offIngest, "ingest number goes back from %d to %d", older.Ingest, s.Ingest)
	}
	return s, nil
}

// appendPage appends the header page of a new file, whose two copies are s
// and the same before it.
func appendPage(dst []byte, s slot) []byte {
	before := s
	before.sequence--
	start := len(dst)
	dst = append(dst, make([]byte, pageBytes)...)
	for _, c := range []slot{before, s} {
		at := start + c.index()*slotBytes
		appendSlot(dst[at:at], c)
	}
	return dst
}
