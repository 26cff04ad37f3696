package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

var packers = map[string]func(string) []byte{
	"gzip": func(data string) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		w.Write([]byte(data))
		w.Close()
		return out.Bytes()
	},
	"zstd": func(data string) []byte {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			panic(err)
		}
		return w.EncodeAll([]byte(data), nil)
	},
}

// readAll returns the keys of all files, and what went wrong.
func readAll(t *testing.T, files []string, stdin io.Reader) (keys []string, failed []error) {
	t.Helper()
	err := rawKeys().eachBatch(t.Context(), newInput(files, stdin), func(b *batch) error {
		keys = append(keys, b.keys...)
		failed = append(failed, b.failed...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys, failed
}

func TestFormats(t *testing.T) {
	skippable := []byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'}
	z, g := packers["zstd"], packers["gzip"]
	abc := []string{"a", "b", "c"}
	for name, test := range map[string]struct {
		data []byte
		want []string
	}{
		"plain":              {[]byte("a\nb\nc\n"), abc},
		"gzip":               {g("a\nb\nc\n"), abc},
		"gzip of streams":    {append(g("a\nb"), g("\nc\n")...), abc},
		"zstd":               {z("a\nb\nc\n"), abc},
		"zstd of frames":     {append(z("a\nb"), z("\nc")...), abc},
		"zstd, skippable":    {append(skippable, z("a\nb\nc\n")...), abc},
		"start of a gzip":    {[]byte{0x1f}, []string{"\x1f"}},
		"start of a zstd":    {[]byte("(\xb5/"), []string{"(\xb5/"}},
		"nearly a zstd":      {[]byte("(\xb5a\n"), []string{"(\xb5a"}},
		"start of skippable": {[]byte("P\n"), []string{"P"}},
		"zstd, dictionary":   {withDict(t, false), abc},
		"and that packed":    {withDict(t, true), abc},
		"bzip2":              {[]byte("\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x03\x89\x0c\xa6\x00\x00\x01\xc1\x00\x00\x10\x38\x00\x20\x00\x21\x9a\x68\x33\x4d\x1c\xb7\x8b\xb9\x22\x9c\x28\x48\x01\xc4\x86\x53\x00"), abc},
		"start of a bzip2":   {[]byte("BZ\n"), []string{"BZ"}},
		"nearly a bzip2":     {[]byte("BZh.example.com/a\n"), []string{"BZh.example.com/a"}},
		"empty":              {nil, nil},
		"gzip of BOM":        {g(bom + "a\n"), []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			for how, wrap := range map[string]func(io.Reader) io.Reader{
				"whole":       func(r io.Reader) io.Reader { return r },
				"byte":        iotest.OneByteReader,
				"data error":  iotest.DataErrReader,
				"half":        iotest.HalfReader,
				"zero length": func(r io.Reader) io.Reader { return &zeroReader{r: r} },
			} {
				keys, failed := readAll(t, nil, wrap(bytes.NewReader(test.data)))
				if failed != nil || !reflect.DeepEqual(keys, test.want) {
					t.Errorf("read by %s: %q, %v, want %q", how, keys, failed, test.want)
				}
			}
		})
	}
}

// withDict is a, b and c as a .warc.zst file has them: behind a skippable frame
// with the dictionary, plain or packed.
func withDict(t *testing.T, packed bool) []byte {
	t.Helper()
	var history []byte
	var contents [][]byte
	for i := range 200 {
		page := fmt.Appendf(nil, "https://example.org/%d/page/%d.html\n", i%7, i*i)
		history, contents = append(history, page...), append(contents, bytes.Repeat(page, 3))
	}
	dict, err := zstd.BuildDict(zstd.BuildDictOptions{ID: 7, History: history, Contents: contents, Offsets: [3]int{1, 4, 8}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderDict(dict))
	if err != nil {
		t.Fatal(err)
	}
	if packed {
		dict = packers["zstd"](string(dict))
	}
	data := binary.LittleEndian.AppendUint32([]byte{0x5d, 0x2a, 0x4d, 0x18}, uint32(len(dict)))
	data = append(data, dict...)
	return append(w.EncodeAll([]byte("a\nb"), data), w.EncodeAll([]byte("\nc\n"), nil)...)
}

// A zeroReader returns no bytes and no error at every second Read.
type zeroReader struct {
	r    io.Reader
	zero bool
}

func (z *zeroReader) Read(p []byte) (int, error) {
	if z.zero = !z.zero; z.zero {
		return 0, nil
	}
	return z.r.Read(p)
}

// TestBrokenInput keeps what came before the damage, names the file, and goes
// on with the next.
func TestBrokenInput(t *testing.T) {
	var long strings.Builder
	for i := range 100_000 {
		long.WriteString(strings.Repeat(string(rune('a'+i%26)), 1+i%50) + "\n")
	}
	dir := t.TempDir()
	last := filepath.Join(dir, "last.txt")
	write(t, last, "last\n")
	for name, pack := range packers {
		whole := pack(long.String())
		for what, data := range map[string][]byte{
			"truncated": whole[:len(whole)-len(whole)/3],
			"cut":       whole[:5],
			"flipped":   append(append(bytes.Clone(whole[:len(whole)/2]), ^whole[len(whole)/2]), whole[len(whole)/2+1:]...),
			"followed":  append(bytes.Clone(whole), "garbage"...),
		} {
			file := filepath.Join(dir, what+"."+name)
			write(t, file, string(data))
			keys, failed := readAll(t, []string{file, last}, nil)
			if len(failed) != 1 || !strings.HasPrefix(failed[0].Error(), file+": ") || errors.Is(failed[0], io.EOF) {
				t.Errorf("%s %s: errors %v, want one that names %s", what, name, failed, file)
				continue
			}
			n := len(keys) - 1
			if keys[n] != "last" {
				t.Errorf("%s %s: the next file was not read", what, name)
			}
			if got := strings.Join(keys[:n], "\n"); what != "flipped" && !strings.HasPrefix(long.String(), got) {
				t.Errorf("%s %s: %d keys that are not the first ones", what, name, n)
			}
		}
	}
}

func write(t *testing.T, file, data string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(data), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestBatchGrows shows that lines which wait become one batch, at most
// batchLines long, in order.
func TestBatchGrows(t *testing.T) {
	var data strings.Builder
	var want []string
	for i := range 3*batchLines + 5 {
		key := strings.Repeat("k", 1+i%7)
		want = append(want, key)
		data.WriteString(key + "\n")
	}
	var keys []string
	err := rawKeys().eachBatch(t.Context(), newInput(nil, iotest.OneByteReader(strings.NewReader(data.String()))), func(b *batch) error {
		if b.size() > batchLines {
			t.Errorf("batch of %d lines", b.size())
		}
		keys = append(keys, b.keys...)
		return nil
	})
	if err != nil || !reflect.DeepEqual(keys, want) {
		t.Errorf("%d keys, %v, want %d in order", len(keys), err, len(want))
	}
}

// TestEachBatchEnds shows that nothing is asked after an error, nor after the
// context is done, though the input never ends.
func TestEachBatchEnds(t *testing.T) {
	bad := errors.New("bad")
	endless := io.MultiReader(strings.NewReader("a\n"), blockReader{})
	err := rawKeys().eachBatch(t.Context(), newInput(nil, endless), func(*batch) error { return bad })
	if err != bad {
		t.Errorf("error %v, want that of the callback", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	endless = io.MultiReader(strings.NewReader("a\n"), blockReader{})
	calls := 0
	err = rawKeys().eachBatch(ctx, newInput(nil, endless), func(*batch) error {
		calls++
		cancel()
		return nil
	})
	if !errors.Is(err, errInterrupted) || err.Error() != "interrupted after stdin:1" || calls != 1 {
		t.Errorf("error %v after %d calls, want an interrupt after 1", err, calls)
	}
	endless = io.MultiReader(strings.NewReader("a\n"), blockReader{})
	err = rawKeys().eachBatch(ctx, newInput(nil, endless), func(*batch) error { return bad })
	if !errors.Is(err, errInterrupted) || !strings.HasSuffix(err.Error(), " before the first line was done") {
		t.Errorf("error %v, want an interrupt before the first line", err)
	}
}

type blockReader struct{}

func (blockReader) Read([]byte) (int, error) { select {} }
