package urlfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A found is what a file holds.
type found struct {
	urls []string
	bad  []string // "line: reason" of bad records
	err  error    // that ended it
}

// read finds the URLs of a file as its user does: a format without lines is made
// lines of, and of a line the URL is taken.
func read(f Format, o Options, r io.Reader) (got found) {
	if lines := NewReader(f, r); lines != nil {
		b, err := io.ReadAll(lines)
		got.urls, got.err = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), err
		if len(b) == 0 {
			got.urls = nil
		}
		return got
	}
	b, err := io.ReadAll(r)
	got.err = err
	x := NewExtractor(f, o)
	for i, line := range strings.Split(strings.TrimPrefix(string(b), bom), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if x == nil {
			if line != "" {
				got.urls = append(got.urls, line)
			}
			continue
		}
		switch url, err := x.URL(line); {
		case err == nil:
			got.urls = append(got.urls, url)
		case !errors.Is(err, ErrSkip):
			got.bad = append(got.bad, fmt.Sprintf("%d: %v", i+1, err))
		}
	}
	return got
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err == nil {
			b, err = io.ReadAll(z)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// files are the test files, with how many URLs are in them by another count.
var files = []struct {
	name   string
	format Format
	o      Options
	urls   int
	bad    int
	count  string // what counts them too
	some   []string
}{
	{"cc-xmlSitemap.xml", Sitemap, Options{}, 5, 0, "grep -o '<loc>' | wc -l", []string{"http://www.example.com/catalog?item=12&desc=vacation_hawaii"}},
	{"cc-sitemap.badns.xml", Sitemap, Options{}, 2, 0, "grep -o '<loc>' | wc -l", []string{"http://www.example.com/1", "http://www.example.com/2"}},
	{"cc-sitemap.ns.xml", Sitemap, Options{}, 2, 0, "grep -o ':loc>' | wc -l, halved", nil},
	{"cc-sitemap-links.xml", Sitemap, Options{}, 3, 0, "grep -o '<loc>' | wc -l", nil},
	{"cc-sitemap.index.xml", Sitemap, Options{}, 15, 0, "grep -c '^https'", []string{"https://example.com/sitemap.jss?portalCode=10260&lang=en"}},
	{"cc-atom.xml", Sitemap, Options{}, 3, 0, "grep '<link' | grep -vc 'self\\|edit'", []string{"http://example.org/2003/12/13/atom03.html"}},
	{"iipc-IAH-urls-wget.warc.gz", WARC, Options{}, 19, 0, "zgrep -a -c '^WARC-Type: res'", []string{"http://www.archive.org/"}},
	{"crawl.log", CrawlLog, Options{}, 3, 0, "awk '$2 > 1' | wc -l", []string{"http://www.example.org/gone?x=1"}},
	{"cdx11.txt", CDX, Options{}, 3, 0, "tail -n +2 | wc -l", []string{"http://www.example.org/a?b=1"}},
	{"cdx9.txt", CDX, Options{}, 2, 0, "wc -l", []string{"http://www.example.org/b"}},
	{"cdxj.txt", CDXJ, Options{}, 2, 0, "grep -vc '^!'", []string{"http://www.example.org/search"}},
	{"common-crawl.cdxj", CDXJ, Options{}, 2, 0, "wc -l", []string{"https://example.org/robots.txt"}},
	{"feed.jsonl", JSONL, Options{}, 2, 3, "grep -c '/[12]\"'", []string{"https://example.org/2"}},
	{"feed.jsonl", JSONL, Options{Field: "page.url"}, 1, 4, "grep -c inner", []string{"https://example.org/inner"}},
	{"pages.csv", CSV, Options{}, 2, 1, "grep -c https", []string{"https://example.org/2?x=1,2"}},
	{"pages.csv", CSV, Options{Column: "title"}, 2, 1, "", []string{"a, b"}},
	{"pages.csv", CSV, Options{Column: "1"}, 4, 0, "wc -l", []string{"id", "3"}},
	{"pages.csv", CSV, Options{Column: "uri"}, 0, 4, "wc -l", nil},
	{"pages.tsv", TSV, Options{}, 2, 0, "grep -c https", []string{"https://example.org/2"}},
	{"requests.seen", ScrapySeen, Options{}, 2, 1, "grep -c ...........", []string{"scrapy:0123456789abcdef0123456789abcdef01234567"}},
}

func TestFiles(t *testing.T) {
	for _, f := range files {
		t.Run(fmt.Sprint(f.name, f.o), func(t *testing.T) {
			data := readFile(t, f.name)
			if got, _ := Detect(data[:min(len(data), headBytes)]); got != f.format {
				t.Errorf("detected as %s, want %s", got, f.format)
			}
			got := read(f.format, f.o, bytes.NewReader(data))
			if len(got.urls) != f.urls || len(got.bad) != f.bad || got.err != nil {
				t.Errorf("%d URLs, want %d; bad are %q, want %d; %v", len(got.urls), f.urls, got.bad, f.bad, got.err)
			}
			for _, url := range f.some {
				if !slices.Contains(got.urls, url) {
					t.Errorf("%s is not among %q", url, got.urls)
				}
			}
			if slow := read(f.format, f.o, iotest.OneByteReader(bytes.NewReader(data))); !slices.Equal(slow.urls, got.urls) {
				t.Errorf("read byte by byte it has %q", slow.urls)
			}
		})
	}
}

// TestDamagedFiles cuts the files and flips bytes in them: what comes before the
// damage is found, and the error says where it is.
func TestDamagedFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range files {
		data := readFile(t, f.name)
		good := read(f.format, f.o, bytes.NewReader(data))
		if NewReader(f.format, bytes.NewReader(nil)) == nil {
			for range 200 { // a line is damaged for itself
				flipped := bytes.Clone(data)
				flipped[rng.IntN(len(flipped))] ^= 1 << rng.IntN(8)
				read(f.format, f.o, bytes.NewReader(flipped))
				read(f.format, f.o, bytes.NewReader(data[:rng.IntN(len(data))]))
			}
			continue
		}
		for range 100 {
			cut := rng.IntN(len(data))
			got := read(f.format, f.o, bytes.NewReader(data[:cut]))
			if len(got.urls) > len(good.urls) || !slices.Equal(got.urls, good.urls[:len(got.urls)]) {
				t.Fatalf("%s cut at %d: %q", f.name, cut, got.urls)
			}
			if got.err == nil && len(got.urls) < len(good.urls) && f.format == Sitemap ||
				got.err != nil && !strings.HasPrefix(got.err.Error(), "at byte ") {
				t.Errorf("%s cut at %d: %d URLs, and %v", f.name, cut, len(got.urls), got.err)
			}

			at := rng.IntN(len(data))
			flipped := bytes.Clone(data)
			flipped[at] ^= 1 << rng.IntN(8)
			got = read(f.format, f.o, bytes.NewReader(flipped))
			before := read(f.format, f.o, bytes.NewReader(data[:at])).urls
			if len(got.urls) < len(before) || !slices.Equal(got.urls[:len(before)], before) {
				t.Errorf("%s flipped at %d: %q, want %q first", f.name, at, got.urls, before)
			}
			if got.err != nil && !strings.HasPrefix(got.err.Error(), "at byte ") {
				t.Errorf("%s flipped at %d: %v", f.name, at, got.err)
			}
		}
	}
}

