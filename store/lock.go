package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

const lockName = "LOCK"

// lockStore takes the store's lock: exclusive for writing, shared for reading
// only. It is the kernel's flock on an open file, so a killed process leaves
// none behind. The text in the file is for people and for LockedError; who
// holds the lock is the kernel's to say.
func lockStore(fsys vfs.FS, dir string, readOnly bool) (io.Closer, error) {
	path := fsys.PathJoin(dir, lockName)
	if vfs.Root(fsys) != vfs.Default {
		if readOnly {
			return io.NopCloser(nil), nil
		}
		l, err := fsys.Lock(path) // an in-memory file system knows no flock
		if err != nil {
			return nil, &LockedError{Path: dir}
		}
		return l, nil
	}
	flags, how := os.O_RDWR|os.O_CREATE, unix.LOCK_EX
	if readOnly {
		flags, how = os.O_RDONLY, unix.LOCK_SH
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: open the lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		held := holderOf(f, dir)
		f.Close()
		return nil, held
	}
	if err == nil && !readOnly {
		err = writeHolder(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("store: lock %s: %w", path, err)
	}
	if readOnly {
		return f, nil
	}
	return heldLock{f}, nil
}

// Holder returns who has the store in dir open for writing, and nil if nobody
// has. To ask it takes the lock, shared, and lets it go at once: an Open for
// writing that falls into that moment fails with ErrLocked.
func Holder(dir string) (*LockedError, error) {
	lock, err := lockStore(vfs.Default, dir, true)
	if held, ok := errors.AsType[*LockedError](err); ok {
		return held, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, lock.Close()
}

// holderPrefix is what the text of a holder begins with.
const holderPrefix = "pid "

// A heldLock is the lock of who wrote his name into it. The name goes with the
// lock: readers, who hold it next, write none.
type heldLock struct{ *os.File }

func (l heldLock) Close() error {
	_ = l.Truncate(0) // the text is for people
	return l.File.Close()
}

// keptLocks are held until the process ends. (A file that nobody refers to
// would be closed by the garbage collector, and its lock let go.)
var keptLocks struct {
	sync.Mutex
	locks []io.Closer
}

func keepLock(l io.Closer) {
	keptLocks.Lock()
	defer keptLocks.Unlock()
	keptLocks.locks = append(keptLocks.locks, l)
}

func writeHolder(f *os.File) error {
	host, _ := os.Hostname() // "" where there is none
	text := fmt.Sprintf(holderPrefix+"%d\nhost %s\nsince %s\n", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(text), 0)
	if errors.Is(err, unix.ENOSPC) {
		return nil // a full disk must not keep a store from being opened
	}
	return err
}

// holderOf reads what the holder wrote; a field that it did not is zero. A
// process that has ended has left its name and no lock: somebody else holds
// it, who wrote none.
func holderOf(f *os.File, dir string) *LockedError {
	e := &LockedError{Path: dir}
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return e
	}
	for line := range bytes.Lines(b) {
		field, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		switch field {
		case "pid":
			e.PID, _ = strconv.Atoi(value)
		case "host":
			e.Host = value
		case "since":
			e.Since, _ = time.Parse(time.RFC3339, value)
		}
	}
	host, _ := os.Hostname()
	if e.PID > 0 && e.Host == host && errors.Is(unix.Kill(e.PID, 0), unix.ESRCH) {
		return &LockedError{Path: dir}
	}
	return e
}
