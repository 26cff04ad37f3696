package store

import (
	"encoding/binary"
	"errors"
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

	// dirty and renamed hold the segments and the namespaces whose rows the
	// active log file has changed.
	dirty   map[segmentID]struct{}
	renamed map[uint32]struct{}
	// taking are the segments that take words: the open ones.
	taking map[segmentKey]segmentID
	// listed is what a replay has read of the lists in front of a bitmap's
	// record.
	listed map[segmentID]segmentState
	// byName is made when a replay asks for the first name.
	byName map[string]uint32
}

// anyIncarnation is that of a segment whose words are looked for under each: a
// repair has salvaged them, and not whose they are.
const anyIncarnation = 0

// segmentKey is what a segment is for: one incarnation of a namespace x one
// span. There is one at a time that is open.
type segmentKey struct {
	incarnation uint64
	span        spanID
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
	leaked           uint64 // words that were forgotten, and that the counters go on counting
	floor            uint64 // URLs that the bitmap is never made too small for
	sizeSpan         uint64 // number of the size span that takes words
	dead             uint64 // words that left Pebble, and whose bits the bitmap still has
	clock            clockStamp
}

// namespaceRow is the row of one namespace. The default one is 0, "".
type namespaceRow struct {
	incarnation uint64
	ttl         int64 // ns; forever: they do not expire
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
	ends        int64  // ns of store time, when its words expire; forever: they do not
}

type spanKind uint8

const (
	_        spanKind = iota
	spanSize          // by size: a number that counts up
	spanTime          // of expiry time: the end is number << log2 width, in s
)

type segmentState uint8

const (
	_ segmentState = iota
	segmentOpen
	segmentClosed
	// segmentCounted is a closed one that the counters have: before it is
	// dropped, a build has to subtract it.
	segmentCounted
	// segmentSubtracted was counted, is no more, and has no bits: nobody looks
	// into it, whatever the clock says from then on, and it is dropped next.
	segmentSubtracted
)

// The kinds of rows: the fifth byte of their keys.
const (
	_ byte = iota
	rowStore
	rowNamespace
	rowSegment
)

const (
	registryVersion   = 3
	wordKeyBytes      = 12 // segment id, word
	rowKeyBytes       = 9  // segment id 0, kind of row, id
	storeRowBytes     = 4 + 3*8 + 2*4 + 7*8 + clockStampBytes
	namespaceRowBytes = 4 + 2*8 // and the name
	segmentRowBytes   = 4 + 4 + 4 + 6*8
	maxNamespaceBytes = 255

	// The rows of version 2 knew neither time spans nor namespaces.
	registryVersion2 = 2
	storeRowBytes2   = storeRowBytes - 2*8 - clockStampBytes + clockStampBytes2
	segmentRowBytes2 = segmentRowBytes - 8
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
	dst = le.AppendUint64(dst, r.leaked)
	dst = le.AppendUint64(dst, r.floor)
	dst = le.AppendUint64(dst, r.sizeSpan)
	dst = le.AppendUint64(dst, r.dead)
	return appendClockStamp(dst, r.clock)
}

func appendNamespaceRow(dst []byte, r *namespaceRow) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, registryVersion)
	dst = le.AppendUint64(dst, r.incarnation)
	dst = le.AppendUint64(dst, uint64(r.ttl))
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
	dst = le.AppendUint64(dst, r.closedIn)
	return le.AppendUint64(dst, uint64(r.ends))
}

// checkRow returns the row's version: with it the row has exactly want bytes,
// or want2 in version 2; or, if it ends with a name, at least so many.
func checkRow(src []byte, want, want2 int, named bool) (version uint32, err error) {
	if len(src) < 4 {
		return 0, fmt.Errorf("row has %d bytes, want %d", len(src), want)
	}
	switch version = binary.LittleEndian.Uint32(src); version {
	case registryVersion:
	case registryVersion2:
		want = want2
	default:
		return 0, fmt.Errorf("%w: row has version %d, want %d", ErrVersion, version, registryVersion)
	}
	if len(src) < want || len(src) > want && !named {
		return 0, fmt.Errorf("row has %d bytes, want %d", len(src), want)
	}
	return version, nil
}

