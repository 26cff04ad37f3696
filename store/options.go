package store

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/seam"
	"dedupstore/mmapfilter"
)

// Hash names the function that turns a key into its digest. It is fixed when
// a store is created.
type Hash uint8

const (
	// HashDefault means SipHash for a new store and whatever an existing
	// store was made with.
	HashDefault Hash = iota
	// HashSipHash is SipHash-2-4 with 64 bits under a random 128-bit key that
	// is made with the store, so that nobody can aim two URLs at one digest.
	HashSipHash
	// HashXXH64 is XXH64: three times as fast, and open to anybody who wants
	// to make two URLs collide. For keys that nobody can aim at you.
	HashXXH64
)

var hashNames = [...]string{HashDefault: "default", HashSipHash: "siphash", HashXXH64: "xxh64"}

// String returns the name that ParseHash reads.
func (h Hash) String() string {
	if int(h) < len(hashNames) {
		return hashNames[h]
	}
	return fmt.Sprintf("hash(%d)", uint8(h))
}

// ParseHash reads "siphash", "xxh64" or "default".
func ParseHash(s string) (Hash, error) {
	for h, name := range hashNames {
		if s == name {
			return Hash(h), nil
		}
	}
	return 0, fmt.Errorf("store: unknown hash %q, want siphash or xxh64", s)
}

// Durability says what an answer has survived when it is given. See the
// package documentation for the promises in words.
type Durability uint8

const (
	// DurabilityDefault means Interval for a store, and for a handle what the
	// store was opened with.
	DurabilityDefault Durability = iota
	// Interval answers after the record is written to the log file, which is
	// synced at least every SyncInterval.
	Interval
	// Sync answers after the record is synced.
	Sync
	// NoSync answers after the record is written; it is synced at a flush.
	NoSync
)

var durabilityNames = [...]string{DurabilityDefault: "default", Interval: "interval", Sync: "sync", NoSync: "nosync"}

// String returns the name that ParseDurability reads.
func (d Durability) String() string {
	if int(d) < len(durabilityNames) {
		return durabilityNames[d]
	}
	return fmt.Sprintf("durability(%d)", uint8(d))
}

// ParseDurability reads "sync", "interval", "nosync" or "default".
func ParseDurability(s string) (Durability, error) {
	for d, name := range durabilityNames {
		if s == name {
			return Durability(d), nil
		}
	}
	return 0, fmt.Errorf("store: unknown durability %q, want sync, interval or nosync", s)
}

const (
	// MaxKeyBytes is the length of the longest key that is taken.
	MaxKeyBytes = 1 << 20 // 1 MiB
	// MaxExpectedURLs bounds Options.ExpectedURLs.
	MaxExpectedURLs = 180_000_000_000 // a bitmap of 251 GiB
	// MinMemoryBytes bounds Options.MemoryBytes.
	MinMemoryBytes = 1 << 20 // 1 MiB

	defaultExpectedURLs = 4 << 20   // a bitmap of 6 MiB
	defaultMemoryBytes  = 256 << 20 // 256 MiB
	maxMinFreeBytes     = 1 << 60   // more than any disk has
	defaultSyncInterval = time.Second
	defaultMaxClaims    = 1_000_000
	defaultKeyProfile   = "none/1"
	maxKeyProfileBytes  = 64
)

// AnyKeyProfile is the Options.KeyProfile of who brings no URLs, or reads
// Stats.KeyProfile and makes keys by that. It makes no store, as with MustExist.
const AnyKeyProfile = "*"

