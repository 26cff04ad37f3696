package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"dedupstore/store"
)

const addUsage = `Usage: dedupstore add URL...

Remember each URL and print "new" or "seen" for it, one a line. If one of them
is no URL, nothing is added and the exit code is 6.

` + addFlagsUsage + storeFlagsUsage + `
Examples:

    dedupstore add https://example.com/ https://example.com/about
    dedupstore add --namespace images --ttl 30d https://example.com/logo.png
`

func newAdd(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "add URL...", Long: addUsage, Args: cobra.MinimumNArgs(1)}
	var a adding
	addFlags(cmd, &a)
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		a.urls = urls
		s, n, err := p.openAdding(a)
		if err != nil {
			return err
		}
		_, err = p.answerArgs(cmd.Context(), urls, n.AddBatch)
		return closeStore(s, err)
	}
	return cmd
}

// A batchFunc is AddBatch or HasBatch.
type batchFunc func(ctx context.Context, keys []string, answers []store.Answer) error

// answerArgs answers the arguments of a verb.
func (p *program) answerArgs(ctx context.Context, urls []string, ask batchFunc) (someNew bool, err error) {
	keys, err := p.keysOf(urls)
	if err != nil {
		return false, err
	}
	for part := range slices.Chunk(keys, batchLines) {
		n, err := p.answer(ctx, part, ask)
		someNew = someNew || n
		if err != nil {
			return someNew, err
		}
	}
	return someNew, nil
}

// answer prints the answers to at most batchLines keys and tells whether one
// of them was new. An interrupt waits until they are printed.
func (p *program) answer(ctx context.Context, keys []string, ask batchFunc) (someNew bool, err error) {
	if ctx.Err() != nil {
		return false, errInterrupted
	}
	answers := make([]store.Answer, len(keys))
	err = ask(context.WithoutCancel(ctx), keys, answers)
	var out []byte
	for _, a := range answers {
		if a == store.Unanswered {
			break
		}
		someNew = someNew || a == store.New
		out = append(append(out, a.String()...), '\n')
	}
	if writeErr := writeOut(p.stdout, out); err == nil {
		err = writeErr
	}
	return someNew, err
}
