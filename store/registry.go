package store

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// A segmentID names a segment: the words that leave the store together. Ids
// are given in order and never used again. 0 is no segment: its key range
// holds the registry.
type segmentID uint32

// registry is what the store knows of its segments and of itself. It lives in
// Pebble, as rows in front of the words. A flush ingests the rows that it
// changed together with its words: durable together or not at all. What has
// changed since is in the log.
//
// In memory it is guarded by the store's lock.
type registry struct {
	storeRow
	namespaces map[uint32]namespaceRow
	segments   map[segmentID]segmentRow

	// dirty holds the segments whose rows the active log file has changed.
	dirty map[segmentID]struct{}
}

// storeRow is the row of the store itself.
type storeRow struct {
	ingest           uint64 // number of the last ingest
	flushed          uint64 // all log files up to this one are in Pebble
	flushedLSN       uint64 // last record of that file
	nextSegment      segmentID
	nextNamespace    uint32
	nextIncarnation  uint64
	bitmapGeneration uint64
	counterGen       uint64 // of the counter file; 0: none
	forgetNumber     uint64 // the last forget that the counters subtracted; 0: none
	floor            uint64 // URLs that the bitmap is never made too small for
	clock            clockStamp
}

// namespaceRow is the row of one namespace. The default one is 0, "".
type namespaceRow struct {
	incarnation uint64
	ttl         uint64 // ns; 0: for ever
	name        string
}

// segmentRow is the row of one segment: one namespace x one span.
type segmentRow struct {
	namespace   uint32
	incarnation uint64
	spanKind    spanKind
	state       segmentState
	spanLog2    uint8  // width of a time span: 2^spanLog2 s
	span        uint64 // number of the span
	words       uint64 // in Pebble
	ingest      uint64 // number of the last ingest that touched it
	closedIn    uint64 // the log file in which it closed; 0: open
}

type spanKind uint8

const (
	_        spanKind = iota
	spanSize          // by size: a number that counts up
)

type segmentState uint8

const (
	_ segmentState = iota
	segmentOpen
	segmentClosed
)

// The kinds of rows: the fifth byte of their keys.
const (
	_ byte = iota
	rowStore
	rowNamespace
	rowSegment
)

const (
	registryVersion   = 2
	wordKeyBytes      = 12 // segment id, word
	rowKeyBytes       = 9  // segment id 0, kind of row, id
	storeRowBytes     = 4 + 3*8 + 2*4 + 5*8 + clockStampBytes
	namespaceRowBytes = 4 + 2*8 // and the name
	segmentRowBytes   = 4 + 4 + 4 + 5*8
	maxNamespaceBytes = 255
)

// appendWordKey appends the key of a word: big-endian, so that keys are in
// (segment, word) order.
func appendWordKey(dst []byte, id segmentID, w word) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	return binary.BigEndian.AppendUint64(dst, w)
}

func decodeWordKey(key []byte) (id segmentID, w word, ok bool) {
	if len(key) != wordKeyBytes {
		return 0, 0, false
	}
	return segmentID(binary.BigEndian.Uint32(key)), binary.BigEndian.Uint64(key[4:]), true
}

func appendRowKey(dst []byte, kind byte, id uint32) []byte {
	dst = append(dst, 0, 0, 0, 0, kind)
	return binary.BigEndian.AppendUint32(dst, id)
}

func appendStoreRow(dst []byte, r *storeRow) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, registryVersion)
	dst = le.AppendUint64(dst, r.ingest)
	dst = le.AppendUint64(dst, r.flushed)
	dst = le.AppendUint64(dst, r.flushedLSN)
	dst = le.AppendUint32(dst, uint32(r.nextSegment))
	dst = le.AppendUint32(dst, r.nextNamespace)
	dst = le.AppendUint64(dst, r.nextIncarnation)
	dst = le.AppendUint64(dst, r.bitmapGeneration)
	dst = le.AppendUint64(dst, r.counterGen)
	dst = le.AppendUint64(dst, r.forgetNumber)
	dst = le.AppendUint64(dst, r.floor)
	return appendClockStamp(dst, r.clock)
}

func appendNamespaceRow(dst []byte, r *namespaceRow) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, registryVersion)
	dst = le.AppendUint64(dst, r.incarnation)
	dst = le.AppendUint64(dst, r.ttl)
	return append(dst, r.name...)
}

func appendSegmentRow(dst []byte, r *segmentRow) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, registryVersion)
	dst = le.AppendUint32(dst, r.namespace)
	dst = append(dst, byte(r.spanKind), byte(r.state), r.spanLog2, 0)
	dst = le.AppendUint64(dst, r.incarnation)
	dst = le.AppendUint64(dst, r.span)
	dst = le.AppendUint64(dst, r.words)
	dst = le.AppendUint64(dst, r.ingest)
	return le.AppendUint64(dst, r.closedIn)
}

func checkRow(src []byte, want int) error {
	if len(src) < 4 {
		return fmt.Errorf("row has %d bytes, want %d", len(src), want)
	}
	if v := binary.LittleEndian.Uint32(src); v != registryVersion {
		return fmt.Errorf("%w: row has version %d, want %d", ErrVersion, v, registryVersion)
	}
	if len(src) < want {
		return fmt.Errorf("row has %d bytes, want %d", len(src), want)
	}
	return nil
}

