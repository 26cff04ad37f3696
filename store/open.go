package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/mmapfilter"
	"dedupstore/wal"
)

const (
	// How MemoryBytes is shared out, in 64ths: what is left over is for tables
	// being written, log buffers and Go. Of the two caches, the store's own
	// makes more of a byte: it holds words and not blocks of them.
	memtableShare = 16 // each of two
	cacheShare    = 16
	blockShare    = 1

	minCacheBytes = 1 << 20
)

// Open opens the store in dir, and makes one if there is none: in a directory
// that does not exist, or is empty. A directory that is neither empty nor a
// store is refused, and nothing in it is touched.
//
// Another process that has it open for writing is a *LockedError. What cannot
// be read is a *CorruptError, and nothing is deleted or made anew. After a
// crash Open replays the log; Stats tells what it found. Until Close other
// processes may read the store's figures, see ReadStatus.
func Open(dir string, o *Options) (*Store, error) {
	opts := o.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	dir = filepath.Clean(dir)
	exists, err := examineDir(&opts, dir)
	if err != nil {
		return nil, err
	}
	fsys := opts.seams.FS
	if !exists {
		if err := fsys.MkdirAll(dir, 0o700); err != nil {
			return nil, openError("make", dir, err)
		}
		if err := syncDir(fsys, fsys.PathDir(dir)); err != nil {
			return nil, openError("make", dir, err)
		}
	}
	lock, err := lockStore(fsys, dir, opts.ReadOnly)
	if err != nil {
		return nil, err
	}
	s, err := openLocked(&opts, dir)
	if errors.Is(err, errPebbleDead) {
		keepLock(lock) // it may still be at its files, as after Close
		return nil, err
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock = lock
	if errors.Is(s.refuse, ErrDiskFull) {
		s = wait(s, opts)
	}
	s.startStatus(fsys)
	return s, nil
}

// openError says what could not be done, and gives a full disk its type.
func openError(verb, dir string, err error) error {
	if isDiskFull(err) || errors.Is(err, mmapfilter.ErrNoSpace) || errors.Is(err, wal.ErrNoSpace) {
		return fmt.Errorf("store: %s %s: %w: %w", verb, dir, ErrDiskFull, err)
	}
	return fmt.Errorf("store: %s %s: %w", verb, dir, err)
}

// openLocked opens a store whose lock is held, and makes it first if it is
// still not there.
func openLocked(o *Options, dir string) (*Store, error) {
	space := newSpace(o, dir)
	o = space.mind(o)
	path := o.seams.FS.PathJoin(dir, identityName)
	id, err := readIdentity(o.seams.FS, path)
	made := false
	if errors.Is(err, ErrNotExist) && !o.MustExist && !o.ReadOnly && o.KeyProfile != AnyKeyProfile {
		if err := create(o, dir); err != nil {
			return nil, openError("create", dir, err)
		}
		made = true
		id, err = readIdentity(o.seams.FS, path)
	}
	if err != nil {
		return nil, err
	}
	if o.MustCreate && !made {
		return nil, fmt.Errorf("store: %s holds a store: %w", dir, fs.ErrExist)
	}
	if err := id.checkOptions(o); err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, opts: *o, identity: id, space: space,
		poisoned: make(chan struct{}),
	}
	s.mu.changed = make(chan struct{})
	s.memtableLimit = o.seams.MemtableWords
	if s.memtableLimit == 0 {
		s.memtableLimit = memtableWords(o.MemoryBytes * memtableShare / 64)
	}
	s.maxPart = max(min(maxPartKeys, s.memtableLimit/4), 1)
	s.events = newPebbleEvents(s.poison, o.Logger)
	if err := s.recoverAll(); err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	return s, nil
}

// abandon closes what an Open that failed has opened.
func (s *Store) abandon() error {
	var errs []error
	if s.log != nil {
		s.log.Close() // the error that matters is Open's
	}
	if s.current.Load() != nil {
		errs = append(errs, s.release())
	}
	if s.db != nil && !s.events.dead.Load() {
		errs = append(errs, s.events.apart(s.db.Close))
	}
	if s.events.dead.Load() {
		errs = append(errs, errPebbleDead)
	}
	return errors.Join(errs...)
}

// openPebble opens the set itself.
func (s *Store) openPebble(readOnly bool) (*pebble.DB, *pebble.Options, error) {
	cacheBytes := max(s.opts.MemoryBytes*blockShare/64, minCacheBytes)
	o := pebbleOptions(s.opts.seams.FS, cacheBytes, s.identity.id, s.events, readOnly)
	path := s.opts.seams.FS.PathJoin(s.dir, pebbleDir)
	var db *pebble.DB
	err := s.events.apart(func() (err error) {
		db, err = pebble.Open(path, o)
		return err
	})
	switch {
	case err == nil:
		s.events.running.Store(true)
		return db, o, nil
	case isDiskFull(err):
		return nil, nil, wrapPebble(err)
	case isSystem(err):
		return nil, nil, fmt.Errorf("store: open %s: %w", path, err)
	case s.Err() != nil: // it says what Pebble died of
		return nil, nil, fmt.Errorf("store: open %s: %w", path, s.Err())
	}
	at, reason := s.pebbleCulprit(o)
	return nil, nil, &CorruptError{Path: at, Offset: -1, Reason: reason, Err: err}
}

