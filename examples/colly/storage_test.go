package colly

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gocolly/colly/v2"

	"dedupstore/store"
)

// crawl visits all pages of a site with 64 goroutines, each link from each page.
func crawl(t *testing.T, dir, site string) {
	t.Helper()
	s, err := store.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	visited, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	c := colly.NewCollector(colly.Async(true))
	if err := c.SetStorage(visited); err != nil {
		t.Fatal(err)
	}
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: 64}); err != nil {
		t.Fatal(err)
	}
	visit := func(err error) {
		var already *colly.AlreadyVisitedError
		if err != nil && !errors.As(err, &already) {
			t.Error(err)
		}
	}
	c.OnHTML("a", func(e *colly.HTMLElement) { visit(e.Request.Visit(e.Attr("href"))) })
	visit(c.Visit(site))
	c.Wait()
	r, err := s.Verify(context.Background(), store.VerifyOptions{Deep: true})
	if err != nil || !r.OK() {
		t.Errorf("verify: %+v, %v", r, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCrawlTwice crawls a site, and again with the store closed in between: no page
// is fetched twice.
func TestCrawlTwice(t *testing.T) {
	const pages = 1000
	var fetched [pages]atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		fmt.Sscanf(r.URL.Path, "/%d", &n)
		fetched[n].Add(1)
		w.Header().Set("Content-Type", "text/html")
		for i := range 8 {
			fmt.Fprintf(w, "<a href=/%d>x</a>", (n*8+i+1)%pages)
		}
	}))
	defer server.Close()
	dir := filepath.Join(t.TempDir(), "s")
	for range 2 {
		crawl(t, dir, server.URL+"/0")
		for n := range fetched {
			if got := fetched[n].Load(); got != 1 {
				t.Errorf("page %d was fetched %d times", n, got)
			}
		}
	}
}

// TestOneVisitor lets 64 goroutines ask for each page at the same time.
func TestOneVisitor(t *testing.T) {
	s, err := store.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	visited, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mine [100]atomic.Int64
	for range 64 {
		all.Go(func() {
			for n := range mine {
				is, err := visited.IsVisited(uint64(n))
				if err == nil && !is {
					mine[n].Add(1)
					err = visited.Visited(uint64(n))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for n := range mine {
		if got := mine[n].Load(); got != 1 {
			t.Errorf("page %d has %d visitors", n, got)
		}
	}
	if err := visited.Visited(5); err != nil {
		t.Errorf("visited again: %v", err)
	}
	if len(visited.claims) != 0 {
		t.Errorf("%d claims are left", len(visited.claims))
	}
}

func TestCookies(t *testing.T) {
	s, err := store.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	visited, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	u := &url.URL{Scheme: "http", Host: "a.example", Path: "/"}
	visited.SetCookies(u, "id=1")
	if got := visited.Cookies(u); got != "id=1" {
		t.Errorf("got %q", got)
	}
}
