package wal

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walked is what Walk says of a file. Payloads are copied.
func walked(t testing.TB, fs vfs.FS, path string, guesses ...Origin) (parts []Part) {
	t.Helper()
	must(t, Walk(fs, path, func(p Part) error {
		if p.Frame != nil {
			f := *p.Frame
			f.Payload = append([]byte(nil), f.Payload...)
			p.Frame = &f
		}
		parts = append(parts, p)
		return nil
	}, guesses...))
	st, err := fs.Stat(path)
	must(t, err)
	at := int64(0)
	for _, p := range parts {
		if p.Offset != at || p.Bytes < 0 || p.Bytes == 0 && st.Size() > 0 {
			t.Errorf("a part begins at %d and has %d bytes, the one before ended at %d", p.Offset, p.Bytes, at)
		}
		at += p.Bytes
	}
	if at != st.Size() {
		t.Errorf("the parts end at %d, the file at %d", at, st.Size())
	}
	return parts
}

// walkLog is a log of two files, the first of which is synced and switched
// from.
func walkLog(t testing.TB) (fs vfs.FS, first, second string) {
	fs = vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{})
	add(t, l, 5)
	mustSync(t, l)
	add(t, l, 5)
	mustSwitch(t, l)
	add(t, l, 3)
	must(t, l.Close())
	return fs, fileName(1), fileName(2)
}

// lsns are those of the frames, marks left out, of which errs have an error.
func lsns(parts []Part) (got []LSN, errs int) {
	for _, p := range parts {
		if p.Err != nil {
			errs++
		}
		if p.Frame != nil && !p.Frame.IsMark() {
			got = append(got, p.Frame.LSN)
		}
	}
	return got, errs
}

func TestWalk(t *testing.T) {
	fs, first, second := walkLog(t)
	parts := walked(t, fs, first)
	h := parts[0].Header
	if h == nil || h.Store != testStore || h.File != 1 || h.FirstLSN != 1 {
		t.Fatalf("got header %+v", h)
	}
	got, errs := lsns(parts)
	if len(got) != 11 || errs != 0 {
		t.Errorf("got LSNs %v and %d errors, want 1 to 11 and none", got, errs)
	}
	for _, p := range parts {
		if f := p.Frame; f != nil && f.Kind == testKind && string(f.Payload) != string(payload(f.LSN)) {
			t.Errorf("record %d has payload %q", f.LSN, f.Payload)
		}
		if f := p.Frame; f != nil && f.IsSwitch() != (f.LSN == 11) || f != nil && f.IsSwitch() && f.Next != 2 {
			t.Errorf("got frame %+v", f)
		}
	}
	parts = walked(t, fs, second)
	if got, errs := lsns(parts); len(got) != 3 || got[0] != 12 || errs != 0 {
		t.Errorf("got LSNs %v and %d errors in the second file", got, errs)
	}
	if h := parts[0].Header; h == nil || h.FirstLSN != 0 {
		t.Errorf("got header %+v of a prepared file", h)
	}
}

// TestWalkDamage flips each byte of a file: every frame but the one that was
// hit is found, and the damage is reported.
func TestWalkDamage(t *testing.T) {
	fs, first, _ := walkLog(t)
	whole := readFile(t, fs, first)
	sound := walked(t, fs, first)
	for i := range whole {
		whole[i] ^= 0x55
		writeFile(t, fs, first, whole)
		whole[i] ^= 0x55
		parts := walked(t, fs, first, Origin{testStore, 1})
		got, errs := lsns(parts)
		hit := Part{}
		for _, p := range sound {
			if int64(i) >= p.Offset && int64(i) < p.Offset+p.Bytes {
				hit = p
			}
		}
		want := 11
		if hit.Frame != nil && !hit.Frame.IsMark() {
			want--
		}
		if len(got) != want || errs == 0 {
			t.Errorf("byte %d: got LSNs %v and %d errors, want %d LSNs", i, got, errs, want)
		}
		if hit.Header != nil && parts[0].Header != nil {
			t.Errorf("byte %d: the header is believed", i)
		}
	}
}

// TestWalkShort cuts a file at each byte, and looks at what is no log file.
func TestWalkShort(t *testing.T) {
	fs, first, _ := walkLog(t)
	whole := readFile(t, fs, first)
	for n := range whole {
		writeFile(t, fs, first, whole[:n])
		parts := walked(t, fs, first)
		if n < headerBytes && !errors.Is(parts[0].Err, errShort) {
			t.Errorf("%d bytes: got %v, want errShort", n, parts[0].Err)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, 5000), append(make([]byte, 200), 7), []byte("of another program, and longer than a header would be; " + string(make([]byte, 300)))} {
		writeFile(t, fs, first, b)
		parts := walked(t, fs, first)
		if got, errs := lsns(parts); len(got) != 0 || errs == 0 {
			t.Errorf("%d bytes: got LSNs %v and %d errors", len(b), got, errs)
		}
	}
}

// TestWalkStops returns what the function returns.
func TestWalkStops(t *testing.T) {
	fs, first, _ := walkLog(t)
	enough := errors.New("enough")
	calls := 0
	err := Walk(fs, first, func(Part) error {
		if calls++; calls == 3 {
			return enough
		}
		return nil
	})
	if err != enough || calls != 3 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

func FuzzWalk(f *testing.F) {
	fs, first, second := walkLog(f)
	for _, path := range []string{first, second} {
		f.Add(readFile(f, fs, path))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		writeFile(t, fs, first, b)
		walked(t, fs, first, Origin{testStore, 1})
	})
}
