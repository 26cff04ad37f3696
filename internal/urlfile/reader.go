package urlfile

import (
	"fmt"
	"io"
)

// NewReader turns a file that has no lines into lines with a URL each; nil for a
// format of lines. What comes before damage is read before its error, which says
// at which byte of r it is. Memory is bounded, whatever comes.
func NewReader(f Format, r io.Reader) io.Reader {
	switch f {
	case Sitemap:
		return &urlReader{next: newSitemap(r).next}
	case WARC:
		return &urlReader{next: newWARC(r).next}
	}
	return nil
}

// maxURLBytes bounds a URL, and what is read to find it.
const maxURLBytes = 1 << 20

// placed says where an error is.
func placed(offset int64, format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", offset, fmt.Errorf(format, args...))
}

// A urlReader writes one URL after the other as lines.
type urlReader struct {
	next func() (url []byte, err error) // without line ends
	line []byte                         // of which held is still to be read
	held []byte
	err  error
}

func (r *urlReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.held) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		var url []byte
		if url, r.err = r.next(); r.err == nil {
			r.line = append(append(r.line[:0], url...), '\n')
			r.held = r.line
		}
	}
	n := copy(p, r.held)
	r.held = r.held[n:]
	return n, nil
}

// appendURL appends a URL as it stands in a file, without line ends and tabs, of
// which it has none that count, and without blanks around it.
func appendURL(dst []byte, text []byte) []byte {
	for _, b := range text {
		if b != '\n' && b != '\r' && b != '\t' {
			dst = append(dst, b)
		}
	}
	return dst
}
