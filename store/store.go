package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"dedupstore/wal"
)

// A Store is a set of keys, on disk, that answers whether it has seen one. All
// its methods may be called by any number of goroutines at once.
type Store struct {
	// Namespace is the default one, whose name is "".
	*Namespace

	dir      string
	opts     Options
	identity *identity
	space    *space
	// waiting is what the Store stands for if it was opened on a full disk;
	// then it has nothing else but the fields above. Else nil.
	waiting *waiting
	time    *storeTime
	// expires says that some word of the store will, or has.
	expires atomic.Bool

	views
	// filling is held, shared, by who gives the cache a word, and, alone, by who
	// takes out of it what was forgotten.
	filling sync.RWMutex
	log     *wal.Log // nil if the store must not write
	db      *pebble.DB
	pebble  *pebble.Options // what db was opened with
	events  *pebbleEvents
	lock    io.Closer
	// publisher is nil in a store that publishes no STATUS.
	publisher *publisher

	memtableLimit int
	maxPart       int
	// refuse is what Add returns in a store that must not write: read-only,
	// or opened on a disk too full to recover. Set by Open only.
	refuse error
	calls  sync.WaitGroup // of Compact and Snapshot; none begins after closing is set

	poisonOnce sync.Once
	poisonErr  atomic.Pointer[error]
	poisoned   chan struct{} // closed when poisonErr is set

	// mu guards the order of things: inserts, log records, and publications
	// of a new state happen under it. Nobody waits inside it.
	mu struct {
		sync.Mutex
		registry *registry
		named    map[string]*namespace // by their names
		spare    *memtable             // an empty one, for the next freeze; nil if in use
		// changed is closed, and replaced, whenever something that an Add or
		// a Flush waits for may have happened.
		changed chan struct{}
		// full is why the maintainer cannot flush at present; nil if it can.
		// fullTry is the one of its tries that has found so.
		full           error
		tries, fullTry uint64
		// frozenChanged are the rows as the frozen memtable's log file left
		// them.
		frozenChanged *registry
		// flushTo asks the maintainer to flush up to this log file, and
		// emptyToo to do so even if its memtable has no words.
		flushTo  uint64
		emptyToo bool
		closing  bool
		// hurried is how many calls of Expire are under way.
		hurried int
		claims  claims
		retired []retired // memory that was let go and is still mapped
		// logCut is how many bytes of the log are in files that were flushed;
		// nextCut takes its place at the next release.
		logCut, nextCut int64
	}

	maintainer struct {
		kick chan struct{} // of capacity 1: there may be something to do
		stop chan struct{} // closed by Close
		done chan struct{} // closed when the goroutine has ended
		// mu is held for a flush, and by Verify to keep flushes out.
		mu sync.Mutex
		// bitsUnsynced is the number of words whose bits were set since the
		// filters were last synced.
		bitsUnsynced int64
		oldestLog    atomic.Uint64 // the oldest log file on disk
		build        *build        // the one that is under way; nil if there is none
		emptied      emptied       // the memtable that was let go and is not the spare one yet
		stored       storeRow      // as the last ingest has left it
		full         backoff       // of tries that met a full disk
		// filters are the segment filters. They are in the state too, but for
		// that of a span whose first words are on their way.
		filters map[spanID]*filter
		// noBuildBefore keeps a build that the disk has no space for from
		// being begun again and again.
		noBuildBefore time.Time
		// countersLost is why the counters are to be let go, "" if they are not.
		countersLost string
		// tornLogs are those of the files found at open that have a torn tail.
		tornLogs map[uint64]bool
	}

	closeOnce sync.Once
	closeErr  error

	counters counters
	recovery RecoveryStats
}

