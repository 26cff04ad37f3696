package docs_test

import (
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestDependencies wants a reason for every module that go.mod names as a
// direct requirement, and no other.
func TestDependencies(t *testing.T) {
	design := read(t, "docs/DESIGN.md")
	reasons := map[string]bool{}
	for _, row := range table(t, design, "| module | for |") {
		reasons[row[0]] = true
	}
	for line := range strings.Lines(read(t, "go.mod")) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) != 2 || !strings.Contains(fields[0], ".") {
			continue // no requirement, or an indirect one
		}
		if !reasons[fields[0]] {
			t.Errorf("docs/DESIGN.md gives no reason for %s", fields[0])
		}
		delete(reasons, fields[0])
	}
	for module := range reasons {
		t.Errorf("docs/DESIGN.md gives a reason for %s, which go.mod does not require", module)
	}
}

// TestCollision checks the pair that docs/DESIGN.md shows.
func TestCollision(t *testing.T) {
	var pair []string
	for line := range strings.Lines(read(t, "docs/DESIGN.md")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "https://example.com/search") {
			pair = append(pair, line)
		}
	}
	if len(pair) != 2 || pair[0] == pair[1] {
		t.Fatalf("want a pair of URLs, got %q", pair)
	}
	for _, seed := range []uint64{0, 1, 0x0123456789abcdef} {
		var sums [2]uint64
		for i, url := range pair {
			h := xxhash.NewWithSeed(seed)
			if _, err := h.WriteString(url); err != nil {
				t.Fatal(err)
			}
			sums[i] = h.Sum64()
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %#x: %016x and %016x", seed, sums[0], sums[1])
		}
	}
}
