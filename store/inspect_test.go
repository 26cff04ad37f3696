package store

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// facts are what an inspection says of a path.
func facts(t testing.TB, inspect func(context.Context, string, func(Fact) error) error, path string) (all []Fact) {
	t.Helper()
	must(t, inspect(t.Context(), path, func(f Fact) error {
		all = append(all, f)
		return nil
	}))
	return all
}

// kinds are those of facts, with an exclamation mark where there is damage.
func kinds(all []Fact) (got []string) {
	for _, f := range all {
		kind := f.Kind
		if f.Damage != "" {
			kind += "!"
		}
		got = append(got, kind)
	}
	return got
}

// field is the value that a fact has under a name, nil if it has none.
func (f Fact) field(name string) any {
	for _, field := range f.Fields {
		if field.Name == name {
			return field.Value
		}
	}
	return nil
}

// inspected makes a store of some keys, flushed once and killed behind it.
func inspected(t *testing.T) *world {
	w := onDisk(t)
	s := w.open()
	s.add(New, keys(0, 100)...)
	s.flush()
	s.add(New, keys(100, 150)...)
	must(t, s.Sync(t.Context()))
	s.add(New, keys(150, 151)...) // its record says what was synced
	killed := onDisk(t)
	s.maintainer.mu.Lock() // it may be removing what it has flushed
	for os.CopyFS(killed.dir, os.DirFS(w.dir)) != nil {
		must(t, os.RemoveAll(killed.dir)) // Pebble removes old files when it likes
	}
	s.maintainer.mu.Unlock()
	s.close()
	return killed
}

func onlyLog(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, logDir, "*.log"))
	must(t, err)
	slices.Sort(files)
	return files[len(files)-1]
}

// TestInspectLog finds the records of a log file, and behind damage.
func TestInspectLog(t *testing.T) {
	w := inspected(t)
	path := onlyLog(t, w.dir)
	all := facts(t, InspectLog, path)
	got := kinds(all)
	adds := slices.Index(got, "adds")
	if got[0] != "header" || adds < 0 || got[len(got)-1] != "summary" || slices.ContainsFunc(got, func(k string) bool { return strings.HasSuffix(k, "!") }) {
		t.Fatalf("got %v", got)
	}
	if words := all[adds].field("words"); words != 50 {
		t.Errorf("the adds record has %v words, want 50", words)
	}
	id, err := readIdentity(w.plainOptions().seams.FS, filepath.Join(w.dir, identityName))
	must(t, err)
	if got := all[0].field("store"); got != hexOf(id.id[:]) {
		t.Errorf("got store %v", got)
	}

	// A byte of the record of adds, and then of the header too.
	flipAt(t, path, int(all[adds].Offset)+50)
	damaged := facts(t, InspectLog, path)
	if got := damaged[adds]; got.Kind != "damage" || got.Damage == "" || got.Offset != all[adds].Offset {
		t.Errorf("got %+v in place of the record", got)
	}
	if got, want := kinds(damaged)[adds+1:], kinds(all)[adds+1:]; len(got) != len(want) {
		t.Errorf("behind it: got %v, want as many as %v", got, want)
	}
	summary := damaged[len(damaged)-1]
	if v, _ := summary.field("verdict").(string); !strings.HasPrefix(v, "corruption: LSN ") || summary.field("good_up_to") != all[adds].Offset {
		t.Errorf("got %+v, want corruption: the record behind it says that it was synced", summary)
	}
	flipAt(t, path, 64)
	if got, want := kinds(facts(t, InspectLog, path)), kinds(damaged); len(got) != len(want) || got[0] != "header!" {
		t.Errorf("with a bad header: got %v, want as many as %v", got, want)
	}
}

// TestInspectTornLog takes the end of a log file off.
func TestInspectTornLog(t *testing.T) {
	w := inspected(t)
	path := onlyLog(t, w.dir)
	all := facts(t, InspectLog, path)
	adds := slices.Index(kinds(all), "adds")
	must(t, os.Truncate(path, all[adds].Offset+60))
	torn := facts(t, InspectLog, path)
	summary := torn[len(torn)-1]
	if v, _ := summary.field("verdict").(string); !strings.HasPrefix(v, "a torn tail, unless") {
		t.Errorf("got %+v, want a torn tail", summary)
	}
}

