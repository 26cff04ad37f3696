package store

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/counting"
	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

var updateFormat = flag.Bool("update", false, "write the hex dumps of docs/FORMAT.md anew")

const formatPath = "../docs/FORMAT.md"

// A field is a part of an encoding, as docs/FORMAT.md names it.
type field struct {
	bytes int
	name  string
}

// dump is an encoding with the names of its fields, 16 bytes a line: a golden
// file. The fields must add up to it.
func dump(t *testing.T, base int, b []byte, fields ...field) string {
	t.Helper()
	var out strings.Builder
	at := 0
	for _, f := range fields {
		if at+f.bytes > len(b) {
			t.Fatalf("field %q ends at %d, the encoding at %d", f.name, at+f.bytes, len(b))
		}
		name := f.name
		for from := at; from < at+f.bytes; from += 16 {
			part := b[from:min(from+16, at+f.bytes)]
			if from > at && allZero(b[from:at+f.bytes]) && at+f.bytes-from > 16 {
				fmt.Fprintf(&out, "%04x  00 ...%40s  zeros up to %04x\n", base+from, "", base+at+f.bytes)
				break
			}
			line := fmt.Sprintf("%04x  %-47s  %s", base+from, fmt.Sprintf("% x", part), name)
			out.WriteString(strings.TrimRight(line, " ") + "\n")
			name = ""
		}
		at += f.bytes
	}
	if at != len(b) {
		t.Fatalf("the fields end at %d, the encoding at %d", at, len(b))
	}
	return out.String()
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// The values that the dumps are made of.
var (
	formatIdentity = &identity{
		id: [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf},
		hasher: hasher{
			hash: HashSipHash, k0: 0x0706050403020100, k1: 0x0f0e0d0c0b0a0908, mix: 0x0123456789abcdef,
		},
		profile: "none/1",
		made:    1_767_225_600_000_000_000, // 2026-01-01 00:00:00 UTC
	}
	formatClock = clockStamp{
		store: 1_767_225_600_000_000_000, wall: 1_767_225_600_000_000_000, boot: 3_600_000_000_000,
		bootID: [16]byte{0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf},
	}
	formatSegment = segmentRow{
		incarnation: 1, spanKind: spanSize, state: segmentClosed, span: 1, words: 2, ingest: 2, closedIn: 1, ends: forever,
	}
	formatTimeSegment = segmentRow{
		namespace: 1, incarnation: 2, spanKind: spanTime, state: segmentOpen, spanLog2: 16, span: 27005,
		words: 1000, ingest: 2, ends: 27005 << 16 * int64(time.Second),
	}
	formatNamespace = namespaceRow{incarnation: 2, ttl: int64(30 * 24 * time.Hour), name: "crawl-17"}
	formatURLs      = []string{"https://example.org/", "https://example.org/a"}
)

func formatWords() []word {
	key := formatIdentity.hasher.incarnationKey(1)
	words := make([]word, len(formatURLs))
	for i, url := range formatURLs {
		words[i] = wordOf(key, formatIdentity.hasher.digest(url))
	}
	return words
}

func clockFields(indent string) []field {
	return []field{
		{8, indent + "store time: ns since 1970"},
		{8, indent + "wall clock: ns since 1970"},
		{8, indent + "boot clock: ns"},
		{16, indent + "boot id"},
		{4, indent + "ms until a gap is believed: 0"},
		{4, indent + "wall clock in that time: 0"},
	}
}

func logHeaderFields(first, chain, sealed string) []field {
	return concat([]field{
		{8, `magic "DEDUPWAL"`},
		{4, "version 1"},
		{4, "flags"},
		{16, "store id"},
		{8, "file number"},
		{8, first},
		{8, chain},
		{8, sealed},
	}, clockFields("meta: "), []field{{16, "meta: unused"}, {8, "checksum of 0000 to 007f"}})
}

func frameFields(what string, kind string, payload []field, padding int) []field {
	fields := concat([]field{
		{2, what + ": magic"},
		{1, "kind " + kind},
		{1, "reserved"},
		{4, "payload bytes"},
		{8, "LSN"},
		{8, "synced LSN"},
		{8, "checksum of the frame before"},
		{8, "checksum of this frame but for itself"},
	}, payload)
	if padding > 0 {
		fields = append(fields, field{padding, "padding"})
	}
	return fields
}

func concat(parts ...[]field) (all []field) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

var (
	madeFields = []field{
		{4, "  segment"},
		{4, "  namespace"},
		{1, "  span kind 1: by size"},
		{1, "  log2 of the span's width: 0"},
		{6, "  reserved"},
		{8, "  incarnation"},
		{8, "  span"},
	}
	addsFields   = []field{{4, "  segment"}, {4, "  reserved"}, {8, "  word of " + formatURLs[0]}, {8, "  word of " + formatURLs[1]}}
	closedFields = []field{{4, "  segment"}, {4, "  reserved"}}
	shutFields   = []field{{1, "  span kind 2: of time"}, {1, "  log2 of the span's width"}, {6, "  reserved"}, {8, "  span: it ends at span << log2 s"}}
	namedFields  = []field{{4, "  namespace"}, {4, "  reserved"}, {8, "  incarnation"}, {8, "  time to live: ns"}, {8, "  name"}}
	forgetFields = []field{{4, "  segment that the words were live in"}, {4, "  reserved"}, {8, "  word of " + formatURLs[0]}}
	clockRecord  = clockFields("  ")
	bitmapFields = []field{{8, "  generation"}, {8, "  counter generation, 0: none"}, {8, "  words leaked"}, {8, "  words dead"}}
	floorFields  = []field{{8, "  URLs"}}
	ingestFields = concat([]field{{8, "  ingest number"}, {8, "  flushed log file"}}, clockFields("  "))
)

// logFiles makes the log that a store makes which is created, takes two URLs,
// closes their segment, is flushed, ends a build and is given a floor: two files.
func logFiles(t *testing.T) (files [2][]byte) {
	t.Helper()
	fsys := vfs.NewMem()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log, err := wal.Create(fsys, "", wal.Start{File: 1, FirstLSN: 1, Meta: logMeta(formatClock)},
		wal.Options{StoreID: formatIdentity.id})
	must(err)
	log.Append(recordMade, appendMade(nil, 1, &formatSegment))
	adds := beginAdds(nil, 1)
	for _, w := range formatWords() {
		adds = appendWord(adds, w)
	}
	must(log.WaitSynced(log.Append(recordAdds, adds)))
	log.Append(recordClosed, appendClosed(nil, 1))
	must(log.Prepare(logMeta(formatClock)))
	log.Switch()
	log.Append(recordIngest, appendIngest(nil, 2, 1, formatClock))
	log.Append(recordCounted, appendList(nil, []segmentID{1, 4}))
	log.Append(recordGone, appendList(nil, []segmentID{3}))
	log.Append(recordBitmap, appendBitmap(nil, bitmapRecord{generation: 2, counterGen: 2, leaked: 7, dead: 9}))
	log.Append(recordFloor, appendFloor(nil, 1_000_000))
	log.Append(recordNamed, appendNamed(nil, 1, &formatNamespace))
	log.Append(recordShut, appendShut(nil, spanID{spanTime, 16, 27005}))
	log.Append(recordForgets, appendWord(beginAdds(nil, 1), formatWords()[0]))
	log.Append(recordClock, appendClockStamp(nil, formatClock))
	must(log.Close())
	for i := range files {
		f, err := fsys.Open(fmt.Sprintf("%010d.log", i+1))
		must(err)
		info, err := f.Stat()
		must(err)
		files[i] = make([]byte, info.Size())
		_, err = f.ReadAt(files[i], 0)
		must(err)
		must(f.Close())
	}
	return files
}

func slotFields(name string) []field {
	return []field{
		{8, name + `: magic "DDFILTER"`},
		{4, "version 2"},
		{4, "flags"},
		{16, "store id"},
		{8, "generation"},
		{8, "ingest number"},
		{8, "blocks"},
		{4, "probes"},
		{4, "reserved"},
		{8, "seed"},
		{8, "capacity, words"},
		{8, "ones: bits set"},
		{8, "sequence"},
		{8, "checksum of the page sums"},
		{8, "checksum of the 104 bytes before"},
	}
}

// bitmapFile makes the smallest bitmap, with the bits of two words.
func bitmapFile(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), bitmapName(1))
	f, err := mmapfilter.Create(mmapfilter.Files, path, mmapfilter.Header{
		StoreID: formatIdentity.id, Generation: 1, Params: mmapfilter.ParamsFor(2000, formatIdentity.hasher.mix),
	})
	if err != nil {
		t.Fatal(err)
	}
	words := formatWords()
	if words[0] > words[1] {
		words[0], words[1] = words[1], words[0]
	}
	if err := f.SetSorted(words); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(2); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func segmentFields(kind, state, log2, closed, end string) []field {
	return []field{
		{4, "value: version 3"},
		{4, "namespace"},
		{1, kind},
		{1, state},
		{1, log2},
		{1, "reserved"},
		{8, "incarnation"},
		{8, "span"},
		{8, "words in Pebble"},
		{8, "last ingest that touched it"},
		{8, closed},
		{8, end},
	}
}

