package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const createUsage = `Usage: dedupstore create

Make an empty store and print what is fixed for its life. A store that exists is
left alone, and the exit code is 6.

    --urls N              URLs to size it for: 1e6, 20M, 2e9, 1_000_000
                          (default: 4 million); it grows by itself, which
                          this spares it
    --hash NAME           siphash (default), or xxh64, three times as fast,
                          where nobody can choose URLs to harm you
    --canon NAME          how a URL becomes a key; the only one yet is none:
                          the bytes as they are
    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore create --store crawl.store --urls 2e9
`

func newCreate(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "create", Long: createUsage, Args: cobra.NoArgs}
	o := store.Options{MustCreate: true}
	var asJSON bool
	birthFlags(cmd, &o)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		s, err := p.open(o)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s is there already and was left alone; name another --store", p.path())
		}
		if err != nil {
			return err
		}
		made := birthOf(s.Stats())
		if err := closeStore(s, nil); err != nil {
			return err
		}
		p.note("made a new store in %s", p.path())
		if asJSON {
			return p.printJSON(made)
		}
		return p.printTable([]row{
			{"hash", made.Hash},
			{"key profile", made.KeyProfile},
			{"expected URLs", humanize.Comma(made.ExpectedURLs)},
			{"bitmap", humanize.IBytes(uint64(made.BitmapBytes))},
		})
	}
	return cmd
}

// A birth is what a store keeps for its life.
type birth struct {
	Hash         string `json:"hash"`
	KeyProfile   string `json:"key_profile"`
	ExpectedURLs int64  `json:"expected_urls"`
	BitmapBytes  int64  `json:"bitmap_bytes"`
}

func birthOf(st store.Stats) birth {
	return birth{st.Hash, st.KeyProfile, st.Bitmap.Capacity, st.Bitmap.Bits / 8}
}
