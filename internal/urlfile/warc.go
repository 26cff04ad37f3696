package urlfile

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A warc reads the headers of records and skips what they head: of a WARC file,
// versions 0.17 to 1.1, the target URIs of responses, revisits and resources.
type warc struct {
	in     *bufio.Reader
	offset int64
	url    []byte
}

func newWARC(r io.Reader) *warc { return &warc{in: bufio.NewReaderSize(r, 64<<10)} }

func (w *warc) next() ([]byte, error) {
	for {
		h, err := w.header()
		if err == io.EOF {
			return nil, err
		}
		if err == nil && h.length >= 0 {
			err = w.skip(h.length)
		}
		if err != nil {
			return nil, placed(h.at, "%w", err)
		}
		switch h.kind {
		case "response", "revisit", "resource":
			if len(h.target) > 0 && !isNoPage(string(h.target)) {
				return h.target, nil
			}
		}
	}
}

// A warcHeader is what a record's header says.
type warcHeader struct {
	at     int64 // where it begins
	kind   string
	target []byte
	length int64
}

// header reads a header and the blank line behind it; io.EOF where no record
// begins any more.
func (w *warc) header() (h warcHeader, err error) {
	var line []byte
	for len(line) == 0 { // the two line ends behind the record before
		h.at = w.offset
		if line, err = w.line(); err != nil {
			return h, err
		}
	}
	if !bytes.HasPrefix(line, []byte("WARC/")) {
		return h, fmt.Errorf("%.20q begins no record", line)
	}
	h.length = -1
	for size := 0; ; size += len(line) {
		if line, err = w.line(); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		switch {
		case err != nil:
			return h, err
		case size > maxURLBytes:
			return h, fmt.Errorf("a header longer than 1 MiB")
		case len(line) == 0 && h.length < 0:
			return h, fmt.Errorf("a header without Content-Length")
		case len(line) == 0:
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch strings.ToLower(string(name)) {
		case "warc-type":
			h.kind = strings.ToLower(string(value))
		case "warc-target-uri":
			value = bytes.TrimSuffix(bytes.TrimPrefix(value, []byte("<")), []byte(">")) // wget writes these
			h.target = append(h.target[:0], value...)
		case "content-length":
			if h.length, err = strconv.ParseInt(string(value), 10, 64); err != nil || h.length < 0 {
				return h, fmt.Errorf("the Content-Length %.20q", value)
			}
		}
	}
}

// line reads a line, without its end.
func (w *warc) line() ([]byte, error) {
	w.url = w.url[:0]
	for {
		part, err := w.in.ReadSlice('\n')
		w.offset += int64(len(part))
		w.url = append(w.url, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(w.url, "\r\n"), nil
		case err == io.EOF && len(w.url) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != bufio.ErrBufferFull:
			return nil, err
		case len(w.url) > maxURLBytes:
			return nil, fmt.Errorf("a line longer than 1 MiB")
		}
	}
}

// skip passes over the block of a record.
func (w *warc) skip(n int64) error {
	skipped, err := io.CopyN(io.Discard, w.in, n)
	w.offset += skipped
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
