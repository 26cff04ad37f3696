package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerdictsStream wants the answer to a line before the next is written.
func TestVerdictsStream(t *testing.T) {
	cmd, _ := filterCommand(t, filepath.Join(t.TempDir(), "s"), "--verdicts", "--key", "^u.*")
	stdin, stdout := startPiped(t, cmd)
	answers := bufio.NewReader(stdout)
	for _, tc := range []struct{ line, want string }{
		{"u1", "new"}, {"u1", "seen"}, {"", "invalid"}, {"x", "invalid"}, {"u2\r", "new"}, {"u2", "seen"},
	} {
		if _, err := io.WriteString(stdin, tc.line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != tc.want+"\t"+tc.line+"\n" {
			t.Fatalf("to %q it answers %q, %v, want %s", tc.line, got, err, tc.want)
		}
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// filterOracle is what filter makes of the lines in one run on a new store.
func filterOracle(lines []string) (verdicts, fresh, seen, invalid string) {
	known := map[string]bool{}
	for _, line := range lines {
		switch {
		case line == "":
			verdicts += "invalid\t\n"
			invalid += "\n"
		case known[line]:
			verdicts += "seen\t" + line + "\n"
			seen += line + "\n"
		default:
			known[line] = true
			verdicts += "new\t" + line + "\n"
			fresh += line + "\n"
		}
	}
	return verdicts, fresh, seen, invalid
}

// TestOutputs runs all ways to print on the same lines, real and dry, read in
// pieces of any size.
func TestOutputs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var lines []string
	for range 3 * batchLines {
		line := fmt.Sprint("https://example.com/", random.IntN(2*batchLines))
		if random.IntN(5) == 0 {
			line = ""
		}
		lines = append(lines, line)
	}
	data := strings.Join(lines, "\n") + "\n"
	verdicts, fresh, seen, invalid := filterOracle(lines)
	tally := fmt.Sprintf("read=%d new=%d seen=%d invalid=%d errors=0\n", len(lines),
		strings.Count(fresh, "\n"), strings.Count(seen, "\n"), strings.Count(invalid, "\n"))
	for _, tc := range []struct{ flags, want string }{
		{"", fresh}, {"--verdicts", verdicts}, {"--invert", seen},
		{"--dry-run", fresh}, {"--dry-run --verdicts", verdicts}, {"--dry-run --invert", seen},
		{"--null", strings.ReplaceAll(fresh, "\n", "\x00")},
		{"-0 --verdicts --key .*", strings.ReplaceAll(verdicts, "\n", "\x00")},
	} {
		t.Run(tc.flags, func(t *testing.T) {
			dir := t.TempDir()
			others := []string{"--invalid-to", filepath.Join(dir, "invalid")}
			if !strings.Contains(tc.flags, "--invert") {
				others = append(others, "--seen-to", filepath.Join(dir, "seen"))
			}
			in, end := data, "\n"
			if strings.Contains(tc.want, "\x00") {
				in, end = strings.ReplaceAll(data, "\n", "\x00"), "\x00"
			}
			args := append([]string{"filter", "--store", filepath.Join(dir, "s"), "--memory", "8MiB"}, others...)
			var out, stderr bytes.Buffer
			pieces := &chunkReader{data: in, sizes: []int{1, 20_000, 7, 100_000}}
			if code := run(append(args, strings.Fields(tc.flags)...), pieces, &out, &stderr); code != exitOK || !strings.HasSuffix(stderr.String(), tally) {
				t.Errorf("exit code %d, stderr %s, want %s", code, &stderr, tally)
			}
			if out.String() != tc.want {
				t.Errorf("%d bytes on stdout, want %d", out.Len(), len(tc.want))
			}
			for i := 0; i < len(others); i += 2 {
				want := map[string]string{"--seen-to": seen, "--invalid-to": invalid}[others[i]]
				got, err := os.ReadFile(others[i+1])
				if err != nil || strings.ReplaceAll(string(got), end, "\n") != want {
					t.Errorf("%s: %d bytes, %v, want %d", others[i], len(got), err, len(want))
				}
			}
		})
	}
}
