package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxTypos is how far a flag may be from what was typed to be meant.
const maxTypos = 2

// suggestFlag adds to the error about a flag that there is not which one may
// be meant.
func suggestFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	nearest, typos := "", maxTypos+1
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if n := distance(unknown.GetSpecifiedName(), f.Name); n < typos && n < len(f.Name) {
			nearest, typos = f.Name, n
		}
	})
	if nearest == "" {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, nearest)
}

// distance is how many bytes have to be put in, left out, changed, or swapped
// with the next, to make b of a.
func distance(a, b string) int {
	before, row := []int(nil), make([]int, len(b)+1) // of a[:i-1] and a[:i]
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			changed := 1
			if a[i-1] == b[j-1] {
				changed = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+changed)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
