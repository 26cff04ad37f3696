package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"dedupstore/store"
)

const forgetUsage = `Usage: dedupstore forget [URL...]

Make URLs new again, and print how many of them were seen:

    dedupstore forget URL...                     these URLs
    dedupstore forget < FILE                     the lines of standard input
    dedupstore forget --namespace NAME URL...    these, of a namespace
    dedupstore forget --namespace NAME -         the lines, of a namespace
    dedupstore forget --namespace NAME           the namespace: all its URLs

The last one asks nothing, takes no time, and cannot be taken back; the name and
its TTL stay. It does not read standard input. If something is there all the
same, or may come through a pipe, it does nothing and the exit code is 2: say -
to forget those lines, or --all. A script whose list may be empty says -: where
nothing comes in, nothing is forgotten. Do not use xargs for that: for an empty
list it calls the command without URLs. With $DEDUPSTORE_NAMESPACE and neither
--namespace nor --all, nothing is dropped: the lines are forgotten.

When it ends, it is durable. The rules for lines are those of "dedupstore
filter". If an argument is no URL, nothing is forgotten and the exit code is 6.

    --namespace NAME      the namespace; -n for short
    --all                 with --namespace and no URLs: drop it, whatever
                          standard input is
    --memory SIZE         memory to use (default: 256MiB)
    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore forget https://example.com/
    dedupstore import --added-to added.txt list.txt
    dedupstore forget < added.txt
    dedupstore forget --namespace images
`

func newForget(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "forget [URL...]", Long: forgetUsage, Args: cobra.ArbitraryArgs}
	o := store.Options{MustExist: true}
	var name string
	var all, asJSON bool
	namespaceFlag(cmd, &name)
	memoryFlag(cmd, &o)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&all, "all", false, "")
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		f := &forget{program: p}
		do := f.urls(urls)
		// A name that an environment variable gives to all commands is not enough
		// to drop a namespace.
		drop := name != "" && len(urls) == 0 && (all || cmd.Flags().Changed("namespace"))
		switch {
		case all && !drop:
			return usageError(cmd, errors.New("--all is for a --namespace, without URLs"))
		case drop && !all && hasInput(p.stdin):
			return usageError(cmd, fmt.Errorf("standard input may hold lines: say - to forget them, or --all to drop namespace %q", name))
		case drop:
			do = f.drop
		case len(urls) == 0, len(urls) == 1 && urls[0] == stdinName && cmd.ArgsLenAtDash() != 0:
			do = f.lines
		}
		s, err := p.open(o)
		if err != nil {
			return err
		}
		n, err := p.namespace(s, name)
		if err == nil {
			err = do(cmd.Context(), s, n)
		}
		if err = closeStore(s, err); err != nil && f.Asked == 0 {
			return err
		}
		return errors.Join(err, f.print(asJSON))
	}
	return cmd
}

// A forget counts what was asked for and what was forgotten.
type forget struct {
	*program  `json:"-"`
	Asked     int64 `json:"asked"`
	Forgotten int64 `json:"forgotten"`
}

// urls forgets the arguments.
func (f *forget) urls(urls []string) func(context.Context, *store.Store, *store.Namespace) error {
	return func(ctx context.Context, _ *store.Store, n *store.Namespace) error {
		keys, err := f.keysOf(urls)
		if err != nil {
			return err
		}
		return f.keys(ctx, n, keys)
	}
}

// lines forgets the lines of standard input.
func (f *forget) lines(ctx context.Context, _ *store.Store, n *store.Namespace) error {
	in := newInput(nil, f.stdin)
	progress := f.lineProgress(in)
	defer progress.clear()
	err := f.eachBatch(ctx, in, func(b *batch) error {
		err := f.keys(ctx, n, b.keys)
		progress.clear()
		f.report(b)
		progress.lines(f.Asked)
		return err
	})
	if err == nil && f.failed {
		err = errReported
	}
	return err
}

// keys forgets keys. An interrupt waits until it is done.
func (f *forget) keys(ctx context.Context, n *store.Namespace, keys []string) error {
	f.Asked += int64(len(keys))
	removed, err := n.Forget(context.WithoutCancel(ctx), keys...)
	f.Forgotten += int64(removed)
	return err
}

// drop forgets all URLs of a namespace.
func (f *forget) drop(ctx context.Context, s *store.Store, n *store.Namespace) error {
	had := namespaceStats(s, n.Name()).URLs
	if err := s.DropNamespace(ctx, n.Name()); err != nil {
		return err
	}
	f.Asked, f.Forgotten = had, had
	return nil
}

func (f *forget) print(asJSON bool) error {
	if asJSON {
		return f.printJSON(f)
	}
	return writeOut(f.stdout, fmt.Appendf(nil, "%s of %s URLs forgotten\n", humanize.Comma(f.Forgotten), humanize.Comma(f.Asked)))
}

// inputWait is how long a pipe may take to end, or to bring something. Nothing may
// ever come from one that is inherited.
const inputWait = time.Second

// hasInput reports whether r is a file or a pipe from which something can be read,
// or may be later.
func hasInput(r io.Reader) bool {
	file, ok := r.(*os.File)
	if !ok {
		return false
	}
	if n, known := bytesLeft(file); known {
		return n > 0
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return false // a terminal, or /dev/null
	}
	fds := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(inputWait.Milliseconds()))
	ended := err == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0 && fds[0].Revents&unix.POLLIN == 0
	return !ended
}