// TestCutLines finds no URL at the end of a line that may have been cut in it.
func TestCutLines(t *testing.T) {
	for line, f := range map[string]Format{
		"2026-03-01T10:00:02.456Z   200      12345 http://www.example.org/go": CrawlLog,
		"org,example)/page 20260301100002 http://www.example.org/pa":          CDX,
	} {
		if url, err := NewExtractor(f, Options{}).URL(line); err == nil || err == ErrSkip {
			t.Errorf("%s: got %s, %v", f, url, err)
		}
	}
	x := NewExtractor(CDX, Options{})
	_, _ = x.URL(" CDX N b a m")
	if url, err := x.URL("org,example)/ 20260301100002 http://www.example.org/"); err == nil {
		t.Errorf("of too few columns: got %s", url)
	}
}

func TestDetect(t *testing.T) {
	long := strings.Repeat("x", headBytes)
	for head, want := range map[string]Format{
		"":                                    Lines,
		"http://a/\nhttp://b/\n":              Lines,
		bom + "http://a/\n":                   Lines,
		"http://a/?q=url,link\n":              Lines,
		"http://a/{x}\n":                      Lines,
		"a,b\nhttp://a/,1\n":                  Lines,
		"url\nhttp://a/\n":                    Lines, // it may as well be a bad line
		"www.example.org\n":                   Lines,
		"url,title\n":                         CSV,
		"\"id\",\"URL\"\r\n":                  CSV,
		"title\tLoc\n":                        TSV,
		"{\"url\":\"http://a/\"}\n":           JSONL,
		bom + "<?xml version='1.0'?>":         Sitemap,
		"\n\n <urlset>":                       Sitemap,
		"WARC/1.0\r\n":                        WARC,
		long:                                  Lines,
		"https://a/ 20260301100002 {\"a\":1}": CDXJ,
		"da39a3ee5e6b4b0d3255bfef95601890afd80709\n":  ScrapySeen,
		"da39a3ee5e6b4b0d3255bfef95601890afd80709a\n": Lines,
	} {
		got, more := Detect([]byte(head))
		if got != want || more && strings.TrimSpace(head) != head && strings.Contains(head, "\n") && strings.TrimSpace(head) != "" {
			t.Errorf("%.30q is %s, more %v, want %s", head, got, more, want)
		}
	}
	if _, more := Detect([]byte("http://a/")); !more {
		t.Error("a line without its end decides")
	}
	if _, more := Detect([]byte(long)); more {
		t.Error("a long line does not decide")
	}
	for _, f := range Formats() {
		if got, err := ParseFormat(string(f.Format)); got != f.Format || err != nil {
			t.Errorf("%s is %s, %v", f.Format, got, err)
		}
	}
	if _, err := ParseFormat("rdb"); err == nil {
		t.Error("rdb is a format")
	}
}

