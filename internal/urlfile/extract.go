package urlfile

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Options say which part of a record is the URL.
type Options struct {
	// Column of CSV and TSV: the name of it in the first line, or its number, from
	// 1, which takes the first line for a record too. Default: the one that the
	// first line calls url, uri, link, loc, address or href, else the first one.
	Column string
	// Field of JSON Lines: a name, or several with dots between them, for an object
	// in an object. Default: url.
	Field string
}

// ErrSkip is the error of a line that is no record, or one of something that was
// not fetched.
var ErrSkip = errors.New("urlfile: no record")

// An Extractor finds the URLs in the lines of one file, in their order. Its format
// is one of lines.
type Extractor struct {
	options Options
	of      func(x *Extractor, line string) (url string, err error)
	column  int // of CSV, TSV and CDX; -1: not known yet
	columns int // of CDX, by its header; 0: it has none
	comma   string
}

// NewExtractor returns an extractor for one file; nil for Lines, of which a line is
// a URL, and for the formats that NewReader turns into lines.
func NewExtractor(f Format, o Options) *Extractor {
	x := &Extractor{options: o, column: -1}
	switch f {
	case CSV:
		x.of = (*Extractor).fromCSV
	case TSV:
		x.of = (*Extractor).fromTSV
	case JSONL:
		x.of = (*Extractor).fromJSON
	case CDX:
		x.of = (*Extractor).fromCDX
	case CDXJ:
		x.of = (*Extractor).fromCDXJ
	case CrawlLog:
		x.of = (*Extractor).fromCrawlLog
	case ScrapySeen:
		x.of = (*Extractor).fromSeen
	default:
		return nil
	}
	return x
}

// URL returns the URL in a line, without its end and without a byte order mark.
// ErrSkip means that there is none to be had; any other error says why the line is
// a bad record.
func (x *Extractor) URL(line string) (string, error) {
	if line == "" {
		return "", ErrSkip
	}
	return x.of(x, line)
}

// csvFields reads a line of CSV. A field that holds a line end is none: lines are
// filtered one by one.
func csvFields(line string) ([]string, error) {
	r := csv.NewReader(strings.NewReader(line))
	r.FieldsPerRecord = -1
	fields, err := r.Read()
	if err == io.EOF {
		return nil, nil
	}
	if err != nil {
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return nil, err
	}
	return fields, nil
}

func (x *Extractor) fromCSV(line string) (string, error) {
	fields, err := csvFields(line)
	if err != nil {
		return "", err
	}
	return x.fromColumns(fields)
}

// fromTSV knows no quotes: a tab is never in a field.
func (x *Extractor) fromTSV(line string) (string, error) {
	return x.fromColumns(strings.Split(line, "\t"))
}

func (x *Extractor) fromColumns(fields []string) (string, error) {
	if x.column < 0 {
		if isHeader, err := x.findColumn(fields); isHeader || err != nil {
			return "", cmp.Or(err, ErrSkip)
		}
	}
	if x.column >= len(fields) {
		return "", fmt.Errorf("of %d columns, and the URL is in column %d", len(fields), x.column+1)
	}
	return fields[x.column], nil
}

// findColumn finds the URL's column, and reports whether the line is a header.
func (x *Extractor) findColumn(fields []string) (isHeader bool, err error) {
	want := x.options.Column
	if n, err := strconv.Atoi(want); err == nil && n > 0 {
		x.column = n - 1
		return false, nil
	}
	if want == "" {
		if x.column = urlColumn(fields); x.column < 0 {
			x.column = 0
			return false, nil
		}
		return true, nil
	}
	for i, name := range fields {
		if strings.TrimSpace(name) == want {
			x.column = i
			return true, nil
		}
	}
	return false, fmt.Errorf("without a column %q in the first line", want)
}

func (x *Extractor) fromJSON(line string) (string, error) {
	field := x.options.Field
	if field == "" {
		field = "url"
	}
	return jsonField(line, field)
}

// jsonField returns the string at a path of an object.
func jsonField(text, path string) (string, error) {
	raw := json.RawMessage(text)
	for name := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return "", fmt.Errorf("no JSON object: %w", err)
		}
		value, ok := object[name]
		if !ok {
			return "", fmt.Errorf("without a field %q", path)
		}
		raw = value
	}
	var url string
	if err := json.Unmarshal(raw, &url); err != nil {
		return "", fmt.Errorf("one whose field %q is no string", path)
	}
	return url, nil
}

// cdxHeader reports whether a line names the columns of a CDX file: the delimiter,
// "CDX", and a letter for each.
func cdxHeader(line string) bool {
	return len(line) > 5 && line[1:4] == "CDX" && line[4] == line[0] && !isWord(line[0])
}

func isWord(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}

// cdxURL is where the original URL is in both of the usual orders, "N b a ...".
const cdxURL = 2

func (x *Extractor) fromCDX(line string) (string, error) {
	if cdxHeader(line) {
		x.comma = line[:1]
		x.column = -1
		letters := strings.Split(line[5:], line[:1])
		x.columns = len(letters)
		for i, letter := range letters {
			if letter == "a" || letter == "A" && x.column < 0 {
				x.column = i
			}
		}
		if x.column < 0 {
			return "", errors.New("a header that names no column of URLs")
		}
		return "", ErrSkip
	}
	if x.column < 0 {
		x.column, x.comma = cdxURL, " "
	}
	fields := strings.Split(line, x.comma)
	if len(fields) < x.columns || len(fields) <= x.column+1 { // with none behind it, the URL may be cut
		return "", fmt.Errorf("of %d columns, and the URL is in column %d of more", len(fields), x.column+1)
	}
	if fields[x.column] == "-" {
		return "", ErrSkip
	}
	return fields[x.column], nil
}

func (x *Extractor) fromCDXJ(line string) (string, error) {
	if strings.HasPrefix(line, "!") {
		return "", ErrSkip // metadata
	}
	_, rest, _ := strings.Cut(line, " ")
	_, text, ok := strings.Cut(rest, " ")
	if !ok {
		return "", errors.New("of fewer than three parts")
	}
	return jsonField(text, "url")
}

// fromCrawlLog takes what has an answer: a status of 0 or less is Heritrix' own.
func (x *Extractor) fromCrawlLog(line string) (string, error) {
	fields := strings.Fields(line)
	if len(fields) < 5 { // with none behind it, the URL may be cut
		return "", fmt.Errorf("of %d columns, and the URL is in column 4 of more", len(fields))
	}
	status, err := strconv.Atoi(fields[1])
	if err != nil {
		return "", errors.New("without a status in column 2")
	}
	if status <= 0 || isNoPage(fields[3]) {
		return "", ErrSkip
	}
	return fields[3], nil
}

// isNoPage reports whether crawlers note a URL that is no page's.
func isNoPage(url string) bool {
	return strings.HasPrefix(url, "dns:") || strings.HasPrefix(url, "whois:")
}

// fromSeen makes a URL of a fingerprint: of which page it is nobody can tell.
func (x *Extractor) fromSeen(line string) (string, error) {
	line = strings.TrimRight(line, "\r") // Scrapy before 2.0 wrote two on Windows
	if !seenLine.MatchString(line) {
		return "", errors.New("no fingerprint of 40 hexadecimal digits")
	}
	return "scrapy:" + line, nil
}
