package counting

import "context"

// A Difference is what counters are off by.
type Difference struct {
	// Counts are those of the file's trailer.
	Counts
	// Low counts the counters that are less than what the words come to, and
	// FirstLow is the block of the first: the bits made of them may lack words.
	Low      uint64
	FirstLow uint64
	// High counts those that are more, except those of 15: bits that stay set
	// without a word. They cost answers of "maybe", no wrong ones.
	High uint64
}

// Compare reads a counter file to its end and compares it with what its words
// come to, one time for each time that they were added and not taken. Between
// two pages it looks at the context.
func Compare(ctx context.Context, r *Reader, words []Words) (Difference, error) {
	var d Difference
	var got, want page
	g, sources := r.header.Geometry, streams(words, "compare")
	for r.next < g.pages() {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		n := r.next
		if err := r.read(&got); err != nil {
			return d, err
		}
		clear(want[:])
		if _, err := eachRun(sources, g.lastWord(n), func(run []uint64) { want.add(g, run) }); err != nil {
			return d, err
		}
		d.page(&got, &want, n)
	}
	var err error
	d.Counts, err = r.readTrailer()
	return d, err
}

// page compares page n.
func (d *Difference) page(got, want *page, n uint64) {
	for i, w := range want {
		if got[i] == w {
			continue
		}
		for shift := 0; shift < 64; shift += 4 {
			have, need := got[i]>>shift&maxCount, w>>shift&maxCount
			switch {
			case have < need:
				if d.Low == 0 {
					d.FirstLow = n*pageBlocks + uint64(i/countWords)
				}
				d.Low++
			case have > need && have != maxCount:
				d.High++
			}
		}
	}
}
