package urlkey

import (
	"strings"
	"testing"
)

// only returns crawl with one rule.
func only(t testing.TB, rule string) *Profile {
	name := "crawl"
	for _, r := range Rules() {
		sign := ",-"
		if r.Name == rule {
			sign = ",+"
		}
		name += sign + r.Name
	}
	return mustParse(t, name)
}

// TestRules applies each rule alone.
func TestRules(t *testing.T) {
	for rule, cases := range map[string][][2]string{
		"scheme": {
			{"http://a/", "https://a/"},
			{"https://a/", "https://a/"},
			{"http://a:80/", "https://a/"},
			{"http://a:443/", "https://a/"},
			{"https://a:80/", "https://a:80/"},
			{"http://a:8080/b?c", "https://a:8080/b?c"},
			{"http://u:443@a/b?c", "https://u:443@a/b?c"},
			{"http://[::443]/", "https://[::443]/"},
			{"ftp://a/", "ftp://a/"},
			{"ws://a/", "ws://a/"},
		},
		"www": {
			{"http://www.a.b/c", "http://a.b/c"},
			{"http://www.a.b:80/", "http://a.b/"},
			{"http://www.a.b:81/?c", "http://a.b:81/?c"},
			{"http://u:p@www.a.b/?c", "http://u:p@a.b/?c"},
			{"http://www.www.a.b/", "http://a.b/"},
			{"http://www.www.com/", "http://www.com/"},
			{"http://www.com/", "http://www.com/"},
			{"http://www.com./", "http://www.com./"},
			{"http://www.com.:81/", "http://www.com.:81/"},
			{"http://www.com:81/a.b", "http://www.com:81/a.b"},
			{"http://www..a.b/", "http://www..a.b/"},
			{"http://www/", "http://www/"},
			{"http://www2.a.b/", "http://www2.a.b/"},
			{"http://wwwa.b/", "http://wwwa.b/"},
			{"http://a.www.b/", "http://a.www.b/"},
		},
		"pct": {
			{"http://a/%41%7a%30%2d%2E%5f%7e", "http://a/Az0-._~"},
			{"http://a/%2f%3f%23%25%c3%a9", "http://a/%2F%3F%23%25%C3%A9"},
			{"http://a/?%41=%26%3d%2b", "http://a/?A=%26%3D%2B"},
			{"http://a/%2541", "http://a/%2541"},
			{"http://a/%2%65%2%65/", "http://a/%2%65%2%65/"},
			{"http://a/%%32e", "http://a/%%32e"},
			{"http://a/%%7e%z%4", "http://a/%~%z%4"},
			{"http://a/%%%41", "http://a/%%%41"},
			{"http://a/b%3?%41", "http://a/b%3?A"},
			{"http://%41%7e/%7E?%7e", "http://a~/~?~"},
			{"http://%7e@a/", "http://%7e@a/"},
		},
		"session": {
			{"http://a/b;jsessionid=1", "http://a/b"},
			{"http://a/b;JSessionID=1.node?c", "http://a/b?c"},
			{"http://a/b;jsessionid=1/c;d", "http://a/b/c;d"},
			{"http://a/b;c;jsessionid=1;d", "http://a/b;c;d"},
			{"http://a/b;jsessionid=1;jsessionid=2", "http://a/b"},
			{"http://a/;jsessionid=1", "http://a/"},
			{"http://a/b;jsessionid", "http://a/b;jsessionid"},
			{"http://a/b;xjsessionid=1", "http://a/b;xjsessionid=1"},
			{"http://a/..;jsessionid=1/b", "http://a/..;jsessionid=1/b"},
			{"http://a/b/%2e;jsessionid=1?c", "http://a/b/%2e;jsessionid=1?c"},
			{"http://a/...;jsessionid=1", "http://a/..."},
			{"http://a;jsessionid=1/b", "http://a;jsessionid=1/b"},
			{"http://a/b?;jsessionid=1", "http://a/b?;jsessionid=1"},
			{"http://a/?jsessionid=1&b", "http://a/?b"},
			{"http://a/?b&PHPSESSID=1", "http://a/?b"},
			{"http://a/?CFID=1&b&CFTOKEN=2", "http://a/?b"},
			{"http://a/?ASPSESSIONIDAQBSDSRT=EOHBLBDDPFCLHKPGGKLILNAM", "http://a/"},
			{"http://a/?ASPSESSIONID=1", "http://a/?ASPSESSIONID=1"},
			{"http://a/?aspsessionid1234567x=1", "http://a/?aspsessionid1234567x=1"},
			{"http://a/?sid=9682993c8daa2c5497996114facdc805", "http://a/"},
			{"http://a/?sid=17/03/05/1234", "http://a/?sid=17/03/05/1234"},
			{"http://a/?sid=9682993c8daa2c5497996114facdc80", "http://a/?sid=9682993c8daa2c5497996114facdc80"},
			{"http://a/?side=9682993c8daa2c5497996114facdc805", "http://a/?side=9682993c8daa2c5497996114facdc805"},
		},
		"tracking": {
			{"http://a/?utm_source=b&c=1&utm_campaign", "http://a/?c=1"},
			{"http://a/?UTM_x=b", "http://a/"},
			{"http://a/?GCLID=1&fbclid=2&msclkid=3&mc_cid=4&mc_eid=5", "http://a/"},
			{"http://a/?b=gclid&utm=1&xutm_source=2&gclids=3", "http://a/?b=gclid&utm=1&xutm_source=2&gclids=3"},
			{"http://a/?&utm_a&&b", "http://a/?&&b"},
			{"http://a/?ref=b&source=c", "http://a/?ref=b&source=c"},
			{"http://a/utm_source=1?", "http://a/utm_source=1?"},
			{"http://a/?" + strings.Repeat("x", 99) + "=1", "http://a/?" + strings.Repeat("x", 99) + "=1"},
		},
		"bust": {
			{"http://a/?_=1&b&t=2&TS=3&rand=4&cb=5", "http://a/?b"},
			{"http://a/?t", "http://a/"},
			{"http://a/?__=1&time=2", "http://a/?__=1&time=2"},
		},
		"query": {
			{"http://a/?b=1&a=2", "http://a/?a=2&b=1"},
			{"http://a/?b=2&b=1&a", "http://a/?a&b=2&b=1"},
			{"http://a/?a1&a=&a", "http://a/?a=&a&a1"},
			{"http://a/?&a&&b&", "http://a/?a&b"},
			{"http://a/?&", "http://a/"},
			{"http://a/?", "http://a/"},
			{"http://a/?=1&=", "http://a/?=1&="},
			{"http://a/?b;a", "http://a/?b;a"},
			{"http://a/?z?y&a", "http://a/?a&z?y"},
			{"http://a/?" + strings.Repeat("b&a&", 99), "http://a/?" + strings.Repeat("a&", 99) + strings.Repeat("b&", 98) + "b"},
		},
		"slash": {
			{"http://a/b/", "http://a/b"},
			{"http://a/b//?c/", "http://a/b?c/"},
			{"http://a/", "http://a/"},
			{"http://a//", "http://a/"},
			{"http://a///?", "http://a/?"},
			{"http://a/b/c", "http://a/b/c"},
			{"http://a?b/", "http://a/?b/"},
		},
	} {
		p := only(t, rule)
		for _, c := range cases {
			if got, err := p.AppendString(nil, c[0]); err != nil || string(got) != c[1] {
				t.Errorf("%s of %q: %q, %v, want %q", rule, c[0], got, err, c[1])
			}
			// What stands before must not matter: it holds a bit of everything.
			before := "https://www.x:443/;?&a%41"
			if got, err := p.AppendString([]byte(before), c[0]); err != nil || string(got) != before+c[1] {
				t.Errorf("%s of %q, appended: %q, %v", rule, c[0], got, err)
			}
		}
	}
}

// TestCrawl applies all rules that are on by default.
func TestCrawl(t *testing.T) {
	const want = "https://example.com/a?b=1&c=2"
	for _, url := range []string{
		want,
		"http://www.example.com/a/?c=2&b=1#d",
		"HTTP://WWW.Example.COM:80//../%61;jsessionid=x/?&c=2&utm_source=y&%62=1&",
		" http://example.com:443/a?%75tm_x=1&c=2&sid=0123456789abcdef0123456789abcdef&b=1 ",
	} {
		if got, err := mustParse(t, "crawl").AppendString(nil, url); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", url, got, err, want)
		}
	}
}
