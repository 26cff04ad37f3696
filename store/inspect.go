package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// Inspection prints what a file says, damaged ones too: it goes on behind the
// damage where Open and Verify stop. It writes nothing, takes what the files
// say for nothing but text, and never shows the keys of a store.

// A Fact is one thing that a file says, or what keeps it from saying it.
type Fact struct {
	Path   string
	Offset int64  // in bytes; -1 if it concerns the whole file
	Kind   string // what it is about: "header", "adds", "damage", ...
	Fields []Field
	// Damage says what is wrong here, "" if nothing is.
	Damage string
}

// A Field is one value of a Fact: a string, a number, a bool or a time.Time.
type Field struct {
	Name  string
	Value any
}

// MarshalJSON makes one object of a Fact, its fields in their order behind
// path, offset and kind.
func (f Fact) MarshalJSON() ([]byte, error) {
	all := append([]Field{{"path", f.Path}, {"offset", f.Offset}, {"kind", f.Kind}}, f.Fields...)
	if f.Damage != "" {
		all = append(all, Field{"damage", f.Damage})
	}
	var b bytes.Buffer
	for i, field := range all {
		value, err := json.Marshal(field.Value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%c%q:%s", "{,"[min(i, 1)], field.Name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// openRegular opens a file for reading, and refuses what reading would hang on.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, fmt.Errorf("store: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("store: %s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("store: %w", err)
	}
	return f, info.Size(), nil
}

// damageOf is what an error of a file's says is wrong, without the path.
func damageOf(err error) string {
	if c, ok := errors.AsType[*CorruptError](err); ok {
		return reasonAt(c.Offset, c.Reason, c.Err)
	}
	if c, ok := errors.AsType[*wal.CorruptError](err); ok {
		return reasonAt(c.Offset, c.Reason, c.Err)
	}
	if c, ok := errors.AsType[*mmapfilter.CorruptError](err); ok {
		return reasonAt(c.Offset, c.Reason, nil)
	}
	return err.Error()
}

func reasonAt(offset int64, reason string, cause error) string {
	if cause != nil {
		reason += ": " + cause.Error()
	}
	if offset >= 0 {
		reason = fmt.Sprintf("at offset %d: %s", offset, reason)
	}
	return reason
}

func hexOf(b []byte) string     { return hex.EncodeToString(b) }
func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }
func timeOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }
func bytesField(n int64) Field  { return Field{"bytes", n} }
func (c clockStamp) facts() []Field {
	return []Field{
		{"store_time", timeOf(c.store)}, {"wall_clock", timeOf(c.wall)},
		{"boot_clock_ns", c.boot}, {"boot_id", hexOf(c.bootID[:])},
		{"doubt_ms", c.left}, {"doubt_latest_s", c.latest},
	}
}
