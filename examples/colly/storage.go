// Package colly lets crawlers that are made with github.com/gocolly/colly/v2
// remember in a dedupstore which pages they have visited:
//
//	s, err := store.Open("crawl.store", nil)
//	visited, err := colly.New(s)
//	err = collector.SetStorage(visited)
//
// A collector asks IsVisited, and calls Visited if the answer is no. Two steps
// are no atomic answer: with colly's own storages several goroutines are told
// "no" at the same time, and fetch the page each. Here IsVisited claims the page,
// so that one is told so, and Visited commits the claim.
//
// Its limits are colly's:
//
//   - A collector names a page by a 64-bit FNV hash of its URL, fragment included,
//     and of what it sends, and never says the URL. Who wants to can choose URLs that
//     collide, and the hash is what the store keeps: a namespace of its own, "colly",
//     holds them, which a crawler that adds URLs cannot share.
//   - Visited is called before the page is fetched. A fetch that fails has marked
//     its page, and so has a kill during the fetch; collectors that retry do so by
//     Request.Retry, which does not ask. Where no page may be lost, claim it
//     yourself: see examples/crawler.
//   - HasVisited asks IsVisited too, which claims a page that is new: nobody can
//     visit it before the lease has ended, a minute. Ask the store instead.
//   - Cookies are in memory, and end with the process.
package colly

import (
	"context"
	"fmt"
	"net/http/cookiejar"
	"net/url"
	"sync"
	"time"

	"github.com/gocolly/colly/v2/storage"

	"dedupstore/store"
)

// namespace holds the hashes of a collector.
const namespace = "colly"

// lease is far longer than it takes from IsVisited to Visited.
const lease = time.Minute

// Storage is a collector's storage in a store. Several collectors may share one,
// as the clones of a collector do.
type Storage struct {
	pages *store.Namespace
	jar   *cookiejar.Jar

	mu     sync.Mutex
	claims map[uint64]store.Claim // between IsVisited and Visited
}

var _ storage.Storage = (*Storage)(nil)

// New returns a storage in s, which stays the caller's to close. For pages that are
// to be visited again after a while, give the namespace "colly" a TTL before.
func New(s *store.Store) (*Storage, error) {
	pages, err := s.OpenNamespace(namespace, nil)
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	return &Storage{pages: pages, jar: jar, claims: map[uint64]store.Claim{}}, nil
}

// Init does nothing: New has done it.
func (*Storage) Init() error { return nil }

func key(requestID uint64) string { return fmt.Sprintf("%016x", requestID) }

// IsVisited reports whether a page was visited or is about to be. If not, it is the
// caller's, who calls Visited.
func (s *Storage) IsVisited(requestID uint64) (bool, error) {
	claim, answer, err := s.pages.Claim(context.Background(), key(requestID), lease)
	if err != nil || answer != store.New {
		return err == nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[requestID] = claim
	return false, nil
}

// Visited makes a page a visited one, as durably as the store was opened for.
func (s *Storage) Visited(requestID uint64) error {
	s.mu.Lock()
	claim, ok := s.claims[requestID]
	delete(s.claims, requestID)
	s.mu.Unlock()
	if ok {
		return claim.Commit(context.Background(), 0)
	}
	// Nobody has asked, as before a redirect that may be followed twice.
	_, err := s.pages.Add(context.Background(), key(requestID))
	return err
}

// Cookies returns the cookies of a site.
func (s *Storage) Cookies(u *url.URL) string { return storage.StringifyCookies(s.jar.Cookies(u)) }

// SetCookies keeps the cookies of a site.
func (s *Storage) SetCookies(u *url.URL, cookies string) {
	s.jar.SetCookies(u, storage.UnstringifyCookies(cookies))
}
