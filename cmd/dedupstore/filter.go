package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"
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
    dedupstore filter --namespace feeds --ttl 1h < feeds.txt | fetch
`

func newFilter(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "filter [FILE...]", Long: filterUsage, Args: cobra.ArbitraryArgs}
	flags := newLineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		f := &filter{to: p.stdout, toFile: isRegular(p.stdout)}
		return p.runLines(cmd.Context(), files, flags, newMarker(f.write).ask)
	}
	return cmd
}

// A filter prints lines.
type filter struct {
	to     io.Writer
	toFile bool // the output survives a power failure if synced
	out    []byte
}

// write returns when the lines are where a kill, or a power failure if it is
// a file, does not reach them.
func (f *filter) write(b *batch, fresh []int) error {
	if len(fresh) == 0 {
		return nil
	}
	f.out = f.out[:0]
	for _, i := range fresh {
		f.out = append(append(f.out, b.lines[i]...), '\n')
	}
	err := writeOut(f.to, f.out)
	if err == nil && f.toFile {
		err = f.to.(*os.File).Sync()
	}
	if err == nil || err == errReaderGone {
		return err
	}
	return notRemembered(err)
}

// notRemembered is err of a write.
func notRemembered(err error) error {
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
