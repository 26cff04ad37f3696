package main

// What filter and import have in common: lines go through a store, batch by
// batch, and the count of them adds up.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dedupstore/store"
)

// maxShownLines is the number of invalid lines that are shown; further ones
// are only counted.
const maxShownLines = 10

// A tally counts lines. Read is the sum of the others.
type tally struct {
	Read    int64 `json:"read"`
	New     int64 `json:"new"`
	Seen    int64 `json:"seen"`
	Invalid int64 `json:"invalid"`
	// Errors counts lines that could not be answered, written or marked. A
	// file that cannot be read to its end counts as one: the line that was
	// not to be had.
	Errors int64 `json:"errors"`
}

func (t tally) String() string {
	return fmt.Sprintf("read=%d new=%d seen=%d invalid=%d errors=%d",
		t.Read, t.New, t.Seen, t.Invalid, t.Errors)
}

// lineFlags are those of the verbs that take lines.
type lineFlags struct {
	adding
	format formatRule
	strict bool
	json   bool
}

func newLineFlags(cmd *cobra.Command) *lineFlags {
	f := &lineFlags{}
	addFlags(cmd, &f.adding)
	formatFlags(cmd, &f.format)
	cmd.Flags().BoolVar(&f.strict, "strict", false, "")
	jsonFlag(cmd, &f.json)
	return f
}

// input is what the verb reads.
func (f *lineFlags) input(p *program, files []string) *input {
	in := newInput(files, p.stdin)
	in.rule.format, in.rule.strict = f.format, f.strict
	return in
}

var lineFlagsUsage = formatFlagsUsage() + `    --strict              stop at the first invalid line, and end with an error
` + addFlagsUsage + `    --json                print the summary as one JSON object, even with
                          --quiet
` + storeFlagsUsage

const lineRulesUsage = `A FILE may be plain, gzip, zstd or bzip2, which its content tells; "-" is
standard input. The key is made of the line without its LF and one CR before it,
and, at the start of a file, without a byte order mark, as the store's --canon
says. A line that is empty, is longer than 1 MiB or is no URL is invalid: it is
counted, named on stderr, and passed over. The last line needs no LF.
`

// A lineRun is one run of such a verb.
type lineRun struct {
	*program
	ctx     context.Context // of the store's calls: an interrupt lets them end
	answers []store.Answer  // for one batch
	tally   tally
}

// answersFor returns as many zero answers as there are keys.
func (r *lineRun) answersFor(keys []string) []store.Answer {
	answers := r.answers[:len(keys)]
	clear(answers)
	return answers
}

// runLines takes the lines of in through what ask asks, and closes that at the
// end. ask answers the keys of a batch and counts every one of them.
func (p *program) runLines(ctx context.Context, in *input, asJSON bool, into io.Closer, ask func(*lineRun, *batch) error) error {
	r := &lineRun{program: p, ctx: context.WithoutCancel(ctx), answers: make([]store.Answer, batchLines)}
	progress := p.lineProgress(in)
	err := p.eachBatch(ctx, in, func(b *batch) error {
		err := ask(r, b)
		if err == errReaderGone {
			return err // as if the input had ended before this batch
		}
		progress.clear()
		p.report(b)
		r.tally.Read += int64(b.size() + len(b.failed))
		r.tally.Invalid += int64(len(b.invalid))
		r.tally.Errors += int64(len(b.failed))
		progress.lines(r.tally.Read)
		return err
	})
	progress.clear()
	switch {
	case err == nil && p.failed:
		err = errReported
	case err == nil && in.rule.strict && r.tally.Invalid > 0:
		err = errInvalidLine
	}
	err = p.close(into, err)
	p.summary(r.tally, asJSON)
	return err
}

// report says what in b is no key, and which files failed.
func (p *program) report(b *batch) {
	for _, l := range b.invalid {
		p.badLines++
		switch {
		case p.badLines <= maxShownLines:
			p.note("%v", l)
		case p.badLines == maxShownLines+1:
			p.note("further invalid lines are only counted")
		}
	}
	for _, err := range b.failed {
		p.failed = true
		p.complain(oneLine(err))
	}
}

// summary prints t, the last line of a run that went well.
func (p *program) summary(t fmt.Stringer, asJSON bool) {
	switch {
	case asJSON:
		json.NewEncoder(p.stderr).Encode(t)
	case !p.quiet:
		fmt.Fprintln(p.stderr, t)
	}
}