// TestBadStreams reads what is no file of its format, and what would take much
// memory.
func TestBadStreams(t *testing.T) {
	endless := func(begin string) io.Reader {
		return io.MultiReader(strings.NewReader(begin), io.LimitReader(forever('x'), 1<<30))
	}
	for name, test := range map[string]struct {
		f    Format
		r    io.Reader
		want string
	}{
		"a page":         {Sitemap, strings.NewReader("<html><a href=x></a></html>"), "<html> is neither a sitemap nor a feed"},
		"nothing":        {Sitemap, strings.NewReader(""), "at byte 0: unexpected EOF"},
		"a long token":   {Sitemap, endless("<urlset><url><loc>"), "a token longer than 1 MiB"},
		"a long comment": {Sitemap, endless("<urlset><!--"), "a token longer than 1 MiB"},
		"deep":           {Sitemap, io.MultiReader(strings.NewReader("<urlset>"), strings.NewReader(strings.Repeat("<a>", 1<<20))), "too deep"},
		"ends twice":     {Sitemap, strings.NewReader("<urlset></urlset></urlset>"), "</urlset> ends nothing"},
		"no record":      {WARC, strings.NewReader("WARC/1.0\r\nContent-Length: 0\r\n\r\n\r\n\r\nHTTP/1.1\r\n"), `at byte 35: "HTTP/1.1" begins no record`},
		"no length":      {WARC, strings.NewReader("WARC/1.0\r\nWARC-Type: response\r\n\r\n"), "without Content-Length"},
		"a bad length":   {WARC, strings.NewReader("WARC/1.0\r\nContent-Length: -5\r\n\r\n"), `the Content-Length "-5"`},
		"a long line":    {WARC, endless("WARC/1.0\r\nWARC-Target-URI: "), "a line longer than 1 MiB"},
		"a long header":  {WARC, io.MultiReader(strings.NewReader("WARC/1.0\r\n"), strings.NewReader(strings.Repeat("a: b\r\n", 1<<19))), "a header longer than 1 MiB"},
		"a cut block":    {WARC, strings.NewReader("WARC/1.0\r\nContent-Length: 5\r\n\r\nab"), "at byte 0: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(test.f, Options{}, test.r)
			if got.err == nil || !strings.Contains(got.err.Error(), test.want) || len(got.urls) > 0 {
				t.Errorf("%d URLs, %v, want %s", len(got.urls), got.err, test.want)
			}
		})
	}
}

type forever byte

func (b forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

// FuzzReader reads anything as anything: it ends, lines have no line ends, and
// another way of reading finds the same.
func FuzzReader(f *testing.F) {
	for i, file := range files {
		data := readFile(f, file.name)
		f.Add(byte(i), data[:min(len(data), 2000)])
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		format := formats[int(kind)%len(formats)].Format
		timer := time.AfterFunc(20*time.Second, func() { panic("it hangs") })
		defer timer.Stop()
		got := read(format, Options{}, bytes.NewReader(data))
		again := read(format, Options{}, iotest.HalfReader(bytes.NewReader(data)))
		if !slices.Equal(got.urls, again.urls) {
			t.Errorf("%s: %q, and read otherwise %q", format, got.urls, again.urls)
		}
		if _, more := Detect(data); more && len(data) >= headBytes {
			t.Error("it wants more for ever")
		}
	})
}

func BenchmarkFormats(b *testing.B) {
	for _, f := range files {
		if f.o != (Options{}) {
			continue
		}
		data := readFile(b, f.name)
		data = bytes.Repeat(data, 1<<20/len(data)+1)
		if f.format == Sitemap {
			data = []byte("<urlset>" + strings.Repeat("<url><loc>https://example.org/some/page?id=1&amp;x=2</loc></url>\n", 1<<14) + "</urlset>")
		}
		b.Run(f.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			n := 0
			for b.Loop() {
				n += len(read(f.format, f.o, bytes.NewReader(data)).urls)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "URLs/s")
		})
	}
}
