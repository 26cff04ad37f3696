package main

// What a change of profile does to the keys of a list of URLs. All different
// forms are held in memory, so that a group is printed whole, wherever in the
// list its lines stand.

import (
	"context"
	"fmt"
	"strings"

	"dedupstore/urlkey"
)

// A diffTally counts lines, forms and groups.
type diffTally struct {
	Read    int64 `json:"read"`
	From    int64 `json:"from"`   // different forms under A
	To      int64 `json:"to"`     // and under B
	Merges  int64 `json:"merges"` // forms under B, of several under A
	Splits  int64 `json:"splits"` // forms under A, of several under B
	Invalid int64 `json:"invalid"`
	Errors  int64 `json:"errors"` // files that could not be read to their end
}

func (t diffTally) String() string {
	return fmt.Sprintf("read=%d from=%d to=%d merges=%d splits=%d invalid=%d errors=%d",
		t.Read, t.From, t.To, t.Merges, t.Splits, t.Invalid, t.Errors)
}

// forms numbers the different forms under one profile.
type forms struct {
	profile *urlkey.Profile
	numbers map[string]int
	texts   []string
	buf     []byte
}

func newForms(p *urlkey.Profile) *forms { return &forms{profile: p, numbers: map[string]int{}} }

// number returns the number of a URL's form.
func (f *forms) number(url string) (int, error) {
	form, err := f.profile.AppendString(f.buf[:0], url)
	if err != nil {
		return 0, err
	}
	f.buf = form
	n, ok := f.numbers[string(form)]
	if !ok {
		n = len(f.texts)
		f.texts = append(f.texts, string(form))
		f.numbers[f.texts[n]] = n
	}
	return n, nil
}

// A formPair is a line's form under A and under B, by their numbers.
type formPair struct{ from, to int }

// A canonDiff gathers the pairs of all lines.
type canonDiff struct {
	*program
	from, to *forms
	pairs    []formPair          // different ones, as they came
	lines    map[formPair]string // the first line of each
	tally    diffTally
}

// canonDiff prints what merges and what splits.
func (p *program) canonDiff(ctx context.Context, files []string, change profileChange, asJSON bool) error {
	d := &canonDiff{
		program: p, from: newForms(change.from), to: newForms(change.to),
		lines: map[formPair]string{},
	}
	if p.profile = change.to; p.profile.String() == bytesProfile {
		p.profile = change.from
	}
	err := p.eachBatch(ctx, newInput(files, p.stdin), d.gather)
	if err == nil {
		err = d.print()
	}
	if err == nil && p.failed {
		err = errReported
	}
	d.tally.From, d.tally.To = int64(len(d.from.texts)), int64(len(d.to.texts))
	p.summary(d.tally, asJSON)
	return err
}

// gather takes the lines of a batch, whose keys are the forms under the stricter
// of the profiles. A line that is invalid under one of them is in no group.
func (d *canonDiff) gather(b *batch) error {
	d.tally.Read += int64(b.size() + len(b.failed))
	for _, line := range b.lines {
		line = strings.TrimPrefix(strings.TrimSuffix(line, "\r"), bom)
		from, err := d.from.number(line)
		var to int
		if err == nil {
			to, err = d.to.number(line)
		}
		if err != nil {
			d.tally.Invalid++ // too long under the other, by the byte that https has more
			continue
		}
		pair := formPair{from, to}
		if _, seen := d.lines[pair]; !seen {
			d.pairs = append(d.pairs, pair)
			d.lines[pair] = strings.Clone(line)
		}
	}
	d.report(b)
	d.tally.Invalid += int64(len(b.invalid))
	d.tally.Errors += int64(len(b.failed))
	return nil
}

// print prints the groups: first those that merge, then those that split, each
// in the order of their first lines.
func (d *canonDiff) print() error {
	merges := d.groups(func(p formPair) int { return p.to })
	splits := d.groups(func(p formPair) int { return p.from })
	d.tally.Merges, d.tally.Splits = int64(len(merges)), int64(len(splits))
	var out []byte
	for _, group := range merges {
		for _, p := range group {
			out = fmt.Appendf(out, "merge\t%s\t%s\n", d.to.texts[p.to], d.lines[p])
		}
	}
	for _, group := range splits {
		for _, p := range group {
			out = fmt.Appendf(out, "split\t%s\t%s\n", d.from.texts[p.from], d.lines[p])
		}
	}
	return writeOut(d.stdout, out)
}

// groups returns the pairs that have one form in common.
func (d *canonDiff) groups(common func(formPair) int) [][]formPair {
	of := map[int][]formPair{}
	for _, p := range d.pairs {
		of[common(p)] = append(of[common(p)], p)
	}
	var groups [][]formPair
	for _, p := range d.pairs {
		if group := of[common(p)]; len(group) > 1 && group[0] == p {
			groups = append(groups, group)
		}
	}
	return groups
}