// counters count since Open.
type counters struct {
	answeredNew, answeredSeen      atomic.Int64
	answeredBusy                   atomic.Int64
	claimsGranted, claimsLost      atomic.Int64
	claimsExpired                  atomic.Int64
	forgotten                      atomic.Int64
	drops, dropWords               atomic.Int64
	cacheHits, cacheMisses, gets   atomic.Int64
	negatives, maybes, falseMaybes atomic.Int64
	stalls                         atomic.Int64
	flushes, flushWords            atomic.Int64
	flushBytes, flushNanos         atomic.Int64
	lastFlushNanos, bitmapSyncs    atomic.Int64
	filterNegatives                atomic.Int64
	selfChecks, bitsLost           atomic.Int64
	pagesHealed                    atomic.Int64
	builds, buildNanos             atomic.Int64
	buildsCounted, buildsAnew      atomic.Int64 // of the bitmap, with counters
	counterBytes, saturated        atomic.Int64 // of the counter file
	buildsGivenUp                  atomic.Int64
	building                       atomic.Pointer[string]
	buildErr                       atomic.Pointer[error] // of the last one, if it was given up
	cuts, snapshots                atomic.Int64
	snapshot                       atomic.Pointer[SnapshotStats] // of the last one
}

// poison makes the first failed write final: what rests on words not known to
// be written is answered with this error from now on, and only a reopen heals.
// It takes no lock and may be called from any goroutine.
func (s *Store) poison(err error) {
	s.poisonOnce.Do(func() {
		if isDiskFull(err) && !errors.Is(err, ErrDiskFull) {
			err = fmt.Errorf("%w: %w", ErrDiskFull, err)
		}
		err = fmt.Errorf("%w: %w", ErrPoisoned, err)
		s.poisonErr.Store(&err)
		close(s.poisoned)
	})
}

// Err returns the error that poisoned the store, or nil. It is ErrPoisoned,
// and what failed.
func (s *Store) Err() error {
	if s.waiting != nil {
		return s.waiting.poison()
	}
	if p := s.poisonErr.Load(); p != nil {
		return *p
	}
	return nil
}

// writable returns why an Add cannot be taken, or nil.
func (s *Store) writable() error {
	if s.refuse != nil {
		return s.refuse
	}
	return s.Err()
}

// publish replaces the state. The lock is held.
func (s *Store) publishLocked(change func(*state)) {
	next := *s.current.Load()
	change(&next)
	next.epoch++
	s.current.Store(&next)
	s.wakeLocked()
}

// wakeLocked lets everybody who waits for room or for a flush look again.
func (s *Store) wakeLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// Digest returns the key's digest. It means something in this store only.
func (s *Store) Digest(key string) Digest { return s.identity.hasher.digest(key) }

// word returns the word of a key in the default namespace.
func (s *Store) word(key string) word { return wordOf(s.core.current.Load().key, s.Digest(key)) }

// now is the store time that looks go by, in ns; 0 in a store in which nothing
// expires.
func (s *Store) now() int64 {
	if !s.expires.Load() {
		return 0
	}
	return s.time.now()
}

// Sync returns when all that was answered before the call survives a power
// loss, whatever the durability level.
func (s *Store) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.waiting != nil {
		return s.waiting.call(func(s *Store) error { return s.Sync(ctx) })
	}
	if s.current.Load().closed {
		return ErrClosed
	}
	if s.refuse != nil {
		return s.refuse
	}
	return s.waitSynced(s.log.Last())
}

// waitWritten and waitSynced wait for the log. A failure there is the store's.
func (s *Store) waitWritten(lsn wal.LSN) error { return s.logError(s.log.WaitWritten(lsn)) }
func (s *Store) waitSynced(lsn wal.LSN) error  { return s.logError(s.log.WaitSynced(lsn)) }

func (s *Store) logError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wal.ErrClosed):
		return ErrClosed
	}
	s.poison(err)
	return s.Err()
}

// Flush returns when all that was answered before the call is in Pebble.
// Nobody has to call it.
func (s *Store) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.waiting != nil {
		return s.waiting.call(func(s *Store) error { return s.Flush(ctx) })
	}
	if s.current.Load().closed {
		return ErrClosed
	}
	return s.flushAll(ctx, false)
}

