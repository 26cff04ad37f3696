// Command dedupstore remembers which URLs it has seen, exactly and durably.
// "dedupstore help" documents its verbs; package dedupstore/store is the
// library behind it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"dedupstore/store"
	"dedupstore/urlkey"
)

const (
	exitOK    = 0
	exitOther = 6
)

// The ends of a run that no package but this one knows.
var (
	errUsage       = errors.New("usage")
	errInterrupted = errors.New("interrupted")
	// errVerifyInterrupted is errInterrupted of what cannot go on later.
	errVerifyInterrupted = fmt.Errorf("%w", errInterrupted)

	errFaults      = errors.New("the store is damaged")
	errNotRepaired = errors.New("the store is still damaged")
	errDamagedFile = errors.New("it is damaged")
	errNoNamespace = errors.New("there is no namespace")

	errInvalidLine = errors.New("stopped at the first invalid line")
	errSomeNew     = errors.New("at least one is new")
	errReaderGone  = errors.New("nobody reads the output any more")
	errReported    = errors.New("an error was reported when it happened")
)

// exits gives an error its exit code and says what to do next, where DIR
// stands for the store. The first row that matches counts; an error that no
// row matches has exit code exitOther. The end that a silent row names needs
// no message.
var exits = []struct {
	is     error
	code   int
	silent bool
	hint   string
}{
	{is: errReaderGone, code: exitOK, silent: true},
	{is: errSomeNew, code: 1, silent: true},
	{is: errUsage, code: 2},
	{is: store.ErrLocked, code: 3, hint: "wait until that process ends, or stop it"},
	{is: store.ErrCorrupt, code: 4, hint: `nothing was deleted; "dedupstore verify --deep --store DIR" lists the damage`},
	{is: store.ErrVersion, code: 4, hint: "use the version that wrote it, or a newer one"},
	{is: errFaults, code: 4, hint: `nothing was changed; "dedupstore repair --store DIR" says what can be had back`},
	{is: errNotRepaired, code: 4, hint: "nothing that cannot be read was deleted"},
	{is: errDamagedFile, code: 4, hint: "nothing was changed"},
	{is: store.ErrDiskFull, code: 5, hint: "make room and run it again"},
	{is: store.ErrClock, code: 7}, // its text says what to do
	{is: errReported, code: exitOther, silent: true},
	{is: errInvalidLine, code: exitOther, hint: "what came before it is done; leave --strict out to pass over it"},
	{is: errNoNamespace, code: exitOther, hint: `"dedupstore namespaces --store DIR" lists those that there are`},
	{is: store.ErrOptionsMismatch, code: exitOther, hint: "a store keeps what it was made with: leave that flag out, or name another --store"},
	{is: store.ErrNotExist, code: exitOther, hint: `"dedupstore create --store DIR" makes one`},
	{is: store.ErrNotStore, code: exitOther, hint: "name another --store"},
	{is: store.ErrPoisoned, code: exitOther, hint: "what was answered before is safe; see to the disk, and run it again"},
	{is: fs.ErrPermission, code: exitOther, hint: "run it as the user whose it is, or name another file or --store"},
	{is: syscall.EROFS, code: exitOther, hint: "check, stats and verify need not write; for others, name another --store"},
	{is: errVerifyInterrupted, code: 130, hint: "run it again; it begins anew"},
	{is: errInterrupted, code: 130, hint: "run it again to go on"},
}

// A program is one run of the command.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	dir            string          // --store
	quiet          bool            // --quiet
	profile        *urlkey.Profile // that of the store, once it is open; nil: bytes as they are
	started        bool            // a verb is running: the command line was good
	badLines       int             // lines that were passed over
	failed         bool            // an error was reported and the run went on
}

func main() {
	// A write to a pipe that nobody reads is then an error like any other,
	// and the store is closed before the end.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole command but for the exit. The first SIGINT or SIGTERM ends
// it in order, the second at once.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return runUntil(ctx, args, stdin, stdout, stderr)
}

// runUntil is run, interrupted when ctx is done.
func runUntil(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRoot(p)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !p.started {
		err = usageError(cmd, err)
	}
	return p.exit(err)
}

// exit reports err and returns its exit code.
func (p *program) exit(err error) int {
	if err == nil {
		return exitOK
	}
	message := oneLine(err)
	for _, e := range exits {
		if !errors.Is(err, e.is) {
			continue
		}
		if e.hint != "" {
			message += "; " + strings.ReplaceAll(e.hint, "DIR", p.dir)
		}
		if !e.silent {
			p.complain(message)
		}
		return e.code
	}
	p.complain(message)
	return exitOther
}

// isSilent reports whether err is an end that needs no message.
func isSilent(err error) bool {
	for _, e := range exits {
		if e.silent && e.is == err {
			return true
		}
	}
	return false
}

// complain writes one line to stderr, --quiet or not.
func (p *program) complain(message string) {
	fmt.Fprintf(p.stderr, "dedupstore: %s\n", message)
}

// note writes one line to stderr unless --quiet forbids it.
func (p *program) note(format string, args ...any) {
	if !p.quiet {
		p.complain(fmt.Sprintf(format, args...))
	}
}

// oneLine is the text of err without the library's prefix.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(l), "store: ")
	}
	return strings.Join(lines, "; ")
}

// usageError makes err one about the command line of cmd. It is errUsage.
func usageError(cmd *cobra.Command, err error) error {
	return &commandLineError{command: cmd.CommandPath(), err: err}
}

type commandLineError struct {
	command string
	err     error
}

func (e *commandLineError) Error() string {
	return fmt.Sprintf("%s; see %q", strings.Join(strings.Fields(e.err.Error()), " "), e.command+" --help")
}

func (e *commandLineError) Is(target error) bool { return target == errUsage }
func (e *commandLineError) Unwrap() error        { return e.err }
