package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dedupstore/store"
	"dedupstore/urlkey"
)

const whyUsage = `Usage: dedupstore why URL...

Say what the store knows of each URL, and why it is answered as it is: its
canonical form and the rules that changed it, its digest, whether it is seen,
which part of the store answers, and how long it is still seen. It writes
nothing, and takes a store that no process has open for adding.

The states: seen; and new, claimed (somebody is at it), forgotten (and not yet
removed), expired (and not yet dropped), which are all answered "new".

    --namespace NAME      the namespace that is asked; -n for short
    --canon NAME          refuse a store of another profile
    --json                print one JSON object for each URL, one a line
` + storeFlagsUsage + `
Examples:

    dedupstore why https://example.com/
    dedupstore why --json --namespace feeds https://example.com/feed
`

func newWhy(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "why URL...", Long: whyUsage, Args: cobra.MinimumNArgs(1)}
	o := store.Options{ReadOnly: true}
	var name string
	var asJSON bool
	namespaceFlag(cmd, &name)
	canonFlag(cmd, &o)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, urls []string) error {
		s, err := p.open(o)
		if err != nil {
			return err
		}
		n, err := p.namespace(s, name)
		for i := 0; i < len(urls) && err == nil; i++ {
			err = p.why(cmd, n, urls[i], asJSON, i > 0)
		}
		return closeStore(s, err)
	}
	return cmd
}

// A reason is why a URL is answered as it is.
type reason struct {
	URL     string          `json:"url"`
	Profile string          `json:"key_profile"`
	Key     string          `json:"key"`
	Changes []urlkey.Change `json:"changes,omitempty"`
	store.Explanation
}

// why prints the reason of one URL.
func (p *program) why(cmd *cobra.Command, n *store.Namespace, url string, asJSON, more bool) error {
	key, changes, err := p.profile.Explain(url)
	if err != nil {
		return fmt.Errorf("%s is %s", url, reasonOf(err))
	}
	r := reason{URL: url, Profile: p.profile.String(), Key: key, Changes: changes}
	if r.Explanation, err = n.Explain(cmd.Context(), key); err != nil {
		return err
	}
	if asJSON {
		var out bytes.Buffer
		line := json.NewEncoder(&out)
		line.SetEscapeHTML(false)
		if err := line.Encode(r); err != nil {
			return err
		}
		return writeOut(p.stdout, out.Bytes())
	}
	if more {
		if err := writeOut(p.stdout, []byte("\n")); err != nil {
			return err
		}
	}
	return p.printTable(r.rows())
}

func (r *reason) rows() []row {
	rows := []row{{"URL", r.URL}}
	for _, c := range r.Changes {
		rows = append(rows, row{c.Rule, c.To})
	}
	rows = append(rows,
		row{"key", fmt.Sprintf("%s, by profile %s", r.Key, r.Profile)},
		row{"digest", fmt.Sprintf("%016x", uint64(r.Digest))},
	)
	if r.Namespace != "" {
		rows = append(rows, row{"namespace", nameText(r.Namespace)})
	}
	rows = append(rows,
		row{"state", r.state()},
		row{"answered by", fmt.Sprintf("the %s; %s", r.Tier, r.filters())},
	)
	if r.Segment != 0 {
		rows = append(rows, row{"segment", r.segment()})
	}
	return rows
}

// state is the state, and how long it lasts.
func (r *reason) state() string {
	switch {
	case r.State == store.KeyClaimed:
		return fmt.Sprintf("claimed, for %s", ttlText(r.Lease.Round(time.Second)))
	case r.State == store.KeyExpired:
		return fmt.Sprintf("expired, %s ago", ttlText(-r.Left.Round(time.Second)))
	case r.State != store.KeySeen:
		return string(r.State)
	case r.Left == store.Forever:
		return "seen, for ever"
	}
	return fmt.Sprintf("seen, for %s", ttlText(r.Left.Round(time.Second)))
}

// filters is what the filters say.
func (r *reason) filters() string {
	switch {
	case r.Spans == 0 && !r.Bitmap:
		return "no filter was asked"
	case !r.Bitmap:
		return "the bitmap denies it"
	}
	return fmt.Sprintf("the bitmap lets it through, and %d of %d segment filters", r.Filters, r.Spans)
}

// segment is where the word is.
func (r *reason) segment() string {
	if r.SpanWidth == 0 {
		return fmt.Sprint(r.Segment)
	}
	return fmt.Sprintf("%d, of a span of %s", r.Segment, ttlText(r.SpanWidth))
}
