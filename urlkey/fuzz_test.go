package urlkey

import (
	"bytes"
	"errors"
	"testing"
)

// profiles are those that the fuzz tests try: every rule is on and off in some.
var profiles = []string{
	"none", "std", "crawl", "crawl,+bust", "crawl,-pct", "crawl,-query", "crawl,-scheme,-www",
	"crawl,-session,-slash", "crawl,-tracking,+bust,-query",
}

// mustParse returns the profile of a name.
func mustParse(t testing.TB, name string) *Profile {
	t.Helper()
	p, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// hard are URLs on which canonical forms go wrong. They seed the fuzz tests, and
// are tried by every run of them.
var hard = []string{
	"", " ", "http:", "http://", "http:///", "http:a", "//a/", "a", "a:", "a: ", "a: #", "a:b #c", "a:b ?c", "a:b  ?#",
	"http://a", "http://a/", "HTTP://A", "hTTpS://wWw.A.b", "http://a?b", "http://a#b", "http://a/#", "http://a/?", "http://a/?#",
	"http://a:80/", "http://a:443/", "https://a:443", "https://a:80/", "http://a:080/", "http://a:/", "http://a:0/", "http://a:65535/",
	"http://a:65536/", "http://a:99999999999999999999/", "http://a:8080", "http://a:8a/", "http://:80/",
	"http://1/", "http://1.2.3.4/", "http://1.2.3/", "http://01.2.3.4/", "http://1.2.3.4./", "http://256.1.1.1/", "http://1.2.3.4.5/",
	"http://a.1/", "http://a.01/", "http://a.0x/", "http://a.0x1/", "http://0x7f.1/", "http://a.1b/", "http://1b/", "http://a.1./",
	"http://a./", "http://a../", "http://.a/", "http://a..b/", "http://./", "http://../", "http://www.com/", "http://www.a.b/",
	"http://www.www.a.b/", "http://www.www.com/", "http://www.com./", "http://www..a.b/", "http://www./", "http://www.a.b:80/",
	"http://www.com:8080/", "http://www.com.:8080/", "http://www.1.2.3.4/", "http://u@www.a.b/", "http://u:p@a/", "http://@a/", "http://:@a/", "http://u@v@a/",
	"http://a@/", "http://u:80@a:80/", "http://[::1]/", "http://[::1]:80/", "http://[[::1]]/", "http://[1:2:3:4:5:6:1.2.3.4]/", "http://[::1%25e]/",
	"http://xn--a/", "http://xn--/", "http://XN--nxasmq6b/", "http://xn--nxasmq6b.gr/", "http://xn--.1/", "http://1.xn--a/", "http://%78n--a/",
	"http://xn%2D%2Da/", "http://xn-z/", "http://\u00e9.xn--a/", "http://\u00e9/", "http://fa\u00df.de/", "http://\uff21/", "http://\uff11/", "http://a\u3002b/", "http://\u2260/",
	"http://a\u00ad/", "http://\u00ad/", "http://%00/", "http://-0/", "http://+1.2.3.4/", "http://1.2.-3.4/", "http://0x-1/", "http://0x+1/", "http://a.0X/", "http://0X7F000001/", "http://%2f/", "http://%25/", "http://a%2525/", "http://a b/", "http://a_b/", "http://-a-/", "http://a!$&'()*+,;=~/", "http://a\"b/", "http://a`b/", "http://a{b}/",
	"http://a;jsessionid=1/", "http://\u05d0.1a/", "http://a<b/", "http://a\\b", "http:\\\\a\\b", "http:/a", "http:///a", "http:////a/b",
	"http://a/b/../c", "http://a/.", "http://a/..", "http://a/...", "http://a/.a", "http://a/%2e", "http://a/%2E%2e/b", "http://a/.%2e/", "http://a/%2%65/",
	"http://a/%%32e/", "http://a/%%32%65", "http://a/%2525", "http://a/%", "http://a/%4", "http://a/%zz", "http://a/%%", "http://a/%%41", "http://a/%4%31", "http://a/%41%7e%2f%c3%a9",
	"http://a/\xff", "http://a/\xc3", "http://a/\ufffd", "http://a/\xed\xa0\x80", "http://a/?\xff", "http://\xff/", "http://a/\u00e9", "http://a/ ", "http://a/ b", " http://a/ ",
	"http://a/\tb", "h\nttp://a/", "http://a\r/", "http://a/\x00", "http://a/\x7f", "http://a/^|[]{}`'\"<>", "http://a/?^|[]{}`'\"<>\\", "http://a/?#\x00 ", "http://a/b#c#d",
	"http://a/?a=1&&b=2&", "http://a/?&", "http://a/?=", "http://a/?=1&a", "http://a/?b=2&a=1", "http://a/?b&a&b=1&B", "http://a/?a=1?b=2", "http://a/?b;a",
	"http://a/?utm_source=1", "http://a/?UTM_x&a", "http://a/?%75tm_x=1", "http://a/?a&gclid=1&b", "http://a/?&utm_a", "http://a/?utm_a&", "http://a/?_=1&t=2&ts=3&rand=4&cb=5",
	"http://a/b;jsessionid=1", "http://a/b;JSESSIONID=1/c", "http://a/b;jsessionid=1;c", "http://a/..;jsessionid=1/b", "http://a/%2e;jsessionid=1/b", "http://a/.;jsessionid=1;jsessionid=2",
	"http://a/;jsessionid=1", "http://a/b;jsess;jsessionid=1ionid=2", "http://a/b;jsessionid=1?;jsessionid=2", "http://a/b;jsessionid", "http://a/%;jsessionid=1/41", "http://a/b;%6asessionid=1",
	"http://a/?sid=1", "http://a/?sid=0123456789abcdef0123456789ABCDEF", "http://a/?ASPSESSIONIDABCDEFGH=X", "http://a/?PHPSESSID=1", "http://a//", "http://a///b//", "http://a/b//?c",
	"ftp://a:21/b/../c", "ws://a:80/", "wss://a:443", "file:///C|/a", "file://C|/a", "file:///a/../C|/b", "file://localhost/a", "file://%6cocalhost/", "file:a", "file:/a/../..", "file:///C:/..", "file://xn--/p", "file:////a",
	"mailto:a@b ", "javascript: a ", "data: #", "data:a  #b", "data:a \t#b", "a:/.//b", "a:/..//b", "a:///b", "a://b", "a://B:80/C", "a://[", "a://b c/", "a://u@/b", "a:/ b", "a:b\\c", "a+.-1:b",
}

func addHard(f *testing.F) {
	for _, url := range hard {
		f.Add([]byte(url))
	}
}

// FuzzIdempotent finds that a canonical form is its own, for any bytes.
func FuzzIdempotent(f *testing.F) {
	addHard(f)
	var all []*Profile
	for _, name := range profiles {
		all = append(all, mustParse(f, name))
	}
	f.Fuzz(func(t *testing.T, url []byte) {
		for _, p := range all {
			once, err := p.Append([]byte("x"), url)
			if err != nil {
				if !errors.Is(err, ErrInvalid) || string(once) != "x" {
					t.Fatalf("%s of %q: %q, %v", p, url, once, err)
				}
				continue
			}
			twice, err := p.Append([]byte("x"), once[1:])
			if err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("%s of %q: %q, then %q, %v", p, url, once[1:], twice[1:], err)
			}
		}
	})
}

// FuzzFastPath finds that the fast path, where it answers, answers as the
// parser does, and that a URL that is left alone is one that no rule changes.
func FuzzFastPath(f *testing.F) {
	addHard(f)
	crawl := mustParse(f, "crawl,+bust")
	f.Fuzz(func(t *testing.T, url []byte) {
		if len(url) > maxBytes/3 {
			return // which the parser may refuse, percent-encoded
		}
		fast, marks, ok := appendCommon([]byte("x"), url)
		if !ok {
			if string(fast) != "x" {
				t.Fatalf("%q: declined, and wrote %q", url, fast)
			}
			return
		}
		slow, err := appendParsed([]byte("x"), string(url))
		if err != nil || !bytes.Equal(fast, slow) {
			t.Fatalf("%q: fast %q, parsed %q, %v", url, fast, slow, err)
		}
		u := split(slow, 1)
		for _, r := range crawl.active {
			r.apply(&u)
		}
		if settled(fast[1:], marks) && !bytes.Equal(fast, u.dst) {
			t.Fatalf("%q: %q is settled, but for rules that make %q", url, fast, u.dst)
		}
	})
}
