package main

// A line becomes a key here, and nowhere else.

import (
	"regexp"

	"dedupstore/store"
)

// A keyRule says which part of a line is its key. The zero rule: all of it.
type keyRule struct {
	part *regexp.Regexp // its first group, or its match; nil: the line
}

// of returns the key of a line, or why it has none. The line is without its
// end and without a byte order mark.
func (r keyRule) of(line string) (key, reason string) {
	// Of a longer line only the start is held.
	if r.part == nil || len(line) > store.MaxKeyBytes {
		return line, checkKey(line)
	}
	at := r.part.FindStringSubmatchIndex(line)
	if len(at) > 2 {
		at = at[2:]
	}
	if at == nil || at[0] < 0 {
		return "", "without a match of --key"
	}
	if key = line[at[0]:at[1]]; key == "" {
		return "", "one whose key is empty"
	}
	return key, ""
}

// checkKey says why a key cannot be one, or "".
func checkKey(key string) string {
	switch {
	case key == "":
		return "empty"
	case len(key) > store.MaxKeyBytes:
		return "longer than 1 MiB"
	}
	return ""
}

func parseKey(s string) (keyRule, error) {
	part, err := regexp.Compile(s)
	return keyRule{part}, err
}
