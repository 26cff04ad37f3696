package main

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"dedupstore/store"
)

// rawKeys is a program whose keys are lines as they are.
func rawKeys() *program { return &program{} }

// rawAdding makes a store of such keys.
func rawAdding() adding { return adding{options: store.Options{KeyProfile: "none/1"}} }

// A cutLine is a line, its key, and why it is invalid, if it is.
type cutLine struct{ line, key, reason string }

// cutOracle cuts data with no thought for speed, memory or chunks.
func cutOracle(data string, end byte) []cutLine {
	var lines []cutLine
	for i, line := range strings.SplitAfter(data, string(end)) {
		if line == "" {
			continue // what is behind the last end
		}
		line = strings.TrimSuffix(line, string(end))
		key := line
		if i == 0 {
			key = strings.TrimPrefix(key, bom)
		}
		if end == '\n' {
			key = strings.TrimSuffix(key, "\r")
		}
		_, reason := newKeyer(keyRule{}, nil).key(key)
		lines = append(lines, cutLine{line, key, reason})
	}
	return lines
}

// cutAll cuts what r yields with a lineReader, and checks the batches.
func cutAll(t *testing.T, r io.Reader, end byte) ([]cutLine, error) {
	lr := newLineReader("file", r, lineRule{end: end}, newKeyer(keyRule{}, nil), newLineBuffer())
	var lines []cutLine
	for {
		if err := lr.fill(); err == io.EOF {
			return lines, nil
		} else if err != nil {
			return lines, err
		}
		for lr.text != "" {
			b := &batch{}
			lr.cut(b)
			if b.size() == 0 || b.size() > batchLines || len(b.lines) != len(b.keys) {
				t.Fatalf("batch of %d lines, %d keys, %d invalid", len(b.lines), len(b.keys), len(b.invalid))
			}
			bad := b.invalid
			for i := range len(b.lines) + 1 {
				for ; len(bad) > 0 && bad[0].before == i; bad = bad[1:] {
					if want := int64(len(lines) + 1); bad[0].number != want {
						t.Fatalf("invalid line is numbered %d, want %d", bad[0].number, want)
					}
					lines = append(lines, cutLine{line: bad[0].line, reason: bad[0].reason})
				}
				if i < len(b.lines) {
					lines = append(lines, cutLine{line: b.lines[i], key: b.keys[i]})
				}
			}
			if want := (place{"file", int64(len(lines))}); len(bad) > 0 || b.last != want {
				t.Fatalf("%d invalid lines are left, the last line is %v, want %v", len(bad), b.last, want)
			}
		}
	}
}

// A chunkReader yields data in chunks of the given sizes, over and over.
type chunkReader struct {
	data    string
	sizes   []int
	n       int
	withEOF bool // the last chunk comes with io.EOF
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if c.data == "" {
		return 0, io.EOF
	}
	size := min(max(c.sizes[c.n%len(c.sizes)], 0), len(p), len(c.data))
	c.n++
	copy(p, c.data[:size])
	c.data = c.data[size:]
	if c.data == "" && c.withEOF {
		return size, io.EOF
	}
	return size, nil
}

// checkCut cuts data into lines that end with LF, and with NUL.
func checkCut(t *testing.T, data string, sizes []int, withEOF bool) {
	t.Helper()
	checkCutAt(t, '\n', data, sizes, withEOF)
	checkCutAt(t, 0, strings.ReplaceAll(data, "\n", "\x00"), sizes, withEOF)
}

func checkCutAt(t *testing.T, end byte, data string, sizes []int, withEOF bool) {
	t.Helper()
	got, err := cutAll(t, &chunkReader{data: data, sizes: sizes, withEOF: withEOF}, end)
	if err != nil {
		t.Fatal(err)
	}
	want := cutOracle(data, end)
	for i := range want {
		if want[i].reason != "" {
			want[i].key, want[i].line = "", want[i].line[:min(len(want[i].line), maxHeld)]
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("line %d is %.60q, want %.60q", i+1, got[i], want[i])
		}
	}
}