// pebbleCulprit finds out which file it is that Pebble does not open by, for
// its error seldom says so.
func (s *Store) pebbleCulprit(o *pebble.Options) (path, reason string) {
	fsys := s.opts.seams.FS
	dir := fsys.PathJoin(s.dir, pebbleDir)
	names, err := fsys.List(dir)
	if err != nil {
		return dir, "it cannot be listed"
	}
	for _, marker := range []string{"marker.manifest.", "marker.format-version."} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, marker) }) {
			return fsys.PathJoin(dir, marker+"*"), "the file is missing"
		}
	}
	if d, err := pebble.Peek(dir, fsys); err == nil && d.OptionsFilename != "" {
		path := fsys.PathJoin(dir, fsys.PathBase(d.OptionsFilename))
		text, err := readSmallFile(fsys, path, 1<<20)
		if err != nil || o.Clone().CheckCompatibility(dir, string(text)) != nil {
			return path, "pebble does not understand it"
		}
	}
	return s.manifestPath(), "pebble does not open by it, or by a table that it names"
}

// loadRegistry reads the registry's rows.
func (s *Store) loadRegistry(db *pebble.DB) (*registry, error) {
	path := s.opts.seams.FS.PathJoin(s.dir, pebbleDir)
	r := emptyRegistry()
	it, err := db.NewIter(&pebble.IterOptions{UpperBound: appendWordKey(nil, 1, 0)[:4]})
	if err != nil {
		return nil, wrapPebble(err)
	}
	found := false
	for it.First(); it.Valid(); it.Next() {
		if err = r.load(it.Key(), it.Value()); err != nil {
			err = rowError(path, it.Key(), err)
			break
		}
		found = found || it.Key()[4] == rowStore
	}
	err = errors.Join(err, wrapPebble(it.Close()))
	if err == nil && !found {
		err = &CorruptError{Path: s.manifestPath(), Offset: -1, Reason: "it names no table with the registry's row of the store"}
	}
	if err == nil {
		if bad := r.check(); bad != nil {
			err = &CorruptError{Path: path, Offset: -1, Reason: "the registry", Err: bad}
		}
	}
	r.index()
	return r, err
}

func rowError(path string, key []byte, err error) error {
	if errors.Is(err, ErrVersion) {
		return fmt.Errorf("store: %s: registry row %x: %w", path, key, err)
	}
	return &CorruptError{Path: path, Offset: -1, Reason: fmt.Sprintf("registry row %x", key), Err: err}
}

// load takes one row in.
func (r *registry) load(key, value []byte) (err error) {
	if len(key) != rowKeyBytes {
		return fmt.Errorf("key has %d bytes, want %d", len(key), rowKeyBytes)
	}
	id := uint32(key[5])<<24 | uint32(key[6])<<16 | uint32(key[7])<<8 | uint32(key[8])
	switch key[4] {
	case rowStore:
		r.storeRow, err = decodeStoreRow(value)
	case rowNamespace:
		r.namespaces[id], err = decodeNamespaceRow(value)
	case rowSegment:
		r.segments[segmentID(id)], err = decodeSegmentRow(value)
	default:
		err = fmt.Errorf("%w: kind of row %d", ErrVersion, key[4])
	}
	return err
}

// start lets a recovered store take calls.
func (s *Store) start(active, frozen *memtable) error {
	cache, err := s.freshCache()
	if err != nil {
		return err
	}
	for _, row := range s.mu.registry.segments {
		if row.ends != forever {
			s.expires.Store(true)
		}
	}
	s.openNamespaces()
	s.publishLocked(func(st *state) {
		st.cache, st.active, st.frozen = cache, active, frozen
		st.spans = s.spansLocked()
	})
	if s.refuse != nil {
		return nil
	}
	if s.mu.spare, err = newMemtable(s.memtableLimit); err != nil {
		return err
	}
	s.space.stock()
	s.maintainer.kick = make(chan struct{}, 1)
	s.maintainer.stop = make(chan struct{})
	s.maintainer.done = make(chan struct{})
	go s.maintain()
	s.kick() // a build may be due
	return nil
}

// since is how long ago something was.
func since(start time.Time) time.Duration { return time.Since(start).Round(time.Microsecond) }
