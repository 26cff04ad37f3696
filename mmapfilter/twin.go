package mmapfilter

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// A Twin is a Device in memory that can have its power cut. It is for tests
// only: each file is held twice, as it is and as the disk would have it.
//
// A Sync that Fail makes fail loses what it should have written, as Linux
// does: the pages count as clean, and no later Sync writes them unless other
// content is stored to them. When the file is opened again they have the
// content of the disk, as if the kernel had dropped them from its cache.
type Twin struct {
	// Fail, when not nil, is called before each operation: "create", "open",
	// "peek", "list", "rename" (of the new path), "remove" or "sync". What it
	// returns is the operation's error. It is set before the Twin is used and
	// may be called by several goroutines.
	Fail func(op, path string) error

	mu    sync.Mutex
	files map[string]*twinFile
}

type twinFile struct {
	// words is the file as it is: what a mapping shows, and a process that
	// opens it again.
	words []uint64
	// path is what Fail is told, under the Twin's mu.
	path string

	mu      sync.Mutex
	durable []uint64
	lost    map[int][]uint64 // pages as they were when a Sync of them failed
}

// NewTwin returns an empty Twin.
func NewTwin() *Twin { return &Twin{files: make(map[string]*twinFile)} }

func (t *Twin) fail(op, path string) error {
	if t.Fail == nil {
		return nil
	}
	if err := t.Fail(op, path); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// Crash returns what is there after a power cut at this moment. Of every page
// of 4096 bytes that was stored to since its file's last Sync, each by itself,
// the new content is there in percent of 100 cases, and that of the last Sync
// in the others. The receiver goes on being usable, and may be in use
// meanwhile: a page that is being stored to is taken as some of its words new
// and some old. Fail is not taken over.
func (t *Twin) Crash(rng *rand.Rand, percent int) *Twin {
	t.mu.Lock()
	defer t.mu.Unlock()
	after := NewTwin()
	paths := make([]string, 0, len(t.files))
	for path := range t.files {
		paths = append(paths, path)
	}
	slices.Sort(paths) // so that rng is used in the same order each time
	for _, path := range paths {
		image := t.files[path].crash(rng, percent)
		after.files[path] = &twinFile{
			words:   image,
			path:    path,
			durable: slices.Clone(image),
			lost:    make(map[int][]uint64),
		}
	}
	return after
}

func (f *twinFile) crash(rng *rand.Rand, percent int) []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	image := slices.Clone(f.durable)
	f.dirty(func(at int, page []uint64) {
		if rng.IntN(100) < percent {
			copy(image[at:], page)
		}
	})
	return image
}

// dirty calls visit with every page that is to be written back: it differs
// from the durable one, and was stored to after the last Sync that failed.
// page is a copy, good until visit returns. f.mu is held.
func (f *twinFile) dirty(visit func(at int, page []uint64)) {
	page := make([]uint64, pageWords)
	for at := 0; at < len(f.words); at += pageWords {
		n := min(pageWords, len(f.words)-at)
		for i := range n {
			page[i] = atomic.LoadUint64(&f.words[at+i])
		}
		if slices.Equal(page[:n], f.durable[at:at+n]) || slices.Equal(page[:n], f.lost[at]) {
			continue
		}
		visit(at, page[:n])
	}
}

// dropLost gives the pages whose Sync failed the content of the disk.
func (f *twinFile) dropLost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, page := range f.lost {
		for i, w := range page {
			// A word stored since is in a page that is dirty again.
			atomic.CompareAndSwapUint64(&f.words[at+i], w, f.durable[at+i])
		}
	}
	clear(f.lost)
}

// Create implements Device.
func (t *Twin) Create(path string, size int64) (Mapping, error) {
	if err := t.fail("create", path); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files[path] != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	f := &twinFile{
		words:   make([]uint64, size/8),
		path:    path,
		durable: make([]uint64, size/8),
		lost:    make(map[int][]uint64),
	}
	t.files[path] = f
	return &twinMapping{t: t, f: f}, nil
}

// Open implements Device.
func (t *Twin) Open(path string, _ bool) (Mapping, error) {
	f, err := t.file("open", path)
	if err != nil {
		return nil, err
	}
	f.dropLost()
	return &twinMapping{t: t, f: f}, nil
}

// file looks a file up for an operation.
func (t *Twin) file(op, path string) (*twinFile, error) {
	if err := t.fail(op, path); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[path]
	if f == nil {
		return nil, &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
	}
	return f, nil
}

// Peek implements Device.
func (t *Twin) Peek(path string, p []byte) (n int, size int64, err error) {
	f, err := t.file("peek", path)
	if err != nil {
		return 0, 0, err
	}
	size = int64(len(f.words)) * 8
	n = int(min(int64(len(p)), size))
	for i := range n {
		p[i] = byte(atomic.LoadUint64(&f.words[i/8]) >> (i % 8 * 8))
	}
	return n, size, nil
}

// List implements Device.
func (t *Twin) List(dir string) ([]string, error) {
	if err := t.fail("list", dir); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for path := range t.files {
		if filepath.Dir(path) == filepath.Clean(dir) {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Rename implements Device.
func (t *Twin) Rename(oldPath, newPath string) error {
	if err := t.fail("rename", newPath); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f, err := t.files[oldPath], error(nil)
	switch {
	case f == nil:
		err = fs.ErrNotExist
	case t.files[newPath] != nil:
		err = fs.ErrExist
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldPath, New: newPath, Err: err}
	}
	delete(t.files, oldPath)
	t.files[newPath], f.path = f, newPath
	return nil
}

// Remove implements Device. Mappings of the file go on working.
func (t *Twin) Remove(path string) error {
	if _, err := t.file("remove", path); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.files, path)
	return nil
}

// A twinMapping is a Mapping of a Twin's file.
type twinMapping struct {
	t *Twin
	f *twinFile
}

func (m *twinMapping) Words() []uint64 { return m.f.words }

func (m *twinMapping) Sync() error {
	m.t.mu.Lock()
	path := m.f.path
	m.t.mu.Unlock()
	err := m.t.fail("sync", path)
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.dirty(func(at int, page []uint64) {
		if err != nil {
			m.f.lost[at] = slices.Clone(page)
			return
		}
		delete(m.f.lost, at)
		copy(m.f.durable[at:], page)
	})
	return err
}

func (*twinMapping) StartSync(int64, int64) {}

func (m *twinMapping) Linked(path string) (bool, error) {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	return m.t.files[path] == m.f, nil
}

func (m *twinMapping) Close() error { return nil }
