package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"dedupstore/store"
)

// A load is what bench asks the store about. All of it is made before the clock
// runs.
type load struct {
	source  string   // what it came from
	keys    []string // added, as they come; lines of a file may be the same
	unknown []string // never added; benchURLs at most
}

// generatedSource is the source of URLs that were made up.
const generatedSource = "generated"

// generateLoad makes n distinct URLs, of 70 bytes or so.
func generateLoad(n int64) *load {
	l := &load{source: generatedSource, keys: make([]string, n), unknown: make([]string, min(n, benchURLs))}
	for i := range l.keys {
		l.keys[i] = generatedURL(uint64(i))
	}
	for i := range l.unknown {
		l.unknown[i] = generatedURL(uint64(n) + uint64(i))
	}
	return l
}

func generatedURL(i uint64) string {
	x := i * 0x9e3779b97f4a7c15 // as if pages came in no order
	b := make([]byte, 0, 80)
	b = append(b, "https://www.example-"...)
	b = strconv.AppendUint(b, x%9973, 10)
	b = append(b, ".org/articles/"...)
	b = strconv.AppendUint(b, x>>40, 36)
	b = append(b, "/page?id="...)
	b = strconv.AppendUint(b, i, 10)
	return string(append(b, "&ref=list"...))
}

// readLoad takes the first n keys of a file. What is never added is each of them
// with a byte behind it that no URL ends in.
func (p *program) readLoad(ctx context.Context, name string, n int64) (*load, error) {
	l := &load{source: name}
	err := p.eachBatch(ctx, newInput([]string{name}, p.stdin), func(b *batch) error {
		for _, key := range b.keys[:min(int64(len(b.keys)), n-int64(len(l.keys)))] {
			l.keys = append(l.keys, key)
			if len(l.unknown) < benchURLs && len(key) < store.MaxKeyBytes {
				l.unknown = append(l.unknown, key+"\x00")
			}
		}
		switch {
		case len(b.failed) > 0:
			return b.failed[0]
		case int64(len(l.keys)) == n:
			return io.EOF
		}
		return nil
	})
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case len(l.keys) == 0:
		return nil, fmt.Errorf("%s has no lines", name)
	}
	return l, nil
}
