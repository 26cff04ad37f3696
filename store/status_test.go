package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"dedupstore/internal/seam"
)

// publishing is a world whose stores publish STATUS: at open, and then as
// often as interval says.
func publishing(t testing.TB, interval time.Duration) *world {
	w := onDisk(t)
	w.statusInterval = interval
	return w
}

// never is longer than a test takes: what is published is so at open.
const never = time.Hour

// TestStatus reads what a holder publishes, and finds nothing behind it.
func TestStatus(t *testing.T) {
	w := publishing(t, time.Millisecond)
	before := time.Now()
	s := w.open()
	st, err := ReadStatus(w.dir)
	must(t, err)
	host, _ := os.Hostname()
	if st.PID != os.Getpid() || st.Host != host || st.When.Before(before) || st.Opened.After(st.When) {
		t.Errorf("got process %d on %q, opened %v, as of %v", st.PID, st.Host, st.Opened, st.When)
	}
	s.add(New, keys(0, 100)...)
	published := start(func() {
		for st, err := ReadStatus(w.dir); err != nil || st.URLs != 100; st, err = ReadStatus(w.dir) {
		}
	})
	within(t, "STATUS says what was added", published)
	s.close()
	if _, err := ReadStatus(w.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: got error %v, want fs.ErrNotExist", err)
	}
}

// TestStatusIsStats has all that Stats says come through a STATUS.
func TestStatusIsStats(t *testing.T) {
	w := publishing(t, never)
	s := w.open()
	s.add(New, keys(0, 100)...)
	s.flush()
	want := s.Stats()
	text, err := json.Marshal(&Status{Stats: want})
	must(t, err)
	var st Status
	must(t, json.Unmarshal(text, &st))
	if !reflect.DeepEqual(st.Stats, want) {
		t.Errorf("got  %+v\nwant %+v", st.Stats, want)
	}
	s.publisher.publish()
	b, err := os.ReadFile(filepath.Join(w.dir, statusName))
	must(t, err)
	var flat map[string]any
	must(t, json.Unmarshal(b, &flat))
	for _, name := range []string{"when", "pid", "host", "opened", "urls", "log"} {
		if _, ok := flat[name]; !ok {
			t.Errorf("no %q in %s", name, b)
		}
	}
}

// TestStatusFails makes every call for STATUS fail: the store does not notice.
func TestStatusFails(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpRename, errorfs.OpRemove} {
		w := publishing(t, time.Millisecond)
		w.o.ExpectedURLs = 1000
		failed := make(chan struct{}, 1)
		w.fault = func(op errorfs.Op) error {
			name := filepath.Base(op.Path)
			if op.Kind != kind || name != statusName && name != statusName+newSuffix {
				return nil
			}
			select {
			case failed <- struct{}{}:
			default:
			}
			return errInjected
		}
		s := w.open()
		s.add(New, keys(0, 100)...)
		if kind != errorfs.OpRemove {
			within(t, "a publication that fails", start(func() { <-failed }))
		}
		s.flush()
		must(t, s.Err())
		s.close()
	}
}

// TestStatusLeftOver opens a store that a killed process has left.
func TestStatusLeftOver(t *testing.T) {
	w := publishing(t, never)
	w.open().close()
	path := filepath.Join(w.dir, statusName)
	for _, text := range []string{"", "{", `{"when":"2026-01-01T00:00:00Z","pid":1}`} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		must(t, os.WriteFile(path+newSuffix, []byte(text), 0o600))
		w.openReadOnly(func(*testStore) {})
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("a read-only open has changed it to %q, %v", b, err)
		}
		s := w.open()
		if st, err := ReadStatus(w.dir); err != nil || st.PID != os.Getpid() {
			t.Errorf("got %+v, %v", st, err)
		}
		s.close()
		if _, err := os.Stat(path + newSuffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path+newSuffix, err)
		}
	}
}

// TestReadStatusBad reads files that are no STATUS.
func TestReadStatusBad(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "\x00\x00", "{", "[]", `{"when":5}`} {
		must(t, os.WriteFile(filepath.Join(dir, statusName), []byte(text), 0o600))
		if st, err := ReadStatus(dir); err == nil {
			t.Errorf("%q: got %+v", text, st)
		}
	}
}

// TestStatusIsOff keeps the tests that count calls from counting these.
func TestStatusIsOff(t *testing.T) {
	s := onDisk(t).open()
	if s.publisher != nil {
		t.Error("a store on a test's file system publishes")
	}
	var o Options
	if got := o.withDefaults().seams.StatusInterval; got != statusInterval {
		t.Errorf("got %v between two publications, want %v", got, statusInterval)
	}
	SetSeams(&o, seam.Seams{StatusInterval: never})
	if got := o.withDefaults().seams.StatusInterval; got != never {
		t.Errorf("got %v, want what the seam says", got)
	}
}

