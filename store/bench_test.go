package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// benchURL is the i-th of a sequence of distinct URLs of about 70 bytes.
func benchURL(i int) string {
	return "https://www.example-" + strconv.Itoa(i%9973) + ".org/articles/2026/page?id=" + strconv.Itoa(i) + "&ref=list"
}

func benchURLs(n int) []string {
	urls := make([]string, n)
	for i := range urls {
		urls[i] = benchURL(i)
	}
	return urls
}

func benchOpen(b *testing.B) *Store {
	b.Helper()
	s, err := Open(filepath.Join(b.TempDir(), "store"), &Options{ExpectedURLs: 20 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func BenchmarkDigest(b *testing.B) {
	url := benchURL(1234567)
	for _, h := range []Hash{HashSipHash, HashXXH64} {
		b.Run(h.String(), func(b *testing.B) {
			x := hasher{hash: h, k0: 1, k1: 2, mix: 3}
			var sum Digest
			for b.Loop() {
				sum += x.digest(url)
			}
			_ = sum
		})
	}
}

// BenchmarkAdd adds new URLs one by one.
func BenchmarkAdd(b *testing.B) {
	s := benchOpen(b)
	urls := benchURLs(1 << 20)
	ctx := b.Context()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := s.Add(ctx, urls[i%len(urls)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkAddBatch adds new URLs in batches of 1,000; one operation is one
// URL.
func BenchmarkAddBatch(b *testing.B) {
	s := benchOpen(b)
	const batch = 1000
	keys, answers := make([]string, batch), make([]Answer, batch)
	ctx := b.Context()
	b.ReportAllocs()
	for i := 0; i < b.N; i += batch {
		b.StopTimer()
		for j := range keys {
			keys[j] = benchURL(i + j)
		}
		b.StartTimer()
		if err := s.AddBatch(ctx, keys, answers); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHas asks for one URL at a time, by where the answer comes from.
func BenchmarkHas(b *testing.B) {
	const n = 1 << 20
	urls := benchURLs(2 * n)
	s := benchOpen(b)
	if err := s.AddBatch(b.Context(), urls[:n], make([]Answer, n)); err != nil {
		b.Fatal(err)
	}
	ask := func(urls []string, want bool) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				has, err := s.Has(b.Context(), urls[i%len(urls)])
				if err != nil || has != want {
					b.Fatal(has, err)
				}
				i++
			}
		}
	}
	b.Run("memtable", ask(urls[:n], true))
	b.Run("new", ask(urls[n:], false))
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Run("pebble", ask(urls[:n], true)) // those that the cache keeps are asked once
	b.Run("cache", ask(urls[:1000], true))
}

// BenchmarkTableFormat writes tables of words in each of Pebble's formats;
// one operation is one word.
func BenchmarkTableFormat(b *testing.B) {
	const n = 1 << 20
	words := make([]word, n)
	for i := range words {
		words[i] = rand.Uint64()
	}
	slices.Sort(words)
	for _, f := range []pebble.FormatMajorVersion{pebble.FormatVirtualSSTables, pebble.FormatColumnarBlocks} {
		for _, kib := range []int{4, 16} {
			for _, filter := range []pebble.FilterPolicy{pebble.NoFilterPolicy, bloom.FilterPolicy(10)} {
				b.Run(fmt.Sprintf("%v/%dKiB/filter=%s", f.MaxTableFormat(), kib, filter.Name()), func(b *testing.B) {
					path := filepath.Join(b.TempDir(), "table")
					for i := 0; i < b.N; i += n {
						file, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
						if err != nil {
							b.Fatal(err)
						}
						w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), sstable.WriterOptions{
							TableFormat: f.MaxTableFormat(), BlockSize: kib << 10, IndexBlockSize: kib << 10,
							Compression: sstable.NoCompression, FilterPolicy: filter,
						})
						key := make([]byte, 0, wordKeyBytes)
						for _, x := range words[:min(n, b.N-i)] {
							if err := w.Set(appendWordKey(key, 1, x), nil); err != nil {
								b.Fatal(err)
							}
						}
						if err := w.Close(); err != nil {
							b.Fatal(err)
						}
					}
					if info, err := os.Stat(path); err == nil && b.N >= n {
						b.ReportMetric(float64(info.Size())/float64(min(n, (b.N-1)%n+1)), "B/word")
					}
				})
			}
		}
	}
}

// BenchmarkClaim claims and commits new URLs in batches of 1,000; one operation
// is one URL.
func BenchmarkClaim(b *testing.B) {
	s := benchOpen(b)
	const batch = 1000
	keys, claims, answers := make([]string, batch), make([]Claim, batch), make([]Answer, batch)
	committed := make([]bool, batch)
	b.ReportAllocs()
	for i := 0; i < b.N; i += batch {
		b.StopTimer()
		for j := range keys {
			keys[j] = benchURL(i + j)
		}
		b.StartTimer()
		if err := s.ClaimBatch(b.Context(), keys, 0, claims, answers); err != nil {
			b.Fatal(err)
		}
		if err := s.CommitBatch(b.Context(), claims, 0, committed); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClaimTable fills the table to several sizes, and reports what a claim
// takes and how long a full table is searched.
func BenchmarkClaimTable(b *testing.B) {
	for _, n := range []int{100_000, 500_000, 700_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var bytes, search float64
			for b.Loop() {
				s := &Store{}
				s.opts.Clock = machineClock{}
				before := heapBytes()
				s.mu.claims.held = map[word]heldClaim{}
				for i := range n {
					s.mu.claims.held[rand.Uint64()] = heldClaim{token: uint64(i), ends: math.MaxInt64}
				}
				bytes = float64(heapBytes()-before) / float64(n)
				began := time.Now()
				s.purgeClaimsLocked()
				search = time.Since(began).Seconds() * 1e3
			}
			b.ReportMetric(bytes, "B/claim")
			b.ReportMetric(search, "ms/search")
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
