package main

// A stream is cut into lines here. The rule: which lines come out depends on
// the bytes alone, never on how many of them one Read returned; and a line
// comes out as soon as its LF has been read.

import (
	"bytes"
	"fmt"
	"io"
	"sort"
	"strings"

	"dedupstore/store"
)

const (
	// batchLines is the number of lines that are claimed, written and committed
	// together: what a kill -9 may print twice.
	batchLines = 4096

	readBytes = 1 << 20 // 1 MiB, what one Read may return

	bom = "\uFEFF"

	// A line held longer than this has a key that is too long, whatever
	// follows: only a BOM and a CR do not count.
	maxHeld = store.MaxKeyBytes + len(bom) + len("\r")
)

// A batch is what goes through the store at once: at most batchLines lines.
type batch struct {
	lines   []string // as they came, without the LF
	keys    []string // the keys of lines
	places  []place  // where lines come from
	invalid []badLine
	failed  []error // files that could not be read to their end
}

func (b *batch) size() int { return len(b.lines) + len(b.invalid) }

func (b *batch) reset() {
	clear(b.lines)
	clear(b.keys)
	*b = batch{lines: b.lines[:0], keys: b.keys[:0], places: b.places[:0], invalid: b.invalid[:0]}
}

// A place says where the lines of a batch come from, beginning at an index: from
// consecutive lines of a file.
type place struct {
	index  int
	file   string
	number int64 // from 1
}

// add adds a line that is a key.
func (b *batch) add(line, key, file string, number int64) {
	i := len(b.lines)
	if last := len(b.places) - 1; last < 0 || b.places[last].file != file || b.places[last].at(i) != number {
		b.places = append(b.places, place{i, file, number})
	}
	b.lines = append(b.lines, line)
	b.keys = append(b.keys, key)
}

// at returns the number of the line at an index.
func (p place) at(index int) int64 { return p.number + int64(index-p.index) }

// bad returns the line at an index as one that is invalid after all.
func (b *batch) bad(index int, reason string) badLine {
	next := sort.Search(len(b.places), func(i int) bool { return b.places[i].index > index })
	p := b.places[next-1]
	return badLine{p.file, p.at(index), reason}
}

// A badLine is a line that is no key.
type badLine struct {
	file   string
	number int64 // from 1
	reason string
}

func (l badLine) String() string {
	return fmt.Sprintf("%s:%d: line is %s, passed over", l.file, l.number, l.reason)
}

// A lineReader cuts one stream into lines.
type lineReader struct {
	file   string // what messages call the stream
	r      io.Reader
	keys   *keyer
	buf    []byte
	held   int    // buf[:held] is the start of a line whose end is not read
	text   string // whole lines that are read and not handed out
	number int64  // lines handed out
	err    error  // what the last Read returned
}

// newLineReader uses buf, made by newLineBuffer, which may be used again
// when the reader is done.
func newLineReader(file string, r io.Reader, keys *keyer, buf []byte) *lineReader {
	return &lineReader{file: file, r: r, keys: keys, buf: buf}
}

func newLineBuffer() []byte { return make([]byte, maxHeld+1+readBytes) }

// fill reads until at least one line is whole. It returns io.EOF at the end
// of the stream, after the last line, which needs no LF.
func (lr *lineReader) fill() error {
	for lr.text == "" {
		if lr.err != nil {
			return lr.err
		}
		lr.read()
	}
	return nil
}

// read makes one Read. After an error other than io.EOF a line without LF is
// dropped: nobody knows how it would have ended.
func (lr *lineReader) read() {
	n, err := lr.r.Read(lr.buf[lr.held:][:readBytes])
	lr.err = err
	if lr.held > maxHeld { // the held line is too long: skip to its LF
		got := lr.buf[lr.held:][:n]
		lf := bytes.IndexByte(got, '\n')
		if lf < 0 {
			lf = n
		}
		n = copy(got, got[lf:])
	}
	data := lr.buf[:lr.held+n]
	whole := 0
	if lf := bytes.LastIndexByte(data[lr.held:], '\n'); lf >= 0 {
		whole = lr.held + lf + 1
	}
	if err == io.EOF {
		whole = len(data)
	}
	lr.text = string(data[:whole])
	lr.held = min(copy(lr.buf, data[whole:]), maxHeld+1)
}

// cut moves lines from the text into b until b is full.
func (lr *lineReader) cut(b *batch) {
	for lr.text != "" && b.size() < batchLines {
		line, rest := lr.text, ""
		if lf := strings.IndexByte(lr.text, '\n'); lf >= 0 {
			line, rest = lr.text[:lf], lr.text[lf+1:]
		}
		lr.text = rest
		lr.number++
		text := strings.TrimSuffix(line, "\r")
		if lr.number == 1 {
			text = strings.TrimPrefix(text, bom)
		}
		key, reason := lr.keys.key(text)
		if reason != "" {
			b.invalid = append(b.invalid, badLine{lr.file, lr.number, reason})
			continue
		}
		b.add(line, key, lr.file, lr.number)
	}
}
