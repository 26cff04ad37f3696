package counting_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"dedupstore/counting"
)

// Counters of three words, from which the next pass takes one and adds another.
func Example() {
	ctx := context.Background()
	header := counting.Header{
		StoreID:    [16]byte{1, 2, 3},
		Generation: 1,
		Geometry:   counting.Geometry{Blocks: 64, Probes: 7, Seed: 42},
	}
	// Words are uniform 64-bit numbers, in ascending order.
	three := []uint64{0x1c80317fa3b1799d, 0xbdd640fb06671ad1, 0xd71037d1b83e90ec}
	var first, second bytes.Buffer
	_, err := counting.Transform(ctx, counting.Job{
		Header: header,
		Plus:   []counting.Words{counting.SliceWords(three)},
		New:    &first,
	})
	if err != nil {
		log.Fatal(err)
	}

	old, err := counting.NewReader(&first, "first", int64(first.Len()))
	if err != nil {
		log.Fatal(err)
	}
	header.Generation = 2
	stats, err := counting.Transform(ctx, counting.Job{
		Old:    old,
		Header: header,
		Plus:   []counting.Words{counting.SliceWords([]uint64{0x3eb13b9046685257})},
		Minus:  []counting.Words{counting.SliceWords(three[:1])},
		New:    &second,
		Bits: func(first uint64, bits []uint64) error {
			fmt.Printf("bits of %d blocks from %d on\n", len(bits)/8, first)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d words: %d came, %d went\n", stats.Words, stats.Plus, stats.Minus)
	fmt.Printf("%d bits are set, %d counters are at 15\n", stats.Ones, stats.Saturated)
	// Output:
	// bits of 64 blocks from 0 on
	// 3 words: 1 came, 1 went
	// 21 bits are set, 0 counters are at 15
}
