package main

// The rule of this file: a line is marked as seen only after it has been
// written. A batch is asked about, written, synced if it went to a regular
// file, and only then marked. A kill between the write and the mark prints the
// batch again in the next run; no order of the steps loses a line.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"

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
		f := &filter{inBatch: map[string]struct{}{}, toFile: isRegular(p.stdout)}
		return p.runLines(cmd.Context(), files, flags, f.ask)
	}
	return cmd
}

// A filter holds the buffers of a run.
type filter struct {
	toFile  bool                // the output survives a power failure if synced
	inBatch map[string]struct{} // fresh, as a set
	fresh   []string            // keys of one batch that are new
	out     []byte              // their lines
}

// ask writes the new lines of b and marks them.
func (f *filter) ask(r *lineRun, b *batch) error {
	answers := r.answersFor(b.keys)
	if err := r.store.HasBatch(r.ctx, b.keys, answers); err != nil {
		r.tally.Errors += int64(len(b.keys))
		return err
	}
	known := f.pick(b, answers)
	repeated := int64(len(b.keys)-len(f.fresh)) - known
	if err := f.write(r.stdout); err != nil {
		r.tally.Seen += known
		r.tally.Errors += int64(len(f.fresh)) + repeated
		return err
	}
	r.tally.Seen += known + repeated
	answers = r.answersFor(f.fresh)
	err := r.store.AddBatch(r.ctx, f.fresh, answers)
	for _, a := range answers {
		if a == store.Unanswered {
			r.tally.Errors++
		} else {
			r.tally.New++
		}
	}
	return err
}

// pick sets fresh and out to what is new in b, each key once, and returns the
// number of lines that the store knows.
func (f *filter) pick(b *batch, answers []store.Answer) (known int64) {
	clear(f.inBatch)
	f.fresh, f.out = f.fresh[:0], f.out[:0]
	for i, key := range b.keys {
		if answers[i] == store.Seen {
			known++
			continue
		}
		if _, ok := f.inBatch[key]; ok {
			continue
		}
		f.inBatch[key] = struct{}{}
		f.fresh = append(f.fresh, key)
		f.out = append(append(f.out, b.lines[i]...), '\n')
	}
	return known
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
