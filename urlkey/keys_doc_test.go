package urlkey

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// table returns the rows of the table of docs/KEYS.md under a header.
func table(t *testing.T, header string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../docs/KEYS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), header+"\n")
	if !ok {
		t.Fatalf("docs/KEYS.md has no table %q", header)
	}
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) < 2 {
			break
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows[1:] // without the rule under the header
}

// TestRulesAreDocumented holds docs/KEYS.md against Rules.
func TestRulesAreDocumented(t *testing.T) {
	var want [][]string
	for _, r := range Rules() {
		state := "off"
		if r.Default {
			state = "on"
		}
		want = append(want, []string{"`" + r.Name + "`", state, r.What})
	}
	got := table(t, "| rule | default | what it does |")
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("docs/KEYS.md has the rules\n%q\nwant\n%q", got, want)
	}
}

// TestParametersAreDocumented holds docs/KEYS.md against the lists.
func TestParametersAreDocumented(t *testing.T) {
	lists := map[string]map[string]struct{}{
		"`session`": maps.Clone(sessions), "`tracking`": maps.Clone(tracking), "`bust`": busters,
	}
	lists["`session`"]["aspsessionid"] = struct{}{}
	lists["`session`"]["sid"] = struct{}{}
	lists["`tracking`"]["utm_*"] = struct{}{}
	rows := table(t, "| rule | parameters |")
	if len(rows) != len(lists) {
		t.Errorf("%d lists, want %d", len(rows), len(lists))
	}
	for _, row := range rows {
		var got []string
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			got = append(got, name[1])
		}
		slices.Sort(got)
		if want := slices.Sorted(maps.Keys(lists[row[0]])); !slices.Equal(got, want) {
			t.Errorf("docs/KEYS.md has for %s\n%q\nwant\n%q", row[0], got, want)
		}
	}
}
