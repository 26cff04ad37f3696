package urlfile

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A sitemap reads the locations of sitemaps and of indexes of sitemaps, and the
// links of RSS and Atom. Elements are told by their local names: wrong and missing
// namespaces are common.
type sitemap struct {
	in   boundedReader
	xml  *xml.Decoder
	open []string // the elements around the place
	root bool     // it has been there
	text []byte   // of the element that holds a URL
	url  []byte
}

// maxDepth of elements; a sitemap has three.
const maxDepth = 100

func newSitemap(r io.Reader) *sitemap {
	s := &sitemap{in: boundedReader{r: r}}
	s.xml = xml.NewDecoder(&s.in)
	s.xml.Strict = false // entities of HTML are common in links
	s.xml.Entity = xml.HTMLEntity
	s.xml.CharsetReader = latin1
	return s
}

func (s *sitemap) next() ([]byte, error) {
	for {
		s.in.left = maxURLBytes
		token, err := s.xml.RawToken()
		if err == io.EOF && (len(s.open) > 0 || !s.root) {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			return nil, err
		}
		if err != nil {
			return nil, placed(s.xml.InputOffset(), "%w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if err := s.start(t); err != nil {
				return nil, placed(s.xml.InputOffset(), "%w", err)
			}
			if len(s.url) > 0 {
				return s.take(), nil
			}
		case xml.CharData:
			if len(s.open) > 0 && isURLElement(s.open) {
				if s.text = append(s.text, t...); len(s.text) > maxURLBytes {
					return nil, placed(s.xml.InputOffset(), "a URL longer than 1 MiB")
				}
			}
		case xml.EndElement:
			if len(s.open) == 0 || s.open[len(s.open)-1] != t.Name.Local {
				return nil, placed(s.xml.InputOffset(), "</%s> ends nothing", t.Name.Local)
			}
			if isURLElement(s.open) {
				s.url, s.text = appendURL(s.url, bytes.TrimSpace(s.text)), s.text[:0]
			}
			s.open = s.open[:len(s.open)-1]
			if len(s.url) > 0 {
				return s.take(), nil
			}
		}
	}
}

// take returns the URL that was found.
func (s *sitemap) take() []byte {
	url := s.url
	s.url = nil
	return url
}

// roots are the elements that files with URLs have outermost.
var roots = map[string]bool{"urlset": true, "sitemapindex": true, "rss": true, "feed": true, "rdf": true}

func (s *sitemap) start(t xml.StartElement) error {
	name := t.Name.Local
	switch {
	case len(s.open) == 0 && !roots[strings.ToLower(name)]:
		return fmt.Errorf("<%s> is neither a sitemap nor a feed", name)
	case len(s.open) == maxDepth:
		return errors.New("its elements are too deep")
	}
	s.root = true
	s.open, s.text = append(s.open, name), s.text[:0]
	if s.open[0] == "feed" && name == "link" {
		s.url = appendURL(s.url, atomLink(t.Attr))
	}
	return nil
}

// atomLink is where a link of Atom leads, if that is the page itself.
func atomLink(attr []xml.Attr) (href []byte) {
	for _, a := range attr {
		switch {
		case a.Name.Local == "rel" && a.Value != "alternate":
			return nil
		case a.Name.Local == "href":
			href = []byte(a.Value)
		}
	}
	return href
}

// isURLElement reports whether the innermost element holds a URL: loc in url or
// sitemap, and not that of an image or a video; a sitemap without loc; link in an
// item.
func isURLElement(open []string) bool {
	name := open[len(open)-1]
	if len(open) < 2 {
		return false
	}
	parent := open[len(open)-2]
	switch name {
	case "loc":
		return parent == "url" || parent == "sitemap"
	case "sitemap":
		return parent == "sitemapindex"
	case "link":
		return parent == "item"
	}
	return false
}

// latin1 reads what is not UTF-8 as if it were Latin-1: of URLs only the bytes
// above 127 can be wrong then.
func latin1(_ string, r io.Reader) (io.Reader, error) { return &latin1Reader{r: r}, nil }

type latin1Reader struct {
	r    io.Reader
	held []byte
}

func (l *latin1Reader) Read(p []byte) (int, error) {
	if len(l.held) == 0 {
		var buf [512]byte
		n, err := l.r.Read(buf[:])
		l.held = l.held[:0]
		for _, b := range buf[:n] {
			l.held = append(l.held, string(rune(b))...)
		}
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, l.held)
	l.held = l.held[n:]
	return n, nil
}

// A boundedReader ends when more is read for one token than is left.
type boundedReader struct {
	r    io.Reader
	left int
}

var errToken = errors.New("a token longer than 1 MiB")

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errToken
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
