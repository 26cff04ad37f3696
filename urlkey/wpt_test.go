package urlkey

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestWPT holds std against the cases of the web-platform-tests whose input is
// absolute: the form is their href without its fragment, and a fixed point.
func TestWPT(t *testing.T) {
	text, err := os.ReadFile("testdata/wpt/urltestdata.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Input, Href string
		Failure     bool
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	std := mustParse(t, "std")
	for _, c := range cases {
		got, err := std.AppendString(nil, c.Input)
		if c.Failure {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %q, %v, want ErrInvalid", c.Input, got, err)
			}
			continue
		}
		want, _, _ := strings.Cut(c.Href, "#")
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", c.Input, got, err, want)
			continue
		}
		if parsed, err := appendParsed(nil, c.Input); err != nil || string(parsed) != want {
			t.Errorf("%q: parsed %q, %v, want %q", c.Input, parsed, err, want)
		}
		if again, err := std.Append(nil, got); err != nil || string(again) != want {
			t.Errorf("%q: %q, and of that %q, %v", c.Input, got, again, err)
		}
	}
	if len(cases) < 600 {
		t.Errorf("%d cases, want all", len(cases))
	}
}
