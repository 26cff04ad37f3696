package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const namespacesUsage = `Usage: dedupstore namespaces

List the namespaces of a store in the order of their names: the name, the exact
number of URLs, and the TTL of those that are added from now on. The default
namespace, which is that of the commands without --namespace, is first, and its
name is "". A name that has blanks or quotation marks is in quotation marks.

    --json                print one JSON object a line
` + storeFlagsUsage + `
Examples:

    dedupstore namespaces --store crawl.store
    dedupstore namespaces --json | jq -r 'select(.urls == 0).name'
`

func newNamespaces(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "namespaces", Long: namespacesUsage, Args: cobra.NoArgs}
	var asJSON bool
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		s, err := p.openAny(store.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		return closeStore(s, p.namespaces(s, asJSON))
	}
	return cmd
}

func (p *program) namespaces(s *store.Store, asJSON bool) error {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for n := range s.Namespaces() {
		if asJSON {
			if err := lines.Encode(n); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%s\t%s URLs\tTTL %s\n", nameText(n.Name), humanize.Comma(n.URLs), ttlText(n.TTL))
	}
	table.Flush()
	return writeOut(p.stdout, out.Bytes())
}

// nameText is a name as one word of a line.
func nameText(name string) string {
	if name == "" || strconv.Quote(name) != `"`+name+`"` || strings.ContainsFunc(name, unicode.IsSpace) {
		return strconv.Quote(name)
	}
	return name
}

// namespaceStats are the figures of one namespace of s.
func namespaceStats(s *store.Store, name string) store.NamespaceStats {
	for n := range s.Namespaces() {
		if n.Name == name {
			return n
		}
	}
	return store.NamespaceStats{Name: name}
}