// Options are the settings of a store. The zero value, or a nil pointer, is
// a safe default. Open copies what it is given and never writes into it.
type Options struct {
	// MustExist refuses to create a store (ErrNotExist).
	MustExist bool
	// MustCreate refuses to open a store that exists (fs.ErrExist).
	MustCreate bool
	// ReadOnly opens an existing store without writing one byte to it. Add
	// returns ErrReadOnly. Several processes may have a store open read-only
	// at once, and none while another has it open for writing.
	ReadOnly bool

	// Hash is fixed for the store's life. HashDefault takes what an existing
	// store has; another one that differs is refused (ErrOptionsMismatch).
	Hash Hash
	// KeyProfile names how the caller turns a URL into a key, for example
	// "std/1" of package urlkey: opaque to the store, recorded at creation, at most
	// 64 bytes. Default: "none/1", the URL as it is. A store whose keys were made
	// in another way is refused (ErrOptionsMismatch): every URL would be new in it.
	// AnyKeyProfile opens it all the same.
	KeyProfile string

	// Durability is the level that answers are given at. Default: Interval.
	Durability Durability
	// SyncInterval is the longest time between two syncs of the log at level
	// Interval. Default: 1 s.
	SyncInterval time.Duration

	// TTL is how long a key is seen after it was added, if its add says nothing
	// else: see With and Commit. A key that has expired is new, from its
	// instant on or later, by at most a 24th of its TTL or a second. 0 takes what
	// is recorded, and Forever for a new store; another value is recorded, for
	// the keys that are added from then on.
	TTL time.Duration

	// Counters has the store keep counters beside its bitmap, once words of it
	// expire or are forgotten: 6 bytes a URL on disk, none in memory. From them
	// a bitmap without the words that have left is built by reading what has
	// come and gone only, and not every word there is. That spares reads and
	// CPU where little leaves at a time, and costs writes: see docs/DESIGN.md.
	// It may be switched on and off with each Open.
	Counters bool

	// ExpectedURLs is how many URLs the bitmap is made for at least, 12 bits a
	// URL. Nobody has to know it: a store that holds more builds itself a
	// larger one, twice the size, while it goes on. Default: 4 Mi, a bitmap of
	// 6 MiB, for a new store. An existing one keeps the largest number that it
	// was ever given, see Grow.
	ExpectedURLs int64
	// MemoryBytes bounds the store's anonymous memory: half of it is for the
	// two memtables, the rest for caches. Default: 256 MiB; at least 1 MiB.
	MemoryBytes int64

	// MinFreeBytes is how much of the disk the store leaves free: below it,
	// what can be put off is refused with ErrDiskFull, tables, bitmaps and new
	// log files, while there still is room for what cannot. Lookups go on, and
	// with space again the store goes on by itself, within a second. Default:
	// 16 MiB, or a sixteenth of a disk that is smaller than 256 MiB. More
	// keeps room for others on the disk, and for Compact, which may go below
	// it; with 1 the store fills the disk to the last byte and has only its
	// reserve left. A disk that does not say what is free is taken for a large
	// one.
	MinFreeBytes int64

	// MaxClaims is how many claims may be held at once; one more is
	// ErrTooManyClaims. Those that have expired and that nobody has asked for
	// since may count for up to a second. Default: 1,000,000. A claim takes 35
	// to 56 bytes, beside MemoryBytes: 56 MB for a million, which are kept
	// until Close for the claims to come; see MemoryStats.Claims.
	MaxClaims int

	// Logger is told what recovery found and what Pebble does in the
	// background. Default: nothing is logged.
	Logger *slog.Logger

	// Clock is what the store tells the time by, see Clock. Default: the
	// machine's.
	Clock Clock

	seams seam.Seams
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.KeyProfile == "" {
		c.KeyProfile = defaultKeyProfile
	}
	if c.Durability == DurabilityDefault {
		c.Durability = Interval
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = defaultSyncInterval
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = defaultMemoryBytes
	}
	if c.MaxClaims == 0 {
		c.MaxClaims = defaultMaxClaims
	}
	if c.Clock == nil {
		c.Clock = machineClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.seams.FS == nil {
		c.seams.FS = vfs.Default
		c.seams.StatusInterval = cmp.Or(c.seams.StatusInterval, statusInterval)
	}
	if c.seams.Device == nil {
		c.seams.Device = mmapfilter.Files
	}
	return c
}

func (o *Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("store: options: "+format, args...))
	}
	if o.MustExist && o.MustCreate {
		bad("MustExist and MustCreate exclude each other")
	}
	if o.ReadOnly && o.MustCreate {
		bad("ReadOnly and MustCreate exclude each other")
	}
	if o.KeyProfile == AnyKeyProfile && o.MustCreate {
		bad("a store cannot be made with AnyKeyProfile")
	}
	if int(o.Hash) >= len(hashNames) {
		bad("unknown hash %d", o.Hash)
	}
	if len(o.KeyProfile) > maxKeyProfileBytes {
		bad("KeyProfile has %d bytes, at most %d", len(o.KeyProfile), maxKeyProfileBytes)
	}
	if strings.Contains(o.KeyProfile, "\x00") {
		bad("KeyProfile %q has a zero byte", o.KeyProfile)
	}
	if int(o.Durability) >= len(durabilityNames) {
		bad("unknown durability %d", o.Durability)
	}
	if o.SyncInterval < 0 {
		bad("SyncInterval is negative: %v", o.SyncInterval)
	}
	if o.TTL < 0 {
		bad("TTL is negative: %v", o.TTL)
	}
	if o.ExpectedURLs < 0 || o.ExpectedURLs > MaxExpectedURLs {
		bad("ExpectedURLs is %d, want 1 to %d", o.ExpectedURLs, int64(MaxExpectedURLs))
	}
	if o.MemoryBytes < MinMemoryBytes {
		bad("MemoryBytes is %d, want at least %d", o.MemoryBytes, MinMemoryBytes)
	}
	if o.MinFreeBytes < 0 || o.MinFreeBytes > maxMinFreeBytes {
		bad("MinFreeBytes is %d, want 1 to %d", o.MinFreeBytes, int64(maxMinFreeBytes))
	}
	if o.MaxClaims < 0 {
		bad("MaxClaims is negative: %d", o.MaxClaims)
	}
	return errors.Join(errs...)
}
