package store

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/wal"
)

// InspectLog calls fn with what a log file says, from its start to its end: the
// header, the frames with their records, and what is no frame. The last fact is
// a summary. The error is fn's, ctx's, or one of reading.
func InspectLog(ctx context.Context, path string, fn func(Fact) error) error {
	f, _, err := openRegular(path)
	if err != nil {
		return err
	}
	f.Close()
	l := logInspection{path: path}
	err = wal.Walk(vfs.Default, path, func(p wal.Part) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(l.fact(p))
	}, originsOf(path)...)
	if err != nil {
		return err
	}
	return fn(l.summary())
}

// originsOf guesses which file of which store a log file is, by where it is
// and what it is called.
func originsOf(path string) []wal.Origin {
	digits, _, _ := strings.Cut(filepath.Base(path), ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return nil
	}
	id, err := readIdentity(vfs.Default, filepath.Join(filepath.Dir(path), "..", identityName))
	if err != nil {
		return nil
	}
	return []wal.Origin{{Store: id.id, File: number}}
}

// logInspection is what is known of a log file as it is gone through.
type logInspection struct {
	path           string
	records, marks int64
	last           wal.LSN // of the last good frame
	synced         wal.LSN // the highest on record
	damaged        bool
	missing        wal.LSN // what should be where the first damage is; 0: not known
	good           int64   // where the good part ends
	switched       bool
}

func (l *logInspection) fact(p wal.Part) Fact {
	f := Fact{Path: l.path, Offset: p.Offset, Kind: "damage"}
	if p.Err != nil {
		f.Damage = p.Err.Error()
		l.noteDamage(p)
	}
	switch {
	case p.Header != nil:
		f.Kind, f.Fields = "header", headerFacts(p.Header)
		if p.Header.FirstLSN > 0 {
			l.last = p.Header.FirstLSN - 1
			l.synced = l.last
		}
	case p.Frame != nil:
		l.noteFrame(p.Frame)
		var err error
		if f.Kind, f.Fields, err = frameFacts(p.Frame, p.Bytes); err != nil && f.Damage == "" {
			f.Damage = err.Error()
			l.damaged = true
		}
	case p.Zeros:
		f.Kind, f.Fields = "zeros", []Field{bytesField(p.Bytes)}
	case p.Offset == 0:
		f.Kind, f.Fields = "header", []Field{bytesField(p.Bytes)}
	default:
		f.Fields = []Field{bytesField(p.Bytes)}
	}
	if !l.damaged && !p.Zeros {
		l.good = p.Offset + p.Bytes
	}
	return f
}

// noteDamage notes what should be where the first damage is.
func (l *logInspection) noteDamage(p wal.Part) {
	if !l.damaged && p.Offset > 0 && l.last > 0 {
		l.missing = l.last + 1
	}
	l.damaged = true
}

func (l *logInspection) noteFrame(f *wal.Frame) {
	if f.IsMark() {
		l.marks++
	} else {
		l.records++
	}
	l.last = f.LSN
	l.synced = max(l.synced, f.Synced)
	l.switched = l.switched || f.IsSwitch()
}

// summary says what the file comes to by itself.
func (l *logInspection) summary() Fact {
	f := Fact{Path: l.path, Offset: -1, Kind: "summary", Fields: []Field{
		{"records", l.records}, {"marks", l.marks}, {"last_lsn", uint64(l.last)}, {"synced", uint64(l.synced)},
		{"switched", l.switched}, {"good_up_to", l.good},
	}}
	switch {
	case l.missing == 0:
	case l.synced >= l.missing:
		f.Fields = append(f.Fields, Field{"verdict", fmt.Sprintf(
			"corruption: LSN %d should be at offset %d, and a later frame says that it was synced", l.missing, l.good)})
	default:
		f.Fields = append(f.Fields, Field{"verdict", fmt.Sprintf(
			"a torn tail, unless another file says that LSN %d was synced", l.missing)})
	}
	return f
}

