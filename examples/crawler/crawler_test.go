package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dedupstore/store"
)

var (
	crawlPages = flag.Int("crawl.pages", 1000, "pages of the site that TestKilled crawls; 10000 is a full run")
	crawlKills = flag.Int("crawl.kills", 6, "kills by TestKilled; 50 is a full run")
)

// TestMain lets the test binary be the crawler.
func TestMain(m *testing.M) {
	if os.Getenv("CRAWLER_TEST_CHILD") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A site has pages with links, so that each can be reached from the first.
type site struct {
	t     *testing.T
	pages int
	url   string

	mu        sync.Mutex
	fetched   map[int]int
	committed map[int]bool // by an earlier process: not to be fetched again
	fails     map[int]int  // how often a page fails before it comes
}

func newSite(t *testing.T, pages int) *site {
	s := &site{t: t, pages: pages, fetched: map[int]int{}, committed: map[int]bool{}, fails: map[int]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		fmt.Fprintf(w, "User-agent: *\nDisallow: /private/\n")
		return
	}
	n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	if r.URL.Path == "/" {
		n, err = 0, nil
	}
	if err != nil || n >= s.pages {
		if strings.HasPrefix(r.URL.Path, "/private/") {
			s.t.Errorf("%s was asked for, which robots.txt forbids", r.URL)
		}
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	fails := s.fails[n] > 0
	s.fails[n]--
	s.fetched[n]++
	again := s.committed[n]
	s.mu.Unlock()
	switch {
	case again:
		s.t.Errorf("page %d is fetched, which was committed before", n)
	case fails:
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	if n%97 == 96 {
		http.Redirect(w, r, s.path(n+1)+"#here", http.StatusFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, "<p>page %d<a href=%s>next</a><A HREF='.%s#x'>more</A>", n, s.path(n+1), s.path(7*n+3))
	fmt.Fprintf(w, "<a href=/private/%d></a><a href=http://elsewhere.example/></a><a href='mailto:a@example.org'></a><a href=/gone></a>", n)
}

// path is that of the n-th page, and of the first one again behind the last.
func (s *site) path(n int) string {
	if n %= s.pages; n > 0 {
		return fmt.Sprintf("/%d", n)
	}
	return "/"
}

// pageOf is the number of a page of the site, -1 for another URL.
func (s *site) pageOf(key string) int {
	if key == s.url+"/" {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimPrefix(key, s.url+"/"))
	if err != nil {
		return -1
	}
	return n
}

// begin takes what was committed for done, and wants no page in it twice.
func (s *site) begin(out string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.Open(out)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	times := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if times[lines.Text()]++; times[lines.Text()] == 2 {
			s.t.Errorf("%s is committed twice", lines.Text())
		}
		if n := s.pageOf(lines.Text()); n >= 0 {
			s.committed[n] = true
		}
	}
}

// all wants every page fetched and committed.
func (s *site) all(dir string) {
	s.t.Helper()
	for n := range s.pages {
		if s.fetched[n] == 0 {
			s.t.Errorf("page %d was never fetched", n)
		}
	}
	r, err := store.Verify(context.Background(), dir, store.VerifyOptions{Deep: true})
	if err != nil || !r.OK() {
		s.t.Errorf("verify: %+v, %v", r, err)
	}
	st, err := store.Open(dir, &store.Options{ReadOnly: true, KeyProfile: "std/1"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	for n := range s.pages {
		key := s.url + s.path(n)
		if seen, err := st.Has(context.Background(), key); !seen || err != nil {
			s.t.Errorf("%s is seen: %v, %v", key, seen, err)
		}
	}
}

// TestKilled crawls a site with 64 workers, and is killed at random moments of it.
// The whole of it:
//
//	go test -run TestKilled -crawl.pages=10000 -crawl.kills=50
func TestKilled(t *testing.T) {
	s := newSite(t, *crawlPages)
	dir := t.TempDir()
	out := filepath.Join(dir, "committed.txt")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills := 0
	for ends := false; !ends; {
		file, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0],
			"-store", filepath.Join(dir, "crawl.store"), "-frontier", filepath.Join(dir, "frontier.txt"),
			"-workers", "64", "-delay", "0", s.url)
		cmd.Env = append(os.Environ(), "CRAWLER_TEST_CHILD=1")
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = file, &stderr
		s.mu.Lock()
		before := len(s.fetched)
		s.mu.Unlock()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if kills < *crawlKills {
			// Each kill comes within its share of the pages.
			share := s.pages / (*crawlKills + 1)
			go s.killAfter(cmd.Process, before+1+rng.IntN(share))
		}
		err = cmd.Wait()
		file.Close()
		exit, _ := errors.AsType[*exec.ExitError](err)
		switch {
		case err == nil:
			ends = true
		case exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
			kills++
		default:
			t.Fatalf("%v\n%s", err, &stderr)
		}
		s.begin(out)
	}
	s.all(filepath.Join(dir, "crawl.store"))
	again := 0
	for _, n := range s.fetched {
		again += n - 1
	}
	t.Logf("%d pages, %d kills, %d fetched again", s.pages, kills, again)
	if kills == 0 {
		t.Error("nothing was killed")
	}
}

// killAfter kills a process when so many pages were fetched.
func (s *site) killAfter(p *os.Process, pages int) {
	for {
		s.mu.Lock()
		n := len(s.fetched)
		s.mu.Unlock()
		if n >= pages {
			p.Kill() // an error: it has ended
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRetries has pages fail, once or for ever: those are committed as errors, and
// come again when their time is over.
func TestRetries(t *testing.T) {
	s := newSite(t, 50)
	s.fails[7], s.fails[9] = 2, 3
	dir := filepath.Join(t.TempDir(), "s")
	c := &crawler{out: io.Discard, workers: 8, tries: 3, ttl: store.Forever, errorTTL: time.Hour}
	if err := run(t.Context(), c, dir, dir+".txt", []string{s.url}); err != nil {
		t.Fatal(err)
	}
	if s.fetched[7] != 3 || s.fetched[9] != 3 || s.fetched[8] != 1 {
		t.Errorf("fetched %v", s.fetched)
	}
	s.all(dir)
}

// TestTornFrontier reads what a kill has left of a frontier.
func TestTornFrontier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frontier.txt")
	long := strings.Repeat("x", 3*readBytes) + "\n"
	for text, want := range map[string]string{
		"": "", "http://a/": "", "http://a/\nhttp://b": "http://a/\n", "a\nb\n": "a\nb\n", "a\n" + long[1:len(long)-1]: "a\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := openFrontier(path)
		if err != nil {
			t.Fatal(err)
		}
		f.close()
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("of %d bytes %d are left, %v, want %d", len(text), len(got), err, len(want))
		}
	}
}
