package store

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"dedupstore/wal"
)

// salvageRecords replays what is left of a log, in two passes as a repair does,
// and returns the notes.
func salvageRecords(t *testing.T, r *registry, m *memtable, recs ...wal.Record) (notes []string) {
	t.Helper()
	l := newMissed()
	for _, rec := range recs {
		l.see(r, m.file, rec)
	}
	notes = l.makeUp(r)
	for _, rec := range recs {
		note, err := r.replaySalvaged(m, rec)
		must(t, err)
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

func addsOf(id segmentID, words ...word) wal.Record {
	return wal.Record{Kind: recordAdds, Payload: payloadOf(id, words)}
}

func forgetsOf(id segmentID, words ...word) wal.Record {
	return wal.Record{Kind: recordForgets, Payload: payloadOf(id, words)}
}

func payloadOf(id segmentID, words []word) []byte {
	b := beginAdds(nil, id)
	for _, w := range words {
		b = appendWord(b, w)
	}
	return b
}

func madeOf(id segmentID, namespace uint32, incarnation uint64, span spanID) wal.Record {
	row := segmentRow{namespace: namespace, incarnation: incarnation, spanKind: span.kind, spanLog2: span.log2, span: span.number}
	return wal.Record{Kind: recordMade, Payload: appendMade(nil, id, &row)}
}

func namedOf(id uint32, incarnation uint64, name string) wal.Record {
	return wal.Record{Kind: recordNamed, Payload: appendNamed(nil, id, &namespaceRow{incarnation: incarnation, ttl: 7, name: name})}
}

// TestRepairRecords replays logs that miss records: what the others name is made
// up for, and what was dropped stays so.
func TestRepairRecords(t *testing.T) {
	size := func(n uint64) spanID { return spanID{kind: spanSize, number: n} }
	hour := spanID{kind: spanTime, log2: 7, number: 1000}
	shut := func(id spanID) wal.Record { return wal.Record{Kind: recordShut, Payload: appendShut(nil, id)} }
	for _, tc := range []struct {
		name  string
		recs  []wal.Record
		notes []string // in part
		check func(r *registry) bool
	}{
		{"nothing is lost", []wal.Record{
			namedOf(1, 2, "a"), madeOf(3, 1, 2, hour), addsOf(3, 7), shut(hour), addsOf(1, 8), forgetsOf(3, 7),
		}, nil, func(r *registry) bool {
			return r.segments[3].state == segmentClosed && r.segments[3].ends == hour.end() && r.namespaces[1].name == "a"
		}},
		{"a segment's record", []wal.Record{namedOf(1, 2, "a"), addsOf(3, 7), addsOf(3, 8), madeOf(4, 1, 2, hour), addsOf(4, 9)},
			[]string{"the record that made segment 3 is lost"},
			func(r *registry) bool {
				row := r.segments[3]
				return row.incarnation == anyIncarnation && row.ends == forever && row.state == segmentClosed && r.nextSegment == 5 && r.live(&row, 1)
			}},
		{"the record of a segment that is used after the next was made", []wal.Record{
			madeOf(4, 0, 1, hour), addsOf(4, 9), addsOf(3, 7),
		}, []string{"the record that made segment 3 is lost"}, func(r *registry) bool {
			return r.segments[3].incarnation == 1 && r.nextSegment == 5
		}},
		{"of a store that had never more than one namespace", []wal.Record{addsOf(3, 7)},
			[]string{"the record that made segment 3 is lost"},
			func(r *registry) bool { return r.segments[3].incarnation == 1 && r.nextSegment == 4 }},
		{"a segment that was dropped", []wal.Record{addsOf(2, 7), forgetsOf(2, 8)}, nil,
			func(r *registry) bool { _, ok := r.segments[2]; return !ok }},
		{"a namespace's record", []wal.Record{madeOf(3, 1, 2, hour), addsOf(3, 7)},
			[]string{`it is "lost-1" from now on`},
			func(r *registry) bool {
				return r.namespaces[1] == namespaceRow{2, int64(time.Hour), "lost-1"} && r.nextNamespace == 2 && r.nextIncarnation == 3
			}},
		{"a namespace's record, and its name is in another", []wal.Record{madeOf(3, 1, 2, hour), addsOf(3, 7), namedOf(1, 2, "a")},
			[]string{"what made namespace 1 is lost: its TTL is that of the store"},
			func(r *registry) bool { return r.namespaces[1].name == "a" }},
		{"two namespaces' records", []wal.Record{namedOf(3, 4, "c")}, nil,
			func(r *registry) bool { return r.namespaces[3].name == "c" && r.nextNamespace == 4 }},
		{"the record of a drop", []wal.Record{madeOf(3, 0, 2, size(1)), addsOf(3, 7)},
			[]string{`the record that dropped namespace "" is lost: dropped`},
			func(r *registry) bool {
				old, now := r.segments[1], r.segments[3]
				return r.gone(&old) && !r.gone(&now) && r.nextIncarnation == 3
			}},
		{"a shut record", []wal.Record{madeOf(3, 0, 1, size(2)), addsOf(3, 7)},
			[]string{"the record that closed segment 1 is lost: closed"},
			func(r *registry) bool {
				return r.segments[1].state == segmentClosed && r.segments[3].state == segmentOpen && r.sizeSpan == 2
			}},
		{"the record that shut one for the same", []wal.Record{madeOf(3, 0, 1, size(1)), addsOf(3, 7)},
			[]string{"the record that closed segment 1 is lost: closed"},
			func(r *registry) bool { return r.taking[segmentKey{1, size(1)}] == 3 }},
		{"nothing, and one makes no sense", []wal.Record{{Kind: recordAdds, Payload: []byte{1}}},
			[]string{"left out: adds record has 1 bytes"}, func(r *registry) bool { return true }},
		{"what was added, and it is forgotten", []wal.Record{forgetsOf(3, 7)},
			[]string{"left out: it names segment 3, which was never made"},
			func(r *registry) bool { return len(r.segments) == 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRegistry(1, int64(time.Hour), clockStamp{})
			r.nextSegment, r.sizeSpan = 3, 1 // 2 was dropped
			r.segments[1] = segmentRow{incarnation: 1, spanKind: spanSize, span: 1, state: segmentOpen, words: 5, ends: forever}
			r.index()
			notes := salvageRecords(t, r, &memtable{file: 4}, tc.recs...)
			for i, want := range tc.notes {
				if i >= len(notes) || !strings.Contains(notes[i], want) {
					t.Errorf("got notes %q, want %q", notes, want)
				}
			}
			if len(notes) != len(tc.notes) {
				t.Errorf("got %d notes, want %d: %q", len(notes), len(tc.notes), notes)
			}
			if !tc.check(r) {
				t.Errorf("%+v", r)
			}
			ids := slices.Sorted(maps.Keys(r.segments))
			if last := ids[len(ids)-1]; r.nextSegment <= last {
				t.Errorf("the next segment is %d, and there is %d", r.nextSegment, last)
			}
		})
	}
	r := newRegistry(1, forever, clockStamp{})
	if _, err := r.replaySalvaged(&memtable{}, wal.Record{Kind: 99}); !errors.Is(err, ErrVersion) {
		t.Errorf("a kind that is not known: %v", err)
	}
}