func decodeStoreRow(src []byte) (r storeRow, err error) {
	if err := checkRow(src, storeRowBytes); err != nil {
		return r, err
	}
	if len(src) != storeRowBytes {
		return r, fmt.Errorf("row has %d bytes, want %d", len(src), storeRowBytes)
	}
	le := binary.LittleEndian
	r.ingest = le.Uint64(src[4:])
	r.flushed = le.Uint64(src[12:])
	r.flushedLSN = le.Uint64(src[20:])
	r.nextSegment = segmentID(le.Uint32(src[28:]))
	r.nextNamespace = le.Uint32(src[32:])
	r.nextIncarnation = le.Uint64(src[36:])
	r.bitmapGeneration = le.Uint64(src[44:])
	r.counterGen = le.Uint64(src[52:])
	r.forgetNumber = le.Uint64(src[60:])
	r.floor = le.Uint64(src[68:])
	r.clock = decodeClockStamp(src[76:])
	if r.nextSegment == 0 || r.nextNamespace == 0 || r.nextIncarnation == 0 {
		return r, fmt.Errorf("a next id is 0")
	}
	return r, checkFloor(r.floor)
}

func decodeNamespaceRow(src []byte) (r namespaceRow, err error) {
	if err := checkRow(src, namespaceRowBytes); err != nil {
		return r, err
	}
	if n := len(src) - namespaceRowBytes; n > maxNamespaceBytes {
		return r, fmt.Errorf("namespace's name has %d bytes, at most %d", n, maxNamespaceBytes)
	}
	le := binary.LittleEndian
	r.incarnation = le.Uint64(src[4:])
	r.ttl = le.Uint64(src[12:])
	r.name = string(src[namespaceRowBytes:])
	return r, nil
}

func decodeSegmentRow(src []byte) (r segmentRow, err error) {
	if err := checkRow(src, segmentRowBytes); err != nil {
		return r, err
	}
	if len(src) != segmentRowBytes {
		return r, fmt.Errorf("row has %d bytes, want %d", len(src), segmentRowBytes)
	}
	le := binary.LittleEndian
	r.namespace = le.Uint32(src[4:])
	r.spanKind, r.state, r.spanLog2 = spanKind(src[8]), segmentState(src[9]), src[10]
	r.incarnation = le.Uint64(src[12:])
	r.span = le.Uint64(src[20:])
	r.words = le.Uint64(src[28:])
	r.ingest = le.Uint64(src[36:])
	r.closedIn = le.Uint64(src[44:])
	switch {
	case r.spanKind != spanSize:
		return r, fmt.Errorf("%w: span kind %d", ErrVersion, r.spanKind)
	case r.state != segmentOpen && r.state != segmentClosed:
		return r, fmt.Errorf("%w: segment state %d", ErrVersion, r.state)
	case src[11] != 0:
		return r, fmt.Errorf("reserved byte is %d", src[11])
	}
	return r, nil
}

// newRegistry is the registry of a new store: the default namespace, no
// segment.
func newRegistry(floor uint64) *registry {
	return &registry{
		storeRow: storeRow{
			nextSegment: 1, nextNamespace: 1, nextIncarnation: 2,
			bitmapGeneration: 1, floor: floor, clock: stampClock(),
		},
		namespaces: map[uint32]namespaceRow{0: {incarnation: 1}},
		segments:   map[segmentID]segmentRow{},
	}
}

// setSegment changes a segment's row by a record of the active log file.
func (r *registry) setSegment(id segmentID, row segmentRow) {
	r.segments[id] = row
	if r.dirty == nil {
		r.dirty = make(map[segmentID]struct{})
	}
	r.dirty[id] = struct{}{}
}

// takeChanged returns the rows as the records of the active log file have
// left them: what the flush of that file ingests. Later records must not show
// in them, for a replay meets those again.
func (r *registry) takeChanged() *registry {
	c := &registry{storeRow: r.storeRow, segments: make(map[segmentID]segmentRow, len(r.dirty))}
	for id := range r.dirty {
		c.segments[id] = r.segments[id]
	}
	clear(r.dirty)
	return c
}

// clone returns a copy that may be changed by records.
func (r *registry) clone() *registry {
	return &registry{storeRow: r.storeRow, namespaces: r.namespaces, segments: maps.Clone(r.segments)}
}

// ids returns the segments' ids in ascending order.
func (r *registry) ids() []segmentID { return slices.Sorted(maps.Keys(r.segments)) }

// words is the number of words in Pebble.
func (r *registry) words() (n uint64) {
	for _, s := range r.segments {
		n += s.words
	}
	return n
}

// newestFirst returns the segments with words in Pebble, newest first.
func (r *registry) newestFirst() (ids []segmentID) {
	for _, id := range r.ids() {
		if r.segments[id].words > 0 {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids)
	return ids
}

// open returns the segment that takes new words, and false if there is none.
func (r *registry) open() (segmentID, bool) {
	for id, s := range r.segments {
		if s.state == segmentOpen {
			return id, true
		}
	}
	return 0, false
}
