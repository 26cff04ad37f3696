package urlkey

import (
	"reflect"
	"testing"
)

func TestExplain(t *testing.T) {
	const url = "HTTP://www.example.com/%7Ea/?b=2&utm_x=1&a=1#top"
	got, changes, err := mustParse(t, "crawl").Explain(url)
	want := []Change{
		{"std", url, "http://www.example.com/%7Ea/?b=2&utm_x=1&a=1"},
		{"scheme", "http://www.example.com/%7Ea/?b=2&utm_x=1&a=1", "https://www.example.com/%7Ea/?b=2&utm_x=1&a=1"},
		{"www", "https://www.example.com/%7Ea/?b=2&utm_x=1&a=1", "https://example.com/%7Ea/?b=2&utm_x=1&a=1"},
		{"pct", "https://example.com/%7Ea/?b=2&utm_x=1&a=1", "https://example.com/~a/?b=2&utm_x=1&a=1"},
		{"tracking", "https://example.com/~a/?b=2&utm_x=1&a=1", "https://example.com/~a/?b=2&a=1"},
		{"query", "https://example.com/~a/?b=2&a=1", "https://example.com/~a/?a=1&b=2"},
		{"slash", "https://example.com/~a/?a=1&b=2", "https://example.com/~a?a=1&b=2"},
	}
	if err != nil || got != "https://example.com/~a?a=1&b=2" || !reflect.DeepEqual(changes, want) {
		t.Errorf("%q, %v\n%q\nwant\n%q", got, err, changes, want)
	}
}

// TestExplainIsAppend explains the hard cases: the changes lead from the URL to
// what Append makes of it.
func TestExplainIsAppend(t *testing.T) {
	for _, name := range profiles {
		p := mustParse(t, name)
		for _, url := range hard {
			form, errA := p.AppendString(nil, url)
			got, changes, errE := p.Explain(url)
			if (errA == nil) != (errE == nil) || string(form) != got {
				t.Errorf("%s of %q: %q, %v, explained as %q, %v", name, url, form, errA, got, errE)
				continue
			}
			at := url
			for _, c := range changes {
				if c.From != at || c.To == at {
					t.Errorf("%s of %q: %q does not follow %q", name, url, c, at)
				}
				at = c.To
			}
			if errE == nil && at != got {
				t.Errorf("%s of %q: the changes end in %q, want %q", name, url, at, got)
			}
		}
	}
}
