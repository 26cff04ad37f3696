package store

import (
	"encoding/binary"
	"fmt"

	"dedupstore/wal"
)

// The kinds of the log's records. Their payloads, little-endian:
//
//	adds     segment u32 | reserved u32 | words u64 ...
//	made     segment u32 | namespace u32 | span kind u8 | log2 width u8 |
//	         reserved u16 | reserved u32 | incarnation u64 | span u64
//	closed   segment u32 | reserved u32
//	ingest   number u64 | flushed log file u64 | clock stamp 48 bytes, or
//	         40 of an older store
//	bitmap   generation u64 | counter generation u64 | words leaked u64 |
//	         words dead u64, not in older ones: from here on the bitmap and
//	         the counters are these
//	floor    URLs that the bitmap is never made too small for u64
//	shut     span kind u8 | log2 width u8 | reserved u16 | reserved u32 |
//	         span u64: all its segments are closed
//	forgets  segment u32 | reserved u32 | words u64 ...: live in it before
//	named    namespace u32 | reserved u32 | incarnation u64 | TTL u64, ns |
//	         name: the namespace from here on
//	clock    clock stamp 48 bytes: accepted; no segment ends later than a
//	         TTL of its span from its store time
//	counted  segments u32 ..., up to 4096: the counters of the bitmap record
//	         behind have them. Without a list none is counted
//	gone     segments u32 ..., up to 4096: neither they nor that bitmap have
//	         them
//
// A record that makes a segment stands before the first that names it.
const (
	recordAdds wal.Kind = wal.FirstCallerKind + iota
	recordMade
	recordClosed
	recordIngest
	recordBitmap
	recordFloor
	recordShut
	recordForgets
	recordNamed
	recordClock
	recordCounted
	recordGone
)

const (
	addsHeaderBytes = 8
	madeBytes       = 32
	closedBytes     = 8
	ingestBytes     = 16 + clockStampBytes
	ingestBytes2    = 16 + clockStampBytes2
	bitmapBytes     = 32
	bitmapBytes1    = 24 // of stores in which nothing expired
	floorBytes      = 8
	shutBytes       = 16
	namedBytes      = 24 // and the name
	clockBytes      = clockStampBytes
	maxListed       = 4096 // segments in a list
)

// beginAdds starts the payload of an adds record; words are appended to it by
// appendWord.
func beginAdds(dst []byte, id segmentID) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(id))
}

func appendWord(dst []byte, w word) []byte { return binary.LittleEndian.AppendUint64(dst, w) }

// addsRecord is the decoded form; the words are read in place.
type addsRecord struct {
	segment segmentID
	words   []byte
}

func (a addsRecord) len() int        { return len(a.words) / 8 }
func (a addsRecord) word(i int) word { return binary.LittleEndian.Uint64(a.words[i*8:]) }

func decodeAdds(src []byte) (a addsRecord, err error) {
	if len(src) <= addsHeaderBytes || len(src)%8 != 0 {
		return a, fmt.Errorf("adds record has %d bytes, want 16 or more in eights", len(src))
	}
	id, err := decodeID(src)
	if err != nil {
		return a, err
	}
	a = addsRecord{segment: id, words: src[addsHeaderBytes:]}
	for i := range a.len() {
		if a.word(i) == 0 {
			return a, fmt.Errorf("adds record holds word 0, which does not exist")
		}
	}
	return a, nil
}

// decodeID reads a segment id in four bytes with four reserved ones behind.
func decodeID(src []byte) (segmentID, error) {
	v := binary.LittleEndian.Uint64(src)
	if v>>32 != 0 {
		return 0, fmt.Errorf("reserved bytes are %#x", v>>32)
	}
	if v == 0 {
		return 0, fmt.Errorf("segment id is 0")
	}
	return segmentID(v), nil
}

func appendMade(dst []byte, id segmentID, r *segmentRow) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(id))
	dst = le.AppendUint32(dst, r.namespace)
	dst = append(dst, byte(r.spanKind), r.spanLog2, 0, 0, 0, 0, 0, 0)
	dst = le.AppendUint64(dst, r.incarnation)
	return le.AppendUint64(dst, r.span)
}

func decodeMade(src []byte) (id segmentID, r segmentRow, err error) {
	if len(src) != madeBytes {
		return 0, r, fmt.Errorf("made record has %d bytes, want %d", len(src), madeBytes)
	}
	le := binary.LittleEndian
	id = segmentID(le.Uint32(src))
	r.namespace = le.Uint32(src[4:])
	r.spanKind, r.spanLog2 = spanKind(src[8]), src[9]
	r.incarnation, r.span = le.Uint64(src[16:]), le.Uint64(src[24:])
	r.state = segmentOpen
	switch {
	case id == 0:
		return 0, r, fmt.Errorf("segment id is 0")
	case le.Uint64(src[8:])>>16 != 0:
		return 0, r, fmt.Errorf("reserved bytes are not zero")
	}
	r.ends = r.spanID().end()
	return id, r, r.checkSpan()
}

func appendClosed(dst []byte, id segmentID) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(id))
}

func decodeClosed(src []byte) (segmentID, error) {
	if len(src) != closedBytes {
		return 0, fmt.Errorf("closed record has %d bytes, want %d", len(src), closedBytes)
	}
	return decodeID(src)
}

func appendIngest(dst []byte, number, flushed uint64, c clockStamp) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, number)
	dst = binary.LittleEndian.AppendUint64(dst, flushed)
	return appendClockStamp(dst, c)
}

