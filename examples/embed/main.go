// Command embed shows the store inside a crawler: it takes links from standard
// input, a batch at a time, and prints those to fetch.
//
//	zcat links.gz | go run ./examples/embed -store crawl.store > fetch.txt
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"dedupstore/store"
)

// batchLinks is how many links are asked about at once: enough for one write
// of the log to be shared, few enough to hold in memory.
const batchLinks = 1000

func main() {
	dir := flag.String("store", "crawl.store", "directory of the store")
	flag.Parse()
	if err := run(context.Background(), *dir, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// run writes the links of in that the store in dir has never seen.
func run(ctx context.Context, dir string, in io.Reader, out io.Writer) (err error) {
	s, err := store.Open(dir, &store.Options{
		ExpectedURLs: 10_000_000,
		Durability:   store.Interval, // a crawler can fetch the links of one second again
	})
	if err != nil {
		if held, ok := errors.AsType[*store.LockedError](err); ok {
			return fmt.Errorf("another crawler runs: process %d", held.PID)
		}
		return err
	}
	// Close flushes; its error counts.
	defer func() { err = errors.Join(err, s.Close()) }()

	w := bufio.NewWriter(out)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, store.MaxKeyBytes)
	links := make([]string, 0, batchLinks)
	for lines.Scan() {
		if link := lines.Text(); link != "" {
			links = append(links, link)
		}
		if len(links) == batchLinks {
			if err := ask(ctx, s, links, w); err != nil {
				return err
			}
			links = links[:0]
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if err := ask(ctx, s, links, w); err != nil {
		return err
	}
	return w.Flush()
}

// ask writes those of the links that are new.
func ask(ctx context.Context, s *store.Store, links []string, w io.Writer) error {
	answers := make([]store.Answer, len(links))
	if err := s.AddBatch(ctx, links, answers); err != nil {
		return err
	}
	for i, a := range answers {
		if a != store.New {
			continue
		}
		if _, err := fmt.Fprintln(w, links[i]); err != nil {
			return err
		}
	}
	return nil
}
