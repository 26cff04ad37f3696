package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// This file is the codec: bytes to values and back, with no I/O. The layout
// is drawn in the package documentation.

// An LSN is the position of a record: 1 for the first one, then always one
// more, across files. 0 means that there is none.
type LSN uint64

func (n LSN) String() string { return strconv.FormatUint(uint64(n), 10) }

// A Kind says what a record is. Kinds below FirstCallerKind are the log's
// own.
type Kind uint8

// The log's own kinds. The list is append-only.
const (
	_          Kind = iota // invalid: zeros are no frame
	kindMark               // a sync mark
	kindSwitch             // names the next file

	// FirstCallerKind is the first kind that a caller may append.
	FirstCallerKind Kind = 16
)

// MaxPayload is the size of the longest payload, in bytes.
const MaxPayload = 16 << 20 // 16 MiB

// MetaBytes is the size of the part of a file's header that is the caller's.
const MetaBytes = 64

const (
	fileMagic            = "DEDUPWAL"
	formatVersion        = 1
	frameMagic    uint16 = 0xd7c5

	alignment = 8

	headerVersionOff   = 8
	headerFlagsOff     = 12
	headerStoreOff     = 16
	headerFileOff      = 32
	headerFirstLSNOff  = 40
	headerChainOff     = 48
	headerSealedEndOff = 56
	headerMetaOff      = 64
	headerChecksumOff  = 128
	headerBytes        = 136

	frameKindOff     = 2
	frameReservedOff = 3
	frameLengthOff   = 4
	frameLSNOff      = 8
	frameSyncedOff   = 16
	framePrevOff     = 24
	frameChecksumOff = 32
	framePayloadOff  = 40

	switchPayload = 8
	markBytes     = framePayloadOff
	switchBytes   = framePayloadOff + switchPayload

	nameDigits = 10
	nameSuffix = ".log"
	badSuffix  = ".bad"
	newSuffix  = ".new" // of a file that is not whole yet
)

// The ways in which bytes are no header or no frame. A header's are distinct
// because they call for different things: another file, newer software, a
// backup.
var (
	errMagic    = errors.New("magic does not match")
	errChecksum = errors.New("checksum does not match")
	errShort    = errors.New("incomplete")
	errInvalid  = errors.New("invalid")
)

// FrameBytes returns what a record with so many bytes of payload takes in a
// log file.
func FrameBytes(payload int) int64 {
	return framePayloadOff + (int64(payload)+alignment-1)&^(alignment-1)
}

// fileName returns the name of log file number n.
func fileName(n uint64) string {
	return fmt.Sprintf("%0*d%s", nameDigits, n, nameSuffix)
}

// parseFileName is the inverse of fileName; ok is false for any name that
// fileName does not return.
func parseFileName(name string) (n uint64, ok bool) {
	if len(name) < nameDigits+len(nameSuffix) {
		return 0, false
	}
	digits := name[:len(name)-len(nameSuffix)]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || fileName(n) != name {
		return 0, false
	}
	return n, true
}

// A header is the first part of a log file.
type header struct {
	store     [16]byte
	file      uint64
	firstLSN  LSN
	chain     uint64
	sealedEnd int64
	meta      [MetaBytes]byte
}

// prepared reports whether the file waits, or waited, for the switch record
// that names it.
func (h *header) prepared() bool { return h.firstLSN == 0 }

// appendHeader appends the encoding of h to dst.
func appendHeader(dst []byte, h *header) []byte {
	at := len(dst)
	dst = append(dst, fileMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, formatVersion)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = append(dst, h.store[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.file)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.firstLSN))
	dst = binary.LittleEndian.AppendUint64(dst, h.chain)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.sealedEnd))
	dst = append(dst, h.meta[:]...)
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[at:]))
}

// decodeHeader decodes the header at the start of src. It checks magic, then
// version, then checksum, then the parameters.
func decodeHeader(src []byte) (h header, err error) {
	if len(src) < headerBytes {
		return header{}, fmt.Errorf("file header: %w: %d bytes, want %d", errShort, len(src), headerBytes)
	}
	src = src[:headerBytes]
	if string(src[:headerVersionOff]) != fileMagic {
		return header{}, fmt.Errorf("file header: %w: got %q, want %q", errMagic, src[:headerVersionOff], fileMagic)
	}
	if v := binary.LittleEndian.Uint32(src[headerVersionOff:]); v != formatVersion {
		return header{}, fmt.Errorf("file header: %w: got %d, want %d", ErrVersion, v, formatVersion)
	}
	got, want := binary.LittleEndian.Uint64(src[headerChecksumOff:]), xxhash.Sum64(src[:headerChecksumOff])
	if got != want {
		return header{}, fmt.Errorf("file header: %w: got %016x, want %016x", errChecksum, got, want)
	}
	if f := binary.LittleEndian.Uint32(src[headerFlagsOff:]); f != 0 {
		return header{}, fmt.Errorf("file header: %w: flags are %#x, want 0", errInvalid, f)
	}
	copy(h.store[:], src[headerStoreOff:])
	h.file = binary.LittleEndian.Uint64(src[headerFileOff:])
	h.firstLSN = LSN(binary.LittleEndian.Uint64(src[headerFirstLSNOff:]))
	h.chain = binary.LittleEndian.Uint64(src[headerChainOff:])
	h.sealedEnd = int64(binary.LittleEndian.Uint64(src[headerSealedEndOff:]))
	copy(h.meta[:], src[headerMetaOff:])
	switch {
	case h.prepared() && (h.chain != 0 || h.sealedEnd != 0):
		return header{}, fmt.Errorf("file header: %w: a prepared file has chain %016x and sealed end %d, want 0",
			errInvalid, h.chain, h.sealedEnd)
	case h.sealedEnd != 0 && (h.sealedEnd < headerBytes || h.sealedEnd%alignment != 0):
		return header{}, fmt.Errorf("file header: %w: sealed end %d", errInvalid, h.sealedEnd)
	}
	return h, nil
}

