package main

import (
	"errors"
	"io"
	"net/url"

	"golang.org/x/net/html"
)

// references returns what the a elements of a page refer to, as it is written.
func references(r io.Reader) (refs []string, err error) {
	z := html.NewTokenizer(r)
	for {
		switch z.Next() {
		case html.ErrorToken:
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return nil, err
			}
			return refs, nil
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := z.TagName()
			if string(name) != "a" {
				continue
			}
			for more {
				var key, value []byte
				if key, value, more = z.TagAttr(); string(key) == "href" {
					refs = append(refs, string(value))
				}
			}
		}
	}
}

// links makes keys of references from a page: those on allowed hosts, each once.
func (c *crawler) links(base *url.URL, refs []string) (keys []string) {
	seen := map[string]bool{}
	for _, ref := range refs {
		u, err := base.Parse(ref)
		if err != nil || !c.hosts.allowed(u.Host) || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		key, err := c.profile.AppendString(nil, u.String())
		if err != nil || seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		keys = append(keys, string(key))
	}
	return keys
}
