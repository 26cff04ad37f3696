package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A child is this binary, run again for one test that keeps an account in a pipe
// until it is killed.
type child struct {
	cmd     *exec.Cmd
	account *os.File // the parent's end
	output  strings.Builder
	timer   *time.Timer // that of killIn
}

// startChild runs the named test with a plan, as JSON in the environment.
func startChild(t *testing.T, test, env string, plan any) *child {
	t.Helper()
	text, err := json.Marshal(plan)
	must(t, err)
	pr, pw, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { pr.Close() })
	c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$"), account: pr}
	c.cmd.Env = append(os.Environ(), env+"="+string(text))
	c.cmd.ExtraFiles = []*os.File{pw}
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	err = c.cmd.Start()
	pw.Close()
	must(t, err)
	return c
}

// childAccount is the child's end.
func childAccount() *os.File { return os.NewFile(3, "account") }

// killIn kills the child after a while. Calls behind the first do nothing.
func (c *child) killIn(delay time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(delay, func() { c.cmd.Process.Kill() })
	}
}

// wait returns an error if the child was not killed.
func (c *child) wait() error {
	err := c.cmd.Wait()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.account.Close()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("the child was not killed but ended with %v:\n%s", err, &c.output)
	}
	return nil
}

// killAt is a child's hook that kills it when it passes the named point for the
// given time, from 1.
func killAt(point string, times int64) func(string) {
	var passed atomic.Int64
	return func(name string) {
		if name == point && passed.Add(1) == times {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal is there
		}
	}
}
