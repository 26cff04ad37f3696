package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"dedupstore/store"
)

const (
	userAgent    = "dedupstore-crawler"
	fetchTimeout = 30 * time.Second
	maxBodyBytes = 4 << 20 // 4 MiB of a page are read
)

// newClient returns a client that follows no redirects: where one leads is a link.
func newClient() http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	return http.Client{
		Timeout:   fetchTimeout,
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// A page is what a fetch has found.
type page struct {
	links []string // canonical, on allowed hosts
	ttl   time.Duration
}

// page fetches a page when its host may be asked. An error may pass.
func (c *crawler) page(ctx context.Context, key string, claim store.Claim) (*page, error) {
	u, err := url.Parse(key)
	if err != nil {
		return &page{ttl: c.errorTTL}, nil
	}
	may, err := c.hosts.wait(ctx, u)
	if err != nil {
		return nil, err
	}
	if !may {
		return &page{ttl: c.ttl}, nil // robots.txt forbids it
	}
	if err := claim.Extend(2 * fetchTimeout); err != nil {
		return nil, err // the host's turn was long to come
	}
	resp, err := get(ctx, &c.client, key)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch status := resp.StatusCode; {
	case status >= 500, status == http.StatusTooManyRequests:
		return nil, errors.New(resp.Status)
	case status >= 400:
		return &page{ttl: c.errorTTL}, nil
	case status >= 300:
		return &page{links: c.links(u, []string{resp.Header.Get("Location")}), ttl: c.ttl}, nil
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "text/html" {
		return &page{ttl: c.ttl}, nil
	}
	refs, err := references(io.LimitReader(resp.Body, maxBodyBytes))
	if err != nil {
		return nil, err
	}
	return &page{links: c.links(u, refs), ttl: c.ttl}, nil
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	return resp, nil
}
