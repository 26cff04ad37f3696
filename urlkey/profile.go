package urlkey

import (
	"fmt"
	"slices"
	"strings"
)

// A Profile brings URLs into one form, so that two spellings of one page are
// one key. A Profile is immutable and may be used by any number of goroutines.
// Two profiles of one name do the same, in this version of the package and in
// every later one.
type Profile struct {
	name   string
	bytes  bool   // none: the bytes as they are
	active []rule // those of crawl, in the order applied
}

// newest are the profiles and their newest versions. What a version does to a
// URL never changes: keys are stored.
var newest = map[string]string{"none": "1", "std": "1", "crawl": "1"}

// Parse returns the profile of a name: "none", "std" or "crawl", of which the
// newest version is taken, or one with its version, such as "crawl/1". Switches
// may follow crawl: "crawl/1,+bust,-www" is crawl/1 with the rule bust and
// without the rule www.
func Parse(name string) (*Profile, error) {
	base, switches, switched := strings.Cut(name, ",")
	family, version, versioned := strings.Cut(base, "/")
	known, ok := newest[family]
	switch {
	case !ok:
		return nil, fmt.Errorf("urlkey: unknown profile %q, known: none, std, crawl", base)
	case versioned && version != known:
		return nil, fmt.Errorf("urlkey: unknown version %q of profile %s, known: %s", version, family, known)
	case switched && family != "crawl":
		return nil, fmt.Errorf("urlkey: profile %s has no switches, got %q", family, name)
	}
	p := &Profile{name: family + "/" + known, bytes: family == "none"}
	if family != "crawl" {
		return p, nil
	}
	on, err := parseSwitches(switches, switched)
	if err != nil {
		return nil, err
	}
	for r, isOn := range on {
		if isOn {
			p.active = append(p.active, rule(r))
		}
	}
	p.name += switchesName(on)
	return p, nil
}

// parseSwitches returns which rules are on by "+bust,-www", or by default if
// nothing is switched.
func parseSwitches(switches string, switched bool) (on [len(rules)]bool, err error) {
	for r := range rules {
		on[r] = rules[r].Default
	}
	if !switched {
		return on, nil
	}
	var seen [len(rules)]bool
	for s := range strings.SplitSeq(switches, ",") {
		name := strings.TrimLeft(s, "+-")
		if len(s) != len(name)+1 {
			return on, fmt.Errorf("urlkey: want a switch like +bust or -www, got %q", s)
		}
		r := slices.IndexFunc(rules[:], func(r Rule) bool { return r.Name == name })
		if r < 0 {
			return on, fmt.Errorf("urlkey: unknown rule %q", name)
		}
		if seen[r] {
			return on, fmt.Errorf("urlkey: rule %s is switched twice", name)
		}
		on[r], seen[r] = s[0] == '+', true
	}
	return on, nil
}

// switchesName names the switches that differ from the default, sorted by rule.
func switchesName(on [len(rules)]bool) string {
	var differ []string // their signs behind them
	for r := range rules {
		switch {
		case on[r] && !rules[r].Default:
			differ = append(differ, rules[r].Name+"+")
		case !on[r] && rules[r].Default:
			differ = append(differ, rules[r].Name+"-")
		}
	}
	slices.Sort(differ)
	var b strings.Builder
	for _, s := range differ {
		last := len(s) - 1
		b.WriteString("," + s[last:] + s[:last])
	}
	return b.String()
}

// String is the full name of p, of at most 64 bytes: the version, and those
// switches that differ from the version's defaults, sorted. Parse takes it, and
// two names of the same version and rules have the same full name.
func (p *Profile) String() string { return p.name }
