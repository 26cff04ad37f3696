package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
)

// A frontier is a queue of URLs in a file to which lines are appended, and never
// removed: a start reads it from its beginning. It is for any number of workers.
type frontier struct {
	file *os.File

	mu      sync.Mutex
	changed sync.Cond // for who waits for a URL
	end     int64     // of the lines in the file
	at      int64     // what was read ends here
	lines   []string  // read, and not handed out
	retries []visit   // what failed, in memory only: a start finds it in the file
	busy    int       // visits under way, which may append
	stopped bool

	syncing sync.Mutex // held while the file is synced
	synced  int64      // what is safe from a power failure ends here
}

// A visit is a URL to fetch, and how often that was tried.
type visit struct {
	url   string
	tries int
}

// openFrontier opens a frontier's file, or makes one. A line that a kill has cut is
// removed: its page was not committed.
func openFrontier(path string) (*frontier, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	f := &frontier{file: file}
	f.changed.L = &f.mu
	if f.end, err = endOfLines(file); err == nil {
		err = file.Truncate(f.end)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

// endOfLines is where the last whole line of a file ends.
func endOfLines(file *os.File) (int64, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, readBytes)
	for end := size; end > 0; {
		n := min(end, readBytes)
		if _, err := file.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

const readBytes = 64 << 10 // more than a URL that urlkey takes

// append adds URLs, and returns when they are safe from a power failure. Workers
// that append at the same time share a sync.
func (f *frontier) append(urls []string) error {
	if len(urls) == 0 {
		return nil
	}
	lines := []byte(strings.Join(urls, "\n") + "\n")
	f.mu.Lock()
	_, err := f.file.WriteAt(lines, f.end)
	if err != nil {
		f.mu.Unlock()
		return err
	}
	f.end += int64(len(lines))
	mine := f.end
	f.changed.Broadcast()
	f.mu.Unlock()

	f.syncing.Lock()
	defer f.syncing.Unlock()
	if f.synced >= mine {
		return nil
	}
	f.mu.Lock()
	end := f.end
	f.mu.Unlock()
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.synced = end
	return nil
}

// next returns the next visit, for which done must be called. It waits for one as
// long as a visit is under way, and reports false when there will be none.
func (f *frontier) next() (v visit, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.stopped {
		if f.readLocked(); len(f.lines) > 0 {
			v.url, f.lines = f.lines[0], f.lines[1:]
			f.busy++
			return v, true
		}
		if len(f.retries) > 0 {
			v, f.retries = f.retries[0], f.retries[1:]
			f.busy++
			return v, true
		}
		if f.busy == 0 {
			f.stopped = true
			f.changed.Broadcast()
			break
		}
		f.changed.Wait()
	}
	return visit{}, false
}

// readLocked reads lines, if none are left that were read before.
func (f *frontier) readLocked() {
	if len(f.lines) > 0 || f.at == f.end {
		return
	}
	buf := make([]byte, min(readBytes, f.end-f.at))
	n, err := f.file.ReadAt(buf, f.at)
	whole := bytes.LastIndexByte(buf[:n], '\n') + 1
	if err != nil && err != io.EOF || whole == 0 {
		f.stopped = true // what is in the file is there at the next start
		return
	}
	f.lines = strings.Split(string(buf[:whole-1]), "\n")
	f.at += int64(whole)
}

// again has a visit come again, when all lines were handed out.
func (f *frontier) again(v visit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retries = append(f.retries, v)
}

// done ends a visit.
func (f *frontier) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	f.changed.Broadcast()
}

// stop ends all waits: there is no next visit.
func (f *frontier) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	f.changed.Broadcast()
}

func (f *frontier) close() error { return f.file.Close() }