// flushAll flushes the memtables of now; with emptyToo also a memtable without
// words, which lets go of log files that hold nothing any more.
func (s *Store) flushAll(ctx context.Context, emptyToo bool) error {
	if err := s.writable(); err != nil {
		return err
	}
	s.mu.Lock()
	st := s.current.Load()
	file := st.active.file
	if st.active.count.Load() == 0 && !emptyToo {
		file--
	}
	s.mu.flushTo = max(s.mu.flushTo, file)
	s.mu.emptyToo = s.mu.emptyToo || emptyToo
	tries := s.mu.tries
	s.mu.Unlock()
	for {
		s.mu.Lock()
		st, changed := s.current.Load(), s.mu.changed
		done, full := s.mu.registry.flushed >= file, s.mu.full
		if s.mu.fullTry <= tries {
			full = nil // as it was before this call
		}
		if !done && st.frozen == nil && st.active.file > file {
			done = true // it had nothing to flush
		}
		s.mu.Unlock()
		switch {
		case done:
			return nil
		case full != nil:
			return full
		case st.closed:
			return ErrClosed
		}
		s.kick()
		if err := s.waitFor(ctx, changed); err != nil {
			return err
		}
	}
}

// waitFor waits until changed is closed. Outside the lock.
func (s *Store) waitFor(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.poisoned:
		return s.Err()
	}
}

// Close flushes, syncs and lets the directory go. Calls that are under way end
// first, later ones get ErrClosed. On a disk too full to flush, the log keeps
// what could not be flushed, Close says so with ErrDiskFull, and nothing is
// lost. It may be called more than once, and returns the same error.
func (s *Store) Close() error {
	if s.waiting != nil {
		s.stopStatus()
		s.removeStatus()
		return s.waiting.close()
	}
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	var errs []error
	s.mu.Lock()
	s.mu.closing = true
	s.mu.claims.held = nil
	s.wakeLocked()
	s.mu.Unlock()

	if s.refuse == nil {
		if s.Err() == nil {
			errs = append(errs, s.flushAll(context.Background(), s.maintainer.oldestLog.Load() < s.current.Load().active.file))
		}
		close(s.maintainer.stop)
		<-s.maintainer.done
	}
	s.calls.Wait()
	if s.refuse == nil && s.Err() == nil {
		errs = append(errs, s.closeBuild(), s.healAll(), s.syncFilters(), s.checkLinked())
	}

	s.stopStatus()
	if s.refuse == nil && s.expires.Load() && s.Err() == nil {
		errs = append(errs, s.reserveLog(room{logBytes: keepLogBytes}))
	}
	s.mu.Lock()
	if s.refuse == nil && s.expires.Load() && s.Err() == nil && errors.Join(errs...) == nil {
		s.logClockLocked()
	}
	s.publishLocked(func(st *state) { st.closed = true })
	epoch := s.current.Load().epoch
	s.mu.Unlock()
	for !s.quiet(epoch) {
		time.Sleep(50 * time.Microsecond)
	}
	if s.log != nil {
		errs = append(errs, s.logError(s.log.Close()))
	}
	errs = append(errs, s.unmapRetired(), s.release())
	if !s.events.dead.Load() {
		errs = append(errs, wrapPebble(s.events.apart(s.db.Close)))
	}
	if s.events.dead.Load() {
		// Pebble is not closed and cannot be any more, and its tables must not
		// be opened by this process again.
		keepLock(s.lock)
	} else {
		s.removeStatus()
		errs = append(errs, s.lock.Close())
	}
	err := errors.Join(errs...)
	if !errors.Is(err, ErrPoisoned) {
		err = errors.Join(err, s.Err())
	}
	return err
}

// release unmaps memory. No view is held any more. In an Open that failed, and
// in Verify, there may be little of it.
func (s *Store) release() error {
	st := s.current.Load()
	errs := []error{st.bitmap.close()}
	for _, f := range s.maintainer.filters {
		errs = append(errs, f.close())
	}
	if st.cache != nil {
		errs = append(errs, st.cache.free())
	}
	for _, m := range []*memtable{st.active, st.frozen, s.mu.spare, s.maintainer.emptied.m} {
		if m != nil {
			errs = append(errs, m.free())
		}
	}
	return errors.Join(errs...)
}
