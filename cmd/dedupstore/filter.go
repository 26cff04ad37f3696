package main

// The rule of this file: a line is seen only after it has been written. Those of
// a batch are claimed, the new ones written, synced if they went to a regular
// file, and only then is their claim committed. A kill between the write and the
// commit prints the batch again in the next run; no order of the steps loses a
// line.

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"dedupstore/internal/planted"
	"dedupstore/store"
)

const filterUsage = `Usage: dedupstore filter [FILE...]

Print the lines of the FILEs, or of standard input, that the store has never
seen, as they came and in their order, and remember them. A line is printed as
soon as it has been read, and remembered only after it has been written: after
a kill -9 at any moment, run it again on the same input, and over the two runs
every distinct line was printed at least once, at most 4096 of them twice. It
ends with one line on stderr, in which read = new + seen + invalid + errors.

` + lineRulesUsage + `
A FILE that cannot be read counts as one error; the others are done. If the
output cannot be written, its lines are not remembered. If nobody reads the
output any more, the run ends without an error.

` + lineFlagsUsage + `
Examples:

    crawl | dedupstore filter | fetch
    dedupstore filter links-1.txt.gz links-2.txt.zst > new.txt
    dedupstore filter --store crawl.store --urls 200M < links.txt > new.txt
`

func newFilter(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "filter [FILE...]", Long: filterUsage, Args: cobra.ArbitraryArgs}
	flags := newLineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		f := &filter{
			toFile: isRegular(p.stdout),
			claims: make([]store.Claim, batchLines), committed: make([]bool, batchLines),
		}
		return p.runLines(cmd.Context(), files, flags, f.ask)
	}
	return cmd
}

// noLease is that of a claim which ends with the process: nobody else may claim
// meanwhile, however long the output takes its lines.
const noLease = time.Duration(math.MaxInt64)

// A filter holds the buffers of a run.
type filter struct {
	toFile    bool          // the output survives a power failure if synced
	claims    []store.Claim // of one batch; pick moves those granted to the front
	committed []bool
	out       []byte // the lines that are new
}

// ask claims the lines of b, writes those that are granted, and commits them.
func (f *filter) ask(r *lineRun, b *batch) error {
	answers, claims := r.answersFor(b.keys), f.claims[:len(b.keys)]
	if err := r.store.ClaimBatch(r.ctx, b.keys, noLease, claims, answers); err != nil {
		r.tally.Errors += int64(len(b.keys))
		return err
	}
	claims, known := f.pick(b, answers)
	repeated := int64(len(b.keys)-len(claims)) - known
	if planted.MarkBeforeWrite {
		_ = f.commit(r, claims)
	}
	if err := f.write(r.stdout); err == errReaderGone {
		return err
	} else if err != nil {
		r.tally.Seen += known
		r.tally.Errors += int64(len(claims)) + repeated
		return err
	}
	r.tally.Seen += known + repeated
	if planted.MarkBeforeWrite {
		return nil
	}
	return f.commit(r, claims)
}

// pick sets out to the lines of b that are new, and returns their claims and the
// number of lines that the store knows. A line that is busy is one that stands in
// b before.
func (f *filter) pick(b *batch, answers []store.Answer) (granted []store.Claim, known int64) {
	granted, f.out = f.claims[:0], f.out[:0]
	for i, a := range answers {
		switch a {
		case store.New:
			granted = append(granted, f.claims[i])
			f.out = append(append(f.out, b.lines[i]...), '\n')
		case store.Seen:
			known++
		}
	}
	return granted, known
}

// commit makes the lines seen that were written.
func (f *filter) commit(r *lineRun, claims []store.Claim) error {
	committed := f.committed[:len(claims)]
	err := r.store.CommitBatch(r.ctx, claims, 0, committed)
	for _, c := range committed {
		if c {
			r.tally.New++
		} else {
			r.tally.Errors++
		}
	}
	return err
}

// write returns when the lines are where a kill, or a power failure if it is
// a file, does not reach them.
func (f *filter) write(w io.Writer) error {
	if len(f.out) == 0 {
		return nil
	}
	err := writeOut(w, f.out)
	if err == nil && f.toFile {
		err = w.(*os.File).Sync()
	}
	if err == nil || err == errReaderGone {
		return err
	}
	return fmt.Errorf("%w; what was to be written is not remembered and will come again", err)
}

// writeOut writes all of out, or says that nobody reads it.
func writeOut(w io.Writer, out []byte) error {
	_, err := w.Write(out)
	if errors.Is(err, syscall.EPIPE) {
		return errReaderGone
	}
	return err
}

func isRegular(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular()
}
