package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"dedupstore/store"
)

// killRandom is a source that is replayed with KILL_SEED.
func killRandom(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if env := os.Getenv("KILL_SEED"); env != "" {
		fmt.Sscan(env, &seed)
	}
	t.Logf("replay: KILL_SEED=%d go test -run '^%s$' ./cmd/dedupstore", seed, t.Name())
	return rand.New(rand.NewPCG(seed, 0))
}

// killStats is what "stats --json" says, or nil if there is no store yet.
func killStats(t *testing.T, dir string) *store.Stats {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "STORE")); err != nil {
		return nil
	}
	out, err := exec.CommandContext(t.Context(), "dedupstore", "stats", "--json", "--store", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var st store.Stats
	if err := json.Unmarshal(out, &st); err != nil {
		t.Fatal(err)
	}
	return &st
}

// TestKillImport kills imports at random moments. What is there is a beginning
// of the list, and the run after the last kill adds exactly what is missing.
func TestKillImport(t *testing.T) {
	r := killRandom(t)
	file := filepath.Join(t.TempDir(), "lines")
	data := manyLines(100_000)
	write(t, file, data)
	distinctLines := int64(len(distinct(data)))
	lines := int64(bytes.Count([]byte(data), []byte("\n")))
	kills, inside := 0, 0
	for round := range 3 {
		dir := filepath.Join(t.TempDir(), "s")
		level := (store.Interval + store.Durability(round)).String()
		args := []string{"import", "--store", dir, "--memory", "1MiB", "--durability", level}
		var before int64
		for range 4 {
			// It has read at least some 64 KiB less than this when it dies.
			cmd := exec.CommandContext(t.Context(), "dedupstore", append(args, "-")...)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(stdin, data[:r.IntN(len(data))]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			cmd.Process.Kill()
			if code := exitCode(t, cmd.Wait()); code != -1 {
				t.Fatalf("exit code %d", code)
			}
			kills++
			st := killStats(t, dir)
			if st == nil {
				continue
			}
			if st.URLs < before || st.URLs > distinctLines {
				t.Errorf("%d URLs after a kill, %d before it, %d in the list", st.URLs, before, distinctLines)
			}
			if st.URLs > before && st.URLs < distinctLines {
				inside++
			}
			before = st.URLs
			if out, err := exec.CommandContext(t.Context(), "dedupstore", "verify", "--deep", "--store", dir).CombinedOutput(); err != nil {
				t.Errorf("verify: %v, %s", err, out)
			}
		}
		for run, missing := range []int64{distinctLines - before, 0} {
			cmd := exec.CommandContext(t.Context(), "dedupstore", append(args, "--json", "--quiet", file)...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, &stderr)
			}
			var got tally
			if err := json.Unmarshal(stderr.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if want := (tally{Read: lines, New: missing, Seen: lines - missing}); got != want {
				t.Errorf("run %d after the kills: %v, want %v", run, got, want)
			}
		}
		if st := killStats(t, dir); st.URLs != distinctLines {
			t.Errorf("%d URLs in the end, want %d", st.URLs, distinctLines)
		}
		if got := filterAll(t, dir, data); got != "" {
			t.Errorf("filter then prints %d bytes", len(got))
		}
	}
	t.Logf("%d kills, %d of them inside the list", kills, inside)
}

// TestKillHolder kills who holds a store: the next one is not kept out, not by
// a symlink to it either.
func TestKillHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	filterAll(t, dir, "a\n")
	holder, _ := filterCommand(t, link)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(stdin, "b")
	if _, err := stdout.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		for _, verb := range [][]string{{"filter", os.DevNull}, {"import", os.DevNull}, {"add", "x"}, {"check", "x"}, {"verify"}, {"stats"}} {
			want := 3
			if verb[0] == "stats" {
				want = 0 // the holder has published its figures
			}
			out, err := exec.CommandContext(t.Context(), "dedupstore", append(verb, "--store", path)...).CombinedOutput()
			if code := exitCode(t, err); code != want || !bytes.Contains(out, fmt.Appendf(nil, "process %d on ", holder.Process.Pid)) {
				t.Errorf("%s: exit code %d, want %d and the holder: %s", verb[0], code, want, out)
			}
		}
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	holder.Wait()
	if out, err := exec.CommandContext(t.Context(), "dedupstore", "stats", "--store", dir).Output(); err != nil || bytes.Contains(out, []byte("as of")) {
		t.Errorf("after the kill stats prints what it has left: %v %s", err, out)
	}
	// The answer may have been given before the mark was made.
	if got := filterAll(t, link, "a\nb\nc\n"); got != "c\n" && got != "b\nc\n" {
		t.Errorf("after the kill filter prints %q", got)
	}
}