// countersDump makes the smallest counters, with those of two words.
func countersDump(t *testing.T) string {
	t.Helper()
	var file bytes.Buffer
	words := formatWords()
	slices.Sort(words)
	g := counting.Geometry{Blocks: 64, Probes: 7, Seed: formatIdentity.hasher.mix}
	_, err := counting.Transform(t.Context(), counting.Job{
		Header: counting.Header{StoreID: formatIdentity.id, Generation: 2, Geometry: g},
		Plus:   []counting.Words{counting.SliceWords(words)}, New: &file,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := file.Bytes()
	const header, page = 80, 16 << 10
	counters := header + 256*int(fastrange(words[0], g.Blocks))
	return dump(t, 0, b[:header],
		field{8, `magic "DDCOUNTS"`}, field{4, "version 1"}, field{4, "flags"}, field{16, "store id"},
		field{8, "generation"}, field{8, "last forget subtracted: none"}, field{8, "blocks"}, field{4, "probes"},
		field{4, "reserved"}, field{8, "seed"}, field{8, "checksum of 0000 to 0047"}) +
		dump(t, counters, b[counters:counters+256], field{256, fmt.Sprintf("counters of block %d", (counters-header)/256)}) +
		dump(t, header+page, b[header+page:],
			field{8, "checksum of the page"}, field{8, "words: added less subtracted"}, field{8, "counters above 0"},
			field{8, "counters of 15"}, field{8, "checksum of the trailer"})
}

// formatDumps makes every dump of docs/FORMAT.md.
func formatDumps(t *testing.T) map[string]string {
	t.Helper()
	logs := logFiles(t)
	bitmap := bitmapFile(t)
	first := formatWords()[0]
	block := 4096 + 64*int(fastrange(first, 64))
	row := storeRow{
		ingest: 2, flushed: 1, flushedLSN: 4, nextSegment: 2, nextNamespace: 1, nextIncarnation: 2,
		bitmapGeneration: 1, floor: 2000, sizeSpan: 2, clock: formatClock,
	}
	namespace := namespaceRow{incarnation: 1, ttl: forever}
	return map[string]string{
		"identity": dump(t, 0, appendIdentity(nil, formatIdentity),
			field{8, `magic "dedupSTR"`},
			field{4, "version 1"},
			field{4, "flags"},
			field{16, "store id"},
			field{1, "hash 1: SipHash-2-4"},
			field{7, "reserved"},
			field{16, "hash key"},
			field{8, "word key"},
			field{8, `key check: the digest of "dedupstore"`},
			field{64, `key profile "none/1"`},
			field{8, "made: ns since 1970"},
			field{8, "checksum of 0000 to 008f"},
		),
		"log file 1": dump(t, 0, logs[0], concat(
			logHeaderFields("first LSN 1: the file was created", "chain: nothing before", "sealed end: nothing before"),
			frameFields("made", "17", madeFields, 0),
			frameFields("adds", "16", addsFields, 0),
			frameFields("closed", "18", closedFields, 0),
			frameFields("switch", "2", []field{{8, "  next file"}}, 0),
		)...),
		"log file 2": dump(t, 0, logs[1], concat(
			logHeaderFields("first LSN 0: the file was prepared", "chain", "sealed end"),
			frameFields("ingest", "19", ingestFields, 0),
			frameFields("counted", "26", []field{{4, "  segment"}, {4, "  segment"}}, 0),
			frameFields("gone", "27", []field{{4, "  segment"}}, 4),
			frameFields("bitmap", "20", bitmapFields, 0),
			frameFields("floor", "21", floorFields, 0),
			frameFields("named", "24", namedFields, 0),
			frameFields("shut", "22", shutFields, 0),
			frameFields("forgets", "23", forgetFields, 0),
			frameFields("clock", "25", clockRecord, 0),
			frameFields("sync mark", "1", nil, 0),
		)...),
		"bitmap headers": dump(t, 0, bitmap[:112], slotFields("even copy")...) +
			dump(t, 2048, bitmap[2048:2048+112], slotFields("odd copy")...),
		"bitmap sums":  dump(t, 8192, bitmap[8192:], field{8, "sum of the page from 1000 to 1fff"}),
		"counters":     countersDump(t),
		"bitmap block": dump(t, block, bitmap[block:block+64], field{64, fmt.Sprintf("block %d", (block-4096)/64)}),
		"word key": dump(t, 0, appendWordKey(nil, 1, first),
			field{4, "segment, big-endian"}, field{8, "word, big-endian"}),
		"store row": dump(t, 0, appendRowKey(nil, rowStore, 0),
			field{4, "key: segment 0"}, field{1, "row kind 1: the store"}, field{4, "id 0"}) +
			dump(t, 0, appendStoreRow(nil, &row), concat([]field{
				{4, "value: version 3"},
				{8, "last ingest number"},
				{8, "flushed log file"},
				{8, "last LSN of that file"},
				{4, "next segment id"},
				{4, "next namespace id"},
				{8, "next incarnation"},
				{8, "generation of the bitmap"},
				{8, "generation of the counters: none"},
				{8, "forgotten words that the counters count: none"},
				{8, "floor: URLs that the bitmap is made for at least"},
				{8, "size span that takes words"},
				{8, "words that left, and whose bits the bitmap has"},
			}, clockFields(""))...),
		"namespace row": dump(t, 0, appendRowKey(nil, rowNamespace, 0),
			field{4, "key: segment 0"}, field{1, "row kind 2: a namespace"}, field{4, "namespace id, big-endian"}) +
			dump(t, 0, appendNamespaceRow(nil, &namespace),
				field{4, "value: version 3"}, field{8, "incarnation"}, field{8, "time to live: for ever"}),
		"namespace row with a name": dump(t, 0, appendRowKey(nil, rowNamespace, 1),
			field{4, "key: segment 0"}, field{1, "row kind 2: a namespace"}, field{4, "namespace id, big-endian"}) +
			dump(t, 0, appendNamespaceRow(nil, &formatNamespace),
				field{4, "value: version 3"}, field{8, "incarnation"}, field{8, "time to live: 30 days, in ns"}, field{8, `name "crawl-17"`}),
		"segment row of a time span": dump(t, 0, appendRowKey(nil, rowSegment, 2),
			field{4, "key: segment 0"}, field{1, "row kind 3: a segment"}, field{4, "segment id, big-endian"}) +
			dump(t, 0, appendSegmentRow(nil, &formatTimeSegment), segmentFields(
				"span kind 2: of time", "state 1: open", "log2 of the span's width: 2^16 s", "log file in which it closed: none yet",
				"end: ns since 1970")...),
		"segment row": dump(t, 0, appendRowKey(nil, rowSegment, 1),
			field{4, "key: segment 0"}, field{1, "row kind 3: a segment"}, field{4, "segment id, big-endian"}) +
			dump(t, 0, appendSegmentRow(nil, &formatSegment), segmentFields(
				"span kind 1: by size", "state 2: closed", "log2 of the span's width: 0", "log file in which it closed", "end: never")...),
		"CREATING": creatingText,
		"SNAPSHOT": string(appendOrigin(nil, &origin{
			Format: originFormat, Made: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), LSN: 4711, URLs: 20_000_000, Bitmap: 3,
		})),
		"LOCK": "pid 4711\nhost crawler-1\nsince 2026-01-01T00:00:00Z\n",
	}
}

// goldenDump is a dump in docs/FORMAT.md: a mark and the fenced block behind.
var goldenDump = regexp.MustCompile("(?ms)^<!-- golden: ([^>]*?) -->\n```text\n(.*?)^```$")

// TestFormatDumps compares the dumps of docs/FORMAT.md with what the code
// writes: the prose around them and the bytes cannot part unseen.
func TestFormatDumps(t *testing.T) {
	dumps := formatDumps(t)
	b, err := os.ReadFile(formatPath)
	if err != nil {
		t.Fatal(err)
	}
	if *updateFormat {
		b = goldenDump.ReplaceAllFunc(b, func(old []byte) []byte {
			name := string(goldenDump.FindSubmatch(old)[1])
			return fmt.Appendf(nil, "<!-- golden: %s -->\n```text\n%s```", name, dumps[name])
		})
		if err := os.WriteFile(formatPath, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range goldenDump.FindAllStringSubmatch(string(b), -1) {
		want, ok := dumps[m[1]]
		delete(dumps, m[1])
		switch {
		case !ok:
			t.Errorf("%s shows %q twice, or nothing makes it", formatPath, m[1])
		case m[2] != want:
			t.Errorf("%s: %q differs; the format of existing stores has changed. It shows:\n%swant:\n%s", formatPath, m[1], m[2], want)
		}
	}
	for name := range dumps {
		t.Errorf("%s does not show %q", formatPath, name)
	}
}

// TestFormatReads decodes what the dumps show.
func TestFormatReads(t *testing.T) {
	id, fault := decodeIdentity(appendIdentity(nil, formatIdentity))
	if fault != nil || *id != *formatIdentity {
		t.Errorf("identity is %+v, %v, want %+v", id, fault, formatIdentity)
	}
	for _, want := range []segmentRow{formatSegment, formatTimeSegment} {
		row, err := decodeSegmentRow(appendSegmentRow(nil, &want))
		if err != nil || row != want {
			t.Errorf("segment row is %+v, %v, want %+v", row, err, want)
		}
	}
	namespace, err := decodeNamespaceRow(appendNamespaceRow(nil, &formatNamespace))
	if err != nil || namespace != formatNamespace {
		t.Errorf("namespace row is %+v, %v, want %+v", namespace, err, formatNamespace)
	}
	store := storeRow{ingest: 1, flushed: 2, flushedLSN: 3, nextSegment: 4, nextNamespace: 5, nextIncarnation: 6,
		bitmapGeneration: 7, counterGen: 8, leaked: 9, floor: 10, sizeSpan: 11, dead: 12, clock: formatClock}
	if got, err := decodeStoreRow(appendStoreRow(nil, &store)); err != nil || got != store {
		t.Errorf("store row is %+v, %v, want %+v", got, err, store)
	}
	key := appendWordKey(nil, 1, 0x0102030405060708)
	if seg, w, ok := decodeWordKey(key); !ok || seg != 1 || w != 0x0102030405060708 {
		t.Errorf("key %x is word %x of segment %d, %v", key, w, seg, ok)
	}
	if binary.BigEndian.Uint64(key[4:]) != 0x0102030405060708 {
		t.Errorf("key %x does not end with the word", key)
	}

	fsys := vfs.NewMem()
	for i, b := range logFiles(t) {
		f, err := fsys.Create(fmt.Sprintf("%010d.log", i+1), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := wal.Read(fsys, "", formatIdentity.id)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []wal.Kind
	for i := range c.Files {
		if err := c.Replay(i, func(r wal.Record) error {
			kinds = append(kinds, r.Kind)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []wal.Kind{recordMade, recordAdds, recordClosed, recordIngest, recordCounted, recordGone, recordBitmap, recordFloor, recordNamed, recordShut, recordForgets, recordClock}; fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("records are of kinds %v, want %v", kinds, want)
	}
}

// TestFormatLock reads the holder that the dump of LOCK shows.
func TestFormatLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockName)
	if err := os.WriteFile(path, []byte(formatDumps(t)["LOCK"]), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := LockedError{Path: "d", PID: 4711, Host: "crawler-1", Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if got := holderOf(f, "d"); *got != want {
		t.Errorf("the holder is %+v, want %+v", got, want)
	}
	if err := writeHolder(f); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	if got := holderOf(f, "d"); got.PID != os.Getpid() || got.Since.IsZero() {
		t.Errorf("the holder is %+v, want this process", got)
	}
}
