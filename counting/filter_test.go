package counting_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"dedupstore/counting"
	"dedupstore/mmapfilter"
)

// TestBitsOfFilter holds that the bits are those that mmapfilter sets for the
// same words, position by position, in every geometry.
func TestBitsOfFilter(t *testing.T) {
	if counting.MaxBlocks != mmapfilter.MaxBlocks || counting.MaxProbes != mmapfilter.MaxProbes ||
		counting.BlocksPerPage != mmapfilter.BlocksPerPage {
		t.Error("the bounds differ")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for probes := uint32(1); probes <= mmapfilter.MaxProbes; probes++ {
		for _, pages := range []uint64{1, 3, 16} {
			p := mmapfilter.Params{Blocks: pages * mmapfilter.BlocksPerPage, Probes: probes, Seed: rng.Uint64(), Capacity: 1}
			words := make([]uint64, p.Blocks*10)
			for i := range words {
				words[i] = rng.Uint64()
			}
			words = append(words, 0, 1<<64-1)
			slices.Sort(words)
			stay, gone := split(words)

			wantPath, want := newFilter(t, p)
			if err := errors.Join(want.SetSorted(stay), want.Sync(1)); err != nil {
				t.Fatal(err)
			}
			gotPath, got := newFilter(t, p)
			s, err := counting.Transform(t.Context(), counting.Job{
				Header: counting.Header{Geometry: counting.Geometry{Blocks: p.Blocks, Probes: p.Probes, Seed: p.Seed}},
				Plus:   []counting.Words{counting.SliceWords(words)},
				Minus:  []counting.Words{counting.SliceWords(gone)},
				New:    io.Discard,
				Bits:   got.OrBlocks,
			})
			if err = errors.Join(err, got.Sync(1)); err != nil {
				t.Fatal(err)
			}
			if s.Saturated != 0 {
				t.Fatalf("%+v: %d counters are at 15, so that bits may stay", p, s.Saturated)
			}
			if s.Ones != want.Header().Ones {
				t.Errorf("%+v: %d counters are above 0, %d bits are set", p, s.Ones, want.Header().Ones)
			}
			if !bytes.Equal(content(t, gotPath), content(t, wantPath)) {
				t.Errorf("%+v: the files of the two filters differ", p)
			}
		}
	}
}

// split takes every third word out.
func split(words []uint64) (stay, gone []uint64) {
	for i, w := range words {
		if i%3 == 1 {
			gone = append(gone, w)
		} else {
			stay = append(stay, w)
		}
	}
	return stay, gone
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newFilter(t *testing.T, p mmapfilter.Params) (string, *mmapfilter.Filter) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "filter")
	f, err := mmapfilter.Create(mmapfilter.Files, path, mmapfilter.Header{Params: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return path, f
}
