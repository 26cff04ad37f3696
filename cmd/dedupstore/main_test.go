package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dedupstore/internal/seam"
	"dedupstore/store"
)

// TestMain lets the test binary be the program too: "dedupstore" is in PATH
// for scripts and for exec.Command. Most tests are about lines, whatever is in
// them: what has no profile of its own has "none".
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv("DEDUPSTORE_CANON"); !ok {
		os.Setenv("DEDUPSTORE_CANON", "none")
	}
	testscript.Main(m, map[string]func(){"dedupstore": func() {
		if text := os.Getenv("TEST_CLOCK"); text != "" {
			clock = parseClock(text)
		}
		main()
	}})
}

// A frozenClock stands still while a process runs; the next one has another.
type frozenClock struct {
	passed time.Duration // since the first boot, in which it was midnight
	boot   byte
}

// parseClock reads "PASSED BOOT", like "5s 1".
func parseClock(text string) frozenClock {
	var c frozenClock
	var passed string
	if _, err := fmt.Sscanf(text, "%s %d", &passed, &c.boot); err != nil {
		panic(err)
	}
	var err error
	if c.passed, err = parseTTL(passed); err != nil {
		panic(err)
	}
	return c
}

func (c frozenClock) Wall() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.passed)
}
func (c frozenClock) Monotonic() time.Duration        { return c.passed }
func (c frozenClock) Boot() (time.Duration, [16]byte) { return c.passed, [16]byte{c.boot} }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("DEDUPSTORE_CANON", "none")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    scriptExits,
			"hold":     scriptHold,
			"unescape": scriptUnescape,
			"flip":     scriptFlip,
			"pack":     scriptPack,
		},
	})
}

// scriptExits runs a command and wants an exit code: exits CODE COMMAND...
func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

// scriptHold keeps a store open until the end of the script, and publishes its
// STATUS at open, and then in an interval. It claims the keys that are named:
// hold DIR [INTERVAL [KEY...]].
func scriptHold(ts *testscript.TestScript, _ bool, args []string) {
	interval := time.Hour
	if len(args) > 1 {
		var err error
		interval, err = time.ParseDuration(args[1])
		ts.Check(err)
	}
	o := &store.Options{MustExist: true, KeyProfile: store.AnyKeyProfile}
	store.SetSeams(o, seam.Seams{StatusInterval: interval})
	s, err := store.Open(ts.MkAbs(args[0]), o)
	ts.Check(err)
	ts.Defer(func() { s.Close() })
	for _, key := range args[min(2, len(args)):] {
		_, _, err := s.Claim(context.Background(), key, 0)
		ts.Check(err)
	}
}

// scriptUnescape writes text with Go escapes: unescape TEXT FILE.
func scriptUnescape(ts *testscript.TestScript, _ bool, args []string) {
	text, err := strconv.Unquote(`"` + args[0] + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o666))
}

// scriptFlip flips all bits of one byte: flip FILE OFFSET.
func scriptFlip(ts *testscript.TestScript, _ bool, args []string) {
	data := []byte(ts.ReadFile(args[0]))
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	data[at] ^= 0xff
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o666))
}

// scriptPack compresses a file: pack gzip|zstd FROM TO.
func scriptPack(ts *testscript.TestScript, _ bool, args []string) {
	packed := packers[args[0]](ts.ReadFile(args[1]))
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), packed, 0o666))
}

// TestUsageNamesFlags keeps the usage texts and the flags together.
func TestUsageNamesFlags(t *testing.T) {
	for _, cmd := range newRoot(&program{}).Commands() {
		if cmd.Name() == "completion" || cmd.Name() == "help" {
			continue
		}
		documented := map[string]bool{}
		for line := range strings.Lines(cmd.Long) {
			if word, ok := strings.CutPrefix(line, "    --"); ok {
				documented[strings.Fields(word)[0]] = true
			}
			if len(line) > 81 {
				t.Errorf("%s: usage line of %d characters: %s", cmd.Name(), len(line)-1, line)
			}
		}
		if !strings.HasPrefix(cmd.Long, "Usage: dedupstore "+cmd.Use+"\n") {
			t.Errorf("%s: usage does not begin with its synopsis %q", cmd.Name(), cmd.Use)
		}
		check := func(f *pflag.Flag) {
			noStore := cmd.Name() == "version" || cmd.Name() == "canon" && f.Name == "store"
			if f.Name != "help" && !documented[f.Name] && !noStore {
				t.Errorf("%s: usage does not document --%s", cmd.Name(), f.Name)
			}
			delete(documented, f.Name)
		}
		cmd.LocalFlags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
		for name := range documented {
			t.Errorf("%s: usage documents --%s, which is no flag", cmd.Name(), name)
		}
	}
}

func TestExit(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("doing: %w", err) }
	for _, test := range []struct {
		err  error
		code int
		text string // on stderr
	}{
		{nil, 0, ""},
		{errSomeNew, 1, ""},
		{errReaderGone, 0, ""},
		{errReported, 6, ""},
		{usageError(&cobra.Command{Use: "x"}, errors.New("bad\n\tflag")), 2, `dedupstore: bad flag; see "x --help"` + "\n"},
		{wrap(&store.LockedError{Path: "d"}), 3, "dedupstore: doing: store: d is held by another process; wait until that process ends, or stop it\n"},
		{wrap(&store.CorruptError{Path: "f", Offset: 7, Reason: "r"}), 4, `dedupstore: doing: store: f at offset 7: corrupt: r; nothing was deleted; "dedupstore verify --deep --store DIR" lists the damage` + "\n"},
		{store.ErrVersion, 4, "dedupstore: format version not known; use the version that wrote it, or a newer one\n"},
		{wrap(store.ErrDiskFull), 5, "dedupstore: doing: store: disk full; make room and run it again\n"},
		{wrap(store.ErrClock), 7, "dedupstore: doing: store: the clock is far behind the store's time\n"},
		{wrap(errNoNamespace), 6, "dedupstore: doing: there is no namespace; \"dedupstore namespaces --store DIR\" lists those that there are\n"},
		{errors.Join(store.ErrClosed, errors.New("b")), 6, "dedupstore: closed; b\n"},
		{wrap(store.ErrPoisoned), 6, "dedupstore: doing: " + store.ErrPoisoned.Error() + "; what was answered before is safe; see to the disk, and run it again\n"},
		{&fs.PathError{Op: "open", Path: "f", Err: syscall.EACCES}, 6, "dedupstore: open f: permission denied; run it as the user whose it is, or name another file or --store\n"},
		{&fs.PathError{Op: "open", Path: "f", Err: syscall.EROFS}, 6, "dedupstore: open f: read-only file system; check, stats and verify need not write; for others, name another --store\n"},
		{fmt.Errorf("%w at 5 %%", errVerifyInterrupted), 130, "dedupstore: interrupted at 5 %; run it again; it begins anew\n"},
		{errInterrupted, 130, "dedupstore: interrupted; run it again to go on\n"},
	} {
		var stderr bytes.Buffer
		p := &program{stderr: &stderr, dir: "DIR"}
		if code := p.exit(test.err); code != test.code || stderr.String() != test.text {
			t.Errorf("exit(%v) = %d and %q, want %d and %q", test.err, code, stderr.String(), test.code, test.text)
		}
	}
}
