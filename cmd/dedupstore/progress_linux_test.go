package main

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns the end of a new terminal that a program writes to.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { main.Close() })
	fd := int(main.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return other
}

// TestProgressOnTerminal shows progress on a terminal, but for one that can do
// nothing, and never with --quiet.
func TestProgressOnTerminal(t *testing.T) {
	terminal := openTerminal(t)
	for _, tc := range []struct {
		term  string
		quiet bool
		want  bool
	}{
		{"xterm", false, true}, {"xterm", true, false}, {"dumb", false, false}, {"", false, true},
	} {
		t.Setenv("TERM", tc.term)
		if g := newProgress(&program{stderr: terminal, quiet: tc.quiet}); (g.w != nil) != tc.want {
			t.Errorf("TERM=%s, quiet %v: shown is %v", tc.term, tc.quiet, g.w != nil)
		}
	}
}
