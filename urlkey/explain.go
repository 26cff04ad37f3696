package urlkey

// A Change is what one rule has done to a URL. The rule "std" is what every
// profile but none does first.
type Change struct {
	Rule string `json:"rule"`
	From string `json:"from"` // the whole URL before
	To   string `json:"to"`   // and after
}

// Explain returns the canonical form of url and the rules that changed it, in
// the order they were applied. It fails as Append does.
func (p *Profile) Explain(url string) (canonical string, changes []Change, err error) {
	if p.bytes {
		b, err := p.AppendString(nil, url)
		return string(b), nil, err
	}
	b, _, err := appendStd(nil, url)
	if err != nil {
		return "", nil, err
	}
	canonical = url
	note := func(rule string) {
		if now := string(b); now != canonical {
			changes = append(changes, Change{rule, canonical, now})
			canonical = now
		}
	}
	note("std")
	if webScheme(b) != "" {
		u := split(b, 0)
		for _, r := range p.active {
			r.apply(&u)
			b = u.dst
			note(rules[r].Name)
		}
	}
	if len(b) > maxBytes {
		return "", nil, tooLong()
	}
	return canonical, changes, nil
}
