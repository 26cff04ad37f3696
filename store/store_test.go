package store

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// worlds runs a test on the real file system and in memory.
func worlds(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("disk", func(t *testing.T) { test(t, onDisk(t)) })
	t.Run("memory", func(t *testing.T) { test(t, inMemory(t)) })
}

func TestAddHas(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		s := w.open()
		s.has(New, key(1))
		added, err := s.Add(t.Context(), key(1))
		if !added || err != nil {
			t.Errorf("first Add: got %v, %v", added, err)
		}
		added, err = s.Add(t.Context(), key(1))
		if added || err != nil {
			t.Errorf("second Add: got %v, %v", added, err)
		}
		has, err := s.Has(t.Context(), key(1))
		if !has || err != nil {
			t.Errorf("Has: got %v, %v", has, err)
		}
		has, err = s.Has(t.Context(), key(2))
		if has || err != nil {
			t.Errorf("Has of another key: got %v, %v", has, err)
		}
		s.has(New, key(2)) // Has has not remembered it
		s.urls(1)
	})
}

// TestPlaces asks for keys wherever they can be: in the active memtable, in
// the log of a store that was opened again, in Pebble, in the cache.
func TestPlaces(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		s := w.open()
		s.add(New, keys(0, 3000)...)
		s.add(Seen, keys(0, 3000)...)
		s.has(Seen, keys(0, 3000)...)
		s.has(New, keys(3000, 4000)...)
		s.flush()
		for range 2 { // from Pebble, then from the cache
			s.add(Seen, keys(0, 3000)...)
			s.has(Seen, keys(0, 3000)...)
		}
		s.add(New, keys(3000, 4000)...)
		s.urls(4000)
		s.close()
		s = w.open()
		s.has(Seen, keys(0, 4000)...)
		s.add(Seen, keys(0, 4000)...)
		s.add(New, keys(4000, 4001)...)
		s.urls(4001)
	})
}

func TestAddBatch(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	a, b, c := key(1), key(2), key(3)
	for _, tc := range []struct {
		name string
		keys []string
		want []Answer
	}{
		{"nothing", nil, nil},
		{"new ones", []string{a, b}, []Answer{New, New}},
		{"seen ones", []string{b, a}, []Answer{Seen, Seen}},
		{"one of each", []string{a, c}, []Answer{Seen, New}},
		{"twice in one batch", []string{"x", "y", "x", "x", "y"}, []Answer{New, New, Seen, Seen, Seen}},
	} {
		answers := make([]Answer, len(tc.keys))
		if err := s.AddBatch(t.Context(), tc.keys, answers); err != nil || !slices.Equal(answers, tc.want) {
			t.Errorf("%s: got %v, %v, want %v", tc.name, answers, err, tc.want)
		}
	}
	answers := []Answer{New, New, New}
	if err := s.HasBatch(t.Context(), []string{a, "z", "z"}, answers); err != nil || !slices.Equal(answers, []Answer{Seen, New, New}) {
		t.Errorf("HasBatch: got %v, %v", answers, err)
	}
	s.urls(5)
}

// TestAddBatchParts adds a batch of several parts, with repetitions across
// them.
func TestAddBatchParts(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 400 // parts of 100
	s := w.open()
	batch := append(keys(0, 450), keys(0, 450)...)
	answers := make([]Answer, len(batch))
	must(t, s.AddBatch(t.Context(), batch, answers))
	for i, a := range answers {
		if want := map[bool]Answer{true: New, false: Seen}[i < 450]; a != want {
			t.Fatalf("member %d: got %v, want %v", i, a, want)
		}
	}
	s.urls(450)
}

