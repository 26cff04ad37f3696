// Run takes each rule of the store's design out in turn and runs the test that
// must then fail, after it has seen the test pass with the rule in place. It
// prints a table, and its exit code is 1 if a fault was not caught.
//
//	go run ./internal/planted/run [-run regexp] [-v]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"dedupstore/internal/planted"
)

// testTimeout is what one run of one test may take.
const testTimeout = 120 * time.Second

func main() {
	only := flag.String("run", "", "only the faults that match this `regexp`")
	verbose := flag.Bool("v", false, "print what the tests print")
	flag.Parse()
	caught, err := run(*only, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
	if !caught {
		os.Exit(1)
	}
}

// run reports whether every fault was caught.
func run(only string, verbose bool) (caught bool, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	root, err := moduleRoot()
	if err != nil {
		return false, err
	}
	tmp, err := os.MkdirTemp("", "planted")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)

	r := runner{root: root, tmp: tmp, binaries: map[string]string{}, verbose: verbose}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "FAULT\tCAUGHT\tSECONDS\tTEST\tRULE")
	caught = true
	for _, row := range table {
		if !match.MatchString(row.fault) {
			continue
		}
		began := time.Now()
		verdict := "yes"
		if err := r.check(row); err != nil {
			verdict, caught = "NO: "+err.Error(), false
		}
		fmt.Fprintf(out, "%s\t%s\t%.1f\t%s.%s\t%s\n",
			row.fault, verdict, time.Since(began).Seconds(), row.pkg, row.test, row.rule)
	}
	return caught, out.Flush()
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// A runner builds the test binary of each package once.
type runner struct {
	root, tmp string
	binaries  map[string]string // by package
	verbose   bool
}

func (r *runner) binary(pkg string) (string, error) {
	if path, ok := r.binaries[pkg]; ok {
		return path, nil
	}
	path := filepath.Join(r.tmp, strings.ReplaceAll(pkg, "/", "-")+".test")
	cmd := exec.Command("go", "test", "-c", "-tags", "planted", "-o", path, "./"+pkg)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w", pkg, err)
	}
	r.binaries[pkg] = path
	return path, nil
}

// check returns why a fault does not count as caught, or nil.
func (r *runner) check(row row) error {
	failed, output, err := r.test(row, "")
	switch {
	case err != nil:
		return err
	case failed:
		fmt.Fprintf(os.Stderr, "%s\n", output)
		return fmt.Errorf("%s fails without a fault", row.test)
	}
	failed, output, err = r.test(row, row.fault)
	if err == nil && !failed {
		err = fmt.Errorf("%s passes", row.test)
	}
	if r.verbose || err != nil {
		fmt.Fprintf(os.Stderr, "=== %s\n%s\n", row.fault, output)
	}
	return err
}

// test runs a row's test with a fault, or with none.
func (r *runner) test(row row, fault string) (failed bool, output []byte, err error) {
	path, err := r.binary(row.pkg)
	if err != nil {
		return false, nil, err
	}
	// A test that hangs has failed, and says where after its own timeout.
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-test.v", "-test.run", "^"+row.test+"$", "-test.timeout", testTimeout.String())
	cmd.Dir = filepath.Join(r.root, row.pkg)
	cmd.Env = append(os.Environ(), planted.EnvVar+"="+fault)
	output, err = cmd.CombinedOutput()
	if err == nil {
		if !strings.Contains(string(output), "--- PASS: "+row.test) {
			return false, output, fmt.Errorf("%s was not run", row.test)
		}
		return false, output, nil
	}
	if !strings.Contains(string(output), "=== RUN   "+row.test) {
		return false, output, fmt.Errorf("%s did not start: %w", row.test, err)
	}
	return true, output, nil
}
