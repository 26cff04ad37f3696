package store_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"dedupstore/store"
)

// newDir returns a place for a store, and what removes it.
func newDir() (dir string, remove func()) {
	tmp, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(tmp, "seen.store"), func() { os.RemoveAll(tmp) }
}

// mustOpen makes a store that is removed by the returned function.
func mustOpen() (s *store.Store, closeAndRemove func()) {
	dir, remove := newDir()
	s, err := store.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	return s, func() {
		if err := s.Close(); err != nil {
			log.Fatal(err)
		}
		remove()
	}
}

func ExampleOpen() {
	dir, remove := newDir()
	defer remove()
	ctx := context.Background()

	s, err := store.Open(dir, &store.Options{ExpectedURLs: 1_000_000})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Add(ctx, "https://example.org/"))
	fmt.Println(s.Add(ctx, "https://example.org/"))
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}

	s, err = store.Open(dir, &store.Options{MustExist: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Add(ctx, "https://example.org/"))
	fmt.Println(s.Close())
	// Output:
	// true <nil>
	// false <nil>
	// false <nil>
	// <nil>
}

// A second opener is told who holds the store.
func ExampleOpen_locked() {
	dir, remove := newDir()
	defer remove()
	s, err := store.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	_, err = store.Open(dir, nil)
	held, ok := errors.AsType[*store.LockedError](err)
	fmt.Println(errors.Is(err, store.ErrLocked), ok && held.PID == os.Getpid())
	// Output: true true
}

func ExampleStore_AddBatch() {
	s, remove := mustOpen()
	defer remove()

	links := []string{"https://a.example/", "https://b.example/", "https://a.example/"}
	answers := make([]store.Answer, len(links))
	if err := s.AddBatch(context.Background(), links, answers); err != nil {
		log.Fatal(err)
	}
	for i, link := range links {
		fmt.Println(link, answers[i])
	}
	// Output:
	// https://a.example/ new
	// https://b.example/ new
	// https://a.example/ seen
}

// Of a batch that failed, the members that are Unanswered may be asked again.
func ExampleStore_AddBatch_error() {
	s, remove := mustOpen()
	defer remove()

	answers := make([]store.Answer, 2)
	err := s.AddBatch(context.Background(), []string{"https://a.example/", ""}, answers)
	fmt.Println(errors.Is(err, store.ErrEmptyKey), answers)
	// Output: true [unanswered unanswered]
}

// Has remembers nothing.
func ExampleStore_Has() {
	s, remove := mustOpen()
	defer remove()
	ctx := context.Background()

	fmt.Println(s.Has(ctx, "https://example.org/"))
	fmt.Println(s.Add(ctx, "https://example.org/"))
	fmt.Println(s.Has(ctx, "https://example.org/"))
	// Output:
	// false <nil>
	// true <nil>
	// true <nil>
}

// A page is seen when it was fetched, and new again when that failed.
func ExampleStore_Claim() {
	s, remove := mustOpen()
	defer remove()
	ctx := context.Background()
	fetch := func(url string) error { return errors.New("connection refused") }

	const url = "https://example.org/"
	for range 2 {
		claim, answer, err := s.Claim(ctx, url, 0)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer)
		if fetch(url) != nil {
			err = claim.Release()
		} else {
			err = claim.Commit(ctx, 0)
		}
		if err != nil {
			log.Fatal(err)
		}
		fetch = func(string) error { return nil }
	}
	fmt.Println(s.Has(ctx, url))
	// Output:
	// new
	// new
	// true <nil>
}

// Pages are to be fetched again after a month, but what was not found after an
// hour.
func ExampleNamespace_With() {
	s, remove := mustOpen()
	defer remove()
	ctx := context.Background()

	month := s.With(store.WriteOptions{TTL: 30 * 24 * time.Hour})
	fmt.Println(month.Add(ctx, "https://example.org/"))
	claim, _, err := month.Claim(ctx, "https://example.org/gone", 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(claim.Commit(ctx, time.Hour)) // it was not found

	// Both are seen, through any handle.
	fmt.Println(s.Has(ctx, "https://example.org/"))
	fmt.Println(s.Has(ctx, "https://example.org/gone"))
	// Output:
	// true <nil>
	// <nil>
	// true <nil>
	// true <nil>
}

// The same URL in two namespaces is two.
func ExampleStore_OpenNamespace() {
	s, remove := mustOpen()
	defer remove()
	ctx := context.Background()

	feeds, err := s.OpenNamespace("feeds", &store.NamespaceOptions{TTL: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(feeds.Add(ctx, "https://example.org/"))
	fmt.Println(s.Has(ctx, "https://example.org/"))
	for n := range s.Namespaces() {
		fmt.Printf("%q: %d\n", n.Name, n.URLs)
	}

	// All of it is new again, at once.
	if err := s.DropNamespace(ctx, "feeds"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(feeds.Has(ctx, "https://example.org/"))
	// Output:
	// true <nil>
	// false <nil>
	// "": 0
	// "feeds": 1
	// false <nil>
}

func ExampleNamespace_Forget() {
	s, remove := mustOpen()
	defer remove()
	ctx := context.Background()

	if _, err := s.Add(ctx, "https://example.org/"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Forget(ctx, "https://example.org/", "https://example.org/never-added"))
	fmt.Println(s.Add(ctx, "https://example.org/"))
	// Output:
	// 1 <nil>
	// true <nil>
}

func ExampleStore_Stats() {
	s, remove := mustOpen()
	defer remove()
	if _, err := s.Add(context.Background(), "https://example.org/"); err != nil {
		log.Fatal(err)
	}
	st := s.Stats()
	fmt.Println(st.URLs, st.Hash, st.KeyProfile)
	fmt.Println(st.Promise)
	// Output:
	// 1 siphash none/1
	// an answer is given after its record is written: it survives kill -9; power loss takes back at most the last 1s and one fdatasync
}

// Verify looks at a store that nobody has open.
func ExampleVerify() {
	dir, remove := newDir()
	defer remove()
	ctx := context.Background()
	s, err := store.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Add(ctx, "https://example.org/"); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}

	r, err := store.Verify(ctx, dir, store.VerifyOptions{Deep: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.OK(), r.URLs, r.Faults)
	// Output: true 1 []
}
