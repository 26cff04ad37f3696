package counting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// FuzzDecode reads any file of one page. Header, the beginning of the counters
// and trailer come apart, so that the corpus is small, and their checksums are
// made right where seals says so, so that the checks behind them are reached.
// What is read encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, header, counters, trailer []byte, size int64, seals uint8) {
		b := make([]byte, headerBytes+pageBytes+sumBytes+trailerBytes)
		copy(b[:headerBytes], header)
		copy(b[headerBytes:headerBytes+pageBytes], counters)
		copy(b[headerBytes+pageBytes+sumBytes:], trailer)
		if seals&1 != 0 {
			sealHeader(b)
		}
		if seals&2 != 0 {
			sum := chained(sumOf(b), b[headerBytes:headerBytes+pageBytes])
			binary.LittleEndian.PutUint64(b[headerBytes+pageBytes:], sum)
		}
		if seals&4 != 0 {
			sealTrailer(b)
		}
		r, err := NewReader(bytes.NewReader(b), "mem", size)
		if err != nil {
			if r != nil {
				t.Errorf("error %v and a reader", err)
			}
			if errors.Is(err, ErrCorrupt) == errors.Is(err, ErrVersion) {
				t.Errorf("error %v is not one of two", err)
			}
			return
		}
		if err := r.header.validate(); err != nil || r.header.FileBytes() != size {
			t.Fatalf("%+v of a file of %d bytes; %v", r.header, size, err)
		}
		var p page
		var c Counts
		if err = r.read(&p); err == nil && r.header.pages() > 1 {
			err = r.read(new(page))
		} else if err == nil {
			c, err = r.readTrailer()
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || c != (Counts{}) {
				t.Errorf("error %v and counts %+v", err, c)
			}
			return
		}
		again := appendHeader(nil, r.header)
		again = appendPage(again, &p, sumOf(again))
		again = appendTrailer(again, c, binary.LittleEndian.Uint64(again[len(again)-sumBytes:]))
		if !bytes.Equal(again, b) {
			t.Errorf("%+v, %+v do not encode to what they were decoded from", r.header, c)
		}
	})
}

// FuzzTransform makes two passes out of bytes and compares them with the model.
// Of the bytes each is one word of 64, which comes or goes as the top two bits
// say: before, then, or not any more.
func FuzzTransform(f *testing.F) {
	f.Fuzz(func(t *testing.T, ops []byte, pages, probes uint8, seed uint64, batch uint8) {
		h := Header{StoreID: testStore, Generation: 1, Geometry: Geometry{
			Blocks: BlocksPerPage * (1 + uint64(pages%4)),
			Probes: 1 + uint32(probes%MaxProbes),
			Seed:   seed,
		}}
		if len(ops) > 2000 {
			return // the model is slow
		}
		universe := sortedWords(rand.New(rand.NewPCG(seed, 1)), 64)
		universe[0], universe[63] = 0, 1<<64-1
		var lists [4][]uint64 // before, before, plus, minus
		for _, op := range ops {
			lists[op>>6] = append(lists[op>>6], universe[op%64])
		}
		for _, l := range lists {
			slices.Sort(l)
		}
		m := newModel(h.Geometry)
		var before, file buffer
		var set []uint64
		s := runJob(t, Job{Header: h, Plus: sources(lists[0], lists[1]), New: &before, Bits: collect(t, &set)})
		m.pass(slices.Concat(lists[0], lists[1]), nil)
		m.equal(t, s, &before, set)

		h.Generation, set = 2, nil
		s = runJob(t, Job{
			Old: before.reader(t), Header: h, New: &file, Bits: collect(t, &set),
			Plus:  []Words{inBatches(lists[2], 1+int(batch))},
			Minus: []Words{inBatches(lists[3], 1+int(batch/16))},
		})
		m.pass(lists[2], lists[3])
		m.equal(t, s, &file, set)
	})
}
