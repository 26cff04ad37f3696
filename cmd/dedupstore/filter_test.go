package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"dedupstore/store"
)

// filterCommand is a filter of its own process on the store dir.
func filterCommand(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "dedupstore", append([]string{"filter", "--store", dir, "--memory", "8MiB"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

// startPiped starts cmd between two pipes.
func startPiped(t *testing.T, cmd *exec.Cmd) (stdin io.WriteCloser, stdout io.ReadCloser) {
	t.Helper()
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return stdin, stdout
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// filterAll runs a filter to its end and returns what it printed.
func filterAll(t *testing.T, dir, input string, args ...string) string {
	t.Helper()
	cmd, stderr := filterCommand(t, dir, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("filter: %v, %s", err, stderr)
	}
	return string(out)
}

// wantSummary checks the last line of stderr but for complaints behind it.
func wantSummary(t *testing.T, stderr, want string) {
	t.Helper()
	if !strings.Contains(stderr, "\n"+want+"\n") {
		t.Errorf("stderr is\n%swant the line %q", stderr, want)
	}
}

// manyLines are n distinct lines with every fourth of them again behind it.
func manyLines(n int) string {
	var data strings.Builder
	for i := range n {
		fmt.Fprintf(&data, "https://example.com/%d\n", i)
		if i%4 == 0 {
			fmt.Fprintf(&data, "https://example.com/%d\n", i/2)
		}
	}
	return data.String()
}

// distinct returns the lines of data, each at its first place.
func distinct(data string) []string {
	var lines []string
	seen := map[string]bool{}
	for line := range strings.Lines(data) {
		if !seen[line] {
			seen[line] = true
			lines = append(lines, line)
		}
	}
	return lines
}

// TestFilterStreams wants the answer to a line before the next is written.
func TestFilterStreams(t *testing.T) {
	noEnd := func() error { return nil }
	for format, sender := range map[string]func(io.Writer) (send func(string), end func() error){
		"plain": func(w io.Writer) (func(string), func() error) {
			return func(s string) { io.WriteString(w, s) }, noEnd
		},
		"gzip": func(w io.Writer) (func(string), func() error) {
			z := gzip.NewWriter(w)
			return func(s string) { io.WriteString(z, s); z.Flush() }, z.Close
		},
		"gzip streams": func(w io.Writer) (func(string), func() error) {
			return func(s string) { w.Write(packers["gzip"](s)) }, noEnd
		},
		"zstd": func(w io.Writer) (func(string), func() error) {
			z, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return func(s string) { io.WriteString(z, s); z.Flush() }, z.Close
		},
		"zstd frames": func(w io.Writer) (func(string), func() error) {
			return func(s string) { w.Write(packers["zstd"](s)) }, noEnd
		},
	} {
		t.Run(format, func(t *testing.T) {
			cmd, _ := filterCommand(t, filepath.Join(t.TempDir(), "s"))
			stdin, stdout := startPiped(t, cmd)
			send, end := sender(stdin)
			answers := bufio.NewReader(stdout)
			for i := range 20 {
				line := fmt.Sprintf("https://example.com/%d\n", i)
				send("https://exam")
				send("ple.com/0\n" + line)
				if i == 0 {
					line = "https://example.com/0\n"
				}
				if got, err := answers.ReadString('\n'); got != line || err != nil {
					t.Fatalf("answer %q, %v, want %q", got, err, line)
				}
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			stdin.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFilterKilled kills filters at random moments and runs them again on the
// same input: over the runs every distinct line is printed, in order, and at
// most one batch for each kill is printed again.
func TestFilterKilled(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if env := os.Getenv("KILL_SEED"); env != "" {
		fmt.Sscan(env, &seed)
	}
	t.Logf("replay: KILL_SEED=%d go test -run TestFilterKilled ./cmd/dedupstore", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	lines, rounds := 60_000, 12
	if testing.Short() {
		lines, rounds = 20_000, 2
	}
	data := manyLines(lines)
	want := distinct(data)
	start := time.Now()
	filterAll(t, filepath.Join(t.TempDir(), "s"), data)
	takes := time.Since(start)
	for round := range rounds {
		dir := filepath.Join(t.TempDir(), "s")
		printed, kills := "", 0
		for done := false; !done; {
			after := time.Hour
			if kills < 4 {
				after = time.Duration(random.Int64N(int64(takes)))
			}
			var out string
			out, done = filterKilled(t, dir, data, round%2 == 0, after)
			wantInOrder(t, out, want)
			printed += out
			if !done {
				kills++
			}
		}
		if got := distinct(printed); len(got) != len(want) {
			t.Fatalf("%d distinct lines printed, want %d", len(got), len(want))
		}
		twice := strings.Count(printed, "\n") - len(want)
		if limit := kills * batchLines; twice > limit {
			t.Errorf("%d lines printed twice, want at most %d", twice, limit)
		}
		if again := filterAll(t, dir, data); again != "" {
			t.Errorf("%d bytes printed of a list that was done", len(again))
		}
		t.Logf("round %d: %d kills, %d lines twice", round, kills, twice)
	}
}

// filterKilled runs a filter, kills it after a while, and returns the whole
// lines that it printed and whether it came to its end before.
func filterKilled(t *testing.T, dir, data string, toFile bool, after time.Duration) (printed string, done bool) {
	t.Helper()
	cmd, stderr := filterCommand(t, dir)
	cmd.Stdin = strings.NewReader(data)
	var out bytes.Buffer
	cmd.Stdout = &out
	if toFile {
		file, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		cmd.Stdout = file
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(after, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	kill.Stop()
	if file, ok := cmd.Stdout.(*os.File); ok {
		if _, err := out.ReadFrom(io.NewSectionReader(file, 0, 1<<40)); err != nil {
			t.Fatal(err)
		}
	}
	code := exitCode(t, err)
	if code != exitOK && code != -1 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	whole := strings.LastIndexByte(out.String(), '\n') + 1 // a write may be cut off
	return out.String()[:whole], code == exitOK
}

// wantInOrder checks that got is some of want in the order of want.
func wantInOrder(t *testing.T, got string, want []string) {
	t.Helper()
	at := 0
	for line := range strings.Lines(got) {
		for at < len(want) && want[at] != line {
			at++
		}
		if at == len(want) {
			t.Fatalf("%q is not a line of the input, or not in its order, or printed twice in one run", line)
		}
		at++
	}
}

// TestFilterOutputFails leaves unmarked what it could not write.
func TestFilterOutputFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	dir := filepath.Join(t.TempDir(), "s")
	filterAll(t, dir, "a\n")
	cmd, stderr := filterCommand(t, dir)
	cmd.Stdin = strings.NewReader("a\nb\nb\n\nc\n")
	cmd.Stdout = full
	if code := exitCode(t, cmd.Run()); code != exitOther {
		t.Errorf("exit code %d, want %d", code, exitOther)
	}
	wantSummary(t, "\n"+stderr.String(), "read=5 new=0 seen=1 invalid=1 errors=3")
	if !strings.Contains(stderr.String(), "no space left on device; what was to be written is not remembered") {
		t.Errorf("stderr %q", stderr)
	}
	if got := filterAll(t, dir, "a\nb\nb\nc\n"); got != "b\nc\n" {
		t.Errorf("then it prints %q, want what was not written", got)
	}
}

// TestFilterReaderGone ends in order, and quietly, when nobody reads.
func TestFilterReaderGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	data := manyLines(200_000)
	cmd, stderr := filterCommand(t, dir)
	stdin, stdout := startPiped(t, cmd)
	go io.WriteString(stdin, data)
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	if code := exitCode(t, cmd.Wait()); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
	if strings.Contains(stderr.String(), "pipe") || !strings.Contains(stderr.String(), " errors=0\n") {
		t.Errorf("stderr %q", stderr)
	}
	if rest := strings.Count(filterAll(t, dir, data), "\n"); rest == 0 {
		t.Error("lines that nobody could read were marked")
	}
}

// TestFilterInterrupted wants every line that was printed to be marked, and
// the store closed in order.
func TestFilterInterrupted(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			cmd, stderr := filterCommand(t, dir)
			stdin, stdout := startPiped(t, cmd)
			data := manyLines(50_000)
			go io.WriteString(stdin, data) // and never close it
			r := bufio.NewReader(stdout)
			first, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(sig)
			rest, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if code := exitCode(t, cmd.Wait()); code != 130 {
				t.Errorf("exit code %d, want 130", code)
			}
			printed := first + string(rest)
			n := strings.Count(printed, "\n")
			if !strings.Contains(stderr.String(), fmt.Sprintf(" new=%d ", n)) {
				t.Errorf("%d lines printed, summary %s", n, stderr)
			}
			if !regexp.MustCompile(`\ndedupstore: interrupted after stdin:[0-9]+; run it again to go on\n$`).MatchString(stderr.String()) {
				t.Errorf("stderr %q", stderr)
			}
			if again := filterAll(t, dir, printed); again != "" {
				t.Errorf("%d printed lines were not marked", strings.Count(again, "\n"))
			}
			if all := distinct(printed + filterAll(t, dir, data)); len(all) != len(distinct(data)) {
				t.Errorf("%d lines over both runs, want %d", len(all), len(distinct(data)))
			}
		})
	}
}

// TestSecondInterrupt ends a run that cannot end in order: its output is not
// taken.
func TestSecondInterrupt(t *testing.T) {
	cmd, _ := filterCommand(t, filepath.Join(t.TempDir(), "s"))
	stdin, stdout := startPiped(t, cmd)
	go io.WriteString(stdin, manyLines(200_000))
	if _, err := bufio.NewReaderSize(stdout, 16).ReadByte(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.Tick(10 * time.Millisecond); ; {
		select {
		case err := <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
				t.Errorf("ended with %v, want the signal's own end", err)
			}
			return
		case <-tick:
			cmd.Process.Signal(os.Interrupt)
		}
	}
}

// TestImportInterrupted runs an interrupted import again: together they add
// every line once.
func TestImportInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	file := filepath.Join(t.TempDir(), "lines")
	data := manyLines(100_000)
	write(t, file, data)
	for range 5 {
		cmd := exec.CommandContext(t.Context(), "dedupstore", "import", "--store", dir, "--json", "--quiet", file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(rand.IntN(40_000))*time.Microsecond, func() { cmd.Process.Signal(syscall.SIGTERM) })
		cmd.Wait()
	}
	if out, err := exec.CommandContext(t.Context(), "dedupstore", "import", "--store", dir, file).CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	s, err := store.Open(dir, &store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := s.Stats().URLs, int64(len(distinct(data))); got != want {
		t.Errorf("%d URLs, want %d", got, want)
	}
}