func BenchmarkPublishStatus(b *testing.B) {
	s := publishing(b, never).open()
	for b.Loop() {
		s.publisher.publish()
	}
}

// TestStatusNames keeps the names that a STATUS has, and the kinds of their
// values: other programs read them. New ones may be added to the list.
func TestStatusNames(t *testing.T) {
	now := map[string]bool{}
	statusNames(now, "", reflect.TypeFor[Status]())
	golden, err := os.ReadFile(filepath.Join("testdata", "status.txt"))
	must(t, err)
	names := 0
	for line := range strings.Lines(string(golden)) {
		if names++; !now[strings.TrimSpace(line)] {
			t.Errorf("a STATUS has no %q any more", strings.TrimSpace(line))
		}
	}
	if names < 50 {
		t.Errorf("the list has %d names", names)
	}
	if t.Failed() {
		t.Logf("it has now:\n%s", strings.Join(slices.Sorted(maps.Keys(now)), "\n"))
	}
}

// statusNames notes the JSON names of a type with the kinds of their values.
func statusNames(all map[string]bool, prefix string, of reflect.Type) {
	for of.Kind() == reflect.Slice {
		of, prefix = of.Elem(), prefix+"[]"
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		kind := of.Kind().String()
		if of == reflect.TypeFor[time.Time]() {
			kind = "time"
		}
		all[prefix+" "+kind] = true
		return
	}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			statusNames(all, prefix, field.Type)
			continue
		}
		statusNames(all, strings.TrimPrefix(prefix+"."+name, "."), field.Type)
	}
}

// TestStatusOpenedFull opens a store on a full disk, which gets a STATUS as soon
// as there is a little space, and goes on with it when there is enough.
func TestStatusOpenedFull(t *testing.T) {
	w, d := onSmallDisk(t, 64<<20)
	w.statusInterval = time.Millisecond
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.close()
	d.others(0)
	s = w.open()
	if st, err := readStatus(d, w.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("on a full disk: got %+v, %v", st, err)
	}
	d.others(64 << 10)
	eventually(t, "a STATUS that warns", func() bool {
		st, err := readStatus(d, w.dir)
		return err == nil && st.URLs == 1000 && len(st.Warnings) > 0
	})
	d.others(64 << 20)
	eventually(t, "a STATUS without a warning", func() bool {
		st, err := readStatus(d, w.dir)
		return err == nil && st.URLs == 1000 && len(st.Warnings) == 0
	})
	s.close()
	if st, err := readStatus(d, w.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: got %+v, %v", st, err)
	}
}

// TestStatusTakesNoReserve publishes on a full disk: the reserve stays, and no
// part of a STATUS.
func TestStatusTakesNoReserve(t *testing.T) {
	w, d := onSmallDisk(t, 64<<20)
	w.statusInterval = never
	s := w.open()
	before := d.size(d.PathJoin(w.dir, statusName))
	d.others(100)
	s.publisher.publish()
	reserveIs(t, d, reserveBytes, "after a STATUS on a full disk")
	if n := d.size(d.PathJoin(w.dir, statusName+newSuffix)); n != -1 {
		t.Errorf("%d bytes of STATUS.new are left", n)
	}
	if n := d.size(d.PathJoin(w.dir, statusName)); n != before {
		t.Errorf("STATUS has %d bytes, %d before", n, before)
	}
	d.others(64 << 20)
}

// TestStatusOfTheNextHolder has a store that was opened on a full disk let its
// lock go, because it cannot be opened again: the STATUS is another's from then
// on.
func TestStatusOfTheNextHolder(t *testing.T) {
	w, d := onSmallDisk(t, 64<<20)
	w.statusInterval = time.Millisecond
	w.open().close()
	d.others(0)
	s := w.open()
	identity := d.PathJoin(w.dir, identityName)
	must(t, d.FS.Rename(identity, identity+"-away"))
	d.others(64 << 20)
	eventually(t, "the error", func() bool { return s.Err() != nil })
	must(t, d.FS.Rename(identity+"-away", identity))
	next := w.open()
	s.publisher.publish()
	s.once.Do(func() { is(t, "Close", s.Store.Close(), ErrPoisoned) })
	next.stopStatus()
	st, err := readStatus(d, w.dir)
	must(t, err)
	if opened := next.publisher.opened; !st.Opened.Equal(opened) {
		t.Errorf("the STATUS is of who opened the store at %v, want %v", st.Opened, opened)
	}
}
