package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const createUsage = `Usage: dedupstore create

Make an empty store and print what is fixed for its life. A store that exists is
left alone, and the exit code is 6.

With --namespace it makes a namespace, in the store that there is or in a new
one, and prints its TTL. One that exists takes another --ttl, for the URLs that
are added from then on; nothing else of it changes.

    --ttl TIME            how long a URL is seen after it was added, if the
                          command that adds it says nothing else: 90s, 12h,
                          30d, 2w, 1d12h, or forever (default for a store:
                          forever, for a namespace: that of the store). It ends
                          at its time or later, by a 24th of it or a second
    --namespace NAME      make a namespace, a set of URLs of its own; -n for
                          short
    --urls N              URLs to size it for: 1e6, 20M, 2e9, 1_000_000
                          (default: 4 million); it grows by itself, which
                          this spares it
    --hash NAME           siphash (default), or xxh64, three times as fast,
                          where nobody can choose URLs to harm you
    --canon NAME          how a URL becomes a key: std (default): in canonical
                          form, so that spellings of one address are one URL;
                          crawl: and by the rules of "dedupstore help canon",
                          each of which can be switched, as in crawl,-www,+bust;
                          none: its bytes
    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore create --store crawl.store --urls 2e9
    dedupstore create --store crawl.store --namespace feeds --ttl 1h
`

func newCreate(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "create", Long: createUsage, Args: cobra.NoArgs}
	var o store.Options
	var n store.NamespaceStats
	var asJSON bool
	birthFlags(cmd, &o)
	ttlFlag(cmd, &n.TTL)
	namespaceFlag(cmd, &n.Name)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		var made birth
		var err error
		if n.Name == "" {
			o.TTL = n.TTL
			made, err = p.create(o)
		} else {
			made, err = p.createNamespace(o, n)
		}
		switch {
		case err != nil:
			return err
		case asJSON:
			return p.printJSON(made)
		}
		return p.printTable(made.rows())
	}
	return cmd
}

// create makes a store.
func (p *program) create(o store.Options) (birth, error) {
	o.MustCreate, o.KeyProfile = true, cmp.Or(o.KeyProfile, defaultProfile)
	s, err := p.open(o)
	if errors.Is(err, fs.ErrExist) {
		return birth{}, fmt.Errorf("%s is there already and was left alone; name another --store", p.path())
	}
	if err != nil {
		return birth{}, err
	}
	made := birthOf(s.Stats())
	if err := closeStore(s, nil); err != nil {
		return birth{}, err
	}
	p.note("made a new store in %s", p.path())
	return made, nil
}

// createNamespace makes a namespace, and a store around it if need be, or
// records another TTL.
func (p *program) createNamespace(o store.Options, n store.NamespaceStats) (birth, error) {
	s, err := p.openOrMake(o)
	if err != nil {
		return birth{}, err
	}
	made := birthOf(s.Stats())
	made.Namespace = n.Name
	if _, err = s.OpenNamespace(n.Name, &store.NamespaceOptions{TTL: n.TTL}); err == nil {
		made.TTL = namespaceStats(s, n.Name).TTL
	}
	return made, closeStore(s, err)
}

// A birth is what a store keeps for its life, and the TTL of one of its
// namespaces, of the default one if none is named.
type birth struct {
	Namespace    string        `json:"namespace,omitempty"`
	TTL          time.Duration `json:"ttl_ns"`
	Hash         string        `json:"hash"`
	KeyProfile   string        `json:"key_profile"`
	ExpectedURLs int64         `json:"expected_urls"`
	BitmapBytes  int64         `json:"bitmap_bytes"`
}

func birthOf(st store.Stats) birth {
	return birth{
		TTL: st.TTL, Hash: st.Hash, KeyProfile: st.KeyProfile,
		ExpectedURLs: st.Bitmap.Capacity, BitmapBytes: st.Bitmap.Bits / 8,
	}
}

func (b birth) rows() (rows []row) {
	if b.Namespace != "" {
		rows = append(rows, row{"namespace", nameText(b.Namespace)})
	}
	return append(rows,
		row{"TTL", ttlText(b.TTL)},
		row{"hash", b.Hash},
		row{"key profile", b.KeyProfile},
		row{"expected URLs", humanize.Comma(b.ExpectedURLs)},
		row{"bitmap", humanize.IBytes(uint64(b.BitmapBytes))},
	)
}
