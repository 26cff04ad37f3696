package urlkey

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]string{
		"none": "none/1", "std": "std/1", "crawl": "crawl/1",
		"none/1": "none/1", "std/1": "std/1", "crawl/1": "crawl/1",
		"crawl,+bust":                       "crawl/1,+bust",
		"crawl/1,-www,+bust":                "crawl/1,+bust,-www",
		"crawl,+www,-bust":                  "crawl/1",
		"crawl,-slash,+query,-pct":          "crawl/1,-pct,-slash",
		"":                                  "",
		"Std":                               "",
		"std/":                              "",
		"std/2":                             "",
		"crawl/01":                          "",
		"crawl/0":                           "",
		"crawl,":                            "",
		"crawl,bust":                        "",
		"crawl,++bust":                      "",
		"crawl,+-bust":                      "",
		"crawl,+":                           "",
		"crawl,+bust,":                      "",
		"crawl,+busts":                      "",
		"crawl,+bust,+bust":                 "",
		"crawl,+bust,-bust":                 "",
		"crawl, +bust":                      "",
		"std,+bust":                         "",
		"none,":                             "",
		"crawl,+bust/1":                     "",
		"http://example.com/,+bust,-scheme": "",
	} {
		p, err := Parse(name)
		if err != nil || want == "" {
			if want != "" || err == nil {
				t.Errorf("Parse(%q): %v, %v, want %q", name, p, err, want)
			}
			continue
		}
		if p.String() != want {
			t.Errorf("Parse(%q): %s, want %s", name, p, want)
		}
	}
}

// TestNames switches every set of rules: names tell profiles apart, are taken
// again, and are short enough to be recorded.
func TestNames(t *testing.T) {
	longest := 0
	seen := map[string]bool{}
	for set := range 1 << len(Rules()) {
		name := "crawl/1"
		for i, r := range Rules() {
			name += ","
			if set>>i&1 == 1 {
				name += "+" + r.Name
			} else {
				name += "-" + r.Name
			}
		}
		full := mustParse(t, name).String()
		if again := mustParse(t, full).String(); again != full {
			t.Errorf("%s is %s, and that is %s", name, full, again)
		}
		seen[full] = true
		longest = max(longest, len(full))
	}
	if len(seen) != 1<<len(Rules()) {
		t.Errorf("%d names for %d profiles", len(seen), 1<<len(Rules()))
	}
	if longest > 64 {
		t.Errorf("a name of %d bytes, want at most 64", longest)
	}
}

// TestRulesIsACopy changes what Rules returns.
func TestRulesIsACopy(t *testing.T) {
	Rules()[0].Name = "changed"
	if name := Rules()[0].Name; name != "scheme" {
		t.Errorf("the first rule is %s now", name)
	}
}

// TestListedNames holds the lists against the longest name that is looked for.
func TestListedNames(t *testing.T) {
	for _, set := range []map[string]struct{}{sessions, busters, tracking} {
		for name := range set {
			if len(name) > longestName || name != strings.ToLower(name) {
				t.Errorf("%q is never found", name)
			}
		}
	}
}
