package main

// What is compared is made here: the text of a line, or an argument, becomes the
// key that the store is asked about.

import (
	"fmt"
	"strings"

	"dedupstore/store"
	"dedupstore/urlkey"
)

// defaultProfile is that of a new store, by the name that is recorded in it.
const defaultProfile = "std/1"

// A keyer makes keys by one profile. It is for one goroutine.
type keyer struct {
	profile *urlkey.Profile // nil: a key is the text
	form    []byte
}

func newKeyer(p *urlkey.Profile) *keyer { return &keyer{profile: p} }

// key returns the key of text, or says why it has none.
func (k *keyer) key(text string) (key, reason string) {
	switch {
	case text == "":
		return "", "empty"
	case len(text) > store.MaxKeyBytes:
		return "", "longer than 1 MiB"
	case k.profile == nil:
		return text, ""
	}
	form, err := k.profile.AppendString(k.form[:0], text)
	if err != nil {
		return "", reasonOf(err)
	}
	k.form = form
	if string(form) == text {
		return text, ""
	}
	return string(form), ""
}

// reasonOf says why a URL is invalid.
func reasonOf(err error) string { return strings.TrimPrefix(err.Error(), "urlkey: ") }

// keysOf makes the keys of arguments. If one has none, nothing is to be done.
func (p *program) keysOf(urls []string) ([]string, error) {
	k := newKeyer(p.profile)
	keys := make([]string, len(urls))
	for i, url := range urls {
		var reason string
		if keys[i], reason = k.key(url); reason != "" {
			return nil, fmt.Errorf("argument %d is %s, nothing was done", i+1, reason)
		}
	}
	return keys, nil
}
