package store

import (
	"context"
	"io"
	"math"

	"dedupstore/counting"
	"dedupstore/mmapfilter"
)

// InspectFilter calls fn with what the file of a bitmap or of a segment filter
// says: the two copies of its header, which of them counts, and its bits as
// they are counted, which reads the whole file; and of a counter file what its
// header and trailer say. The seed is not shown: it is a
// key of the store.
func InspectFilter(ctx context.Context, path string, fn func(Fact) error) error {
	r, size, err := openRegular(path)
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written
	if isCounters(r) {
		return fn(countersFact(path, r, size))
	}
	copies, err := mmapfilter.ReadHeaders(r, size)
	if err != nil {
		return err
	}
	for i := range copies {
		if err := fn(copyFact(path, &copies[i])); err != nil {
			return err
		}
	}
	return inspectBits(ctx, path, r, size, copies, fn)
}

// isCounters reports whether a file begins as counters do.
func isCounters(r io.ReaderAt) bool {
	magic := make([]byte, len(counting.Magic))
	n, _ := r.ReadAt(magic, 0)
	return string(magic[:n]) == counting.Magic
}

// countersFact is what the header and the trailer of a counter file say.
func countersFact(path string, r io.ReaderAt, size int64) Fact {
	f := Fact{Path: path, Kind: "counters"}
	h, c, err := counting.ReadCounts(r, path, size)
	if err != nil {
		f.Damage = damageOf(wrapCounters(path, err))
	}
	if h.Blocks > 0 {
		f.Fields = []Field{
			{"store", hexOf(h.StoreID[:])}, {"generation", h.Generation}, {"blocks", h.Blocks}, {"probes", h.Probes},
			{"words", c.Words}, {"ones", c.Ones}, {"saturated", c.Saturated},
		}
	}
	return f
}

func copyFact(path string, c *mmapfilter.HeaderCopy) Fact {
	f := Fact{Path: path, Offset: c.Offset, Kind: "header"}
	if c.Err != nil {
		f.Damage = damageOf(c.Err)
		return f
	}
	f.Fields = []Field{
		{"sequence", c.Sequence}, {"store", hexOf(c.StoreID[:])}, {"generation", c.Generation},
		{"ingest", c.Ingest}, {"blocks", c.Blocks}, {"probes", c.Probes}, {"capacity", c.Capacity},
		{"ones", c.Ones}, {"unverified", c.Unverified}, {"sums", sumText(c.Sums)},
	}
	return f
}

// inspectBits counts bits, by the header that counts, or by what a file of that
// size should have.
func inspectBits(ctx context.Context, path string, r io.ReaderAt, size int64, copies [2]mmapfilter.HeaderCopy, fn func(Fact) error) error {
	f := Fact{Path: path, Offset: -1, Kind: "bits"}
	var c mmapfilter.HeaderCopy
	h, _, err := mmapfilter.ReadHeader(mmapfilter.Files, path)
	switch {
	case err == nil:
		c = copies[0]
		if copies[1].Err == nil && (c.Err != nil || copies[1].Sequence > c.Sequence) {
			c = copies[1]
		}
		f.Fields = append(f.Fields, Field{"header", c.Sequence})
	case isSystem(err):
		return err
	default:
		f.Damage = "no header counts: " + damageOf(err)
		c.Params = mmapfilter.ParamsOfSize(size)
	}
	n, err := mmapfilter.TakeCensus(ctx, r, size, &c)
	if err != nil {
		return err
	}
	f.Fields = append(f.Fields, censusFields(&c, &n)...)
	switch {
	case f.Damage != "":
	case n.Blocks < c.Blocks:
		f.Damage = "the file ends before its blocks do"
	case n.Ones < h.Ones:
		f.Damage = "fewer bits are set than the header says: some were lost"
	}
	return fn(f)
}

func censusFields(c *mmapfilter.HeaderCopy, n *mmapfilter.Census) []Field {
	bits := float64(mmapfilter.Params{Blocks: n.Blocks}.Bits())
	if bits == 0 {
		return []Field{{"blocks", n.Blocks}}
	}
	fill := float64(n.Ones) / bits
	fields := []Field{
		{"blocks", n.Blocks}, {"ones", n.Ones}, {"fill", rounded(fill)}, {"rate", rounded(n.Rate)},
	}
	if c.Capacity > 0 {
		// A word sets Probes bits of all: fill = 1 - e^(-words * probes / bits).
		words := -math.Log1p(-min(fill, 1-1/bits)) * bits / float64(c.Probes)
		fields = append(fields,
			Field{"designed_rate", rounded(mmapfilter.BlockedRate(c.Params, c.Capacity))},
			Field{"words_estimated", int64(words)}, Field{"load_estimated", rounded(words / float64(c.Capacity))})
	}
	fields = append(fields, Field{"sums_ok", n.SumsOK}, Field{"pages_changed", n.Differ})
	if n.Differ > 0 {
		fields = append(fields, Field{"first_changed_page", n.First})
	}
	return fields
}

// rounded cuts a figure to what it is worth.
func rounded(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