// TestInspectBadRecord finds a record that verifies and makes no sense.
func TestInspectBadRecord(t *testing.T) {
	w := onDisk(t)
	s := w.open()
	var want []string
	s.mu.Lock()
	for _, bad := range []struct {
		name    string
		kind    wal.Kind
		payload []byte
	}{
		{"adds", recordAdds, make([]byte, 16)},
		{"made", recordMade, make([]byte, 32)},
		{"closed", recordClosed, []byte{1}},
		{"ingest", recordIngest, []byte{1}},
		{"bitmap", recordBitmap, []byte{1}},
		{"floor", recordFloor, make([]byte, 8)},
		{"unknown", 200, nil},
	} {
		s.log.Append(bad.kind, bad.payload)
		want = append(want, bad.name+"!")
	}
	last := s.log.Last()
	s.mu.Unlock()
	must(t, s.waitSynced(last))
	got := kinds(facts(t, InspectLog, onlyLog(t, w.dir)))
	got = slices.DeleteFunc(got, func(kind string) bool { return !strings.HasSuffix(kind, "!") })
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.once.Do(func() { must(t, s.Store.Close()) }) // and no check: it would find them
}

// TestInspectFilter looks at a bitmap, and at damaged ones.
func TestInspectFilter(t *testing.T) {
	w := onDisk(t)
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.close()
	path := filepath.Join(w.dir, bitmapName(1))
	h, _, err := mmapfilter.ReadHeader(mmapfilter.Files, path)
	must(t, err)
	all := facts(t, InspectFilter, path)
	if got := kinds(all); !slices.Equal(got, []string{"header", "header", "bits"}) {
		t.Fatalf("got %v", got)
	}
	bits := all[2]
	if bits.field("ones") != h.Ones || bits.field("blocks") != h.Blocks || bits.field("sums_ok") != true || bits.field("pages_changed") != uint64(0) {
		t.Errorf("got %+v, the header says %+v", bits, h)
	}
	if n := bits.field("words_estimated").(int64); n < 950 || n > 1050 {
		t.Errorf("got an estimate of %d words, want about 1000", n)
	}
	whole, err := os.ReadFile(path)
	must(t, err)
	for name, test := range map[string]struct {
		damage func([]byte) []byte
		want   []string
	}{
		"no bits":       {func(b []byte) []byte { clear(b[4096 : 4096+h.Blocks*64]); return b }, []string{"header", "header", "bits!"}},
		"one copy":      {func(b []byte) []byte { b[20] ^= 1; return b }, []string{"header!", "header", "bits"}},
		"both copies":   {func(b []byte) []byte { b[20] ^= 1; b[2068] ^= 1; return b }, []string{"header!", "header!", "bits!"}},
		"cut":           {func(b []byte) []byte { return b[:len(b)/2] }, []string{"header!", "header!", "bits!"}},
		"cut at once":   {func(b []byte) []byte { return b[:3000] }, []string{"header!", "header!", "bits!"}},
		"empty":         {func([]byte) []byte { return nil }, []string{"header!", "header!", "bits!"}},
		"unused header": {func(b []byte) []byte { b[1000] = 1; return b }, []string{"header", "header", "bits!"}},
	} {
		must(t, os.WriteFile(path, test.damage(slices.Clone(whole)), 0o600))
		if got := kinds(facts(t, InspectFilter, path)); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	must(t, os.WriteFile(path, whole, 0o600))
}

// TestInspectHidesKeys looks for the keys of a store in what is printed of it.
func TestInspectHidesKeys(t *testing.T) {
	w := inspected(t)
	id, err := readIdentity(w.plainOptions().seams.FS, filepath.Join(w.dir, identityName))
	must(t, err)
	var all []Fact
	all = append(all, facts(t, InspectStore, w.dir)...)
	all = append(all, facts(t, InspectRegistry, w.dir)...)
	all = append(all, facts(t, InspectFilter, filepath.Join(w.dir, bitmapName(1)))...)
	all = append(all, facts(t, InspectLog, onlyLog(t, w.dir))...)
	text, err := json.Marshal(all)
	must(t, err)
	b := appendIdentity(nil, id)
	for _, secret := range [][]byte{b[hashKeyAt : hashKeyAt+8], b[hashKeyAt+8 : wordKeyAt], b[wordKeyAt:keyCheckAt]} {
		slices.Reverse(secret)
		big := hexOf(secret)
		slices.Reverse(secret)
		if strings.Contains(string(text), hexOf(secret)) || strings.Contains(string(text), big) {
			t.Errorf("a key is in %s", text)
		}
	}
}

// TestInspectStore looks at a directory with everything that there may be.
func TestInspectStore(t *testing.T) {
	w := publishing(t, never)
	w.open().close()
	for _, name := range []string{"bitmap-0000000001.bad", "bitmap-0000000009.tmp", "STATUS.new", "notes.txt", "log/0000000001.log.bad", "log/0000000099.log.new", "log/x"} {
		must(t, os.WriteFile(filepath.Join(w.dir, name), []byte("mine"), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(w.dir, "log/0000000050.log"), nil, 0o600))
	got := kinds(facts(t, InspectStore, w.dir))
	want := []string{
		"identity", "lock", "left over", "bitmap", "put aside", "left over",
		"put aside", "log file", "log file!", "left over", "unknown",
		"unknown", "pebble", "reserve", "tmp",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, name := range []string{"bitmap-0000000009.tmp", "notes.txt", "log/0000000099.log.new", "log/0000000050.log", "log/x"} {
		must(t, os.Remove(filepath.Join(w.dir, name)))
	}
	s := w.open()
	all := facts(t, InspectStore, w.dir)
	lock, status := all[1], slices.IndexFunc(all, func(f Fact) bool { return f.Kind == "status" })
	if lock.field("held") != true || lock.field("pid") != os.Getpid() || status < 0 || all[status].field("pid") != os.Getpid() {
		t.Errorf("of an open store: got %+v", all)
	}
	is(t, "the registry of an open store", InspectRegistry(t.Context(), w.dir, nil), ErrLocked)
	s.close()
	must(t, os.Remove(filepath.Join(w.dir, lockName)))
	if got := kinds(facts(t, InspectStore, w.dir)); got[1] != "lock!" {
		t.Errorf("without LOCK: got %v", got)
	}
	must(t, os.WriteFile(filepath.Join(w.dir, lockName), nil, 0o600))
}

// TestInspectIdentity cuts and changes a STORE file at each byte.
func TestInspectIdentity(t *testing.T) {
	w := onDisk(t)
	w.open().close()
	path := filepath.Join(w.dir, identityName)
	whole, err := os.ReadFile(path)
	must(t, err)
	for i := range whole {
		must(t, os.WriteFile(path, whole[:i], 0o600))
		if got := kinds(facts(t, InspectStore, path)); !slices.Equal(got, []string{"identity!"}) {
			t.Fatalf("%d bytes: got %v", i, got)
		}
		b := slices.Clone(whole)
		b[i] ^= 0x10
		must(t, os.WriteFile(path, b, 0o600))
		if got := kinds(facts(t, InspectStore, path)); !slices.Equal(got, []string{"identity!"}) {
			t.Fatalf("byte %d: got %v", i, got)
		}
	}
	must(t, os.WriteFile(path, whole, 0o600))
}

// TestInspectRegistry looks at rows that make no sense, and at a Pebble that
// does not open.
func TestInspectRegistry(t *testing.T) {
	for _, test := range []struct {
		key, value []byte
		want       string
	}{
		{appendRowKey(nil, rowStore, 0), appendStoreRow(nil, &newRegistry(5, forever, clockStamp{}).storeRow), "store"},
		{appendRowKey(nil, rowStore, 0), nil, "row!"},
		{appendRowKey(nil, 9, 0), nil, "row!"},
		{[]byte{0, 0, 0, 0}, nil, "row!"},
		{appendRowKey(nil, rowSegment, 7), make([]byte, segmentRowBytes), "row!"},
		{appendRowKey(nil, rowNamespace, 3), appendNamespaceRow(nil, &namespaceRow{name: "n", ttl: 1}), "namespace"},
	} {
		kind, _, err := rowFacts(test.key, test.value)
		if err != nil {
			kind += "!"
		}
		if kind != test.want {
			t.Errorf("row %x: got %s, want %s", test.key, kind, test.want)
		}
	}
	w := onDisk(t)
	w.open().close()
	markers, err := filepath.Glob(filepath.Join(w.dir, pebbleDir, "marker.manifest.*"))
	must(t, err)
	must(t, os.Rename(markers[0], filepath.Join(w.dir, "marker")))
	if got := kinds(facts(t, InspectRegistry, w.dir)); !slices.Equal(got, []string{"damage!"}) {
		t.Errorf("without a marker: got %v", got)
	}
	must(t, os.Rename(filepath.Join(w.dir, "marker"), markers[0]))
}

// TestInspectStops returns what the function and the context say.
func TestInspectStops(t *testing.T) {
	w := inspected(t)
	for name, inspect := range map[string]func(context.Context, string, func(Fact) error) error{
		w.dir:                                   InspectStore,
		filepath.Join(w.dir, bitmapName(1)):     InspectFilter,
		onlyLog(t, w.dir):                       InspectLog,
		filepath.Join(w.dir, logDir, "..", "."): InspectRegistry,
	} {
		if err := inspect(t.Context(), name, func(Fact) error { return errInjected }); !errors.Is(err, errInjected) {
			t.Errorf("%s: got %v, want what the function returns", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := inspect(ctx, name, func(Fact) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
	}
}

// TestInspectWritesNothing compares a directory before and after.
func TestInspectWritesNothing(t *testing.T) {
	w := inspected(t)
	before := treeOf(t, w.dir)
	facts(t, InspectStore, w.dir)
	facts(t, InspectRegistry, w.dir)
	facts(t, InspectFilter, filepath.Join(w.dir, bitmapName(1)))
	facts(t, InspectLog, onlyLog(t, w.dir))
	if after := treeOf(t, w.dir); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
}

// treeOf is the names and the bytes of all files below a directory.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		b.WriteString(path + " " + hexOf(content) + "\n")
		return err
	}))
	return b.String()
}
