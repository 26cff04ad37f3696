package wal_test

import (
	"fmt"
	"log"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/wal"
)

func Example() {
	const greeting = wal.FirstCallerKind
	fs, dir, store := vfs.NewMem(), "", [16]byte{1, 2, 3}

	l, err := wal.Create(fs, dir, wal.Start{File: 1, FirstLSN: 1}, wal.Options{StoreID: store})
	if err != nil {
		log.Fatal(err)
	}
	payload := []byte("hello")
	if err := l.Reserve(wal.FrameBytes(len(payload))); err != nil {
		log.Fatal(err)
	}
	lsn := l.Append(greeting, payload)
	if err := l.WaitSynced(lsn); err != nil {
		log.Fatal(err)
	}
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}

	c, err := wal.Read(fs, dir, store)
	if err != nil {
		log.Fatal(err)
	}
	for i := range c.Files {
		err := c.Replay(i, func(r wal.Record) error {
			fmt.Printf("record %d: %s\n", r.LSN, r.Payload)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("torn:", c.Torn != nil)
	// The log goes on in a file of its own.
	l, err = wal.Create(fs, dir, c.Next([wal.MetaBytes]byte{}), wal.Options{StoreID: store})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next: record", l.Next(), "in file", l.File())
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// record 1: hello
	// torn: false
	// next: record 2 in file 2
}
