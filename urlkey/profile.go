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

// families are the profiles and their newest versions. What a version does to
// a URL never changes: keys are stored.
var families = []struct {
	name    string
	version string
	make    func(p *Profile, on map[string]bool)
}{
	{"none", "1", func(p *Profile, _ map[string]bool) { p.bytes = true }},
	{"std", "1", func(*Profile, map[string]bool) {}},
	{"crawl", "1", func(p *Profile, on map[string]bool) {
		for r := range rules {
			if on[rules[r].Name] {
				p.active = append(p.active, rule(r))
			}
		}
	}},
}

// Parse returns the profile of a name: "none", "std" or "crawl", of which the
// newest version is taken, or one with its version, such as "crawl/1". Switches
// may follow crawl: "crawl/1,+bust,-www" is crawl/1 with the rule bust and
// without the rule www.
func Parse(name string) (*Profile, error) {
	family, switches, _ := strings.Cut(name, ",")
	family, version, versioned := strings.Cut(family, "/")
	for _, f := range families {
		if f.name != family {
			continue
		}
		if versioned && version != f.version {
			return nil, fmt.Errorf("urlkey: unknown version %q of profile %s, known: %s", version, family, f.version)
		}
		p := &Profile{name: f.name + "/" + f.version}
		on := map[string]bool{}
		if strings.Contains(name, ",") {
			if f.name != "crawl" {
				return nil, fmt.Errorf("urlkey: profile %s has no switches, got %q", family, name)
			}
			if err := parseSwitches(switches, on); err != nil {
				return nil, err
			}
		}
		p.name += switchesName(on)
		for _, r := range rules {
			if _, switched := on[r.Name]; !switched {
				on[r.Name] = r.Default
			}
		}
		f.make(p, on)
		return p, nil
	}
	return nil, fmt.Errorf("urlkey: unknown profile %q, known: none, std, crawl", name)
}

// parseSwitches reads "+bust,-www" into on.
func parseSwitches(switches string, on map[string]bool) error {
	for s := range strings.SplitSeq(switches, ",") {
		name := strings.TrimLeft(s, "+-")
		if len(s) != len(name)+1 {
			return fmt.Errorf("urlkey: want a switch like +bust or -www, got %q", s)
		}
		if !slices.ContainsFunc(rules[:], func(r Rule) bool { return r.Name == name }) {
			return fmt.Errorf("urlkey: unknown rule %q", name)
		}
		if _, twice := on[name]; twice {
			return fmt.Errorf("urlkey: rule %s is switched twice", name)
		}
		on[name] = s[0] == '+'
	}
	return nil
}

// switchesName names the switches that differ from the default, sorted.
func switchesName(on map[string]bool) string {
	var differ []string
	for _, r := range rules {
		if v, switched := on[r.Name]; switched && v != r.Default {
			differ = append(differ, r.Name)
		}
	}
	slices.Sort(differ)
	var b strings.Builder
	for _, name := range differ {
		sign := ",-"
		if on[name] {
			sign = ",+"
		}
		b.WriteString(sign + name)
	}
	return b.String()
}

// String is the full name of p, of at most 64 bytes: the version, and those
// switches that differ from the version's defaults, sorted. Profiles that do the
// same have the same name, and Parse takes it.
func (p *Profile) String() string { return p.name }
