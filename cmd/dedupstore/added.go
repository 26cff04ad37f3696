package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// An addedFile takes the keys that an import adds, as lines of which "forget"
// makes the same keys.
type addedFile struct {
	file addedIO
	end  int64  // of the lines in it
	out  []byte // lines of one batch
}

// addedIO is an *os.File, or a test's.
type addedIO interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// openAdded opens a file to write to its end. It makes one if there is none.
func openAdded(path string) (_ *addedFile, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	a := &addedFile{file: file, end: info.Size()}
	if err := a.endLine(); err != nil {
		return nil, err
	}
	return a, syncName(path)
}

// endLine gives the last line of the file its LF, if somebody has left it out.
func (a *addedFile) endLine() error {
	if ended, err := endsWith(a.file, a.end, '\n'); ended || err != nil {
		return err
	}
	_, err := a.file.WriteAt([]byte("\n"), a.end)
	a.end++
	return err
}

// syncName returns when the file's name is safe from a power failure.
func syncName(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// write returns when the keys are in the file, safe from a kill and a power
// failure.
//
// The last LF is written first. So what a kill leaves of the write is a line
// with zeros, which is no URL, and never the beginning of one, which may be
// another's.
func (a *addedFile) write(b *batch, fresh []int) error {
	if len(fresh) == 0 {
		return nil
	}
	a.out = a.out[:0]
	for _, i := range fresh {
		if a.end == 0 && len(a.out) == 0 && needsBOM(b.keys[i]) {
			a.out = append(a.out, bom...)
		}
		a.out = appendKeyLine(a.out, b.keys[i])
	}
	last := int64(len(a.out)) - 1
	_, err := a.file.WriteAt(a.out[last:], a.end+last)
	if err == nil {
		_, err = a.file.WriteAt(a.out[:last], a.end)
	}
	if err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		_ = a.file.Truncate(a.end) // if not, it has lines that are new, which it does no harm to forget
		return notRemembered(err)
	}
	a.end += last + 1
	return nil
}

// appendKeyLine appends a line whose key is key: one CR before the LF is none of
// it.
func appendKeyLine(dst []byte, key string) []byte {
	dst = append(dst, key...)
	if strings.HasSuffix(key, "\r") {
		dst = append(dst, '\r')
	}
	return append(dst, '\n')
}

// needsBOM reports whether a key as a file's first line would be taken for
// something else, but for a byte order mark before it.
func needsBOM(key string) bool {
	return strings.HasPrefix(key, bom) || formatOf(appendKeyLine(nil, key)) != formatPlain
}