func decodeIngest(src []byte) (number, flushed uint64, c clockStamp, err error) {
	switch len(src) {
	case ingestBytes:
		c = decodeClockStamp(src[16:])
	case ingestBytes2:
		c = decodeClockStamp2(src[16:])
	default:
		return 0, 0, c, fmt.Errorf("ingest record has %d bytes, want %d", len(src), ingestBytes)
	}
	return binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:]), c, nil
}

// bitmapRecord says which bitmap, and which counters, count from then on. The
// lists of segments stand in front of it, in the same hold of the lock.
type bitmapRecord struct {
	generation uint64
	counterGen uint64 // 0: no counters
	leaked     uint64 // words, see storeRow
	dead       uint64 // words, see storeRow
}

func appendBitmap(dst []byte, r bitmapRecord) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, r.generation)
	dst = binary.LittleEndian.AppendUint64(dst, r.counterGen)
	dst = binary.LittleEndian.AppendUint64(dst, r.leaked)
	return binary.LittleEndian.AppendUint64(dst, r.dead)
}

func decodeBitmap(src []byte) (r bitmapRecord, err error) {
	if len(src) != bitmapBytes && len(src) != bitmapBytes1 {
		return r, fmt.Errorf("bitmap record has %d bytes, want %d", len(src), bitmapBytes)
	}
	le := binary.LittleEndian
	r = bitmapRecord{generation: le.Uint64(src), counterGen: le.Uint64(src[8:]), leaked: le.Uint64(src[16:])}
	if len(src) == bitmapBytes {
		r.dead = le.Uint64(src[24:])
	}
	switch {
	case r.generation == 0:
		return r, fmt.Errorf("bitmap record of generation 0")
	case r.counterGen > r.generation:
		return r, fmt.Errorf("bitmap record of generation %d with counters of generation %d", r.generation, r.counterGen)
	case r.counterGen == 0 && r.leaked != 0:
		return r, fmt.Errorf("bitmap record without counters, of which %d words leaked", r.leaked)
	}
	return r, nil
}

func appendList(dst []byte, ids []segmentID) []byte {
	for _, id := range ids {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	}
	return dst
}

func decodeList(src []byte) ([]segmentID, error) {
	if len(src) == 0 || len(src)%4 != 0 || len(src) > 4*maxListed {
		return nil, fmt.Errorf("list record has %d bytes, want 4 to %d in fours", len(src), 4*maxListed)
	}
	ids := make([]segmentID, len(src)/4)
	for i := range ids {
		ids[i] = segmentID(binary.LittleEndian.Uint32(src[4*i:]))
		if ids[i] == 0 || i > 0 && ids[i] <= ids[i-1] {
			return nil, fmt.Errorf("list record has segment %d at place %d", ids[i], i)
		}
	}
	return ids, nil
}

func appendShut(dst []byte, id spanID) []byte {
	dst = append(dst, byte(id.kind), id.log2, 0, 0, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint64(dst, id.number)
}

func decodeShut(src []byte) (id spanID, err error) {
	if len(src) != shutBytes {
		return id, fmt.Errorf("shut record has %d bytes, want %d", len(src), shutBytes)
	}
	le := binary.LittleEndian
	if le.Uint64(src)>>16 != 0 {
		return id, fmt.Errorf("reserved bytes are not zero")
	}
	r := segmentRow{spanKind: spanKind(src[0]), spanLog2: src[1], span: le.Uint64(src[8:])}
	r.ends = r.spanID().end()
	return r.spanID(), r.checkSpan()
}

func appendNamed(dst []byte, id uint32, r *namespaceRow) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, uint64(id))
	dst = le.AppendUint64(dst, r.incarnation)
	dst = le.AppendUint64(dst, uint64(r.ttl))
	return append(dst, r.name...)
}

func decodeNamed(src []byte) (id uint32, r namespaceRow, err error) {
	if len(src) < namedBytes || len(src) > namedBytes+maxNamespaceBytes {
		return 0, r, fmt.Errorf("named record has %d bytes, want %d to %d", len(src), namedBytes, namedBytes+maxNamespaceBytes)
	}
	le := binary.LittleEndian
	if le.Uint64(src)>>32 != 0 {
		return 0, r, fmt.Errorf("reserved bytes are not zero")
	}
	r = namespaceRow{incarnation: le.Uint64(src[8:]), ttl: int64(le.Uint64(src[16:])), name: string(src[namedBytes:])}
	if r.incarnation == 0 {
		return 0, r, fmt.Errorf("namespace of incarnation 0")
	}
	return uint32(le.Uint64(src)), r, checkTTL(r.ttl)
}

func decodeClock(src []byte) (c clockStamp, err error) {
	if len(src) != clockBytes {
		return c, fmt.Errorf("clock record has %d bytes, want %d", len(src), clockBytes)
	}
	if c = decodeClockStamp(src); c.store < 0 || c.store > maxStoreTime {
		return c, fmt.Errorf("clock record of %d ns", c.store)
	}
	return c, nil
}

func appendFloor(dst []byte, urls uint64) []byte {
	return binary.LittleEndian.AppendUint64(dst, urls)
}

func decodeFloor(src []byte) (urls uint64, err error) {
	if len(src) != floorBytes {
		return 0, fmt.Errorf("floor record has %d bytes, want %d", len(src), floorBytes)
	}
	urls = binary.LittleEndian.Uint64(src)
	return urls, checkFloor(urls)
}

// checkFloor bounds a floor that was read from a file: a bitmap is made by it.
func checkFloor(urls uint64) error {
	if urls < 1 || urls > MaxExpectedURLs {
		return fmt.Errorf("floor of %d URLs, want 1 to %d", urls, int64(MaxExpectedURLs))
	}
	return nil
}
