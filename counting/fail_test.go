package counting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// failWriter fails at the n-th write.
type failWriter struct {
	n   int
	err error
}

func (w *failWriter) Write(b []byte) (int, error) {
	if w.n--; w.n < 0 {
		return 0, w.err
	}
	return len(b), nil
}

// TestErrors has everything around a pass fail in its turn. The error is passed
// on, and is the answer from then on.
func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	fails := func() ([]uint64, error) { return nil, boom }
	for _, c := range []struct {
		name   string
		change func(*Job)
		where  string
	}{
		{"plus", func(j *Job) { j.Plus = append(j.Plus, fails) }, "words to add"},
		{"minus", func(j *Job) { j.Minus = append(j.Minus, fails) }, "words to take"},
		{"bits", func(j *Job) { j.Bits = func(uint64, []uint64) error { return boom } }, "bits of page 0"},
		{"header", func(j *Job) { j.New = &failWriter{0, boom} }, "write the header"},
		{"page 0", func(j *Job) { j.New = &failWriter{1, boom} }, "write page 0"},
		{"page 1", func(j *Job) { j.New = &failWriter{2, boom} }, "write page 1"},
		{"trailer", func(j *Job) { j.New = &failWriter{3, boom} }, "write the trailer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := Job{Header: smallHeader(1), New: io.Discard, Plus: sources([]uint64{1})}
			c.change(&j)
			p, err := NewPass(j)
			for range 2 {
				if err == nil || p != nil {
					_, err = p.Step(10)
				}
				if !errors.Is(err, boom) || !strings.Contains(err.Error(), c.where) {
					t.Errorf("error %v, want %v at %q", err, boom, c.where)
				}
			}
		})
	}
}

// TestReadError tells a device that does not give a page from damage.
func TestReadError(t *testing.T) {
	var file buffer
	runJob(t, Job{Header: smallHeader(1), New: &file})
	boom := errors.New("boom")
	for _, at := range []int{0, 10, headerBytes, headerBytes + 20000, file.Len() - 1} {
		b := file.Bytes()
		r, err := NewReader(io.MultiReader(bytes.NewReader(b[:at]), errReader{boom}), "some/path", int64(len(b)))
		if err == nil {
			_, err = r.Check(t.Context())
		}
		if !errors.Is(err, boom) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("some/path at offset %d", at)) {
			t.Errorf("at %d: error %v", at, err)
		}
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestCancel looks at the context between pages.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pages := 0
	j := Job{Header: smallHeader(1), New: io.Discard, Bits: func(uint64, []uint64) error {
		pages++
		cancel()
		return nil
	}}
	if _, err := Transform(ctx, j); !errors.Is(err, context.Canceled) || pages != 1 {
		t.Errorf("error %v after %d pages", err, pages)
	}
	var file buffer
	runJob(t, Job{Header: smallHeader(1), New: &file})
	if _, err := file.reader(t).Check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Check: error %v", err)
	}
	if _, err := Compare(ctx, file.reader(t), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Compare: error %v", err)
	}
}

// TestReadCounts reads header and trailer of a whole file, and of one that is
// cut or damaged there.
func TestReadCounts(t *testing.T) {
	var file buffer
	s := runJob(t, Job{Header: smallHeader(3), Plus: sources([]uint64{1, 2, 1 << 63}), New: &file})
	read := func(b []byte) (Header, Counts, error) {
		return ReadCounts(bytes.NewReader(b), "mem", int64(len(file.Bytes())))
	}
	h, c, err := read(file.Bytes())
	if err != nil || h != smallHeader(3) || c != s.Counts {
		t.Errorf("got %+v, %+v, %v, want %+v", h, c, err, s.Counts)
	}
	for _, at := range []int{0, 40, file.Len() - trailerBytes - 1, file.Len() - trailerBytes, file.Len() - 1} {
		bad := bytes.Clone(file.Bytes())
		bad[at] ^= 1
		if _, _, err := read(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d flipped: error %v, want %v", at, err, ErrCorrupt)
		}
	}
	if _, _, err := read(file.Bytes()[:file.Len()-1]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("cut: error %v, want %v", err, ErrCorrupt)
	}
}
