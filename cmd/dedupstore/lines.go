package main

// A stream is cut into lines here. The rule: which lines come out depends on
// the bytes alone, never on how many of them one Read returned; and a line
// comes out as soon as its end has been read.

import (
	"bytes"
	"fmt"
	"io"
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

// A lineRule says what a line is, and what of it is the key.
type lineRule struct {
	end    byte // of a line, 0 or LF
	key    keyRule
	format formatRule
	strict bool // the first line that has no key is the last
}

// plainLines are the lines of a text.
var plainLines = lineRule{end: '\n'}

// A batch is what goes through the store at once: at most batchLines lines.
type batch struct {
	lines   []string  // as they came, without their end
	keys    []string  // the keys of lines
	invalid []badLine // in their order
	failed  []error   // files that could not be read to their end
	last    place     // of the last line
}

func (b *batch) size() int { return len(b.lines) + len(b.invalid) }

func (b *batch) reset() {
	clear(b.lines)
	clear(b.keys)
	clear(b.invalid)
	*b = batch{lines: b.lines[:0], keys: b.keys[:0], invalid: b.invalid[:0]}
}

// A place is where a line came from.
type place struct {
	file   string
	number int64 // from 1
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.number) }

// A badLine is a line that has no key.
type badLine struct {
	place
	line   string // as it came, or the start of one that is too long
	before int    // as many of the batch's lines came before it
	reason string
}

func (l badLine) String() string {
	return fmt.Sprintf("%v: line is %s, passed over", l.place, l.reason)
}

// A lineReader cuts one stream into lines.
type lineReader struct {
	place  // what messages call the stream, and lines handed out
	end    byte
	strict bool
	keys   *keyer
	r      io.Reader
	buf    []byte
	held   int    // buf[:held] is the start of a line whose end is not read
	text   string // whole lines that are read and not handed out
	err    error  // what the last Read returned
}

// newLineReader uses buf, made by newLineBuffer, which may be used again
// when the reader is done.
func newLineReader(file string, r io.Reader, rule lineRule, keys *keyer, buf []byte) *lineReader {
	return &lineReader{place: place{file: file}, end: rule.end, strict: rule.strict, keys: keys, r: r, buf: buf}
}

func newLineBuffer() []byte { return make([]byte, maxHeld+1+readBytes) }

// fill reads until at least one line is whole. It returns io.EOF at the end
// of the stream, after the last line, which needs no end.
func (lr *lineReader) fill() error {
	for lr.text == "" {
		if lr.err != nil {
			return lr.err
		}
		lr.read()
	}
	return nil
}

// read makes one Read. After an error other than io.EOF a line without an end is
// dropped: nobody knows how it would have ended.
func (lr *lineReader) read() {
	n, err := lr.r.Read(lr.buf[lr.held:][:readBytes])
	lr.err = err
	if lr.held > maxHeld { // the held line is too long: skip to its end
		got := lr.buf[lr.held:][:n]
		end := bytes.IndexByte(got, lr.end)
		if end < 0 {
			end = n
		}
		n = copy(got, got[end:])
	}
	data := lr.buf[:lr.held+n]
	whole := 0
	if end := bytes.LastIndexByte(data[lr.held:], lr.end); end >= 0 {
		whole = lr.held + end + 1
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
		if end := strings.IndexByte(lr.text, lr.end); end >= 0 {
			line, rest = lr.text[:end], lr.text[end+1:]
		}
		lr.text = rest
		lr.number++
		bare := line
		if lr.end == '\n' {
			bare = strings.TrimSuffix(bare, "\r")
		}
		if lr.number == 1 {
			bare = strings.TrimPrefix(bare, bom)
		}
		key, reason := lr.keys.key(bare)
		if reason == noRecord {
			continue
		}
		if reason != "" {
			line = line[:min(len(line), maxHeld)] // however much of it was read at once
			b.invalid = append(b.invalid, badLine{lr.place, line, len(b.lines), reason})
			if lr.strict {
				lr.text, lr.err = "", errInvalidLine
			}
			continue
		}
		b.lines = append(b.lines, line)
		b.keys = append(b.keys, key)
	}
	b.last = lr.place
}
