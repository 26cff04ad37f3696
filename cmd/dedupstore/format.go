package main

// What a file's records are is told here: by --format, or by its first line.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"dedupstore/internal/urlfile"
)

// A formatRule says what the records of a file are. The zero rule: lines.
type formatRule struct {
	auto    bool // the first line tells
	format  urlfile.Format
	options urlfile.Options
}

func formatFlags(cmd *cobra.Command, r *formatRule) {
	names := []string{autoFormat}
	for _, f := range urlfile.Formats() {
		names = append(names, string(f.Format))
	}
	r.auto = true
	flags := cmd.Flags()
	flags.Var(newValue(r, "", "FORMAT", r.parse).oneOf(names...), "format", "")
	flags.Var(newValue(&r.options.Column, "", "COLUMN", parseText), "column", "")
	flags.Var(newValue(&r.options.Field, "", "FIELD", parseText), "field", "")
}

const autoFormat = "auto"

func (r *formatRule) parse(s string) (formatRule, error) {
	rule := *r
	if rule.auto = s == autoFormat; rule.auto {
		return rule, nil
	}
	var err error
	rule.format, err = urlfile.ParseFormat(s)
	return rule, err
}

func parseText(s string) (string, error) {
	if s == "" {
		return "", errors.New("want a name")
	}
	return s, nil
}

// formatFlagsUsage documents formatFlags.
func formatFlagsUsage() string {
	var b strings.Builder
	b.WriteString(`    --format FORMAT       what the FILEs are; by default the first line of each
                          tells, in a store of keys that are URLs:
`)
	for _, f := range urlfile.Formats() {
		fmt.Fprintf(&b, "                          %-12s%s\n", f.Format, f.What)
	}
	b.WriteString(`    --column COLUMN       of csv and tsv: the name of the URL's column in the
                          first line, or its number, from 1, without such a line
                          (default: url, uri, link, loc, address or href, else
                          the first)
    --field FIELD         of jsonl: the URL's field, dots lead into objects
                          (default: url)
`)
	return b.String()
}

// lines returns the lines of a file of such records, and what finds the URLs in
// them, nil if the lines are the URLs.
func (r formatRule) lines(plain io.Reader) (io.Reader, *urlfile.Extractor, error) {
	format := r.format
	if r.auto {
		head, err := readUntil(plain, func(head []byte) bool {
			var more bool
			format, more = urlfile.Detect(head)
			return !more
		})
		if err != nil {
			return nil, nil, err
		}
		plain = io.MultiReader(bytes.NewReader(head), plain)
	}
	if lines := urlfile.NewReader(format, plain); lines != nil {
		return lines, nil, nil
	}
	return plain, urlfile.NewExtractor(format, r.options), nil
}
