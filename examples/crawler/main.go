// Command crawler fetches every page of some sites once: a small polite crawler
// that embeds a store. It may be killed at any moment and started again.
//
// For each URL of the frontier it claims the URL, fetches the page, appends the
// page's links to the frontier and syncs it, and commits the claim. In that order
// nothing is lost: a page whose claim was not committed is new after a kill, and
// is fetched again; one whose claim was is never fetched again, and its links are
// in the frontier. A start replays the frontier through Claim.
//
//	go run . -workers 64 -delay 1s https://example.org/
//
// It prints the URLs that it has committed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"dedupstore/store"
	"dedupstore/urlkey"
)

func main() {
	log.SetFlags(0)
	c := crawler{out: os.Stdout}
	dir := flag.String("store", "crawl.store", "the `directory` of the store")
	path := flag.String("frontier", "frontier.txt", "the `file` of the URLs to fetch")
	flag.IntVar(&c.workers, "workers", 64, "pages that are fetched at once")
	flag.DurationVar(&c.delay, "delay", time.Second, "time between two requests to one host")
	flag.IntVar(&c.tries, "tries", 3, "how often a page is asked for that does not come")
	flag.DurationVar(&c.ttl, "ttl", store.Forever, "time after which a page is fetched again")
	flag.DurationVar(&c.errorTTL, "error-ttl", time.Hour, "time after which one is that was an error")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("usage: crawler [flags] URL...")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &c, *dir, *path, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// run opens what a crawl needs, crawls, and closes it.
func run(ctx context.Context, c *crawler, dir, path string, seeds []string) (err error) {
	if c.profile, err = urlkey.Parse("std"); err != nil {
		return err
	}
	if c.store, err = store.Open(dir, &store.Options{KeyProfile: c.profile.String()}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.store.Close()) }()
	if c.frontier, err = openFrontier(path); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.frontier.close()) }()
	if err := c.crawl(ctx, seeds); err != nil {
		return fmt.Errorf("%w; start it again to go on", err)
	}
	return nil
}