func headerFacts(h *wal.FileHeader) []Field {
	fields := []Field{
		{"store", hexOf(h.Store[:])}, {"file", h.File}, {"prepared", h.FirstLSN == 0},
		{"first_lsn", uint64(h.FirstLSN)}, {"chain", sumText(h.Chain)}, {"sealed_end", h.SealedEnd},
	}
	return append(fields, decodeClockStamp(h.Meta[:]).facts()...)
}

// frameFacts are those of a frame and of its record. An error says that the
// record makes no sense.
func frameFacts(f *wal.Frame, size int64) (kind string, fields []Field, err error) {
	fields = []Field{
		{"lsn", uint64(f.LSN)}, bytesField(size), {"synced", uint64(f.Synced)},
		{"prev", sumText(f.Prev)}, {"checksum", sumText(f.Checksum)},
	}
	var more []Field
	switch {
	case f.IsMark():
		kind = "mark"
	case f.IsSwitch():
		kind, more = "switch", []Field{{"next_file", f.Next}}
	default:
		kind, more, err = recordFacts(f)
	}
	return kind, append(fields, more...), err
}

func recordFacts(f *wal.Frame) (kind string, fields []Field, err error) {
	switch f.Kind {
	case recordAdds:
		var a addsRecord
		if a, err = decodeAdds(f.Payload); err == nil {
			fields = []Field{{"segment", uint32(a.segment)}, {"words", a.len()}, {"first_word", sumText(a.word(0))}}
		}
		return "adds", fields, err
	case recordMade:
		id, r, err := decodeMade(f.Payload)
		if err == nil {
			fields = []Field{
				{"segment", uint32(id)}, {"namespace", r.namespace}, {"span_kind", uint8(r.spanKind)},
				{"span_log2", r.spanLog2}, {"incarnation", r.incarnation}, {"span", r.span},
			}
		}
		return "made", fields, err
	case recordClosed:
		id, err := decodeClosed(f.Payload)
		if err == nil {
			fields = []Field{{"segment", uint32(id)}}
		}
		return "closed", fields, err
	case recordIngest:
		number, flushed, clock, err := decodeIngest(f.Payload)
		if err == nil {
			fields = append([]Field{{"ingest", number}, {"flushed_file", flushed}}, clock.facts()...)
		}
		return "ingest", fields, err
	case recordBitmap:
		b, err := decodeBitmap(f.Payload)
		if err == nil {
			fields = []Field{{"generation", b.generation}, {"counters", b.counterGen}, {"leaked", b.leaked}, {"dead", b.dead}}
		}
		return "bitmap", fields, err
	case recordCounted, recordGone:
		ids, err := decodeList(f.Payload)
		if err == nil {
			fields = []Field{{"segments", len(ids)}, {"first", uint32(ids[0])}, {"last", uint32(ids[len(ids)-1])}}
		}
		if f.Kind == recordGone {
			return "gone", fields, err
		}
		return "counted", fields, err
	case recordFloor:
		urls, err := decodeFloor(f.Payload)
		if err == nil {
			fields = []Field{{"urls", urls}}
		}
		return "floor", fields, err
	case recordShut:
		id, err := decodeShut(f.Payload)
		if err == nil {
			fields = []Field{{"span_kind", uint8(id.kind)}, {"span_log2", id.log2}, {"span", id.number}}
		}
		return "shut", fields, err
	case recordForgets:
		a, err := decodeAdds(f.Payload)
		if err == nil {
			fields = []Field{{"segment", uint32(a.segment)}, {"words", a.len()}, {"first_word", sumText(a.word(0))}}
		}
		return "forgets", fields, err
	case recordNamed:
		id, row, err := decodeNamed(f.Payload)
		if err == nil {
			fields = []Field{{"namespace", id}, {"name", row.name}, {"incarnation", row.incarnation}, {"ttl_ns", row.ttl}}
		}
		return "named", fields, err
	case recordClock:
		clock, err := decodeClock(f.Payload)
		if err == nil {
			fields = clock.facts()
		}
		return "clock", fields, err
	}
	return "unknown", []Field{{"payload_bytes", len(f.Payload)}}, fmt.Errorf("%w: kind of record %d", ErrVersion, f.Kind)
}