func decodeStoreRow(src []byte) (r storeRow, err error) {
	version, err := checkRow(src, storeRowBytes, storeRowBytes2, false)
	if err != nil {
		return r, err
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
	r.leaked = le.Uint64(src[60:])
	r.floor = le.Uint64(src[68:])
	if version == registryVersion2 {
		r.clock = decodeClockStamp2(src[76:])
	} else {
		r.sizeSpan = le.Uint64(src[76:])
		r.dead = le.Uint64(src[84:])
		r.clock = decodeClockStamp(src[92:])
	}
	if r.nextSegment == 0 || r.nextNamespace == 0 || r.nextIncarnation == 0 {
		return r, fmt.Errorf("a next id is 0")
	}
	return r, checkFloor(r.floor)
}

func decodeNamespaceRow(src []byte) (r namespaceRow, err error) {
	version, err := checkRow(src, namespaceRowBytes, namespaceRowBytes, true)
	if err != nil {
		return r, err
	}
	if n := len(src) - namespaceRowBytes; n > maxNamespaceBytes {
		return r, fmt.Errorf("namespace's name has %d bytes, at most %d", n, maxNamespaceBytes)
	}
	le := binary.LittleEndian
	r.incarnation = le.Uint64(src[4:])
	r.ttl = int64(le.Uint64(src[12:]))
	if version == registryVersion2 && r.ttl == 0 {
		r.ttl = forever
	}
	r.name = string(src[namespaceRowBytes:])
	return r, checkTTL(r.ttl)
}

func decodeSegmentRow(src []byte) (r segmentRow, err error) {
	version, err := checkRow(src, segmentRowBytes, segmentRowBytes2, false)
	if err != nil {
		return r, err
	}
	le := binary.LittleEndian
	r.namespace = le.Uint32(src[4:])
	r.spanKind, r.state, r.spanLog2 = spanKind(src[8]), segmentState(src[9]), src[10]
	r.incarnation = le.Uint64(src[12:])
	r.span = le.Uint64(src[20:])
	r.words = le.Uint64(src[28:])
	r.ingest = le.Uint64(src[36:])
	r.closedIn = le.Uint64(src[44:])
	if version == registryVersion2 {
		r.ends = forever
	} else {
		r.ends = int64(le.Uint64(src[52:]))
	}
	switch {
	case r.state < segmentOpen || r.state > segmentSubtracted:
		return r, fmt.Errorf("%w: segment state %d", ErrVersion, r.state)
	case src[11] != 0:
		return r, fmt.Errorf("reserved byte is %d", src[11])
	}
	return r, r.checkSpan()
}

// checkSpan refuses a span that cannot be.
func (r *segmentRow) checkSpan() error {
	switch {
	case r.spanKind != spanSize && r.spanKind != spanTime:
		return fmt.Errorf("%w: span kind %d", ErrVersion, r.spanKind)
	case r.spanKind == spanSize && (r.spanLog2 != 0 || r.ends != forever):
		return fmt.Errorf("a size span of width 2^%d that ends at %d", r.spanLog2, r.ends)
	case r.spanKind == spanTime && (r.spanLog2 > maxSpanLog2 || r.span > maxSpanNumber(r.spanLog2)):
		return fmt.Errorf("time span %d of width 2^%d", r.span, r.spanLog2)
	case r.spanKind == spanTime && (r.ends < 0 || r.ends > r.spanID().end()):
		return fmt.Errorf("time span %d of width 2^%d ends at %d ns", r.span, r.spanLog2, r.ends)
	}
	return nil
}

// newRegistry is the registry of a new store: the default namespace, no
// segment.
func newRegistry(floor uint64, ttl int64, clock clockStamp) *registry {
	r := emptyRegistry()
	r.storeRow = storeRow{
		nextSegment: 1, nextNamespace: 1, nextIncarnation: 2,
		bitmapGeneration: 1, floor: floor, sizeSpan: 1, clock: clock,
	}
	r.namespaces[0] = namespaceRow{incarnation: 1, ttl: ttl}
	return r
}

// emptyRegistry has no rows.
func emptyRegistry() *registry {
	return &registry{
		namespaces: map[uint32]namespaceRow{}, segments: map[segmentID]segmentRow{},
		dirty: map[segmentID]struct{}{}, renamed: map[uint32]struct{}{},
		taking: map[segmentKey]segmentID{},
	}
}

func (r *segmentRow) key() segmentKey { return segmentKey{r.incarnation, r.spanID()} }

// index makes taking, and sizeSpan for the rows of version 2, in which each
// size span was one segment's.
func (r *registry) index() {
	clear(r.taking)
	for id, row := range r.segments {
		switch {
		case row.state == segmentOpen:
			r.taking[row.key()] = id
			if row.spanKind == spanSize {
				r.sizeSpan = max(r.sizeSpan, row.span)
			}
		case row.spanKind == spanSize:
			r.sizeSpan = max(r.sizeSpan, row.span+1)
		}
	}
}

// check refuses rows that cannot be together, whatever the log says on top of
// them.
func (r *registry) check() error {
	if _, ok := r.namespaces[0]; !ok {
		return errors.New("there is no default namespace")
	}
	named := make(map[string]uint32, len(r.namespaces))
	for id, row := range r.namespaces {
		if other, ok := named[row.name]; ok {
			return fmt.Errorf("namespaces %d and %d have one name, %q", min(id, other), max(id, other), row.name)
		}
		named[row.name] = id
	}
	open := make(map[segmentKey]segmentID, len(r.segments))
	for id, row := range r.segments {
		space, ok := r.namespaces[row.namespace]
		switch other, taken := open[row.key()]; {
		case !ok:
			return fmt.Errorf("segment %d is of namespace %d, which there is not", id, row.namespace)
		case row.incarnation > space.incarnation:
			return fmt.Errorf("segment %d is of incarnation %d of namespace %d, which has come to %d",
				id, row.incarnation, row.namespace, space.incarnation)
		case taken && row.state == segmentOpen:
			return fmt.Errorf("segments %d and %d are open for the same", min(id, other), max(id, other))
		case row.state == segmentOpen:
			open[row.key()] = id
		}
	}
	return nil
}

// checkNext refuses ids that are given once more.
func (r *registry) checkNext() error {
	for id := range r.segments {
		if id >= r.nextSegment {
			return fmt.Errorf("there is segment %d, and the next id is %d", id, r.nextSegment)
		}
	}
	for id, row := range r.namespaces {
		switch {
		case id >= r.nextNamespace:
			return fmt.Errorf("there is namespace %d, and the next id is %d", id, r.nextNamespace)
		case row.incarnation >= r.nextIncarnation:
			return fmt.Errorf("namespace %d is of incarnation %d, and the next is %d", id, row.incarnation, r.nextIncarnation)
		}
	}
	return nil
}

// setSegment changes a segment's row by a record of the active log file.
func (r *registry) setSegment(id segmentID, row segmentRow) {
	r.segments[id] = row
	r.dirty[id] = struct{}{}
	switch key := row.key(); {
	case row.state == segmentOpen:
		r.taking[key] = id
	case r.taking[key] == id:
		delete(r.taking, key)
	}
}

// setNamespace changes a namespace's row by a record of the active log file.
func (r *registry) setNamespace(id uint32, row namespaceRow) {
	r.namespaces[id] = row
	r.renamed[id] = struct{}{}
	r.nextNamespace = max(r.nextNamespace, id+1)
	r.nextIncarnation = max(r.nextIncarnation, row.incarnation+1)
}

// dropSegment takes a segment's row out: its words are gone, or go with it.
func (r *registry) dropSegment(id segmentID) {
	row := r.segments[id]
	if key := row.key(); r.taking[key] == id {
		delete(r.taking, key)
	}
	delete(r.segments, id)
	delete(r.dirty, id)
}

// takeChanged returns the rows as the records of the active log file have
// left them: what the flush of that file ingests. Later records must not show
// in them, for a replay meets those again.
func (r *registry) takeChanged() *registry {
	c := emptyRegistry()
	c.storeRow = r.storeRow
	for id := range r.dirty {
		c.segments[id] = r.segments[id]
	}
	for id := range r.renamed {
		c.namespaces[id] = r.namespaces[id]
	}
	clear(r.dirty)
	clear(r.renamed)
	return c
}

// clone returns a copy that may be changed by records.
func (r *registry) clone() *registry {
	return &registry{
		storeRow: r.storeRow, namespaces: maps.Clone(r.namespaces), segments: maps.Clone(r.segments),
		dirty: map[segmentID]struct{}{}, renamed: map[uint32]struct{}{}, taking: maps.Clone(r.taking),
	}
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

// live reports whether the words of a segment count: those of an incarnation
// that was dropped do not, none at or past its end, and none that was subtracted.
func (r *registry) live(row *segmentRow, now int64) bool { return !r.gone(row) && row.ends > now }

// gone reports that the words of a segment are those of a namespace that was
// dropped since, or were subtracted.
func (r *registry) gone(row *segmentRow) bool {
	return row.state == segmentSubtracted ||
		row.incarnation != anyIncarnation && row.incarnation != r.namespaces[row.namespace].incarnation
}

// liveWords is the number of words in Pebble that count.
func (r *registry) liveWords(now int64) (n int64) {
	for _, row := range r.segments {
		if r.live(&row, now) {
			n += int64(row.words)
		}
	}
	return n
}

// capEnds has no segment end later than a TTL of its span from the given store
// time: what a wrong clock has stamped. It returns the new ends of those that
// it changes.
func (r *registry) capEnds(at int64) map[segmentID]int64 {
	capped := map[segmentID]int64{}
	for id, row := range r.segments {
		if ends := at + row.spanID().longestTTL(); row.spanKind == spanTime && row.ends > ends {
			row.ends = ends
			r.setSegment(id, row)
			capped[id] = ends
		}
	}
	return capped
}
