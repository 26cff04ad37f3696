package store

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Whoever has a store open for writing publishes its figures in a file, for
// those who cannot open it meanwhile. The file is for people and for their
// tools; the store itself never reads it, and one that is missing, old or not
// whole means nothing.

const statusName = "STATUS"

// statusInterval is the time between two publications. One takes 0.3 ms
// (BenchmarkPublishStatus), during a moment of which Stats holds the lock.
const statusInterval = 2 * time.Second

// maxStatusBytes bounds what is read of a file.
const maxStatusBytes = 16 << 20 // 16 MiB

// A Status is what the holder of a store has published: its Stats, as of when,
// and by whom.
type Status struct {
	When time.Time `json:"when"`
	PID  int       `json:"pid"`
	Host string    `json:"host"`
	// Opened is when this holder opened the store: its counters run from then.
	Opened time.Time `json:"opened"`
	Stats
}

// ReadStatus reads what the holder of the store in dir has published last. It
// takes no lock, and cannot tell whether that process is still there: it
// removes the file at Close, and a process that was killed leaves it behind.
// Where there is none the error is fs.ErrNotExist.
func ReadStatus(dir string) (*Status, error) { return readStatus(vfs.Default, dir) }

func readStatus(fsys vfs.FS, dir string) (*Status, error) {
	path := fsys.PathJoin(dir, statusName)
	b, err := readSmallFile(fsys, path, maxStatusBytes)
	if err != nil {
		return nil, fmt.Errorf("store: read %s: %w", path, err)
	}
	st := &Status{}
	if err := json.Unmarshal(b, st); err != nil {
		return nil, fmt.Errorf("store: read %s: %w", path, err)
	}
	return st, nil
}

// A publisher publishes a store's figures until it is stopped.
type publisher struct {
	store  *Store
	fs     vfs.FS // the one underneath: a STATUS is not worth the reserve
	opened time.Time

	stopOnce   sync.Once
	stop, done chan struct{}
}

// startStatus publishes for the first time, so that a store which is held has a
// STATUS, and goes on in a goroutine of its own.
func (s *Store) startStatus(fsys vfs.FS) {
	interval := s.opts.seams.StatusInterval
	if interval == 0 || s.opts.ReadOnly {
		return
	}
	p := &publisher{store: s, fs: fsys, opened: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	s.publisher = p
	p.publish()
	go func() {
		defer close(p.done)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.publish()
			case <-p.stop:
				return
			}
		}
	}()
}

// stopStatus ends the publisher, before what it looks at is taken apart.
func (s *Store) stopStatus() {
	if p := s.publisher; p != nil {
		p.stopOnce.Do(func() { close(p.stop) })
		<-p.done
	}
}

// removeStatus removes the file: nobody holds the store any more. It comes
// before the lock is let go, for the next holder's is not ours to remove.
func (s *Store) removeStatus() {
	if s.publisher != nil {
		s.publisher.remove(statusName)
	}
}

func (p *publisher) remove(name string) {
	p.store.ifHeld(func() {
		if err := removeIfThere(p.fs, p.fs.PathJoin(p.store.dir, name)); err != nil {
			p.store.opts.Logger.Debug("store: a file was not removed", "name", name, "err", err)
		}
	})
}

// publish replaces the file. Nothing is synced: what a power loss makes of it
// does not matter, for whoever finds it then finds nobody who holds the store.
// An error, a full disk for one, changes nothing for the store either: the file
// gets older.
func (p *publisher) publish() {
	host, _ := os.Hostname() // "" where there is none
	st := Status{When: time.Now().UTC(), PID: os.Getpid(), Host: host, Opened: p.opened.UTC(), Stats: p.store.Stats()}
	b, err := json.Marshal(&st)
	if err == nil {
		p.store.ifHeld(func() { err = replaceFile(p.fs, p.store.dir, statusName, append(b, '\n'), false) })
	}
	if err != nil {
		p.store.opts.Logger.Debug("store: STATUS was not published", "err", err)
		p.remove(statusName + newSuffix)
	}
}

// ifHeld calls fn unless the store has let its lock go, and keeps it meanwhile.
func (s *Store) ifHeld(fn func()) {
	if w := s.waiting; w != nil {
		w.mu.RLock()
		defer w.mu.RUnlock()
		if w.over {
			return
		}
	}
	fn()
}