// TestRefused lists what is not answered. Nothing of a refused batch is
// remembered.
func TestRefused(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	long := strings.Repeat("x", MaxKeyBytes+1)
	for _, tc := range []struct {
		name    string
		ctx     context.Context
		keys    []string
		answers int
		want    error // nil: any
	}{
		{"empty key", t.Context(), []string{"a", ""}, 2, ErrEmptyKey},
		{"long key", t.Context(), []string{"a", long}, 2, ErrKeyTooLong},
		{"fewer answers", t.Context(), []string{"a", "b"}, 1, nil},
		{"more answers", t.Context(), []string{"a", "b"}, 3, nil},
		{"cancelled", cancelled, []string{"a"}, 1, context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for verb, call := range map[string]func(context.Context, []string, []Answer) error{
				"AddBatch": s.AddBatch, "HasBatch": s.HasBatch,
			} {
				answers := make([]Answer, tc.answers)
				if len(tc.keys) == tc.answers {
					for i := range answers {
						answers[i] = Seen // left from another call
					}
				}
				err := call(tc.ctx, tc.keys, answers)
				if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("%s: got error %v, want %v", verb, err, tc.want)
				}
				if i := slices.IndexFunc(answers, func(a Answer) bool { return a != Unanswered }); i >= 0 {
					t.Errorf("%s: member %d is answered %v", verb, i, answers[i])
				}
			}
		})
	}
	if _, err := s.Add(t.Context(), ""); !errors.Is(err, ErrEmptyKey) {
		t.Errorf("Add of an empty key: %v", err)
	}
	if added, err := s.Add(t.Context(), long[:MaxKeyBytes]); !added || err != nil {
		t.Errorf("Add of the longest key: got %v, %v", added, err)
	}
	s.has(New, "a", "b")
	s.urls(1)
	is(t, "Sync, cancelled", s.Sync(cancelled), context.Canceled)
	is(t, "Flush, cancelled", s.Flush(cancelled), context.Canceled)
}

func TestUseAfterClose(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, key(1))
	digest := s.Digest(key(1))
	s.close()
	_, err := s.Add(t.Context(), key(1))
	is(t, "Add", err, ErrClosed)
	_, err = s.Has(t.Context(), key(1))
	is(t, "Has", err, ErrClosed)
	answers := []Answer{New}
	is(t, "AddBatch", s.AddBatch(t.Context(), keys(0, 1), answers), ErrClosed)
	if answers[0] != Unanswered {
		t.Errorf("AddBatch: got answer %v", answers[0])
	}
	is(t, "HasBatch", s.HasBatch(t.Context(), keys(0, 1), answers), ErrClosed)
	is(t, "Sync", s.Sync(t.Context()), ErrClosed)
	is(t, "Flush", s.Flush(t.Context()), ErrClosed)
	_, err = s.Verify(t.Context(), VerifyOptions{})
	is(t, "Verify", err, ErrClosed)
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	s.urls(1)
	if s.Digest(key(1)) != digest {
		t.Error("the digest has changed")
	}
}

// TestMust opens what is there and what is not, in every way.
func TestMust(t *testing.T) {
	for _, tc := range []struct {
		name                          string
		mustExist, mustCreate, readOK bool
		there                         bool
		want                          error
	}{
		{"must exist, not there", true, false, false, false, ErrNotExist},
		{"must exist, there", true, false, false, true, nil},
		{"must create, not there", false, true, false, false, nil},
		{"must create, there", false, true, false, true, fs.ErrExist},
		{"read-only, not there", false, false, true, false, ErrNotExist},
		{"read-only, there", false, false, true, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			worlds(t, func(t *testing.T, w *world) {
				if tc.there {
					w.open().close()
				}
				o := w.options()
				o.MustExist, o.MustCreate, o.ReadOnly = tc.mustExist, tc.mustCreate, tc.readOK
				s, err := Open(w.dir, o)
				if !errors.Is(err, tc.want) {
					t.Fatalf("got error %v, want %v", err, tc.want)
				}
				if err == nil {
					must(t, s.Close())
				}
			})
		})
	}
}

// TestReadOnly looks words up that only the log of a killed store holds.
func TestReadOnly(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 400
	s := w.open()
	s.add(New, keys(0, 300)...)
	s.flush()
	s.add(New, keys(300, 600)...)
	killed := w.crash(seeded(t), 100)
	s.close()

	killed.o.ReadOnly = true
	before := killed.mem.String()
	r := killed.open()
	r.has(Seen, keys(0, 600)...)
	r.has(New, keys(600, 700)...)
	r.urls(600)
	answers := make([]Answer, 2)
	is(t, "AddBatch", r.AddBatch(t.Context(), []string{key(1), "new"}, answers), ErrReadOnly)
	if answers[0] != Unanswered || answers[1] != Unanswered {
		t.Errorf("AddBatch: got %v", answers)
	}
	is(t, "Sync", r.Sync(t.Context()), ErrReadOnly)
	is(t, "Flush", r.Flush(t.Context()), ErrReadOnly)
	r.close()
	if after := killed.mem.String(); after != before {
		t.Errorf("a read-only open has changed files:\n%s\nbefore:\n%s", after, before)
	}

	killed.o.ReadOnly = false
	s = killed.open()
	s.add(Seen, keys(0, 600)...)
	s.urls(600)
	if x := s.Stats().Recovery; x.Clean || x.Words != 300 {
		t.Errorf("recovery: got clean %v and %d words, want 300", x.Clean, x.Words)
	}
}

