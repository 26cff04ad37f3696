package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"dedupstore/wal"
)

// A codec's bytes decode to what they were made of, and encode to the same
// bytes again. Bytes that are cut short, too many, or damaged in a reserved
// place are refused.

// changed returns src with some bytes replaced.
func changed(src []byte, at int, with ...byte) []byte {
	b := slices.Clone(src)
	copy(b[at:], with)
	return b
}

func someStamp(rng *rand.Rand) (c clockStamp) {
	c.store, c.wall, c.boot = rng.Int64(), -rng.Int64(), rng.Int64()
	for i := range c.bootID {
		c.bootID[i] = byte(rng.Uint32())
	}
	return c
}

func TestStoreRow(t *testing.T) {
	rng := seeded(t)
	for range 100 {
		want := storeRow{
			ingest: rng.Uint64(), flushed: rng.Uint64(), flushedLSN: rng.Uint64(),
			nextSegment: segmentID(rng.Uint32() | 1), nextNamespace: rng.Uint32() | 1, nextIncarnation: rng.Uint64() | 1,
			bitmapGeneration: rng.Uint64(), counterGen: rng.Uint64(), leaked: rng.Uint64(),
			floor: 1 + rng.Uint64N(MaxExpectedURLs), sizeSpan: rng.Uint64(), dead: rng.Uint64(), clock: someStamp(rng),
		}
		b := appendStoreRow(nil, &want)
		got, err := decodeStoreRow(b)
		if err != nil || got != want || len(b) != storeRowBytes {
			t.Fatalf("got %+v, %v of %d bytes, want %+v", got, err, len(b), want)
		}
		for n := range b {
			if _, err := decodeStoreRow(b[:n]); err == nil {
				t.Fatalf("%d of %d bytes decode", n, len(b))
			}
		}
		for what, bad := range map[string][]byte{
			"more bytes": append(slices.Clone(b), 0), "next segment 0": changed(b, 28, 0, 0, 0, 0),
			"next namespace 0":   changed(b, 32, 0, 0, 0, 0),
			"next incarnation 0": changed(b, 36, 0, 0, 0, 0, 0, 0, 0, 0),
			"floor 0":            changed(b, 68, 0, 0, 0, 0, 0, 0, 0, 0),
			"floor too high":     changed(b, 74, 1),
		} {
			if _, err := decodeStoreRow(bad); err == nil {
				t.Errorf("%s: decodes", what)
			}
		}
		_, err = decodeStoreRow(changed(b, 0, registryVersion+1))
		is(t, "a later version", err, ErrVersion)
	}
}

func TestNamespaceRow(t *testing.T) {
	for _, name := range []string{"", "a", strings.Repeat("n", maxNamespaceBytes)} {
		want := namespaceRow{incarnation: math.MaxUint64, ttl: 7, name: name}
		b := appendNamespaceRow(nil, &want)
		got, err := decodeNamespaceRow(b)
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		for n := range namespaceRowBytes {
			if _, err := decodeNamespaceRow(b[:n]); err == nil {
				t.Fatalf("%d bytes decode", n)
			}
		}
		_, err = decodeNamespaceRow(changed(b, 0, registryVersion+1))
		is(t, "a later version", err, ErrVersion)
	}
	long := appendNamespaceRow(nil, &namespaceRow{ttl: 1, name: strings.Repeat("n", maxNamespaceBytes+1)})
	if _, err := decodeNamespaceRow(long); err == nil {
		t.Error("a name that is too long decodes")
	}
}

