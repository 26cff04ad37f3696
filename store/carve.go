package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Carving reads the data blocks of a table by themselves. A table is data
// blocks, one behind the other, then its index, its properties and a footer
// that says where these are. A reader that starts from the footer loses the
// whole table with it, and a part of the table with a block of the index. But a
// block is followed by its checksum: where one begins is known from the end of
// the one before, and where it ends is where the checksum comes right. So the
// index is not asked at all. Behind a damaged block every byte is tried for the
// begin of one.

const (
	// blockTrailerBytes are behind a block: its compression, and a CRC-32C of
	// the block and of that byte.
	blockTrailerBytes = block.TrailerLen
	// maxBlockBytes bounds a data block: tableBlockBytes and one row, and room
	// for a later version's.
	maxBlockBytes = 64 << 10
	// A data block begins with the length of its longest key, the version of
	// the columnar format, the number of columns and the number of rows; a type
	// and an offset for each column follow.
	blockColumns     = 7
	blockColumnsAt   = 11
	blockColumnBytes = 5
	blockHeaderBytes = blockColumnsAt + blockColumns*blockColumnBytes
	// A carver's window is refilled when less than a block is left of it.
	carveWindow = 512 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A carver finds the data blocks of one table.
type carver struct {
	f    vfs.File
	size int64
	off  int64 // file offset of buf[0]
	buf  []byte
	mem  []byte

	schema  colblk.KeySchema
	decoder colblk.DataBlockDecoder
	block   []byte // what decoder reads, aligned as it wants it
	iter    colblk.DataBlockIter
}

func openCarver(fsys vfs.FS, path string) (*carver, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c := &carver{f: f, size: st.Size(), schema: colblk.DefaultKeySchema(pebble.DefaultComparer, 16)}
	c.block = make([]byte, maxBlockBytes)
	c.iter.InitOnce(&c.schema, pebble.DefaultComparer, nil)
	return c, nil
}

func (c *carver) close() error { return c.f.Close() }

// fill reads on until a block fits into the window, or the file ends.
func (c *carver) fill() error {
	if len(c.buf) >= maxBlockBytes+blockTrailerBytes || c.off+int64(len(c.buf)) == c.size {
		return nil
	}
	if c.mem == nil {
		c.mem = make([]byte, min(carveWindow, c.size))
	}
	n := copy(c.mem, c.buf)
	want := int(min(int64(len(c.mem)), c.size-c.off))
	if err := c.read(c.mem[n:want], c.off+int64(n)); err != nil {
		return err
	}
	c.buf = c.mem[:want]
	return nil
}

// read fills p from the given offset on. What the disk does not give is zeros,
// which are no block.
func (c *carver) read(p []byte, at int64) error {
	const page = 4 << 10
	m, err := c.f.ReadAt(p, at)
	if m == len(p) {
		return nil
	}
	if !errors.Is(err, syscall.EIO) {
		return fmt.Errorf("store: read a table at offset %d: %w", at+int64(m), cmp.Or(err, io.ErrUnexpectedEOF))
	}
	for len(p) > 0 {
		n := min(len(p), page-int(at%page))
		if m, _ := c.f.ReadAt(p[:n], at); m < n {
			clear(p[m:n])
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// seek moves to an offset.
func (c *carver) seek(off int64) error {
	c.off, c.buf = off, nil
	return c.fill()
}

func (c *carver) skip(n int) { c.off, c.buf = c.off+int64(n), c.buf[n:] }

// errCarved means that there are no more blocks.
var errCarved = errors.New("store: no more blocks")

// next moves to the next data block that verifies, and returns its offset;
// errCarved if there is none. Its rows are c.iter's then.
func (c *carver) next() (at int64, err error) {
	for {
		if err := c.fill(); err != nil {
			return 0, err
		}
		if len(c.buf) < blockHeaderBytes+blockTrailerBytes {
			return 0, errCarved
		}
		if n := dataBlockBytes(c.buf); n > 0 && c.decode(c.buf[:n]) {
			at = c.off
			c.skip(n + blockTrailerBytes)
			return at, nil
		}
		c.skip(1)
	}
}

// dataBlockBytes returns the length of the data block that b begins with, 0 if
// it begins with none that verifies.
func dataBlockBytes(b []byte) int {
	le := binary.LittleEndian
	if n := le.Uint32(b); n != wordKeyBytes && n != rowKeyBytes || b[4] != byte(colblk.Version1) ||
		le.Uint16(b[5:]) != blockColumns || le.Uint32(b[7:]) == 0 || le.Uint32(b[7:]) > maxBlockBytes {
		return 0
	}
	// The last column ends the block, and is short.
	last := le.Uint32(b[blockHeaderBytes-4:])
	if last < blockHeaderBytes || last >= maxBlockBytes {
		return 0
	}
	return blockEnd(b, int(last))
}

// blockEnd returns the length of the block that b begins with and that has at
// least the given one: where the trailer's checksum is right. 0 if it is
// nowhere.
func blockEnd(b []byte, least int) int {
	if least+blockTrailerBytes > len(b) {
		return 0
	}
	crc := ^crc32.Update(0, castagnoli, b[:least])
	for n := least; n+blockTrailerBytes <= len(b) && n <= maxBlockBytes; n++ {
		next := castagnoli[byte(crc)^b[n]] ^ crc>>8
		// No compression is 0, and its byte is part of the sum.
		if b[n] == 0 && maskedCRC(^next) == binary.LittleEndian.Uint32(b[n+1:]) {
			return n
		}
		crc = next
	}
	return 0
}

// maskedCRC is a checksum as it stands behind a block.
func maskedCRC(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }

// anyBlock reports whether a block of any kind is at the window's start: what
// follows the data blocks is the index.
func (c *carver) anyBlock() bool {
	return len(c.buf) > blockTrailerBytes && blockEnd(c.buf, 0) > 0
}

// decode makes the rows of a block the iterator's. A block whose checksum is
// right is one that Pebble wrote, but what is not a data block may look like
// one: then decoding it may panic.
func (c *carver) decode(b []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	c.decoder.Init(&c.schema, c.block[:copy(c.block, b)])
	return c.iter.Init(&c.decoder, block.NoTransforms) == nil
}

// errNotSet is the error of a key that is no word and no row of this version.
var errNotSet = errors.New("a table holds what this version does not write")

// A tableRow is a key of a table, and a value if it is a row of the registry's.
type tableRow struct {
	keyPlace
	seq        uint64 // its sequence number: 0 in a table as it was ingested
	gone       bool   // it was deleted
	key, value []byte // of a row of the registry, nil for a word
}

// A keyPlace is a word of a segment, in the order of Pebble's keys. Those of
// segment 0 are rows of the registry.
type keyPlace struct {
	segment segmentID
	word    word
}

// placeOf is the place of a word's key, or of a row's.
func placeOf(key []byte) (p keyPlace, ok bool) {
	if id, w, ok := decodeWordKey(key); ok && id != 0 {
		return keyPlace{id, w}, true
	}
	if len(key) != rowKeyBytes {
		return keyPlace{}, false
	}
	return keyPlace{0, uint64(key[4])<<32 | uint64(binary.BigEndian.Uint32(key[5:]))}, true
}

// boundOf is the place of a key that a table is bounded by: a range tombstone's
// is the first of a segment.
func boundOf(key []byte) keyPlace {
	if len(key) == wordKeyBytes-8 {
		return keyPlace{segment: segmentID(binary.BigEndian.Uint32(key))}
	}
	p, _ := placeOf(key)
	return p
}

func (p keyPlace) compare(q keyPlace) int {
	if p.segment != q.segment {
		return cmp.Compare(p.segment, q.segment)
	}
	return cmp.Compare(p.word, q.word)
}

// rows appends the rows of the block that next has found.
func (c *carver) rows(dst []tableRow) (_ []tableRow, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errNotSet, r)
		}
	}()
	for kv := c.iter.First(); kv != nil; kv = c.iter.Next() {
		row := tableRow{seq: uint64(kv.SeqNum())}
		switch kv.Kind() {
		case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
		case pebble.InternalKeyKindDelete, pebble.InternalKeyKindDeleteSized:
			row.gone = true
		default:
			return dst, fmt.Errorf("%w: a key of kind %d", errNotSet, kv.Kind())
		}
		key := kv.K.UserKey
		var ok bool
		if row.keyPlace, ok = placeOf(key); !ok {
			return dst, fmt.Errorf("%w: key %x", errNotSet, key)
		}
		if row.segment == 0 {
			row.key = bytes.Clone(key)
			if !row.gone {
				row.value = bytes.Clone(kv.InPlaceValue())
			}
		}
		dst = append(dst, row)
	}
	return dst, nil
}
