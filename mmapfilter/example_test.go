package mmapfilter_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"dedupstore/mmapfilter"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "bitmap")
	store := [16]byte{1, 2, 3}
	f, err := mmapfilter.Create(mmapfilter.Files, path, mmapfilter.Header{
		StoreID: store,
		Params:  mmapfilter.ParamsFor(1_000_000, 42),
	})
	if err != nil {
		log.Fatal(err)
	}
	// Words are uniform 64-bit numbers, and are set in ascending order.
	words := []uint64{0x1c80317fa3b1799d, 0xbdd640fb06671ad1, 0xd71037d1b83e90ec}
	if err := f.SetSorted(words); err != nil {
		log.Fatal(err)
	}
	if err := f.Sync(1); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}

	f, err = mmapfilter.Open(mmapfilter.Files, path, store, true)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println("ingest number:", f.Header().Ingest)
	fmt.Println("set:", f.Has(words[1]))
	fmt.Println("not set:", f.Has(0x3eb13b9046685257))
	p := f.Header().Params
	fmt.Printf("%d bytes, %.2f %% false positives when full\n", f.Bytes(), 100*mmapfilter.BlockedRate(p, p.Capacity))
	// Output:
	// ingest number: 1
	// set: true
	// not set: false
	// 1510264 bytes, 0.40 % false positives when full
}