func TestOptionsValidate(t *testing.T) {
	for name, o := range map[string]Options{
		"exist and create":    {MustExist: true, MustCreate: true},
		"read-only creation":  {ReadOnly: true, MustCreate: true},
		"hash":                {Hash: HashXXH64 + 1},
		"key profile":         {KeyProfile: strings.Repeat("p", maxKeyProfileBytes+1)},
		"zero in profile":     {KeyProfile: "p\x00"},
		"durability":          {Durability: NoSync + 1},
		"sync interval":       {SyncInterval: -time.Second},
		"negative URLs":       {ExpectedURLs: -1},
		"too many URLs":       {ExpectedURLs: MaxExpectedURLs + 1},
		"too little memory":   {MemoryBytes: MinMemoryBytes - 1},
		"negative memory":     {MemoryBytes: -1},
		"a negative floor":    {MinFreeBytes: -1},
		"several of them":     {MemoryBytes: 1, ExpectedURLs: -1},
		"memory and the rest": {MemoryBytes: 1},
	} {
		dir := t.TempDir()
		_, err := Open(dir, &o)
		if err == nil || !strings.HasPrefix(err.Error(), "store: options: ") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	_, err := Open(t.TempDir(), &Options{MemoryBytes: 1, ExpectedURLs: -1})
	for _, field := range []string{"MemoryBytes", "ExpectedURLs"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("got %q, want every fault in it, also %s", err, field)
		}
	}
	given := Options{}
	s := mustOpen(t, t.TempDir(), &given)
	must(t, s.Close())
	if !reflect.DeepEqual(given, Options{}) {
		t.Errorf("Open has written into the caller's options: %+v", given)
	}
}

func TestOptionsMismatch(t *testing.T) {
	w := inMemory(t)
	w.o.Hash, w.o.KeyProfile = HashXXH64, "std/1"
	w.open().close()
	for _, tc := range []struct {
		o             Options
		field, stored string
	}{
		{Options{Hash: HashSipHash, KeyProfile: "std/1"}, "hash", "xxh64"},
		{Options{KeyProfile: "crawl/1"}, "key profile", "std/1"},
		{Options{KeyProfile: "none/1"}, "key profile", "std/1"},
		{Options{}, "key profile", "std/1"},
	} {
		o := w.options()
		o.Hash, o.KeyProfile = tc.o.Hash, tc.o.KeyProfile
		_, err := Open(w.dir, o)
		is(t, tc.field, err, ErrOptionsMismatch)
		var m *MismatchError
		if !errors.As(err, &m) || m.Field != tc.field || m.Stored != tc.stored {
			t.Errorf("got %v", err)
		}
	}
	w.o.Hash, w.o.KeyProfile = HashDefault, AnyKeyProfile
	if x := w.open().Stats(); x.Hash != "xxh64" || x.KeyProfile != "std/1" {
		t.Errorf("got hash %s and profile %s", x.Hash, x.KeyProfile)
	}
}

func TestStatsCounts(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 4000
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.add(Seen, keys(0, 400)...)
	s.has(New, keys(5000, 5100)...)
	x := s.Stats()
	if x.URLs != 1000 || x.Memtable.Active != 1000 || x.Answers != (AnswerStats{New: 1100, Seen: 400}) {
		t.Errorf("before the flush: %d URLs, memtable %+v, answers %+v", x.URLs, x.Memtable, x.Answers)
	}
	s.flush()
	s.add(New, keys(1000, 1010)...)
	x = s.Stats()
	if x.URLs != 1010 || x.Memtable.Active != 10 || len(x.Spans) != 1 || x.Spans[0].URLs != 1000 {
		t.Errorf("after the flush: %d URLs, memtable %+v, spans %+v", x.URLs, x.Memtable, x.Spans)
	}
	eventually(t, "Stats of the flush", func() bool { // counted when it has tidied up
		x = s.Stats()
		return x.Flush.Flushes == 1 && x.Flush.Words == 1000 && x.Flush.Bytes > 0 && x.Flush.Time > 0
	})
	must(t, s.Sync(t.Context()))
	if x = s.Stats(); x.Log.UnsyncedRecords != 0 {
		t.Errorf("after Sync, %d records are not synced", x.Log.UnsyncedRecords)
	}
	if x.Disk.Total != x.Disk.Bitmap+x.Disk.Log+x.Disk.Pebble || x.Disk.Bitmap == 0 || x.Disk.Log == 0 || x.Disk.Pebble == 0 {
		t.Errorf("disk: %+v", x.Disk)
	}
}

