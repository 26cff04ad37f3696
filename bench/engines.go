package main

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	pebblebloom "github.com/cockroachdb/pebble/v2/bloom"
	"github.com/dgraph-io/badger/v4"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"go.etcd.io/bbolt"

	"dedupstore/store"
)

// What a URL is stored as, in every peer: 8 bytes, its XXH64. That is the
// shortest key that any of them could be given; whole URLs are slower in all.
//
// No database syncs. Each has 256 MB of cache and write buffers of 64 MB, or
// what its options have that comes nearest.
const (
	cacheBytes  = 256 << 20
	bufferBytes = 64 << 20
)

var peers = []peer{
	{"dedupstore", "yes", "none", openStore},
	{"Go map[uint64]struct{}", "yes", "all", openMap},
	{"bits-and-blooms/bloom, 0.1 %", "no", "all", openBloom},
	{"Badger v4, transactions", "yes", "none", openBadger},
	{"Pebble v2, Get and Set", "yes", "the last moments", openPebble},
	{"goleveldb", "yes", "none", openLevel},
	{"bbolt, NoSync", "yes", "none", openBolt},
}

func hashKey(dst []byte, key string) []byte {
	return binary.BigEndian.AppendUint64(dst, xxhash.Sum64String(key))
}

type storeSet struct {
	s       *store.Store
	answers []store.Answer
}

func openStore(dir string, n int) (set, error) {
	s, err := store.Open(dir, &store.Options{ExpectedURLs: int64(n), Hash: store.HashSipHash})
	return &storeSet{s: s}, err
}

func (t *storeSet) addBatch(keys []string, fresh []bool) error {
	if len(t.answers) != len(keys) {
		t.answers = make([]store.Answer, len(keys))
	}
	err := t.s.AddBatch(context.Background(), keys, t.answers)
	for i, a := range t.answers {
		fresh[i] = a == store.New
	}
	return err
}

func (t *storeSet) close() error { return t.s.Close() }

type mapSet map[uint64]struct{}

func openMap(string, int) (set, error) { return mapSet{}, nil }

func (t mapSet) addBatch(keys []string, fresh []bool) error {
	for i, k := range keys {
		h := xxhash.Sum64String(k)
		_, seen := t[h]
		if fresh[i] = !seen; !seen {
			t[h] = struct{}{}
		}
	}
	return nil
}

func (mapSet) close() error { return nil }

type bloomSet struct {
	f   *bloom.BloomFilter
	key []byte
}

func openBloom(_ string, n int) (set, error) {
	return &bloomSet{f: bloom.NewWithEstimates(uint(n), 0.001)}, nil
}

func (t *bloomSet) addBatch(keys []string, fresh []bool) error {
	for i, k := range keys {
		t.key = hashKey(t.key[:0], k)
		fresh[i] = !t.f.TestOrAdd(t.key)
	}
	return nil
}

func (*bloomSet) close() error { return nil }

type pebbleSet struct {
	db  *pebble.DB
	key []byte
}

func openPebble(dir string, _ int) (set, error) {
	o := &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest, MemTableSize: bufferBytes, CacheSize: cacheBytes,
		Logger: quiet{},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = pebblebloom.FilterPolicy(10)
	}
	db, err := pebble.Open(dir, o)
	return &pebbleSet{db: db}, err
}

func (t *pebbleSet) addBatch(keys []string, fresh []bool) error {
	b := t.db.NewBatch()
	for i, k := range keys {
		t.key = hashKey(t.key[:0], k)
		_, closer, err := t.db.Get(t.key)
		if fresh[i] = errors.Is(err, pebble.ErrNotFound); fresh[i] {
			err = b.Set(t.key, nil, nil)
		} else if err == nil {
			err = closer.Close()
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(b.Commit(pebble.NoSync), b.Close())
}

func (t *pebbleSet) close() error { return t.db.Close() }

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(f) }

type levelSet struct {
	db  *leveldb.DB
	key []byte
}

func openLevel(dir string, _ int) (set, error) {
	db, err := leveldb.OpenFile(dir, &opt.Options{
		Filter: filter.NewBloomFilter(10), BlockCacheCapacity: cacheBytes, WriteBuffer: bufferBytes,
	})
	return &levelSet{db: db}, err
}

func (t *levelSet) addBatch(keys []string, fresh []bool) error {
	b := new(leveldb.Batch)
	for i, k := range keys {
		t.key = hashKey(t.key[:0], k)
		seen, err := t.db.Has(t.key, nil)
		if err != nil {
			return err
		}
		if fresh[i] = !seen; !seen {
			b.Put(t.key, nil)
		}
	}
	return t.db.Write(b, nil)
}

func (t *levelSet) close() error { return t.db.Close() }

type badgerSet struct{ db *badger.DB }

func openBadger(dir string, _ int) (set, error) {
	o := badger.DefaultOptions(dir).WithLogger(nil).WithMemTableSize(bufferBytes).
		WithBlockCacheSize(cacheBytes).WithDetectConflicts(true)
	db, err := badger.Open(o)
	return &badgerSet{db}, err
}

func (t *badgerSet) addBatch(keys []string, fresh []bool) error {
	return t.db.Update(func(tx *badger.Txn) error {
		for i, k := range keys {
			key := hashKey(nil, k) // the transaction keeps it
			_, err := tx.Get(key)
			if fresh[i] = errors.Is(err, badger.ErrKeyNotFound); fresh[i] {
				err = tx.Set(key, nil)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *badgerSet) close() error { return t.db.Close() }

type boltSet struct{ db *bbolt.DB }

func openBolt(path string, _ int) (set, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	return &boltSet{db}, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte("seen"))
		return err
	})
}

func (t *boltSet) addBatch(keys []string, fresh []bool) error {
	return t.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("seen"))
		for i, k := range keys {
			key := hashKey(nil, k)
			if fresh[i] = b.Get(key) == nil; fresh[i] {
				if err := b.Put(key, []byte{}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (t *boltSet) close() error { return t.db.Close() }
