package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
	"dedupstore/urlkey"
)

// A value is a flag that is parsed, and refused, before a verb starts.
type value[T any] struct {
	to    *T
	text  string
	kind  string
	parse func(string) (T, error)
	names []string // what it may be, if there is a list
}

// newValue returns a flag for *to. An empty text leaves *to as it is.
func newValue[T any](to *T, text, kind string, parse func(string) (T, error)) *value[T] {
	v := &value[T]{to: to, kind: kind, parse: parse}
	if text != "" {
		if err := v.Set(text); err != nil {
			panic("bug: default of a flag: " + err.Error())
		}
	}
	return v
}

// oneOf names what the flag may be, for completion.
func (v *value[T]) oneOf(names ...string) *value[T] {
	v.names = names
	return v
}

func (v *value[T]) Set(text string) error {
	x, err := v.parse(text)
	if err != nil {
		return errors.New(oneLine(err))
	}
	*v.to, v.text = x, text
	return nil
}

func (v *value[T]) String() string { return v.text }
func (v *value[T]) Type() string   { return v.kind }

func (v *value[T]) choices() []string { return v.names }

func jsonFlag(cmd *cobra.Command, to *bool) { cmd.Flags().BoolVar(to, "json", false, "") }

func canonFlag(cmd *cobra.Command, o *store.Options) {
	cmd.Flags().Var(newValue(&o.KeyProfile, "", "NAME", parseCanon).oneOf(profileNames...), "canon", "")
}

func memoryFlag(cmd *cobra.Command, o *store.Options) {
	cmd.Flags().Var(newValue(&o.MemoryBytes, "", "SIZE", parseMemory), "memory", "")
}

// birthFlags set what a store keeps for its life.
func birthFlags(cmd *cobra.Command, o *store.Options) {
	canonFlag(cmd, o)
	cmd.Flags().Var(newValue(&o.Hash, "", "NAME", store.ParseHash).
		oneOf(store.HashSipHash.String(), store.HashXXH64.String()), "hash", "")
	cmd.Flags().Var(newValue(&o.ExpectedURLs, "", "N", parseCount), "urls", "")
}

func namespaceFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().VarP(newValue(to, "", "NAME", parseNamespace), "namespace", "n", "")
}

func ttlFlag(cmd *cobra.Command, to *time.Duration) {
	cmd.Flags().Var(newValue(to, "", "TIME", parseTTL), "ttl", "")
}

// addFlags are those of the verbs that add, and make a store if need be.
func addFlags(cmd *cobra.Command, a *adding) {
	birthFlags(cmd, &a.options)
	memoryFlag(cmd, &a.options)
	cmd.Flags().Var(newValue(&a.options.Durability, "", "LEVEL", store.ParseDurability).
		oneOf(store.Interval.String(), store.Sync.String(), store.NoSync.String()), "durability", "")
	cmd.Flags().BoolVar(&a.options.MustExist, "must-exist", false, "")
	namespaceFlag(cmd, &a.namespace)
	ttlFlag(cmd, &a.ttl)
}

// addFlagsUsage documents addFlags.
const addFlagsUsage = `    --namespace NAME      a set of URLs of its own in the store, which is made
                          if there is none of that name; -n for short
    --ttl TIME            after that time a URL which is new now is new again:
                          90s, 12h, 30d, 2w, 1d12h, or forever (default: what
                          the namespace, or the store, was given by create)
    --must-exist          make neither a store nor a namespace
    --urls N              URLs that the store is sized for at least: 1e6, 20M,
                          2e9, 1_000_000 (default for a new one: 4 million);
                          it grows by itself, which this spares it
    --hash NAME           hash of a new store: siphash (default), or xxh64,
                          three times as fast, where nobody can choose URLs
                          to harm you
    --canon NAME          how a URL becomes a key, recorded in a new store:
                          std (default): in canonical form, so that spellings
                          of one address are one URL; crawl: and by the rules
                          of "dedupstore help canon"; none: its bytes
    --durability LEVEL    what an answer has survived when it is given:
                          interval (default): kill -9, and a power failure
                          but for its last second; sync: both; nosync:
                          kill -9
    --memory SIZE         memory to use (default: 256MiB)
`

const storeFlagsUsage = `    --store DIR           the store (default: ./seen.store)
    --quiet               say nothing on stderr but errors
`

// parseWhole reads a number of lines.
func parseWhole(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, errors.New("want a whole number, 0 or more")
	}
	return n, nil
}

func parseFile(s string) (string, error) {
	if s == "" {
		return "", errors.New("want the name of a file")
	}
	return s, nil
}

func parseDir(s string) (string, error) {
	if s == "" {
		return "", errors.New("want the name of a directory")
	}
	return s, nil
}

// parseNamespace takes no empty name, which is what an unset variable of a
// script gives.
func parseNamespace(s string) (string, error) {
	if s == "" {
		return "", errors.New("want a name")
	}
	return s, nil
}

// parseCanon returns the name that is recorded in a store.
func parseCanon(s string) (string, error) {
	profile, err := urlkey.Parse(s)
	if err != nil {
		return "", errors.New(strings.TrimPrefix(err.Error(), "urlkey: "))
	}
	return profile.String(), nil
}

func parseMemory(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("want a size like 256MiB")
	}
	if n < store.MinMemoryBytes {
		return 0, fmt.Errorf("want at least %s", humanize.IBytes(store.MinMemoryBytes))
	}
	return int64(n), nil
}

// parseCount reads a whole number like 1e6, 20M, 2.5G, 2e9 or 1_000_000.
func parseCount(s string) (int64, error) {
	errWant := fmt.Errorf("want a whole number from 1 to %s, like 1e6, 20M or 1_000_000",
		humanize.Comma(store.MaxExpectedURLs))
	if s == "" {
		return 0, errWant
	}
	unit := 1.0
	switch s[len(s)-1] {
	case 'k', 'K':
		unit = 1e3
	case 'm', 'M':
		unit = 1e6
	case 'g', 'G', 'b', 'B':
		unit = 1e9
	case 't', 'T':
		unit = 1e12
	}
	digits := s
	if unit > 1 {
		digits = s[:len(s)-1]
	}
	if strings.Trim(digits, "0123456789_.eE+") != "" {
		return 0, errWant // no sign, no hexadecimal, no infinity
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(digits, "_", ""), 64)
	n = math.Round(n*unit*1e3) / 1e3 // 1.1M is whole, in binary too
	if err != nil || n < 1 || n > store.MaxExpectedURLs || n != math.Trunc(n) {
		return 0, errWant
	}
	return int64(n), nil
}
