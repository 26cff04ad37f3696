package urlkey

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestStd holds std against what it must do, and must not, beyond TestWPT.
func TestStd(t *testing.T) {
	for _, c := range [][2]string{
		{"http://a/A", "http://a/A"}, // which is not /a
		{"http://a/%41", "http://a/%41"},
		{"http://a/?b&a", "http://a/?b&a"},
		{"http://a/b/", "http://a/b/"},
		{"http://a/?", "http://a/?"},
		{"http://a#", "http://a/"},
		{" \x01HTTP://A:80#b\x00 ", "http://a/"},
		{"http://a\t/\nb", "http://a/b"},
		{"http://a/b/%2E%2e/c", "http://a/c"},
		{"http://a/b\\c", "http://a/b/c"},
		{"http://a/^", "http://a/%5E"},
		// Bytes that are no UTF-8 stay apart.
		{"http://a/\xe9", "http://a/%E9"},
		{"http://a/\xe8", "http://a/%E8"},
		{"ftp://a/\xe8\ufffd", "ftp://a/%E8%EF%BF%BD"},
		// A host in ASCII need not be good Punycode, nor is a sign a number.
		{"http://xn--a.XN--B/", "http://xn--a.xn--b/"},
		{"http://xn%2D%2Da/", "http://xn--a/"},
		{"http://-1/", "http://-1/"},
		{"http://a.+1/", "http://a.+1/"},
		{"http://0x7F.1/", "http://127.0.0.1/"},
		{"http://b\u00fccher.de", "http://xn--bcher-kva.de/"},
		// What followed a blank is gone, and it stays.
		{"data:a #b", "data:a%20"},
		{"data:a ", "data:a"},
		{"data:a  ?b", "data:a %20?b"},
		{"javascript:a b", "javascript:a b"},
	} {
		got, err := mustParse(t, "std").AppendString(nil, c[0])
		if err != nil || string(got) != c[1] {
			t.Errorf("%q: %q, %v, want %q", c[0], got, err, c[1])
		}
	}
}

func TestInvalid(t *testing.T) {
	for _, c := range []struct{ url, reason string }{
		{"", "it has no scheme"},
		{"example.com/a", "it has no scheme"},
		{"//example.com/a", "it has no scheme"},
		{"http://", "it has no host"},
		{"http://a:65536/", "the port is above 65535"},
		{"http://a:b/", "the port is no number"},
		{"http://u@/", "no host follows the credentials"},
		{"http://a b/", "the host holds a forbidden character"},
		{"http://a%25/", "the host holds a forbidden character"},
		{"http://\xff/", "the host is no domain name"},
		{"http://\u00e9.xn--a/", "the host is no domain name"},
		{"http://1.2.3.4.5/", "the host is a bad IPv4 address"},
		{"http://1.-2.3.4/", "the host is a bad IPv4 address"},
		{"http://[1]/", "the host is a bad IPv6 address"},
		{"http://[[::1]]/", "the host is a bad IPv6 address"},
		{"http://a/" + strings.Repeat("a", maxBytes), "it is longer than 8 KiB"},
		{"http://a/" + strings.Repeat("\u00e9", maxBytes/4), "it is longer than 8 KiB"},
		{"ftp://a/" + strings.Repeat("\xff", maxBytes/2), "it is longer than 8 KiB"},
	} {
		for _, name := range []string{"std", "crawl"} {
			got, err := mustParse(t, name).AppendString([]byte("before"), c.url)
			if !errors.Is(err, ErrInvalid) || string(got) != "before" {
				t.Errorf("%s of %.40q: %q, %v, want ErrInvalid", name, c.url, got, err)
				continue
			}
			if want := "urlkey: no URL: " + c.reason; err.Error() != want {
				t.Errorf("%s of %.40q: %v, want %q", name, c.url, err, want)
			}
			if _, _, err := mustParse(t, name).Explain(c.url); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s of %.40q: Explain: %v, want ErrInvalid", name, c.url, err)
			}
		}
	}
}

// TestLimit finds the longest URL by its canonical form, which has to be taken
// again.
func TestLimit(t *testing.T) {
	crawl := mustParse(t, "crawl")
	longest := "https://a/" + strings.Repeat("b", maxBytes-len("https://a/"))
	for _, url := range []string{longest, "http" + longest[len("https"):]} {
		if got, err := crawl.AppendString(nil, url); err != nil || string(got) != longest {
			t.Errorf("%d bytes: %d, %v", len(url), len(got), err)
		}
	}
	if _, err := crawl.AppendString(nil, "http"+longest[len("https"):]+"b"); !errors.Is(err, ErrInvalid) {
		t.Errorf("a form of %d bytes: %v, want ErrInvalid", maxBytes+1, err)
	}
}

func TestNone(t *testing.T) {
	none := mustParse(t, "none")
	for _, url := range []string{"a", "\x00\xff ", "HTTP://A#b", strings.Repeat("a", maxBytes+1)} {
		if got, err := none.AppendString([]byte("x"), url); err != nil || string(got) != "x"+url {
			t.Errorf("%.40q: %.40q, %v", url, got, err)
		}
	}
	if got, err := none.Append([]byte("x"), nil); !errors.Is(err, ErrInvalid) || string(got) != "x" {
		t.Errorf("empty: %q, %v, want ErrInvalid", got, err)
	}
}

// TestAppendIsAppendString gives the hard cases as bytes and as a string.
func TestAppendIsAppendString(t *testing.T) {
	for _, name := range profiles {
		p := mustParse(t, name)
		for _, url := range hard {
			b, errB := p.Append(nil, []byte(url))
			s, errS := p.AppendString(nil, url)
			if !bytes.Equal(b, s) || (errB == nil) != (errS == nil) {
				t.Errorf("%s of %q: %q, %v as bytes, %q, %v as a string", name, url, b, errB, s, errS)
			}
		}
	}
}

// TestAllocations wants none where a URL is not parsed.
func TestAllocations(t *testing.T) {
	dst := make([]byte, 0, 256)
	for _, url := range []string{
		"https://example.com/a/b", "HTTP://WWW.Example.com:80?b#c", "http://example.com/\u00e9 ",
		"http://www.example.com/%7ea;jsessionid=1/?c=1&utm_source=x&&b=2",
	} {
		in := []byte(url)
		for _, name := range profiles {
			p := mustParse(t, name)
			if n := testing.AllocsPerRun(100, func() { p.Append(dst, in) }); n != 0 {
				t.Errorf("%s of %s: %v allocations, want none", name, url, n)
			}
		}
	}
}

// TestCrawlSample counts the pages among links of a crawl of the Python
// documentation, which are those without a fragment, and one fewer for each of
// three hosts that are named with and without a slash.
func TestCrawlSample(t *testing.T) {
	text, err := os.ReadFile("testdata/pydoc-links.txt")
	if err != nil {
		t.Fatal(err)
	}
	std := mustParse(t, "std")
	cut, forms := map[string]bool{}, map[string]bool{}
	for link := range strings.Lines(string(text)) {
		link = strings.TrimSuffix(link, "\n")
		form, err := std.AppendString(nil, link)
		if err != nil {
			t.Fatal(err)
		}
		forms[string(form)] = true
		page, _, _ := strings.Cut(link, "#")
		cut[page] = true
	}
	if len(forms) != len(cut)-3 {
		t.Errorf("%d forms of %d pages, want 3 fewer", len(forms), len(cut))
	}
}