func TestDigestStable(t *testing.T) {
	for _, hash := range []Hash{HashSipHash, HashXXH64} {
		w := inMemory(t)
		w.o.Hash = hash
		s := w.open()
		d, word := s.Digest(key(1)), s.word(key(1))
		s.close()
		s = w.open()
		if s.Digest(key(1)) != d || s.word(key(1)) != word {
			t.Errorf("%v: digest or word differ after a reopen", hash)
		}
		other := inMemory(t)
		other.o.Hash = hash
		x := other.open()
		if same := x.Digest(key(1)) == d; same != (hash == HashXXH64) {
			t.Errorf("%v: another store's digest is the same: %v", hash, same)
		}
		if x.word(key(1)) == word {
			t.Errorf("%v: another store's word is the same", hash)
		}
	}
}

// TestSync looks at what a power loss leaves of what was answered.
func TestSync(t *testing.T) {
	w := inMemory(t)
	w.o.Durability = NoSync
	s := w.open()
	s.add(New, keys(0, 100)...)
	must(t, s.Sync(t.Context()))
	s.add(New, keys(100, 200)...)
	after := w.crash(seeded(t), 0).open()
	after.has(Seen, keys(0, 100)...)
	after.has(New, keys(100, 200)...)
	after.urls(100)
}

// TestInterval waits for the sync that nobody asks for.
func TestInterval(t *testing.T) {
	w := inMemory(t)
	w.o.SyncInterval = time.Millisecond
	s := w.open()
	s.add(New, keys(0, 100)...)
	for deadline := time.Now().Add(patience); s.Stats().Log.UnsyncedRecords > 0; {
		if time.Now().After(deadline) {
			t.Fatal("not synced")
		}
		time.Sleep(time.Millisecond)
	}
	w.crash(seeded(t), 0).open().has(Seen, keys(0, 100)...)
}

// TestFlush leaves nothing in the memtables, and no log file but one.
func TestFlush(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 400
	s := w.open()
	s.flush() // nothing to do
	for i := range 10 {
		s.add(New, keys(i*150, i*150+150)...)
		s.flush()
		if x := s.Stats(); x.Memtable.Active != 0 || x.Memtable.Frozen != 0 {
			t.Fatalf("flush %d leaves %+v", i, x.Memtable)
		}
	}
	s.flush()
	s.urls(1500)
	s.close()
	names, err := w.mem.List(w.mem.PathJoin(w.dir, logDir))
	must(t, err)
	if len(names) != 1 {
		t.Errorf("Close leaves log files %v, want one", names)
	}
}

// TestSegments closes segments by size, and finds keys in each of them.
func TestSegments(t *testing.T) {
	w := inMemory(t)
	w.memtableWords, w.spanWords = 200, 500
	s := w.open()
	n := 0
	for range 40 {
		s.add(New, keys(n, n+100)...)
		n += 100
		s.flush()
	}
	check := func() {
		t.Helper()
		x := s.Stats()
		if len(x.Spans) != (n+499)/500 {
			t.Fatalf("got %d spans of %d URLs, want %d", len(x.Spans), n, (n+499)/500)
		}
		for i, sp := range x.Spans {
			urls := int64(500)
			if i == 0 && n%500 > 0 {
				urls = int64(n % 500)
			}
			if want := (SpanStats{Kind: "size", Segments: 1, URLs: urls, Closed: urls == 500}); sp != want {
				t.Errorf("span %d: got %+v, want %+v", i, sp, want)
			}
		}
		last := len(x.Spans)
		for i, sp := range s.current.Load().spans {
			if want := []segmentID{segmentID(last - i)}; !slices.Equal(sp.ids(), want) {
				t.Errorf("span %d is of segments %v, want %v", i, sp.segments, want)
			}
		}
		s.has(Seen, keys(0, n)...)
		s.has(New, keys(n, n+1000)...)
		s.urls(n)
	}
	check()
	s.close()
	s = w.open()
	check()
	s.add(New, keys(n, n+100)...)
	n += 100
	s.flush()
	check()
}
