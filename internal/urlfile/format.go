// Package urlfile finds the URLs in the files that crawlers leave. Of a format of
// lines it says which part of a line is the URL; one that has no lines, XML or
// WARC, it turns into lines with a URL each. It knows nothing of stores.
package urlfile

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// A Format is a kind of file that holds URLs.
type Format string

const (
	Lines      Format = "lines"
	CSV        Format = "csv"
	TSV        Format = "tsv"
	JSONL      Format = "jsonl"
	CDX        Format = "cdx"
	CDXJ       Format = "cdxj"
	CrawlLog   Format = "crawl-log"
	ScrapySeen Format = "scrapy-seen"
	Sitemap    Format = "sitemap"
	WARC       Format = "warc"
)

// A FormatInfo says what a format is.
type FormatInfo struct {
	Format Format
	What   string
}

var formats = []FormatInfo{
	{Lines, "a URL a line"},
	{CSV, "columns with commas, one with URLs"},
	{TSV, "the same with tabs"},
	{JSONL, "a JSON object a line"},
	{CDX, "index of a web archive, 9 or 11 columns"},
	{CDXJ, "the same with JSON, as Common Crawl has it"},
	{CrawlLog, "crawl.log of Heritrix: what was fetched"},
	{ScrapySeen, "requests.seen of Scrapy, as scrapy:HEX"},
	{Sitemap, "sitemaps, indexes of them, RSS, Atom"},
	{WARC, "responses, revisits and resources"},
}

// Formats returns all formats.
func Formats() []FormatInfo { return formats }

// ParseFormat reads a format's name.
func ParseFormat(s string) (Format, error) {
	var names []string
	for _, f := range formats {
		if s == string(f.Format) {
			return f.Format, nil
		}
		names = append(names, string(f.Format))
	}
	return "", fmt.Errorf("unknown format %q, known: %s", s, strings.Join(names, ", "))
}

// headBytes are enough to tell a format by.
const headBytes = 4 << 10

const bom = "\uFEFF"

// Detect tells the format of an unpacked file that begins with head. It looks at
// the first line, and says that it wants more while that may decide; who has no
// more takes the format for decided. Whatever is nothing else is Lines.
func Detect(head []byte) (f Format, more bool) {
	text := bytes.TrimPrefix(head, []byte(bom))
	line, _, whole := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	switch {
	case bytes.HasPrefix(line, []byte("WARC/")):
		return WARC, false
	case bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("<")):
		return Sitemap, false
	case whole && len(bytes.TrimSpace(text)) == 0 && len(head) < headBytes:
		return Lines, true // blank lines may come before XML
	case !whole && len(head) < headBytes:
		return detectLine(string(line)), true
	}
	return detectLine(string(line)), false
}

var (
	cdxjLine  = regexp.MustCompile(`^\S+ \d{14} *\{|^!`)
	cdxLine   = regexp.MustCompile(`^\S+ \d{14} \S+ \S+ \S+( \S+){4}(( \S+){2})?$`)
	crawlLine = regexp.MustCompile(`^(\d{17}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z) +-?\d+ +\S+ +[a-z][a-z0-9+.-]*:\S* `)
	seenLine  = regexp.MustCompile(`^[0-9a-f]{40}\r*$`)
)

func detectLine(line string) Format {
	switch {
	case cdxHeader(line):
		return CDX
	case cdxjLine.MatchString(line):
		return CDXJ
	case cdxLine.MatchString(line):
		return CDX
	case crawlLine.MatchString(line):
		return CrawlLog
	case seenLine.MatchString(line):
		return ScrapySeen
	case strings.HasPrefix(line, "{"):
		return JSONL
	case urlColumn(strings.Split(line, "\t")) >= 0 && strings.Contains(line, "\t"):
		return TSV
	case strings.Contains(line, ",") && !strings.Contains(line, "://"):
		if fields, err := csvFields(line); err == nil && urlColumn(fields) >= 0 {
			return CSV
		}
	}
	return Lines
}

// urlColumn finds the column that a header names a URL's, -1 if it names none.
func urlColumn(header []string) int {
	for i, name := range header {
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "url", "urls", "uri", "link", "loc", "address", "href":
			return i
		}
	}
	return -1
}
