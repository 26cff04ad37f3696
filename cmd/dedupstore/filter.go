package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

var filterUsage = `Usage: dedupstore filter [FILE...]

Print the lines of the FILEs, or of standard input, that the store has never
seen, as they came and in their order, and remember them. A line is printed as
soon as it has been read, and remembered only after it has been written: after
a kill -9 at any moment, run it again on the same input, and over the two runs
every distinct line was printed at least once, at most 4096 of them twice. It
ends with one line on stderr, in which read = new + seen + invalid + errors.

` + lineRulesUsage + `
A FILE that cannot be read counts as one error; the others are done. If an
output cannot be written, the lines of that write are not remembered. If nobody
reads an output any more, the run ends without an error. All outputs are written
before a line is remembered: what is said of a kill is true of each of them.

    --verdicts            print every line, in its order, behind "new", "seen"
                          or "invalid" and a tab: who writes one line can read
                          one answer, and then write the next
    --invert              print the lines that are seen, the duplicates of the
                          input among them; those that are new are remembered
                          and printed nowhere
    --seen-to FILE        write the lines that are seen to the end of FILE
    --invalid-to FILE     write the lines that are invalid to the end of FILE,
                          of one that is longer than 1 MiB its start
    --key REGEXP          compare only a part of each line: the first group of
                          REGEXP, or its match if it has no group. A line that
                          does not match is invalid. The store does not record
                          it: say the same each time
    --null                lines end with NUL, in the inputs and the outputs, and
                          a CR before it is part of the line; -0 for short
    --dry-run             remember nothing, and make nothing, but a store in
                          $TMPDIR that is removed at the end, some 16 bytes a
                          new line: the output is that of a run without it
` + lineFlagsUsage + `
Examples:

    crawl | dedupstore filter | fetch
    dedupstore filter links-1.txt.gz links-2.txt.zst > new.txt
    dedupstore filter --store crawl.store --urls 200M < links.txt > new.txt
    dedupstore filter --namespace feeds --ttl 1h < feeds.txt | fetch
    dedupstore filter --field page.url pages.jsonl.gz > new.jsonl
    dedupstore filter --key 'id=([0-9]+)' links.txt > new.txt
    find . -print0 | dedupstore filter -0 | xargs -0 cat
`

func newFilter(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "filter [FILE...]", Long: filterUsage, Args: cobra.ArbitraryArgs}
	flags := newLineFlags(cmd)
	o := outputs{end: '\n'}
	var key keyRule
	var null, dryRun bool
	f := cmd.Flags()
	f.BoolVar(&o.verdicts, "verdicts", false, "")
	f.BoolVar(&o.invert, "invert", false, "")
	f.Var(newValue(&o.seenTo, "", "FILE", parseFile), "seen-to", "")
	f.Var(newValue(&o.invalidTo, "", "FILE", parseFile), "invalid-to", "")
	f.Var(newValue(&key, "", "REGEXP", parseKey), "key", "")
	f.BoolVarP(&null, "null", "0", false, "")
	f.BoolVar(&dryRun, "dry-run", false, "")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		in := flags.input(p, files)
		in.rule.key = key
		if null {
			in.rule.end, o.end = 0, 0
		}
		if key.part != nil || null {
			if in.rule.format.format != "" {
				return usageError(cmd, errors.New("--format says where the URL is, as do --key and --null: leave one out"))
			}
			in.rule.format.auto = false
		}
		if err := o.check(in, p.stdout); err != nil {
			return usageError(cmd, err)
		}
		if err := o.open(p.stdout); err != nil {
			return err
		}
		into, err := p.openMarked(flags.adding, dryRun)
		if err == nil {
			err = p.runLines(cmd.Context(), in, flags.json, into, newMarker(into, o.write).ask)
		}
		return errors.Join(err, o.close())
	}
	return cmd
}

// check refuses flags that say two things, and a file that is written while it
// is read, or written twice over.
func (o *outputs) check(in *input, stdout io.Writer) error {
	switch {
	case o.verdicts && o.invert:
		return errors.New("--verdicts prints every line, which leaves nothing for --invert")
	case o.invert && o.seenTo != "":
		return errors.New("--invert prints the lines that --seen-to is for: leave one of the two out")
	case o.seenTo != "" && o.invalidTo != "" && same(o.seenTo, o.invalidTo):
		return errors.New("--seen-to and --invalid-to are the same file")
	}
	for _, to := range []string{o.seenTo, o.invalidTo} {
		if to == "" {
			continue
		}
		if same(to, stdout) {
			return fmt.Errorf("%s is standard output too: name another file", to)
		}
		for _, name := range in.files {
			if name == stdinName && same(to, in.stdin) || name != stdinName && same(to, name) {
				return fmt.Errorf("%s is read and written: name another file", to)
			}
		}
	}
	return nil
}

// same reports whether two regular files, open ones or names, are the same.
func same(a, b any) bool {
	x, y := infoOf(a), infoOf(b)
	if x == nil || y == nil {
		return a == b
	}
	return x.Mode().IsRegular() && os.SameFile(x, y)
}

func infoOf(file any) (info os.FileInfo) {
	switch f := file.(type) {
	case string:
		info, _ = os.Stat(f)
	case *os.File:
		info, _ = f.Stat()
	}
	return info
}