func TestSegmentRow(t *testing.T) {
	rng := seeded(t)
	for _, state := range []segmentState{segmentOpen, segmentClosed, segmentCounted, segmentSubtracted} {
		want := segmentRow{
			namespace: rng.Uint32(), incarnation: rng.Uint64(), spanKind: spanSize, state: state,
			span: rng.Uint64(), words: rng.Uint64(), ingest: rng.Uint64(), closedIn: rng.Uint64(), ends: forever,
		}
		if state != segmentOpen {
			want.spanKind, want.spanLog2, want.span = spanTime, 12, 400_000
			want.ends = want.spanID().end() - 5
		}
		b := appendSegmentRow(nil, &want)
		got, err := decodeSegmentRow(b)
		if err != nil || got != want || len(b) != segmentRowBytes {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		for n := range b {
			if _, err := decodeSegmentRow(b[:n]); err == nil {
				t.Fatalf("%d of %d bytes decode", n, len(b))
			}
		}
		for what, bad := range map[string][]byte{
			"more bytes": append(slices.Clone(b), 0), "reserved byte": changed(b, 11, 1),
		} {
			if _, err := decodeSegmentRow(bad); err == nil {
				t.Errorf("%s: decodes", what)
			}
		}
		for what, bad := range map[string][]byte{
			"version": changed(b, 0, registryVersion+1), "span kind 0": changed(b, 8, 0), "span kind": changed(b, 8, byte(spanTime)+1),
			"state 0": changed(b, 9, 0), "state": changed(b, 9, byte(segmentSubtracted)+1),
		} {
			_, err := decodeSegmentRow(bad)
			is(t, what, err, ErrVersion)
		}
	}
}

// TestKeys checks that keys of words are in (segment, word) order, and rows
// before them all.
func TestKeys(t *testing.T) {
	row := appendRowKey(nil, rowSegment, math.MaxUint32)
	if len(row) != rowKeyBytes {
		t.Errorf("a row's key has %d bytes", len(row))
	}
	last := row
	for _, id := range []segmentID{1, 2, 255, 256, math.MaxUint32} {
		for _, w := range []word{1, 2, 255, 256, 1 << 40, math.MaxUint64} {
			k := appendWordKey(nil, id, w)
			if bytes.Compare(last, k) >= 0 {
				t.Errorf("key of segment %d, word %d is not above the one before", id, w)
			}
			gotID, gotWord, ok := decodeWordKey(k)
			if !ok || gotID != id || gotWord != w {
				t.Errorf("got segment %d, word %d, %v, want %d, %d", gotID, gotWord, ok, id, w)
			}
			last = k
		}
	}
	for _, k := range [][]byte{nil, row, append(last, 0)} {
		if _, _, ok := decodeWordKey(k); ok {
			t.Errorf("key %x counts as a word's", k)
		}
	}
}

// TestRegistryRows writes a registry as rows and loads it again.
func TestRegistryRows(t *testing.T) {
	want := newRegistry(100, forever, clockStamp{})
	want.ingest, want.flushed, want.nextSegment = 9, 5, 3
	want.namespaces[7] = namespaceRow{incarnation: 3, ttl: 5, name: "seven"}
	want.sizeSpan, want.dead = 4, 6
	want.segments[1] = segmentRow{incarnation: 1, spanKind: spanSize, span: 3, state: segmentClosed, words: 10, closedIn: 2, ends: forever}
	want.segments[2] = segmentRow{incarnation: 1, spanKind: spanSize, span: 4, state: segmentOpen, words: 5, ends: forever}
	got := emptyRegistry()
	var last []byte
	must(t, want.rows(func(key, value []byte) error {
		if bytes.Compare(last, key) >= 0 {
			t.Errorf("row %x is not above the one before", key)
		}
		last = key
		return got.load(key, value)
	}))
	want.index()
	got.index()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.words() != 15 || !slices.Equal(got.ids(), []segmentID{1, 2}) {
		t.Errorf("%d words, ids %v", got.words(), got.ids())
	}
	if id, ok := got.taking[segmentKey{1, spanID{kind: spanSize, number: 4}}]; id != 2 || !ok {
		t.Errorf("the open segment is %d, %v", id, ok)
	}
	is(t, "a kind of row of a later version", got.load(appendRowKey(nil, rowSegment+1, 0), nil), ErrVersion)
	if got.load([]byte{0, 0, 0, 0}, nil) == nil {
		t.Error("a key cut short loads")
	}
}

// TestTakeChanged takes the rows that one log file has changed. What a later
// one changes is not in them.
func TestTakeChanged(t *testing.T) {
	r := newRegistry(100, forever, clockStamp{})
	r.setSegment(1, segmentRow{words: 1, state: segmentOpen, spanKind: spanSize})
	r.segments[2] = segmentRow{words: 2}
	c := r.takeChanged()
	r.setSegment(1, segmentRow{words: 1, state: segmentClosed, spanKind: spanSize})
	if len(c.segments) != 1 || c.segments[1].state != segmentOpen {
		t.Errorf("got %+v", c.segments)
	}
	c.ingest, c.flushed = 7, 3
	row := c.segments[1]
	row.words, row.ingest = 50, 7
	c.segments[1] = row
	r.apply(c)
	if got := r.segments[1]; got.words != 50 || got.ingest != 7 || got.state != segmentClosed || r.ingest != 7 || r.flushed != 3 {
		t.Errorf("after apply: %+v, ingest %d, flushed %d", got, r.ingest, r.flushed)
	}
	if c = r.takeChanged(); len(c.segments) != 1 || c.segments[1].state != segmentClosed {
		t.Errorf("got %+v, want what changed since", c.segments)
	}
	if c = r.takeChanged(); len(c.segments) != 0 {
		t.Errorf("got %+v, want nothing", c.segments)
	}
}

func TestAddsRecord(t *testing.T) {
	words := []word{1, math.MaxUint64, 42}
	b := beginAdds(nil, 9)
	for _, w := range words {
		b = appendWord(b, w)
	}
	a, err := decodeAdds(b)
	if err != nil || a.segment != 9 || a.len() != 3 {
		t.Fatalf("got %+v, %v", a, err)
	}
	for i, w := range words {
		if a.word(i) != w {
			t.Errorf("word %d: got %d, want %d", i, a.word(i), w)
		}
	}
	for n := range b {
		if _, err := decodeAdds(b[:n]); (err == nil) != (n > addsHeaderBytes && n%8 == 0) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	for what, bad := range map[string][]byte{
		"segment 0": changed(b, 0, 0), "reserved": changed(b, 4, 1), "word 0": changed(b, 8, 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		if _, err := decodeAdds(bad); err == nil {
			t.Errorf("%s: decodes", what)
		}
	}
}

func TestOtherRecords(t *testing.T) {
	row := segmentRow{namespace: 3, incarnation: 4, spanKind: spanTime, spanLog2: 5, span: 6, state: segmentOpen}
	row.ends = row.spanID().end()
	made := appendMade(nil, 2, &row)
	if id, got, err := decodeMade(made); err != nil || id != 2 || got != row || len(made) != madeBytes {
		t.Errorf("made: got %d, %+v, %v", id, got, err)
	}
	closed := appendClosed(nil, 2)
	if id, err := decodeClosed(closed); err != nil || id != 2 || len(closed) != closedBytes {
		t.Errorf("closed: got %d, %v", id, err)
	}
	stamp := someStamp(seeded(t))
	ingest := appendIngest(nil, 8, 9, stamp)
	if n, f, c, err := decodeIngest(ingest); err != nil || n != 8 || f != 9 || c != stamp || len(ingest) != ingestBytes {
		t.Errorf("ingest: got %d, %d, %+v, %v", n, f, c, err)
	}
	shut := appendShut(nil, row.spanID())
	if id, err := decodeShut(shut); err != nil || id != row.spanID() || len(shut) != shutBytes {
		t.Errorf("shut: got %+v, %v", id, err)
	}
	named := namespaceRow{incarnation: 5, ttl: int64(time.Hour), name: "a name"}
	if id, got, err := decodeNamed(appendNamed(nil, 7, &named)); err != nil || id != 7 || got != named {
		t.Errorf("named: got %d, %+v, %v", id, got, err)
	}
	for what, bad := range map[string][]byte{
		"no incarnation": appendNamed(nil, 7, &namespaceRow{ttl: 1}),
		"no TTL":         appendNamed(nil, 7, &namespaceRow{incarnation: 1}),
		"reserved bytes": changed(appendNamed(nil, 7, &named), 4, 1),
		"a long name":    append(appendNamed(nil, 7, &named), make([]byte, maxNamespaceBytes)...),
		"cut short":      appendNamed(nil, 7, &namespaceRow{incarnation: 1, ttl: 1})[:namedBytes-1],
	} {
		if _, _, err := decodeNamed(bad); err == nil {
			t.Errorf("named: %s: decodes", what)
		}
	}
	accepted := clockStamp{store: 1 << 60, wall: 3, boot: 4, bootID: [16]byte{5}, left: 6}
	clock := appendClockStamp(nil, accepted)
	if got, err := decodeClock(clock); err != nil || got != accepted || len(clock) != clockBytes {
		t.Errorf("clock: got %+v, %v", got, err)
	}
	if _, err := decodeClock(appendClockStamp(nil, clockStamp{store: -1})); err == nil {
		t.Error("clock: a time before 1970 decodes")
	}
	decoders := map[string]struct {
		good   []byte
		decode func([]byte) error
	}{
		"shut":   {shut, func(b []byte) error { _, err := decodeShut(b); return err }},
		"clock":  {clock, func(b []byte) error { _, err := decodeClock(b); return err }},
		"made":   {made, func(b []byte) error { _, _, err := decodeMade(b); return err }},
		"closed": {closed, func(b []byte) error { _, err := decodeClosed(b); return err }},
		"ingest": {ingest, func(b []byte) error { _, _, _, err := decodeIngest(b); return err }},
	}
	for kind, d := range decoders {
		for n := range d.good {
			if d.decode(d.good[:n]) == nil && !(kind == "ingest" && n == ingestBytes2) {
				t.Errorf("%s: %d of %d bytes decode", kind, n, len(d.good))
			}
		}
		if d.decode(append(slices.Clone(d.good), 0)) == nil {
			t.Errorf("%s: a byte too many decodes", kind)
		}
	}
	for at := 10; at < 16; at++ {
		if decoders["made"].decode(changed(made, at, 1)) == nil {
			t.Errorf("made: reserved byte %d", at)
		}
	}
	is(t, "made: span kind", decoders["made"].decode(changed(made, 8, byte(spanTime)+1)), ErrVersion)
	for what, bad := range map[string][]byte{"made": changed(made, 0, 0), "closed": changed(closed, 0, 0)} {
		if decoders[what].decode(bad) == nil {
			t.Errorf("%s: segment 0 decodes", what)
		}
	}
	if decoders["closed"].decode(changed(closed, 5, 1)) == nil {
		t.Error("closed: reserved bytes")
	}
}

func TestIdentity(t *testing.T) {
	for _, o := range []Options{{}, {Hash: HashXXH64, KeyProfile: strings.Repeat("p", maxKeyProfileBytes)}} {
		o = o.withDefaults()
		d, err := newIdentity(&o)
		must(t, err)
		b := appendIdentity(nil, d)
		got, fault := decodeIdentity(b)
		if fault != nil || !reflect.DeepEqual(got, d) || len(b) != identityBytes {
			t.Fatalf("got %+v, %+v, want %+v", got, fault, d)
		}
		if again := appendIdentity(nil, got); !bytes.Equal(again, b) {
			t.Error("what was decoded encodes to other bytes")
		}
		for n := range b {
			if _, fault := decodeIdentity(b[:n]); fault == nil {
				t.Errorf("%d of %d bytes decode", n, len(b))
			}
		}
		for i := range b {
			for bit := range 8 {
				if _, fault := decodeIdentity(changed(b, i, b[i]^1<<bit)); fault == nil {
					t.Errorf("bit %d of byte %d does not matter", bit, i)
				}
			}
		}
	}
}

// TestIdentityFaults tells three failures apart, each where it is: the magic,
// the version, the checksum; and what a checksum does not find.
func TestIdentityFaults(t *testing.T) {
	d, err := newIdentity(defaultOptions())
	must(t, err)
	good := appendIdentity(nil, d)
	resum := func(b []byte) []byte {
		binary.LittleEndian.PutUint64(b[sumAt:], xxhash.Sum64(b[:sumAt]))
		return b
	}
	for _, tc := range []struct {
		name   string
		b      []byte
		offset int64
		err    error
	}{
		{"empty", nil, 0, nil},
		{"magic", changed(good, 0, 'x'), 0, nil},
		{"version", changed(good, 8, identityVersion+1), 8, ErrVersion},
		{"checksum", changed(good, madeAt, good[madeAt]^1), sumAt, nil},
		{"flags", resum(changed(good, 12, 1)), 12, ErrVersion},
		{"hash 0", resum(changed(good, hashAt, 0)), hashAt, ErrVersion},
		{"hash", resum(changed(good, hashAt, byte(HashXXH64)+1)), hashAt, ErrVersion},
		{"reserved", resum(changed(good, hashAt+7, 1)), hashAt + 1, nil},
		{"another key", resum(changed(good, hashKeyAt, good[hashKeyAt]^1)), keyCheckAt, nil},
	} {
		_, fault := decodeIdentity(tc.b)
		if fault == nil || fault.offset != tc.offset || !errors.Is(fault.err, tc.err) {
			t.Errorf("%s: got %+v, want offset %d and error %v", tc.name, fault, tc.offset, tc.err)
		}
	}
}

func TestClockStamp(t *testing.T) {
	want := someStamp(seeded(t))
	want.left, want.latest = 1, 2
	b := appendClockStamp(nil, want)
	if got := decodeClockStamp(b); got != want || len(b) != clockStampBytes {
		t.Errorf("got %+v, want %+v", got, want)
	}
	meta := logMeta(want)
	if got := decodeClockStamp(meta[:]); got != want {
		t.Errorf("in a log file's header: got %+v, want %+v", got, want)
	}
	if got := decodeClockStamp2(b); got.left != 0 || got.store != want.store || got.bootID != want.bootID {
		t.Errorf("without what version 2 did not have: got %+v, want %+v", got, want)
	}
}

func TestListRecord(t *testing.T) {
	for _, want := range [][]segmentID{{1}, {1, 2, math.MaxUint32}} {
		got, err := decodeList(appendList(nil, want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	many := make([]segmentID, maxListed+1)
	for i := range many {
		many[i] = segmentID(i + 1)
	}
	for what, bad := range map[string][]byte{
		"empty": {}, "odd": {1, 0, 0, 0, 2}, "zero": appendList(nil, []segmentID{0}),
		"twice": appendList(nil, []segmentID{3, 3}), "not in order": appendList(nil, []segmentID{3, 2}),
		"too many": appendList(nil, many),
	} {
		if _, err := decodeList(bad); err == nil {
			t.Errorf("%s: decodes", what)
		}
	}
}

// TestReplayBitmap has the records of two switches, and what a crash leaves of
// a third, replayed twice: the states are those of the last whole one.
func TestReplayBitmap(t *testing.T) {
	r := newRegistry(1, forever, clockStamp{})
	for id := segmentID(1); id <= 5; id++ {
		r.setSegment(id, segmentRow{state: segmentClosed, words: 1, spanKind: spanSize, ends: forever})
	}
	r.nextSegment = 9
	m := &memtable{}
	record := func(kind wal.Kind, payload []byte) {
		t.Helper()
		if err := r.replay(m, wal.Record{Kind: kind, Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		record(recordCounted, appendList(nil, []segmentID{1, 2, 3, 7})) // 7 was dropped
		record(recordBitmap, appendBitmap(nil, bitmapRecord{5, 5, 1, 1}))
		record(recordCounted, appendList(nil, []segmentID{2, 4}))
		record(recordGone, appendList(nil, []segmentID{1}))
		record(recordBitmap, appendBitmap(nil, bitmapRecord{6, 6, 2, 2}))
		record(recordCounted, appendList(nil, []segmentID{5}))
		record(recordFloor, appendFloor(nil, 7))
		want := map[segmentID]segmentState{
			1: segmentSubtracted, 2: segmentCounted, 3: segmentClosed, 4: segmentCounted, 5: segmentClosed,
		}
		for id, state := range want {
			if got := r.segments[id].state; got != state {
				t.Errorf("segment %d is %v, want %v", id, got, state)
			}
		}
		if r.bitmapGeneration != 6 || r.counterGen != 6 || r.leaked != 2 || r.dead != 2 {
			t.Errorf("got %+v", r.storeRow)
		}
	}
	if err := r.replay(m, wal.Record{Kind: recordCounted, Payload: appendList(nil, []segmentID{9})}); err == nil {
		t.Error("a segment that was never made is counted")
	}
	record(recordBitmap, appendBitmap(nil, bitmapRecord{generation: 6}))
	if r.segments[2].state != segmentClosed || r.segments[1].state != segmentSubtracted || r.counterGen != 0 {
		t.Errorf("without counters: %+v", r.segments)
	}
}
