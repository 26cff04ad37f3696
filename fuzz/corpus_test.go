package fuzz

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var writeCorpus = flag.Bool("write-corpus", false, "write the hand-made seeds of testdata/fuzz again")

// corpusFile is the form in which go test reads a seed.
func corpusFile(args ...any) []byte {
	var b strings.Builder
	b.WriteString("go test fuzz v1\n")
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", a)
		case byte:
			fmt.Fprintf(&b, "byte(%q)\n", rune(a))
		}
	}
	return []byte(b.String())
}

// ops joins a seed of FuzzStore: level, memtable, span, then operations.
func ops(level, memtable, span byte, parts ...[]byte) []byte {
	out := []byte{level, memtable, span}
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func batch(first, n, step byte) []byte        { return []byte{opBatch, first, n - 1, step - 1} }
func cutNext(step, percent, next byte) []byte { return []byte{opCrashNext, step - 1, percent, next} }
func claim(at, first, n, step byte) []byte    { return []byte{opClaim, at, first, n - 1, step} }

// cutCommit is the place of opCommit in cutOps.
var cutCommit = byte(slices.Index(cutOps, opCommit))

func storeSeeds() map[string][]byte {
	one := func(b ...byte) []byte { return b }
	seeds := map[string][]byte{
		"empty":         {},
		"add-twice":     ops(0, 0, 2, one(opAdd, 1, opAdd, 1, opAdd, 2, opHas, 1, 0)),
		"kill-interval": ops(0, 1, 2, batch(0, 40, 1), one(opCrash, 2), batch(0, 50, 1)),
		"cut-interval":  ops(0, 1, 2, batch(0, 40, 1), one(opSync), batch(40, 40, 1), one(opCrash, 0), batch(0, 90, 1)),
		"cut-sync":      ops(1, 0, 0, batch(0, 60, 1), one(opCrash, 0), batch(0, 70, 1), one(opCrash, 1)),
		"cut-nosync":    ops(2, 1, 1, batch(0, 60, 1), one(opFlush), batch(60, 9, 1), one(opCrash, 0)),
		"half":          ops(2, 0, 0, batch(0, 100, 2), one(opCrash, 1), batch(0, 100, 1), one(opCrash, 1), one(opVerify)),
		"reopen":        ops(0, 0, 0, batch(0, 30, 1), one(opReopen, opReopen), batch(0, 31, 1), one(opReopen, opVerify)),
		"segments":      ops(1, 0, 0, batch(0, 100, 1), one(opFlush), batch(100, 100, 1), one(opFlush, opVerify, opReopen)),
		"wide":          ops(1, 3, 2, batch(0, 120, 1), batch(100, 120, 2), one(opFlush, opFlush, opSync, opSync, opVerify)),
		"twice-in-one":  ops(0, 1, 2, batch(250, 100, 3), one(opCrash, 2), batch(250, 100, 3)),

		"claim-commit":  ops(0, 1, 2, claim(0, 1, 6, 1), batch(0, 9, 1), one(opCommit, 0x3f), batch(0, 9, 1), one(opVerify)),
		"claim-release": ops(1, 1, 2, claim(0, 1, 4, 1), one(opRelease, 1, opRelease, 1, opAdd, 2, opAdd, 1), claim(1, 1, 4, 1), one(opCommit, 0x0f)),
		"claim-twice":   ops(0, 0, 0, claim(0, 5, 3, 0), claim(1, 5, 3, 0), one(opExtend, 0, opExtend, 1, opCommit, 3, opCommit, 3)),
		"claim-stale":   ops(0, 1, 2, claim(0, 1, 1, 0), one(opRelease, 0), claim(1, 1, 1, 0), one(opRelease, 0, opExtend, 0, opCommit, 1, opAdd, 1, opCommit, 3)),
		"claim-kill":    ops(0, 1, 2, claim(0, 1, 6, 2), one(opCommit, 7, opCrash, 2, opCommit, 0x3f, opRelease, 4, opExtend, 0), claim(0, 1, 6, 2)),
		"claim-cut":     ops(1, 0, 0, claim(0, 1, 6, 1), one(opCommit, 0x15), batch(50, 60, 1), one(opCrash, 0), claim(2, 1, 6, 1), one(opCommit, 0x3f)),
		"claim-reopen":  ops(2, 1, 1, claim(0, 1, 6, 1), one(opReopen, opCommit, 0x3f), claim(0, 1, 3, 1), one(opRelease, 5, opCommit, 1, opReopen), batch(0, 9, 1)),
		"claim-flush":   ops(0, 0, 0, claim(0, 1, 6, 1), batch(20, 60, 1), one(opFlush, opCommit, 0x3f, opFlush), batch(0, 9, 1), one(opVerify)),
		"claim-left":    ops(0, 1, 2, claim(0, 1, 6, 1), claim(0, 20, 6, 1), one(opCommit, 0x3f), batch(0, 30, 1), one(opReopen), batch(0, 30, 1)),
	}
	for i, step := range []byte{1, 2, 3, 5, 8, 12, 17, 23, 30, 40} {
		level := byte(i % 3)
		seeds[fmt.Sprintf("cut-flush-%d", step)] = ops(level, 1, 1, batch(0, 30, 1), cutNext(step, byte(i%3), opFlush), batch(0, 30, 1))
		seeds[fmt.Sprintf("cut-batch-%d", step)] = ops(level, 0, 0, batch(0, 30, 1), cutNext(step, byte(i/3%3), opBatch), one(20, 90, 0))
		if i < 5 {
			seeds[fmt.Sprintf("cut-commit-%d", step)] = ops(level, 1, 1, claim(0, 1, 6, 1), cutNext(step, byte(i%3), cutCommit), one(0x3f), claim(0, 1, 6, 1))
			seeds[fmt.Sprintf("cut-claimed-%d", step)] = ops(level, 1, 1, claim(0, 1, 6, 1), batch(10, 30, 1), cutNext(step, byte((i+2)%3), opFlush), batch(0, 9, 1))
		}
		seeds[fmt.Sprintf("cut-reopen-%d", step)] = ops(level, 1, 0, batch(0, 70, 1), cutNext(step, byte((i+1)%3), opReopen), batch(0, 80, 1))
	}
	return seeds
}

// TestCorpus writes the seeds, when asked to, and else sees that they are
// there.
func TestCorpus(t *testing.T) {
	want := make(map[string][]byte)
	for name, b := range storeSeeds() {
		want[filepath.Join("FuzzStore", name)] = corpusFile(b)
	}
	for name, b := range livesSeeds() {
		want[filepath.Join("FuzzLives", name)] = corpusFile(b)
	}
	for name, args := range logSeeds(t) {
		want[filepath.Join("FuzzLog", name)] = corpusFile(args...)
	}
	for name, b := range want {
		path := filepath.Join("testdata", "fuzz", name)
		if *writeCorpus {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		// The bytes of a log hold the time, so only their presence is compared.
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%v; write it by: go test ./fuzz -run TestCorpus -write-corpus", err)
		}
	}
}
