package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// README's fenced commands make one session. A block "sh" is run, and must end
// well. A block "console" shows what its commands, behind "$ ", print; "..." in
// it stands for whatever there is.

// A shown is a command of a console block, and what it is to print.
type shown struct{ command, output string }

// consoleCommands cuts a console block into its commands.
func consoleCommands(block string) (all []shown) {
	for line := range strings.Lines(block) {
		switch command, ok := strings.CutPrefix(line, "$ "); {
		case ok:
			all = append(all, shown{command: command})
		case len(all) > 0 && all[len(all)-1].output == "" && strings.HasSuffix(all[len(all)-1].command, "\\\n"):
			all[len(all)-1].command += line
		case len(all) > 0:
			all[len(all)-1].output += line
		}
	}
	return all
}

// printsAs reports whether an output is the one that is shown.
func printsAs(got, want string) bool {
	parts := strings.Split(strings.TrimSpace(want), "...")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(strings.TrimSpace(got))
}

// mark ends what a command prints.
const mark = "@@ the end of "

// TestReadmeSession runs the commands in their order in a clone, with no more of
// an environment than PATH and HOME, and compares what they print.
func TestReadmeSession(t *testing.T) {
	dir := t.TempDir()
	clone(t, filepath.Join(dir, "dedupstore"))
	var script strings.Builder
	var want []shown
	add := func(c shown, fails string) {
		fmt.Fprintf(&script, "%s%s\necho '%s%d'\n", strings.TrimRight(c.command, "\n"), fails, mark, len(want))
		want = append(want, c)
	}
	program := false // the block before was a Go program
	readme := read(t, "README.md")
	for _, m := range fence.FindAllStringSubmatch(readme, -1) {
		language, text := m[1], m[2]
		switch {
		case language == "go" && strings.Contains(text, "\npackage main\n"):
			writeProgram(t, filepath.Join(dir, "crawler"), text)
			program = true
			continue
		case language == "sh" && program: // "in an empty directory beside the clone"
			add(shown{command: "(\ncd ../crawler\n" + text + ")"}, "")
		case language == "sh":
			add(shown{command: without(t, text, testCommand)}, "")
		case language == "console":
			for _, c := range consoleCommands(text) {
				add(c, " || true")
			}
		}
		program = false
	}
	got := session(t, filepath.Join(dir, "dedupstore"), script.String())
	for i, c := range want {
		output, rest, ok := strings.Cut(got, fmt.Sprintf("%s%d\n", mark, i))
		if !ok {
			t.Fatalf("this does not end well:\n%s\nit prints:\n%s", c.command, got)
		}
		got = rest
		if i == 0 {
			c.output = startPrints.FindStringSubmatch(readme)[1]
			output = lastLine(output)
		}
		if c.output != "" && !printsAs(output, c.output) {
			t.Errorf("%sprints:\n%s\nwant:\n%s", c.command, output, c.output)
		}
	}
}

// startPrints is what README says of its first command.
var startPrints = regexp.MustCompile(`The first command prints (\d+)`)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// testCommand is README's second command. It would run this test again.
const testCommand = "go test ./..."

// without leaves a line out, which the CI's script has to run.
func without(t *testing.T, block, line string) string {
	if strings.Contains(block, line+"\n") && !strings.Contains(read(t, ".ci/run"), "\n\t"+line+"\n") {
		t.Errorf(".ci/run does not call %q", line)
	}
	return strings.ReplaceAll(block, line+"\n", ":\n")
}

// session runs a script of bash and returns what it prints.
func session(t *testing.T, dir, script string) string {
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	out, _ := cmd.CombinedOutput() // where it fails, its last mark says
	return string(out)
}

// clone copies what git would clone, and what is not committed yet.
func clone(t *testing.T, to string) {
	for name := range strings.SplitSeq(command(t, root, "", "git", "ls-files", "-z", "-co", "--exclude-standard"), "\x00") {
		b, err := os.ReadFile(filepath.Join(root, name))
		if name == "" || os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// writeProgram writes main.go, and a go.sum with the clone's lines, which spare
// the question to a checksum database that a machine without a network could
// not ask.
func writeProgram(t *testing.T, dir, text string) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.go": text, "go.sum": read(t, "go.sum")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPrintsAs compares outputs.
func TestPrintsAs(t *testing.T) {
	for _, test := range []struct {
		got, want string
		same      bool
	}{
		{"new\n", "new\n", true},
		{"new\n", "seen\n", false},
		{"made a store in /a/b\n1\n", "made a store in ...\n1\n", true},
		{"made a store in /a/b\n2\n", "made a store in ...\n1\n", false},
		{"a.c\n", "abc\n", false},
	} {
		if got := printsAs(test.got, test.want); got != test.same {
			t.Errorf("%q as %q: got %v", test.got, test.want, got)
		}
	}
}
