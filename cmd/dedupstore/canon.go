package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"dedupstore/urlkey"
)

const canonUsage = `Usage: dedupstore canon [FILE...]

Print the canonical form of each line of the FILEs, or of standard input, in
their order. No store is used. It ends with one line on stderr, in which read =
changed + same + invalid + errors.

With --diff, print instead what becomes of the keys of a store if its profile A
is given up for B: lines with different forms under A and one under B merge, and
lines with one form under A and different ones under B split. A group has a line
for each of the different forms, and is held together by the one form:

    merge<TAB>FORM UNDER B<TAB>LINE
    split<TAB>FORM UNDER A<TAB>LINE

It holds the different forms in memory: some 800 bytes for each URL.

` + lineRulesUsage + `Under any profile but none, so is a line that is no absolute URL, or is longer
than 8 KiB.

    --profile NAME        none: the bytes as they are
                          std: as the URL Standard writes it, without its
                          fragment; names the same page (default)
                          crawl: std and the rules below; each can be switched,
                          as in crawl,+bust,-www
                          A version may be named, as in crawl/1
    --diff A,B            two such names
    --json                print the summary as one JSON object, even with
                          --quiet
    --quiet               say nothing on stderr but errors

Rules of crawl, in the order they are applied:

`

const canonExamples = `
Examples:

    dedupstore canon < links.txt | sort -u
    dedupstore canon --profile crawl,-www links.txt.gz
    dedupstore canon --diff std,crawl,+bust < links.txt
`

// rulesUsage documents the rules of crawl.
func rulesUsage() string {
	var b strings.Builder
	for _, r := range urlkey.Rules() {
		off := ""
		if !r.Default {
			off = " (off)"
		}
		fmt.Fprintf(&b, "    %-10s%s%s\n", r.Name, r.What, off)
	}
	return b.String()
}

func newCanon(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "canon [FILE...]", Long: canonUsage + rulesUsage() + canonExamples, Args: cobra.ArbitraryArgs,
	}
	var profile *urlkey.Profile
	var change profileChange
	var asJSON bool
	cmd.Flags().Var(newValue(&profile, "std", "NAME", urlkey.Parse).oneOf(profileNames...), "profile", "")
	cmd.Flags().Var(newValue(&change, "", "A,B", parseChange), "diff", "")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		if change.from != nil && cmd.Flags().Changed("profile") {
			return usageError(cmd, errors.New("--diff names its profiles: leave --profile out"))
		}
		if change.from != nil {
			return p.canonDiff(cmd.Context(), files, change, asJSON)
		}
		p.profile = profile
		c := &canon{program: p}
		err := p.eachBatch(cmd.Context(), newInput(files, p.stdin), c.print)
		if err == nil && p.failed {
			err = errReported
		}
		p.summary(c.tally, asJSON)
		return err
	}
	return cmd
}

// A canonTally counts lines. Read is the sum of the others.
type canonTally struct {
	Read    int64 `json:"read"`
	Changed int64 `json:"changed"` // lines that are not in canonical form
	Same    int64 `json:"same"`
	Invalid int64 `json:"invalid"`
	Errors  int64 `json:"errors"` // as in tally
}

func (t canonTally) String() string {
	return fmt.Sprintf("read=%d changed=%d same=%d invalid=%d errors=%d",
		t.Read, t.Changed, t.Same, t.Invalid, t.Errors)
}

// A canon prints canonical forms.
type canon struct {
	*program
	out   []byte
	tally canonTally
}

// print prints the forms of a batch, which are its keys.
func (c *canon) print(b *batch) error {
	c.out = c.out[:0]
	var same int64
	for i, key := range b.keys {
		if strings.TrimSuffix(b.lines[i], "\r") == key {
			same++
		}
		c.out = append(append(c.out, key...), '\n')
	}
	err := writeOut(c.stdout, c.out)
	if err == errReaderGone {
		return err
	}
	c.report(b)
	c.tally.Read += int64(b.size() + len(b.failed))
	c.tally.Invalid += int64(len(b.invalid))
	c.tally.Errors += int64(len(b.failed))
	if err != nil {
		c.tally.Errors += int64(len(b.keys))
		return err
	}
	c.tally.Changed += int64(len(b.keys)) - same
	c.tally.Same += same
	return nil
}

// A profileChange is from one profile to another.
type profileChange struct{ from, to *urlkey.Profile }

// parseChange reads two names with a comma between them. The commas within a
// name stand before a sign.
func parseChange(s string) (profileChange, error) {
	errWant := errors.New("want two profiles, like std,crawl or crawl/1,crawl/1,-www")
	var names []string
	for part := range strings.SplitSeq(s, ",") {
		isSwitch := strings.HasPrefix(part, "+") || strings.HasPrefix(part, "-")
		switch {
		case !isSwitch:
			names = append(names, part)
		case len(names) == 0:
			return profileChange{}, errWant
		default:
			names[len(names)-1] += "," + part
		}
	}
	if len(names) != 2 {
		return profileChange{}, errWant
	}
	from, err := urlkey.Parse(names[0])
	if err != nil {
		return profileChange{}, err
	}
	to, err := urlkey.Parse(names[1])
	return profileChange{from, to}, err
}
