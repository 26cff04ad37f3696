package main

import (
	"bytes"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const planUsage = `Usage: dedupstore plan

Say what a store takes before there is one: memory, disk at rest and at most,
bytes written in a day, and the odds of a wrong answer. Beside it stands what
others take that could answer the same question: Redis, RedisBloom and a plain
Bloom filter, computed from how they store a key, with the pages that each
would lose, which are new URLs that it takes for seen while they are added. No
store is opened or made.

    --urls N              URLs that there will be: 1e6, 20M, 2e9, 1_000_000;
                          with --ttl, that are live at a time
    --ttl TIME            how long a URL is seen after it was added: 90s, 12h,
                          30d, 2w, 1d12h, or forever (default: forever)
    --new-per-day N       new URLs in a day; with --ttl it may stand instead of
                          --urls
    --memory SIZE         memory of the store (default: 256MiB)
    --url-bytes N         length of a URL, for what stores whole ones
                          (default: 70)
    --bloom-start N       items of RedisBloom's first filter, behind which it
                          chains others (default: 100, which is what BF.ADD
                          makes)
    --json                print one JSON object
    --store DIR           does nothing here
    --quiet               does nothing here

Examples:

    dedupstore plan --urls 2e9
    dedupstore plan --urls 150M --ttl 30d --memory 1GiB --json
`

// A comparison is what plan prints.
type comparison struct {
	Store store.Plan `json:"store"`
	// Sized is the store if it is made with --urls, so that nothing grows.
	Sized  store.Plan `json:"store_sized"`
	Rivals []rival    `json:"rivals"`
}

func newPlan(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "plan", Long: planUsage, Args: cobra.NoArgs}
	var o store.Options
	var in store.PlanInput
	urlBytes, start := int64(70), int64(100)
	var asJSON bool
	flags := cmd.Flags()
	flags.Var(newValue(&in.URLs, "", "N", parseCount), "urls", "")
	ttlFlag(cmd, &in.TTL)
	flags.Var(newValue(&in.NewPerDay, "", "N", parseCount), "new-per-day", "")
	memoryFlag(cmd, &o)
	flags.Var(newValue(&urlBytes, "", "N", parseURLBytes), "url-bytes", "")
	flags.Var(newValue(&start, "", "N", parseCount), "bloom-start", "")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		expires := in.TTL != 0 && in.TTL != store.Forever
		if in.URLs == 0 && (!expires || in.NewPerDay == 0) {
			return usageError(cmd, errors.New("--urls is missing"))
		}
		in.MemoryBytes = o.MemoryBytes
		c, err := compare(in, urlBytes, start)
		switch {
		case err != nil:
			return err
		case asJSON:
			return p.printJSON(c)
		}
		if err := p.printTable(planRows(c)); err != nil {
			return err
		}
		return p.printRivals(c)
	}
	return cmd
}

// parseURLBytes reads the length of a key.
func parseURLBytes(s string) (int64, error) {
	n, err := parseCount(s)
	if err != nil || n > store.MaxKeyBytes {
		return 0, fmt.Errorf("want a whole number from 1 to %d", store.MaxKeyBytes)
	}
	return n, nil
}

func compare(in store.PlanInput, urlBytes, start int64) (c comparison, err error) {
	if c.Store, err = store.NewPlan(in); err != nil {
		return c, err
	}
	in.ExpectedURLs = c.Store.Input.URLs
	if c.Sized, err = store.NewPlan(in); err != nil {
		return c, err
	}
	c.Rivals = rivals(c.Store.Input.URLs, urlBytes, start)
	return c, nil
}

func planRows(c comparison) []row {
	p, m := c.Store, c.Store.Memory
	rows := []row{
		{"URLs", planURLs(p.Input)},
		{"memory", fmt.Sprintf("%s anonymous: memtables %s, cache %s, block cache %s; %s of mapped files, in the page cache as far as there is room",
			size(m.Anonymous), size(m.Memtables), size(m.Cache), size(m.BlockCache), size(m.FileBacked))},
		{"disk at rest", planDisk(p.Disk)},
		{"disk at most", planDisk(p.Peak)},
		{"bitmap", planBitmap(c)},
		{"spans", planSpans(p)},
	}
	if p.DeviceBytesPerDay > 0 {
		rows = append(rows, row{"written a day", size(p.DeviceBytesPerDay)})
	}
	return append(rows, row{"odds", fmt.Sprintf("%.2g that a new URL is taken for a seen one, %.2g pairs of URLs expected to share a digest",
		p.FalseSeenOdds, p.CollidingPairs)})
}

func planURLs(in store.PlanInput) string {
	text := humanize.Comma(in.URLs)
	if in.TTL != store.Forever {
		text += fmt.Sprintf(" live, each for %s", ttlText(in.TTL))
	}
	if in.NewPerDay > 0 {
		text += fmt.Sprintf(", %s new a day", humanize.Comma(in.NewPerDay))
	}
	return text
}

func planDisk(d store.DiskStats) string {
	text := fmt.Sprintf("%s: words %s, bitmap %s, segment filters %s", size(d.Total), size(d.Pebble), size(d.Bitmap), size(d.Filters))
	if d.Log > 0 {
		text += ", log " + size(d.Log)
	}
	return text + fmt.Sprintf(", reserve %s; %.1f bytes a URL", size(d.Reserve), d.PerURL)
}

func planBitmap(c comparison) string {
	text := fmt.Sprintf("sized for %s URLs, after %d growths", humanize.Comma(c.Store.BitmapCapacity), c.Store.Growths)
	if c.Store.Growths == 0 {
		return text
	}
	return text + fmt.Sprintf("; create --urls %d makes that %d, and the disk %s at rest and %s at most",
		c.Sized.Input.URLs, c.Sized.Growths, size(c.Sized.Disk.Total), size(c.Sized.Peak.Total))
}

func planSpans(p store.Plan) string {
	if p.SpanWidth == 0 {
		return humanize.Comma(int64(p.Spans))
	}
	return fmt.Sprintf("%d of %v, by which a URL may be late to expire", p.Spans, ttlText(p.SpanWidth))
}

// printRivals prints the store and the others, a line each.
func (p *program) printRivals(c comparison) error {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nmemory\tbytes a URL\tpages lost\texpires\t  \n")
	line := func(r rival) {
		expires := "no"
		if r.Expires {
			expires = "yes"
		}
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t  %s\n", size(r.MemoryBytes), r.PerURL, lostText(r.LostURLs), expires, r.label())
	}
	m := c.Store.Memory
	n := float64(c.Store.Input.URLs)
	line(rival{Name: "dedupstore, its own memory", MemoryBytes: m.Anonymous, PerURL: float64(m.Anonymous) / n,
		LostURLs: c.Store.CollidingPairs, Expires: true})
	line(rival{Name: "dedupstore, with all of its mapped files", MemoryBytes: m.Anonymous + m.FileBacked,
		PerURL: float64(m.Anonymous+m.FileBacked) / n, LostURLs: c.Store.CollidingPairs, Expires: true})
	for _, r := range c.Rivals {
		line(r)
	}
	w.Flush()
	return writeOut(p.stdout, out.Bytes())
}

func (r rival) label() string {
	if r.Filters > 1 {
		return fmt.Sprintf("%s, %d filters", r.Name, r.Filters)
	}
	return r.Name
}

// lostText is a number of pages, whole ones where there are many.
func lostText(n float64) string {
	if n >= 10 {
		return humanize.Comma(int64(n))
	}
	return fmt.Sprintf("%.2g", n)
}
