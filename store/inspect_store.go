package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

// InspectStore calls fn with what a STORE file says, without the keys that are
// in it. Given a directory, it goes on with who holds the store and with what
// is in the directory. It takes no lock but for the moment in which it asks
// who has it.
func InspectStore(ctx context.Context, path string, fn func(Fact) error) error {
	path = filepath.Clean(path)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !info.IsDir() {
		return inspectIdentity(path, fn)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	err = inspectIdentity(filepath.Join(path, identityName), fn)
	if errors.Is(err, fs.ErrNotExist) {
		err = fn(Fact{Path: filepath.Join(path, identityName), Offset: -1, Kind: "identity", Damage: "the file is missing"})
	}
	if err != nil {
		return err
	}
	if err := inspectLock(path, fn); err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := inspectEntry(path, e, fn); err != nil {
			return err
		}
	}
	return nil
}

// inspectIdentity tells the fields of a STORE file, as far as there are any.
func inspectIdentity(path string, fn func(Fact) error) error {
	r, size, err := openRegular(path)
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written
	b, err := io.ReadAll(io.LimitReader(r, identityBytes+1))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	f := Fact{Path: path, Kind: "identity", Fields: append(identityFields(b), bytesField(size))}
	if _, fault := decodeIdentity(b); fault != nil {
		f.Offset, f.Damage = fault.offset, fault.reason
	}
	return fn(f)
}

// identityFields are the fields of an identity file that hold no keys, and are
// there. Behind another magic they would be nothing.
func identityFields(b []byte) (fields []Field) {
	if len(b) < 16 || string(b[:8]) != identityMagic {
		return nil
	}
	le := binary.LittleEndian
	fields = []Field{{"version", le.Uint32(b[8:])}, {"flags", le.Uint32(b[12:])}}
	if len(b) < identityBytes {
		return fields
	}
	profile, _, _ := strings.Cut(string(b[profileAt:madeAt]), "\x00")
	return append(fields,
		Field{"store", hexOf(b[idAt:hashAt])}, Field{"hash", Hash(b[hashAt]).String()},
		Field{"key_profile", profile}, Field{"made", timeOf(int64(le.Uint64(b[madeAt:])))})
}

// inspectLock tells who holds the store.
func inspectLock(dir string, fn func(Fact) error) error {
	f := Fact{Path: filepath.Join(dir, lockName), Offset: -1, Kind: "lock"}
	holder, err := Holder(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Damage = "the file is missing"
	case err != nil:
		return err
	case holder == nil:
		f.Fields = []Field{{"held", false}}
	default:
		f.Fields = []Field{{"held", true}, {"pid", holder.PID}, {"host", holder.Host}, {"since", holder.Since}}
	}
	return fn(f)
}

// inspectEntry tells what one name in a store's directory is.
func inspectEntry(dir string, e fs.DirEntry, fn func(Fact) error) error {
	name, path := e.Name(), filepath.Join(dir, e.Name())
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is gone meanwhile
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	f := Fact{Path: path, Offset: -1, Fields: []Field{bytesField(info.Size())}}
	_, _, isSpan := parseSpanFilterName(name)
	switch {
	case name == identityName || name == lockName:
		return nil
	case name == logDir && e.IsDir():
		return inspectLogs(path, fn)
	case (name == pebbleDir || name == tmpDir) && e.IsDir():
		f.Kind = name
		f.Fields, err = directoryFields(path)
	case isBitmapName(name):
		f.Kind = "bitmap"
		err = f.addFilter()
	case isSpan:
		f.Kind = "segment filter"
		err = f.addFilter()
	case isCountersName(name):
		f.Kind = "counters"
	case name == statusName:
		f.Kind = "status"
		f.addStatus(dir)
	case name == snapshotName:
		f.Kind = "snapshot"
		f.addOrigin()
	case name == reserveName:
		f.Kind = "reserve"
	case name == creatingName:
		f.Kind = "creation mark"
	case strings.HasSuffix(name, badSuffix):
		f.Kind = "put aside"
	case strings.HasSuffix(name, newSuffix) || strings.HasSuffix(name, mmapfilter.TmpSuffix):
		f.Kind = "left over"
	default:
		f.Kind = "unknown"
	}
	if err != nil {
		return err
	}
	return fn(f)
}

// addFilter adds what a filter's header says.
func (f *Fact) addFilter() error {
	h, torn, err := mmapfilter.ReadHeader(mmapfilter.Files, f.Path)
	switch {
	case isSystem(err):
		return err
	case err != nil:
		f.Damage = damageOf(err)
	default:
		f.Fields = append(f.Fields, Field{"generation", h.Generation}, Field{"ingest", h.Ingest},
			Field{"capacity", h.Capacity}, Field{"torn", torn}, Field{"unverified", h.Unverified})
	}
	return nil
}

// addOrigin adds of what the store was a snapshot. What cannot be read is no
// damage.
func (f *Fact) addOrigin() {
	if b, err := readSmallFile(vfs.Default, f.Path, maxOriginBytes); err == nil {
		if o, ok := decodeOrigin(b); ok {
			f.Fields = append(f.Fields, Field{"made", o.Made}, Field{"lsn", o.LSN}, Field{"urls", o.URLs},
				Field{"bitmap", o.Bitmap}, Field{"counters", o.Counters})
		}
	}
}

// addStatus adds who has written a STATUS. One that is not whole is no damage.
func (f *Fact) addStatus(dir string) {
	if st, err := ReadStatus(dir); err == nil {
		f.Fields = append(f.Fields, Field{"when", st.When}, Field{"pid", st.PID}, Field{"host", st.Host}, Field{"urls", st.URLs})
	}
}

// inspectLogs tells what the log's directory holds.
func inspectLogs(dir string, fn func(Fact) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it is gone meanwhile
		}
		f := Fact{Path: filepath.Join(dir, e.Name()), Offset: -1, Kind: "unknown", Fields: []Field{bytesField(info.Size())}}
		switch name := e.Name(); {
		case strings.HasSuffix(name, ".log") && info.Mode().IsRegular():
			f.Kind = "log file"
			err = f.addLogHeader()
		case strings.HasSuffix(name, badSuffix):
			f.Kind = "put aside"
		case strings.HasSuffix(name, newSuffix):
			f.Kind = "left over"
		}
		if err == nil {
			err = fn(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errHeaderRead ends a walk behind the header.
var errHeaderRead = errors.New("the header was read")

// addLogHeader adds what the header of a log file says.
func (f *Fact) addLogHeader() error {
	err := wal.Walk(vfs.Default, f.Path, func(p wal.Part) error {
		if p.Err != nil {
			f.Damage = p.Err.Error()
		} else {
			f.Fields = append(f.Fields, Field{"file", p.Header.File}, Field{"first_lsn", uint64(p.Header.FirstLSN)})
		}
		return errHeaderRead
	})
	if errors.Is(err, errHeaderRead) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// directoryFields count the files below a directory that is not ours to read.
func directoryFields(dir string) ([]Field, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var files, tables int
	var size int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it is gone meanwhile
		}
		files++
		size += info.Size()
		if strings.HasSuffix(e.Name(), ".sst") {
			tables++
		}
	}
	return []Field{{"files", files}, {"tables", tables}, bytesField(size)}, nil
}
