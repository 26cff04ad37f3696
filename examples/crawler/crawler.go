package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"sync"
	"time"

	"dedupstore/store"
	"dedupstore/urlkey"
)

// A crawler fetches pages. Its fields are set before crawl.
type crawler struct {
	store    *store.Store
	frontier *frontier
	profile  *urlkey.Profile
	out      io.Writer // takes the URLs that were committed
	workers  int
	delay    time.Duration
	tries    int
	ttl      time.Duration // of a page
	errorTTL time.Duration // of one that was an error

	client http.Client
	hosts  *hosts
}

// crawl fetches the seeds, and what they link to on their hosts. It returns when
// the frontier is done, or with the error that has stopped it.
func (c *crawler) crawl(ctx context.Context, seeds []string) error {
	c.client = newClient()
	c.hosts = newHosts(&c.client, c.delay)
	var first []string
	for _, seed := range seeds {
		key, err := c.profile.AppendString(nil, seed)
		if err != nil {
			return fmt.Errorf("%s: %w", seed, err)
		}
		u, err := url.Parse(string(key))
		if err != nil {
			return err
		}
		c.hosts.allow(u.Host)
		first = append(first, string(key))
	}
	if err := c.frontier.append(first); err != nil {
		return err
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(ctx, c.frontier.stop)()
	var working sync.WaitGroup
	for range c.workers {
		working.Go(func() {
			for {
				next, ok := c.frontier.next()
				if !ok {
					return
				}
				err := c.visit(ctx, next)
				c.frontier.done()
				if err != nil {
					stop(err)
				}
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}

// visit fetches a page, if nobody has and nobody is at it. An error is one that the
// crawl cannot go on from.
func (c *crawler) visit(ctx context.Context, v visit) error {
	claim, answer, err := c.store.Claim(ctx, v.url, 0)
	if err != nil || answer != store.New {
		return err
	}
	p, err := c.page(ctx, v.url, claim)
	switch {
	case ctx.Err() != nil:
		return claim.Release()
	case err == nil:
		return c.commit(ctx, claim, v.url, p)
	}
	log.Printf("%s: %v", v.url, err)
	if v.tries+1 < c.tries {
		c.frontier.again(visit{v.url, v.tries + 1})
		return claim.Release()
	}
	return c.commit(ctx, claim, v.url, &page{ttl: c.errorTTL})
}

// commit makes a page seen. Its links come first: who has fetched it will not do so
// again.
func (c *crawler) commit(ctx context.Context, claim store.Claim, key string, p *page) error {
	if err := c.follow(ctx, p.links); err != nil {
		return err
	}
	err := claim.Commit(context.WithoutCancel(ctx), p.ttl)
	if errors.Is(err, store.ErrClaimLost) {
		return nil // it took longer than the lease, and is somebody else's
	}
	if err == nil {
		_, err = fmt.Fprintln(c.out, key)
	}
	return err
}

// follow appends the links that are not seen to the frontier. One that somebody
// is to fetch may stand there several times: Claim sorts that out.
func (c *crawler) follow(ctx context.Context, links []string) error {
	answers := make([]store.Answer, len(links))
	if err := c.store.HasBatch(ctx, links, answers); err != nil {
		return err
	}
	fresh := links[:0]
	for i, link := range links {
		if answers[i] == store.New {
			fresh = append(fresh, link)
		}
	}
	return c.frontier.append(fresh)
}
