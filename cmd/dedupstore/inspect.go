package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dedupstore/store"
)

const inspectUsage = `Usage: dedupstore inspect WHAT [FILE]

Print what a file of a store says, as far as it can be read, however damaged it
is. Nothing is changed, and the keys that are in a store are not shown. WHAT is

    wal FILE         a log file: its header, its frames and their records
    filter FILE      a bitmap or segment filter: the two copies of its header,
                     and its bits as they are counted; or a counter file
    registry [DIR]   the registry of a store, as Pebble has it
    store [FILE]     a STORE file; of a directory also who holds the store, and
                     what is in there

DIR, and FILE of "store", may be left out: it is the --store. A line has the
offset, what it is about, and fields; what is damaged stands behind an
exclamation mark, and the exit code is 4 then. "registry" needs a store that
nobody adds to; the others may look at a file that is in use, and may then find
its end half written. A page of a filter has changed if its checksum is not the
one that the last sync made: in a store that was closed it is damaged.

    --limit N             print at most N lines of what is in order; damage and
                          the summary are printed all the same
    --json                print one JSON object a line
` + storeFlagsUsage + `
Examples:

    dedupstore inspect wal seen.store/log/0000000007.log
    dedupstore inspect filter --json seen.store/bitmap-0000000001
    dedupstore inspect store
`

// inspections are what WHAT may be.
var inspections = map[string]struct {
	inspect  func(context.Context, string, func(store.Fact) error) error
	fileless bool // without FILE, it is the store
}{
	"wal":      {inspect: store.InspectLog},
	"filter":   {inspect: store.InspectFilter},
	"registry": {inspect: store.InspectRegistry, fileless: true},
	"store":    {inspect: store.InspectStore, fileless: true},
}

func newInspect(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "inspect WHAT [FILE]", Long: inspectUsage, Args: inspectArgs}
	out := factWriter{program: p}
	cmd.Flags().Var(newValue(&out.limit, "", "N", parseWhole), "limit", "")
	jsonFlag(cmd, &out.json)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		what := inspections[args[0]]
		out.path = p.dir
		if len(args) > 1 {
			out.path = args[1]
		}
		err := what.inspect(cmd.Context(), out.path, out.fact)
		return out.end(cmd.Context(), err)
	}
	return cmd
}

func inspectArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.RangeArgs(1, 2)(cmd, args); err != nil {
		return err
	}
	what, ok := inspections[args[0]]
	switch {
	case !ok:
		return fmt.Errorf("inspect what? %q is none of wal, filter, registry, store", args[0])
	case len(args) == 1 && !what.fileless:
		return fmt.Errorf("inspect which file?")
	}
	return nil
}

// A factWriter prints facts, one a line.
type factWriter struct {
	*program
	path    string // what is inspected
	json    bool
	limit   int // 0: none
	printed int // of what is in order
	left    int // out
	damaged bool
	out     bytes.Buffer
}

// factBuffer is how much is held back, for fewer writes.
const factBuffer = 64 << 10 // 64 KiB

func (w *factWriter) fact(f store.Fact) error {
	switch {
	case f.Damage != "":
		w.damaged = true
	case f.Kind == "summary":
	case w.limit > 0 && w.printed == w.limit:
		w.left++
		return nil
	default:
		w.printed++
	}
	if w.json {
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		w.out.Write(append(b, '\n'))
	} else {
		w.out.WriteString(w.line(f))
	}
	if w.out.Len() < factBuffer {
		return nil
	}
	return w.flush()
}

func (w *factWriter) flush() error {
	err := writeOut(w.stdout, w.out.Bytes())
	w.out.Reset()
	return err
}

// end prints what is held back, and returns what the run ends with.
func (w *factWriter) end(ctx context.Context, err error) error {
	if flushErr := w.flush(); err == nil {
		err = flushErr
	}
	if w.left > 0 {
		w.note("%d more lines of what is in order were left out", w.left)
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	case w.damaged:
		return fmt.Errorf("%s: %w", w.path, errDamagedFile)
	}
	return nil
}

// line is a fact in words.
func (w *factWriter) line(f store.Fact) string {
	var b strings.Builder
	if f.Offset >= 0 {
		fmt.Fprintf(&b, "%12d", f.Offset)
	} else {
		fmt.Fprintf(&b, "%12s", "-")
	}
	fmt.Fprintf(&b, "  %-14s", f.Kind)
	if rel, err := filepath.Rel(w.path, f.Path); err == nil && rel != "." {
		fmt.Fprintf(&b, "  %s", quoted(rel))
	}
	for _, field := range f.Fields {
		fmt.Fprintf(&b, "  %s=%s", field.Name, valueText(field.Value))
	}
	if f.Damage != "" {
		fmt.Fprintf(&b, "  ! %s", oneLine(errors.New(f.Damage)))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func valueText(v any) string {
	switch v := v.(type) {
	case string:
		return quoted(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

// quoted is a text that stays one word of one line.
func quoted(s string) string {
	if s == "" || strconv.Quote(s) != `"`+s+`"` || strings.ContainsAny(s, " =") {
		return strconv.Quote(s)
	}
	return s
}
