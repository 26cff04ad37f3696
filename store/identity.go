package store

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The identity file is written last when a store is created, and never
// changed: a directory is a store if it has one. It holds the keys of the
// digests, so its mode is 0600. Losing it loses the store.
//
//	0    magic        8 bytes "dedupSTR"
//	8    version      u32, 1
//	12   flags        u32, 0
//	16   store id     16 bytes, random
//	32   hash         u8: 1 SipHash-2-4, 2 XXH64
//	33   reserved     7 bytes, zero
//	40   hash key     16 bytes, random
//	56   word key     u64, random
//	64   key check    u64: digest of "dedupstore" under this hash and key
//	72   key profile  64 bytes, zero-padded
//	136  made         u64: ns since 1970
//	144  checksum     u64: xxh64 of the bytes before it
const (
	identityName    = "STORE"
	identityMagic   = "dedupSTR"
	identityVersion = 1
	identityBytes   = 152
	keyCheckKey     = "dedupstore"

	idAt, hashAt, hashKeyAt, wordKeyAt   = 16, 32, 40, 56
	keyCheckAt, profileAt, madeAt, sumAt = 64, 72, 136, 144
)

// identity is the decoded form.
type identity struct {
	id      [16]byte
	hasher  hasher
	profile string
	made    int64
}

func newIdentity(o *Options) (*identity, error) {
	var random [40]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("store: make keys: %w", err)
	}
	d := &identity{id: [16]byte(random[:16]), profile: o.KeyProfile, made: o.Clock.Wall().UnixNano()}
	d.hasher = hasher{
		hash: o.Hash,
		k0:   binary.LittleEndian.Uint64(random[16:]),
		k1:   binary.LittleEndian.Uint64(random[24:]),
		mix:  binary.LittleEndian.Uint64(random[32:]),
	}
	if d.hasher.hash == HashDefault {
		d.hasher.hash = HashSipHash
	}
	return d, nil
}

func appendIdentity(dst []byte, d *identity) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = append(dst, identityMagic...)
	dst = le.AppendUint32(dst, identityVersion)
	dst = le.AppendUint32(dst, 0)
	dst = append(dst, d.id[:]...)
	dst = append(dst, byte(d.hasher.hash), 0, 0, 0, 0, 0, 0, 0)
	dst = le.AppendUint64(dst, d.hasher.k0)
	dst = le.AppendUint64(dst, d.hasher.k1)
	dst = le.AppendUint64(dst, d.hasher.mix)
	dst = le.AppendUint64(dst, uint64(d.hasher.digest(keyCheckKey)))
	var profile [maxKeyProfileBytes]byte
	copy(profile[:], d.profile)
	dst = append(dst, profile[:]...)
	dst = le.AppendUint64(dst, uint64(d.made))
	return le.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// identityFault is what is wrong with an identity file, and where.
type identityFault struct {
	offset int64
	reason string
	err    error // ErrVersion, or nil
}

func decodeIdentity(src []byte) (*identity, *identityFault) {
	le := binary.LittleEndian
	fault := func(at int64, format string, args ...any) (*identity, *identityFault) {
		return nil, &identityFault{offset: at, reason: fmt.Sprintf(format, args...)}
	}
	if len(src) < len(identityMagic) || string(src[:8]) != identityMagic {
		return fault(0, "no magic %q", identityMagic)
	}
	if len(src) < 16 {
		return fault(8, "%d bytes, want %d", len(src), identityBytes)
	}
	if v := le.Uint32(src[8:]); v != identityVersion {
		return nil, &identityFault{offset: 8, reason: fmt.Sprintf("version %d, want %d", v, identityVersion), err: ErrVersion}
	}
	if len(src) != identityBytes {
		return fault(0, "%d bytes, want %d", len(src), identityBytes)
	}
	if got, want := xxhash.Sum64(src[:sumAt]), le.Uint64(src[sumAt:]); got != want {
		return fault(sumAt, "checksum is %016x, the bytes give %016x", want, got)
	}
	d := &identity{
		id:   [16]byte(src[idAt:hashAt]),
		made: int64(le.Uint64(src[madeAt:])),
		hasher: hasher{
			hash: Hash(src[hashAt]),
			k0:   le.Uint64(src[hashKeyAt:]), k1: le.Uint64(src[hashKeyAt+8:]),
			mix: le.Uint64(src[wordKeyAt:]),
		},
		profile: string(bytes.TrimRight(src[profileAt:madeAt], "\x00")),
	}
	switch {
	case le.Uint32(src[12:]) != 0:
		return nil, &identityFault{offset: 12, reason: "unknown flags", err: ErrVersion}
	case d.hasher.hash != HashSipHash && d.hasher.hash != HashXXH64:
		return nil, &identityFault{offset: hashAt, reason: fmt.Sprintf("hash %d", src[hashAt]), err: ErrVersion}
	case !bytes.Equal(src[hashAt+1:hashKeyAt], make([]byte, hashKeyAt-hashAt-1)):
		return fault(hashAt+1, "reserved bytes are not zero")
	case uint64(d.hasher.digest(keyCheckKey)) != le.Uint64(src[keyCheckAt:]):
		return fault(keyCheckAt, "key check does not match the key")
	}
	return d, nil
}

// readIdentity returns an error that is ErrNotExist if there is none.
func readIdentity(fsys vfs.FS, path string) (*identity, error) {
	b, err := readSmallFile(fsys, path, 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("store: read %s: %w", path, err)
	}
	d, fault := decodeIdentity(b)
	if fault == nil {
		return d, nil
	}
	if fault.err != nil {
		return nil, fmt.Errorf("store: %s at offset %d: %s: %w", path, fault.offset, fault.reason, fault.err)
	}
	return nil, &CorruptError{Path: path, Offset: fault.offset, Reason: fault.reason}
}

// readSmallFile reads a file of at most limit bytes.
func readSmallFile(fsys vfs.FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("more than %d bytes", limit)
	}
	return b, nil
}

// checkOptions compares what is fixed for the store's life with what the
// caller asks for.
func (d *identity) checkOptions(o *Options) error {
	if o.Hash != HashDefault && o.Hash != d.hasher.hash {
		return &MismatchError{Field: "hash", Stored: d.hasher.hash.String(), Asked: o.Hash.String()}
	}
	if o.KeyProfile != AnyKeyProfile && o.KeyProfile != d.profile {
		return &MismatchError{Field: "key profile", Stored: d.profile, Asked: o.KeyProfile}
	}
	return nil
}
