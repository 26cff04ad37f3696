package mmapfilter

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// inspected is a filter's file with 30,000 words, synced.
func inspected(t *testing.T) (b []byte, ones uint64) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := Create(Files, path, Header{StoreID: [16]byte{1}, Generation: 3, Params: ParamsFor(50_000, 7)})
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, 30_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range words {
		words[i] = rng.Uint64()
	}
	slices.Sort(words)
	if err := errors.Join(f.SetSorted(words), f.Sync(9)); err != nil {
		t.Fatal(err)
	}
	ones, err = f.CountBits(t.Context())
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, ones
}

func census(t *testing.T, b []byte, c *HeaderCopy) Census {
	t.Helper()
	n, err := TakeCensus(t.Context(), bytes.NewReader(b), int64(len(b)), c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReadHeaders(t *testing.T) {
	b, ones := inspected(t)
	read := func(b []byte) [2]HeaderCopy {
		t.Helper()
		c, err := ReadHeaders(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := read(b)
	if c[0].Err != nil || c[1].Err != nil {
		t.Fatalf("got errors %v, %v", c[0].Err, c[1].Err)
	}
	newer := c[0]
	if c[1].Sequence > newer.Sequence {
		newer = c[1]
	}
	if newer.Ingest != 9 || newer.Generation != 3 || newer.Ones != ones {
		t.Errorf("got %+v", newer)
	}
	torn := slices.Clone(b)
	torn[offSeed] ^= 1
	if c := read(torn); !errors.Is(c[0].Err, ErrCorrupt) || c[1].Err != nil {
		t.Errorf("a flipped byte in the first copy: %v, %v", c[0].Err, c[1].Err)
	}
	for n := range b[:pageBytes+1] {
		if c := read(b[:n]); c[0].Err == nil || c[1].Err == nil {
			t.Fatalf("%d bytes: %v, %v", n, c[0].Err, c[1].Err)
		}
	}
}

func TestCensus(t *testing.T) {
	b, ones := inspected(t)
	copies, err := ReadHeaders(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	c := copies[0]
	if copies[1].Sequence > c.Sequence {
		c = copies[1]
	}
	n := census(t, b, &c)
	if n.Ones != ones || n.Blocks != c.Blocks || n.Differ != 0 || !n.SumsOK {
		t.Errorf("got %+v, want %d bits of %d blocks", n, ones, c.Blocks)
	}
	if want := BlockedRate(c.Params, 30_000); math.Abs(n.Rate-want) > want/4 {
		t.Errorf("got a rate of %g, the formula gives %g", n.Rate, want)
	}
	flipped := slices.Clone(b)
	flipped[pageBytes+5*pageBytes+17] ^= 1
	if n := census(t, flipped, &c); n.Differ != 1 || n.First != 5 || !n.SumsOK {
		t.Errorf("a flipped bit in page 5: got %+v", n)
	}
	flipped = slices.Clone(b)
	flipped[len(b)-1] ^= 1
	if n := census(t, flipped, &c); n.Differ != 1 || n.First != c.Blocks/BlocksPerPage-1 || n.SumsOK {
		t.Errorf("a flipped bit in the last sum: got %+v", n)
	}
	for _, cut := range []int{0, 100, pageBytes, pageBytes + 1, pageBytes + 5*blockBytes + 3, len(b) - 9, len(b) - 1} {
		n := census(t, b[:cut], &c)
		if want := min(uint64(max(cut-pageBytes, 0)/blockBytes), c.Blocks); n.Blocks != want || n.SumsOK {
			t.Errorf("%d bytes: got %+v, want %d blocks", cut, n, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := TakeCensus(ctx, bytes.NewReader(b), int64(len(b)), &c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
