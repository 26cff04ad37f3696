// Package fuzz holds the fuzz tests of the store as a whole: what recovery
// makes of files and of crashes. The decoders' own fuzz tests are in their
// packages.
//
//	FuzzLog     log files of arbitrary bytes, as they are or with their
//	            checksums made good, in a store that is otherwise sound. Open
//	            serves a prefix of what is in them, or returns an error that
//	            names the file and the offset and has changed nothing.
//	FuzzStore   bytes read as operations: add, batch, has, sync, flush, close
//	            and reopen, claim, commit, release and extend, crash, crash in
//	            the middle of the next operation.
//	            A model says what must be there, what may be, and what must
//	            not; after every recovery the store verifies deep and a second
//	            recovery finds the same.
//
// Both run on a disk in memory, package crashfs. One of them for a minute:
//
//	go test ./fuzz -fuzz '^FuzzStore$' -fuzztime 1m
//
// The corpora in testdata/fuzz are run by every go test. Those that are named
// and not numbered are made by hand in corpus_test.go, and written again by
//
//	go test ./fuzz -run TestCorpus -write-corpus
package fuzz
