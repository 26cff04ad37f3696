package main

// What is compared is made here, and nowhere else: the text of a line, or an
// argument, becomes the key that the store is asked about.

import (
	"fmt"
	"regexp"
	"strings"

	"dedupstore/internal/urlfile"
	"dedupstore/store"
	"dedupstore/urlkey"
)

// defaultProfile is that of a new store, by the name that is recorded in it.
const defaultProfile = "std/1"

// bytesProfile is that of stores whose keys need not be URLs.
const bytesProfile = "none/1"

// profileNames are those that a user writes; "std" is the newest std.
var profileNames = []string{"none", "std", "crawl"}

// A keyRule says which part of a line its key is made of. The zero rule: all of
// it.
type keyRule struct {
	part *regexp.Regexp // its first group, or its match; nil: the line
}

func parseKey(s string) (keyRule, error) {
	part, err := regexp.Compile(s)
	return keyRule{part}, err
}

// of returns that part, or says why there is none.
func (r keyRule) of(line string) (part, reason string) {
	// Of a longer line only the start is held.
	if r.part == nil || len(line) > store.MaxKeyBytes {
		return line, ""
	}
	at := r.part.FindStringSubmatchIndex(line)
	if len(at) > 2 {
		at = at[2:]
	}
	if at == nil || at[0] < 0 {
		return "", "without a match of --key"
	}
	if at[0] == at[1] {
		return "", "one whose key is empty"
	}
	return line[at[0]:at[1]], ""
}

// noRecord is the reason of a line that has no key because it is no record, like
// the names of columns: nobody is told of it.
const noRecord = "no record"

// A keyer makes keys by one rule and one profile. It is for one goroutine.
type keyer struct {
	rule    keyRule
	extract *urlfile.Extractor // of the file of the moment; nil: a line is a URL
	profile *urlkey.Profile    // nil: a key is the text
	form    []byte
}

func newKeyer(r keyRule, p *urlkey.Profile) *keyer { return &keyer{rule: r, profile: p} }

// key returns the key of a line, or says why it has none. The line is without its
// end and without a byte order mark.
func (k *keyer) key(line string) (key, reason string) {
	text, reason := k.rule.of(line)
	if k.extract != nil && len(line) <= store.MaxKeyBytes {
		url, err := k.extract.URL(line)
		switch {
		case err == urlfile.ErrSkip:
			return "", noRecord
		case err != nil:
			return "", err.Error()
		}
		text = url
	}
	switch {
	case reason != "":
		return "", reason
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
	k := newKeyer(keyRule{}, p.profile)
	keys := make([]string, len(urls))
	for i, url := range urls {
		var reason string
		if keys[i], reason = k.key(url); reason != "" {
			return nil, fmt.Errorf("argument %d is %s, nothing was done", i+1, reason)
		}
	}
	return keys, nil
}