// fileSalt is what makes a checksum of one file wrong in any other.
func fileSalt(store [16]byte, file uint64) uint64 {
	var b [24]byte
	copy(b[:], store[:])
	binary.LittleEndian.PutUint64(b[16:], file)
	return xxhash.Sum64(b[:])
}

// A frame is a record, or a sync mark, as it is in a file.
type frame struct {
	kind     Kind
	lsn      LSN
	synced   LSN
	prev     uint64 // checksum of the frame before
	checksum uint64 // decoded; appendFrame computes it
	payload  []byte
}

// appendFrame appends the encoding of f to dst and returns its checksum too.
func appendFrame(dst []byte, salt uint64, f *frame) ([]byte, uint64) {
	at := len(dst)
	var h [framePayloadOff]byte
	binary.LittleEndian.PutUint16(h[:], frameMagic)
	h[frameKindOff] = byte(f.kind)
	binary.LittleEndian.PutUint32(h[frameLengthOff:], uint32(len(f.payload)))
	binary.LittleEndian.PutUint64(h[frameLSNOff:], uint64(f.lsn))
	binary.LittleEndian.PutUint64(h[frameSyncedOff:], uint64(f.synced))
	binary.LittleEndian.PutUint64(h[framePrevOff:], f.prev)
	dst = append(dst, h[:]...)
	dst = append(dst, f.payload...)
	var zeros [alignment]byte
	dst = append(dst, zeros[:int(FrameBytes(len(f.payload)))-(len(dst)-at)]...)
	sum := frameChecksum(dst[at:], salt^f.prev)
	binary.LittleEndian.PutUint64(dst[at+frameChecksumOff:], sum)
	return dst, sum
}

// frameChecksum returns the checksum of the encoded frame b, whose own bytes
// for it are left out.
func frameChecksum(b []byte, seed uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(b[:frameChecksumOff])
	_, _ = d.Write(b[framePayloadOff:])
	return d.Sum64()
}

// frameLen checks what can be checked of a frame's first framePayloadOff
// bytes alone, and returns the length of the whole frame. The length is
// within FrameBytes(MaxPayload) whatever the bytes are.
func frameLen(src []byte) (int, error) {
	if len(src) < framePayloadOff {
		return 0, fmt.Errorf("frame header: %w: %d bytes, want %d", errShort, len(src), framePayloadOff)
	}
	if m := binary.LittleEndian.Uint16(src); m != frameMagic {
		return 0, fmt.Errorf("frame: %w: got %#04x, want %#04x", errMagic, m, frameMagic)
	}
	kind, length := Kind(src[frameKindOff]), binary.LittleEndian.Uint32(src[frameLengthOff:])
	switch {
	case src[frameReservedOff] != 0:
		return 0, fmt.Errorf("frame: %w: reserved byte is %#02x, want 0", errInvalid, src[frameReservedOff])
	case length > MaxPayload:
		return 0, fmt.Errorf("frame: %w: %d bytes of payload, at most %d", errInvalid, length, MaxPayload)
	case kind == kindMark && length != 0:
		return 0, fmt.Errorf("frame: %w: a sync mark has %d bytes of payload, want 0", errInvalid, length)
	case kind == kindSwitch && length != switchPayload:
		return 0, fmt.Errorf("frame: %w: a switch record has %d bytes of payload, want %d", errInvalid, length, switchPayload)
	case kind != kindMark && kind != kindSwitch && kind < FirstCallerKind:
		return 0, fmt.Errorf("frame: %w: kind %d", errInvalid, kind)
	}
	return int(FrameBytes(int(length))), nil
}

// decodeFrame decodes and verifies the frame at the start of src, by itself:
// whether it is the right one in its place is for the caller to compare. The
// payload is a part of src. n is the length of the frame.
func decodeFrame(src []byte, salt uint64) (f frame, n int, err error) {
	n, err = frameLen(src)
	if err != nil {
		return frame{}, 0, err
	}
	if n > len(src) {
		return frame{}, 0, fmt.Errorf("frame: %w: %d bytes left, want %d", errShort, len(src), n)
	}
	src = src[:n]
	f = frame{
		kind:     Kind(src[frameKindOff]),
		lsn:      LSN(binary.LittleEndian.Uint64(src[frameLSNOff:])),
		synced:   LSN(binary.LittleEndian.Uint64(src[frameSyncedOff:])),
		prev:     binary.LittleEndian.Uint64(src[framePrevOff:]),
		checksum: binary.LittleEndian.Uint64(src[frameChecksumOff:]),
	}
	if want := frameChecksum(src, salt^f.prev); f.checksum != want {
		return frame{}, 0, fmt.Errorf("frame: %w: got %016x, want %016x", errChecksum, f.checksum, want)
	}
	end := framePayloadOff + int(binary.LittleEndian.Uint32(src[frameLengthOff:]))
	for _, c := range src[end:] {
		if c != 0 {
			return frame{}, 0, fmt.Errorf("frame: %w: padding is not zero", errInvalid)
		}
	}
	if f.synced > f.lsn || f.kind != kindMark && f.synced == f.lsn {
		return frame{}, 0, fmt.Errorf("frame: %w: synced through LSN %d, before LSN %d was written", errInvalid, f.synced, f.lsn)
	}
	f.payload = src[framePayloadOff:end:end]
	return f, n, nil
}