func TestLines(t *testing.T) {
	for _, test := range []struct {
		name, data string
		want       []cutLine
	}{
		{"nothing", "", nil},
		{"one line", "a\n", []cutLine{{"a", "a", ""}}},
		{"no final LF", "a\nb", []cutLine{{"a", "a", ""}, {"b", "b", ""}}},
		{"CR", "a\r\nb\r\r\nc\rd\n\re\r", []cutLine{
			{"a\r", "a", ""}, {"b\r\r", "b\r", ""}, {"c\rd", "c\rd", ""}, {"\re\r", "\re", ""}}},
		{"empty", "\n\r\na\n", []cutLine{{reason: "empty"}, {line: "\r", reason: "empty"}, {"a", "a", ""}}},
		{"BOM", bom + "a\n" + bom + "a\n", []cutLine{{bom + "a", "a", ""}, {bom + "a", bom + "a", ""}}},
		{"nothing but BOM", bom, []cutLine{{line: bom, reason: "empty"}}},
		{"half a BOM", bom[:2] + "\n", []cutLine{{bom[:2], bom[:2], ""}}},
		{"BOM and CR", bom + "\r\n", []cutLine{{line: bom + "\r", reason: "empty"}}},
		{"NUL", "\x00\na\x00b\n", []cutLine{{"\x00", "\x00", ""}, {"a\x00b", "a\x00b", ""}}},
		{"no UTF-8", "\xff\xfe\n", []cutLine{{"\xff\xfe", "\xff\xfe", ""}}},
		{"spaces", " a \n\t\n", []cutLine{{" a ", " a ", ""}, {"\t", "\t", ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 100} {
				got, err := cutAll(t, &chunkReader{data: test.data, sizes: []int{size}}, '\n')
				if err != nil || !reflect.DeepEqual(got, test.want) {
					t.Errorf("read by %d: %q, %v, want %q", size, got, err, test.want)
				}
				checkCut(t, test.data, []int{size}, true)
			}
		})
	}
}

func TestLinesOfLimit(t *testing.T) {
	for _, size := range []int{
		store.MaxKeyBytes, store.MaxKeyBytes + 1, store.MaxKeyBytes + 2,
		maxHeld, maxHeld + 1, 2*readBytes + 7,
	} {
		long := strings.Repeat("x", size)
		for _, end := range []string{"", "\n", "\r\n", "\r", "\n\n" + long + "\nb\n"} {
			for _, start := range []string{"", bom, "a\n"} {
				data := start + long + end
				checkCut(t, data, []int{readBytes}, false)
				checkCut(t, data, []int{readBytes - 1, 17, 1, 0}, true)
				checkCut(t, data, []int{65536}, false)
			}
		}
	}
}

// TestLongLineIsNotHeld reads a line far longer than memory should be.
func TestLongLineIsNotHeld(t *testing.T) {
	endless := io.LimitReader(endlessX{}, 64<<20)
	lines, err := cutAll(t, io.MultiReader(strings.NewReader("a\n"), endless, strings.NewReader("\nb\n")), '\n')
	want := []cutLine{{"a", "a", ""}, {line: strings.Repeat("x", maxHeld), reason: "longer than 1 MiB"}, {"b", "b", ""}}
	if err != nil || !reflect.DeepEqual(lines, want) {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

type endlessX struct{}

func (endlessX) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestLinesBeforeError keeps whole lines and drops one that may be cut off.
func TestLinesBeforeError(t *testing.T) {
	bad := fmt.Errorf("broken")
	lines, err := cutAll(t, io.MultiReader(strings.NewReader("a\nb\nhttps://exam"), errReader{bad}), '\n')
	if want := []cutLine{{"a", "a", ""}, {"b", "b", ""}}; err != bad || !reflect.DeepEqual(lines, want) {
		t.Errorf("%q, %v, want %q and the error", lines, err, want)
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func FuzzLines(f *testing.F) {
	f.Add("a\nb\r\n\nc", []byte{1}, false)
	f.Add(bom+"a\n"+bom+"a", []byte{2, 3}, true)
	f.Add("\r\n\r\r\n\x00", []byte{1, 0, 200}, false)
	f.Add("{LONG}\na\n{LONG}", []byte{255, 1}, true)
	f.Fuzz(func(t *testing.T, data string, chunks []byte, withEOF bool) {
		// A line near the limit, for short inputs.
		if strings.Count(data, "{LONG}") <= 3 {
			data = strings.ReplaceAll(data, "{LONG}", strings.Repeat("x", store.MaxKeyBytes))
		}
		sizes := []int{1}
		for _, c := range chunks {
			sizes = append(sizes, int(c)*int(c))
		}
		checkCut(t, data, sizes, withEOF)
	})
}

func BenchmarkLines(b *testing.B) {
	var data bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&data, "https://example.com/some/path/%d?page=%d\n", i, i%7)
	}
	keys, buf := newKeyer(keyRule{}, nil), newLineBuffer()
	var batch batch
	b.SetBytes(int64(data.Len()))
	for b.Loop() {
		lr := newLineReader("", bytes.NewReader(data.Bytes()), plainLines, keys, buf)
		for lr.fill() == nil {
			for lr.text != "" {
				lr.cut(&batch)
				batch.reset()
			}
		}
	}
}
