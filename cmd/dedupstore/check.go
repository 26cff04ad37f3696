package main

import (
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const checkUsage = `Usage: dedupstore check [URL...]

Print "new" or "seen" for each URL, one a line, and remember nothing. Without
arguments the URLs are the lines of standard input, by the rules of "dedupstore
filter": an invalid line has no answer. The exit code is 1 if any URL is new. If
an argument is no URL, nothing is answered and the exit code is 6. Any number of
checks may use a store at once, and none while a process adds to it.

    --namespace NAME      the namespace that is asked; -n for short
    --canon NAME          how a URL becomes a key: refuse a store of another
                          profile
    --memory SIZE         memory to use (default: 256MiB)
` + storeFlagsUsage + `
Examples:

    dedupstore check https://example.com/ && echo seen
    dedupstore check < links.txt | grep -c new
`

func newCheck(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "check [URL...]", Long: checkUsage, Args: cobra.ArbitraryArgs}
	o := store.Options{ReadOnly: true}
	canonFlag(cmd, &o)
	memoryFlag(cmd, &o)
	var name string
	namespaceFlag(cmd, &name)
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		s, err := p.open(o)
		if err != nil {
			return err
		}
		n, err := p.namespace(s, name)
		if err == nil {
			err = p.check(cmd, n, urls)
		}
		return closeStore(s, err)
	}
	return cmd
}

// check answers urls, or standard input if there are none.
func (p *program) check(cmd *cobra.Command, n *store.Namespace, urls []string) error {
	ctx := cmd.Context()
	var someNew bool
	var err error
	if len(urls) > 0 {
		someNew, err = p.answerArgs(ctx, urls, n.HasBatch)
	} else {
		err = p.eachBatch(ctx, newInput(nil, p.stdin), func(b *batch) error {
			some, err := p.answer(ctx, b.keys, n.HasBatch)
			someNew = someNew || some
			p.report(b)
			return err
		})
	}
	switch {
	case err != nil:
		return err
	case p.failed:
		return errReported
	case someNew:
		return errSomeNew
	}
	return nil
}
