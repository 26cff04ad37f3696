package main

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/temoto/robotstxt"
)

// hosts are those that may be asked, one request after the other with a delay
// between them.
type hosts struct {
	client *http.Client
	delay  time.Duration

	mu sync.Mutex
	of map[string]*host // by host and port
}

type host struct {
	robots sync.Once
	group  *robotstxt.Group // nil: everything is allowed
	delay  time.Duration    // that of robots.txt, if it is longer
	next   time.Time        // guarded by hosts.mu
}

func newHosts(client *http.Client, delay time.Duration) *hosts {
	return &hosts{client: client, delay: delay, of: map[string]*host{}}
}

// allow lets the crawl go to a host.
func (h *hosts) allow(name string) { h.of[name] = &host{delay: h.delay} }

func (h *hosts) allowed(name string) bool { return h.of[name] != nil }

// wait returns when it is the request's turn, and whether robots.txt allows it.
func (h *hosts) wait(ctx context.Context, u *url.URL) (may bool, err error) {
	one := h.of[u.Host]
	if one == nil {
		return false, nil
	}
	one.robots.Do(func() { h.readRobots(ctx, one, u) })
	if one.group != nil && !one.group.Test(u.Path) {
		return false, nil
	}
	h.mu.Lock()
	now := time.Now()
	turn := one.next
	if turn.Before(now) {
		turn = now
	}
	one.next = turn.Add(one.delay)
	h.mu.Unlock()
	select {
	case <-time.After(turn.Sub(now)):
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// readRobots asks a host what it allows. One that does not say allows everything.
func (h *hosts) readRobots(ctx context.Context, one *host, u *url.URL) {
	resp, err := get(ctx, h.client, u.Scheme+"://"+u.Host+"/robots.txt")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	robots, err := robotstxt.FromResponse(resp)
	if err != nil {
		return
	}
	one.group = robots.FindGroup(userAgent)
	one.delay = max(one.delay, one.group.CrawlDelay)
}
