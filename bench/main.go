// Command bench measures the store, and what else a crawler could take, with
// generated URLs. docs/BENCHMARKS.md says how, and holds the results.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

const usage = `Usage: bench fill|grow|seen|expire|plan|recover|peers [FLAGS]

    fill       add n distinct URLs, a line for each tenth
    grow       add n distinct URLs to a store of default options: bytes on disk,
               rates and lookups with and without a build, and exactness
    seen       a stream in which 80 % of the URLs were seen before
    expire     a store in which as many URLs expire as are added: rates, bytes,
               the bitmap, and lookups beside drops
    plan       what a store takes of memory and disk, planned beside measured
    recover    the time of an open after kill -9 and after Close, cold
    peers      the store, Go's map, a Bloom filter and embedded databases, in
               turns, as one markdown table

bench COMMAND -h lists the flags. A rate is net of the time it takes to make
the URLs.
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(strings.TrimSpace(usage))
	}
	for name, cmd := range map[string]func([]string) error{
		"fill": fillCommand, "grow": growCommand, "seen": seenCommand, "recover": recoverCommand, "peers": peersCommand,
		"expire": expireCommand, "plan": planCommand,
	} {
		if args[0] == name {
			return cmd(args[1:])
		}
	}
	return fmt.Errorf("no command %q\n%s", args[0], strings.TrimSpace(usage))
}

// newFlags are the flags of a command.
func newFlags(name string) *flag.FlagSet { return flag.NewFlagSet("bench "+name, flag.ContinueOnError) }
