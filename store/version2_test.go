package store

import (
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"
)

// readVersion2 returns the encodings of testdata/version2.txt by their names:
// what stores wrote that knew neither expiry nor namespaces.
func readVersion2(t *testing.T) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/version2.txt")
	must(t, err)
	found := map[string][]byte{}
	name := ""
	for line := range strings.Lines(string(text)) {
		digits, indented := strings.CutPrefix(line, "    ")
		if !indented {
			name = strings.TrimSpace(line)
			continue
		}
		b, err := hex.DecodeString(strings.TrimSpace(digits))
		must(t, err)
		found[name] = append(found[name], b...)
	}
	return found
}

// TestVersion2 decodes the rows of version 2 and a record with a clock stamp of
// 40 bytes, and refuses what is cut short of them, or longer.
func TestVersion2(t *testing.T) {
	was := readVersion2(t)
	for name, decode := range map[string]func([]byte) (got, want any, err error){
		"store row": func(b []byte) (_, _ any, err error) {
			r, err := decodeStoreRow(b)
			return r, storeRow{
				ingest: 2, flushed: 1, flushedLSN: 4, nextSegment: 2, nextNamespace: 1, nextIncarnation: 2,
				bitmapGeneration: 1, floor: 2000, clock: formatClock,
			}, err
		},
		"namespace row": func(b []byte) (_, _ any, err error) {
			r, err := decodeNamespaceRow(b)
			if len(b) > namespaceRowBytes { // that is a name
				return nil, nil, os.ErrInvalid
			}
			return r, namespaceRow{incarnation: 1, ttl: forever}, err
		},
		"segment row": func(b []byte) (_, _ any, err error) {
			r, err := decodeSegmentRow(b)
			return r, formatSegment, err
		},
		"ingest record": func(b []byte) (_, _ any, err error) {
			number, flushed, clock, err := decodeIngest(b)
			return []any{number, flushed, clock}, []any{uint64(2), uint64(1), formatClock}, err
		},
	} {
		b := was[name]
		if b == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		got, want, err := decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
		for n := range b {
			if _, _, err := decode(b[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes decode", name, n, len(b))
			}
		}
		if _, _, err := decode(append(b, 0)); err == nil {
			t.Errorf("%s: one byte more decodes", name)
		}
	}
}
