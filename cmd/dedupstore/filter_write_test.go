package main

// The write of a batch is where filter can lose a line: these tests end it in
// the middle of one.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// longLines are n distinct lines that no pipe holds one of.
func longLines(n int) string {
	var data strings.Builder
	for i := range n {
		fmt.Fprintf(&data, "https://example.com/%d?%s\n", i, strings.Repeat("x", 300_000))
	}
	return data.String()
}

// wholeLines cuts off a line without its end.
func wholeLines(s string) string { return s[:strings.LastIndexByte(s, '\n')+1] }

// TestFilterEndsInWrite kills a filter, and lets its output go, while it writes
// a batch, which waits for its reader: no line of the batch may be seen in the
// next run that was not read to its end.
func TestFilterEndsInWrite(t *testing.T) {
	data := longLines(12)
	firstLine := strings.IndexByte(data, '\n') + 1
	for name, end := range map[string]func(cmd *exec.Cmd, stdout io.Closer) error{
		"killed":      func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() },
		"reader gone": func(_ *exec.Cmd, stdout io.Closer) error { return stdout.Close() },
	} {
		for _, read := range []int{1, firstLine + 1, 5*firstLine + 1} {
			t.Run(fmt.Sprintf("%s/%d", name, read), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "s")
				cmd, _ := filterCommand(t, dir)
				stdin, stdout := startPiped(t, cmd)
				go io.WriteString(stdin, data)
				printed := make([]byte, read)
				if _, err := io.ReadFull(stdout, printed); err != nil {
					t.Fatal(err)
				}
				if err := end(cmd, stdout); err != nil {
					t.Fatal(err)
				}
				if code := exitCode(t, cmd.Wait()); code != exitOK && code != -1 {
					t.Errorf("exit code %d", code)
				}
				printedAll(t, dir, data, wholeLines(string(printed)))
			})
		}
	}
}

// printedAll runs a filter on the rest of what was printed before, and wants
// every line of the data to be printed by the one or the other.
func printedAll(t *testing.T, dir, data, before string) {
	t.Helper()
	filter := func() string {
		var out, stderr bytes.Buffer
		if code := runFilter(dir, data, &out, &stderr); code != exitOK {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		return out.String()
	}
	after := filter()
	wantInOrder(t, after, distinct(data))
	if got, want := len(distinct(before+after)), len(distinct(data)); got != want {
		t.Errorf("%d lines were printed, and %d in the next run: %d of %d are lost",
			strings.Count(before, "\n"), strings.Count(after, "\n"), want-got, want)
	}
	if again := filter(); again != "" {
		t.Errorf("%d lines are printed of a list that was done", strings.Count(again, "\n"))
	}
}

// runFilter runs a filter in this process.
func runFilter(dir, data string, stdout, stderr io.Writer, flags ...string) (code int) {
	return run(append([]string{"filter", "--store", dir, "--memory", "8MiB"}, flags...), strings.NewReader(data), stdout, stderr)
}

// A shortWriter takes so many bytes and no more.
type shortWriter struct {
	bytes.Buffer
	left int
	err  error
}

func (w *shortWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	w.Buffer.Write(p[:n])
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

// TestFilterWriterFails has the output fail at places in every batch. What was
// not written is not remembered, and the run says so.
func TestFilterWriterFails(t *testing.T) {
	data := manyLines(3 * batchLines)
	size := len(strings.Join(distinct(data), ""))
	places := 6
	if testing.Short() {
		places = 2
	}
	for _, tc := range []struct {
		err  error
		code int
	}{
		{syscall.ENOSPC, exitOther},
		{errors.New("as a test wants it"), exitOther},
		{syscall.EPIPE, exitOK},
	} {
		for i := range places {
			left := i * size / places
			t.Run(fmt.Sprintf("%v/%d", tc.err, left), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "s")
				out := &shortWriter{left: left, err: tc.err}
				var stderr bytes.Buffer
				code := runFilter(dir, data, out, &stderr)
				if code != tc.code {
					t.Errorf("exit code %d, want %d: %s", code, tc.code, &stderr)
				}
				if says := strings.Contains(stderr.String(), "is not remembered and will come again"); says != (code != exitOK) {
					t.Errorf("exit code %d, and stderr %q", code, &stderr)
				}
				printedAll(t, dir, data, wholeLines(out.String()))
			})
		}
	}
}

// TestVerdictsWriterFails has the answers fail at places in every batch: a line
// is remembered only if its "new" was written.
func TestVerdictsWriterFails(t *testing.T) {
	data := manyLines(2 * batchLines)
	size := len(data) + len("seen\t")*strings.Count(data, "\n")
	for i := range 4 {
		left := i * size / 4
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			out := &shortWriter{left: left, err: syscall.ENOSPC}
			var stderr bytes.Buffer
			if code := runFilter(dir, data, out, &stderr, "--verdicts"); code != exitOther {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
			var printed strings.Builder
			for answer := range strings.Lines(wholeLines(out.String())) {
				if line, isNew := strings.CutPrefix(answer, "new\t"); isNew {
					printed.WriteString(line)
				}
			}
			printedAll(t, dir, data, printed.String())
		})
	}
}
