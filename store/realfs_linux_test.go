package store

// Bad input and hostile file systems, on the real file system. What a running
// process cannot have done to itself, another user, a file system of its own,
// happens in a child that is this test binary again: see realfsChildren.

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/internal/seam"
	"dedupstore/mmapfilter"
)

const realfsChildEnv = "DEDUPSTORE_TEST_REALFS_CHILD" // a name and a directory

// realfsNobody is a user who owns nothing.
const realfsNobody = 65534

// realfsChildren are what a child does, by name, in a directory.
var realfsChildren = map[string]func(t *testing.T, dir string){
	"probe":           func(*testing.T, string) {},
	"hold":            realfsHold,
	"no-permission":   realfsNoPermission,
	"read-only-mount": realfsReadOnlyMount,
	"full-disk":       realfsFullDisk,
	"full-at-open":    realfsFullAtOpen,
	"full-at-create":  realfsFullAtCreate,
}

// TestRealfsChild is the child. Without its environment it does nothing.
func TestRealfsChild(t *testing.T) {
	name, dir, ok := strings.Cut(os.Getenv(realfsChildEnv), " ")
	if ok {
		realfsChildren[name](t, dir)
	}
}

// realfsCommand is a child that has not begun. The path of the binary need
// not be one that another user may walk.
func realfsCommand(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRealfsChild$", "-test.v", "-test.timeout=40s", fmt.Sprint("-full.calls=", *fullCalls))
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		cmd.Path = os.Args[0]
	}
	cmd.Env = append(os.Environ(), realfsChildEnv+"="+name+" "+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd
}

// realfsRun runs a child to its end and fails with it.
func realfsRun(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go:") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// realfsAsNobody runs a child as a user whom permissions bind.
func realfsAsNobody(t *testing.T, name, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		realfsChildren[name](t, dir)
		return
	}
	for d := dir; d != filepath.Dir(d) && strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = filepath.Dir(d) {
		realfsMust(t, os.Chmod(d, 0o755))
	}
	realfsMust(t, os.Chown(dir, realfsNobody, realfsNobody))
	cmd := realfsCommand(t, name, dir)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: realfsNobody, Gid: realfsNobody}
	realfsRun(t, cmd)
}

// realfsMounting gives a child a mount namespace of its own. It reports false
// where nobody may have one, and if DEDUPSTORE_TEST_NO_MOUNT is set.
func realfsMounting(t *testing.T, name, dir string) (*exec.Cmd, bool) {
	t.Helper()
	if os.Getenv("DEDUPSTORE_TEST_NO_MOUNT") != "" {
		return nil, false
	}
	attr := func() *syscall.SysProcAttr {
		a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Getuid() != 0 {
			a.Cloneflags |= syscall.CLONE_NEWUSER
			a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		return a
	}
	probe := realfsCommand(t, "probe", dir)
	probe.SysProcAttr = attr()
	if err := probe.Run(); err != nil {
		t.Logf("no mount namespace here: %v", err)
		return nil, false
	}
	cmd := realfsCommand(t, name, dir)
	cmd.SysProcAttr = attr()
	return cmd, true
}

// realfsTmpfs mounts a tmpfs that this child alone sees.
func realfsTmpfs(t *testing.T, dir, size string) {
	t.Helper()
	realfsMust(t, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	realfsMust(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size))
}

func realfsMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// realfsTree describes everything under dir: names, kinds, modes, bytes. The
// text in the lock is not the store's.
func realfsTree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %v", rel, info.Mode())
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %s", to)
		case e.Type().IsRegular() && rel != lockName:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %x", len(content), sha256.Sum256(content))
		}
		b.WriteByte('\n')
		return nil
	})
	realfsMust(t, err)
	return b.String()
}

// realfsQuiet waits until Pebble, in whatever process, has removed its old
// files.
func realfsQuiet(dir string) {
	names := func() string {
		found, _ := filepath.Glob(filepath.Join(dir, pebbleDir, "*"))
		return strings.Join(found, " ")
	}
	for last, same := "", 0; same < 5; time.Sleep(10 * time.Millisecond) {
		now := names()
		if same++; now != last {
			same = 0
		}
		last = now
	}
}

// realfsCopy copies a store that is open: what a kill would leave of it now.
func realfsCopy(t testing.TB, to, dir string) {
	t.Helper()
	realfsQuiet(dir)
	realfsMust(t, os.CopyFS(to, os.DirFS(dir)))
}

func realfsSame(t testing.TB, dir, before, what string) {
	t.Helper()
	if after := realfsTree(t, dir); after != before {
		t.Errorf("%s has changed the directory from\n%sto\n%s", what, before, after)
	}
}

func realfsKeys(from, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("https://example.org/%d", from+i)
	}
	return keys
}

// realfsAdd adds keys and wants one answer for all.
func realfsAdd(t testing.TB, s *Store, keys []string, want Answer) {
	t.Helper()
	answers := make([]Answer, len(keys))
	realfsMust(t, s.AddBatch(context.Background(), keys, answers))
	for i, a := range answers {
		if a != want {
			t.Fatalf("key %d of %d is %v, want %v", i, len(keys), a, want)
		}
	}
}

// realfsHas wants one answer to the question for all keys.
func realfsHas(t testing.TB, s *Store, keys []string, want Answer) {
	t.Helper()
	answers := make([]Answer, len(keys))
	realfsMust(t, s.HasBatch(context.Background(), keys, answers))
	for i, a := range answers {
		if a != want {
			t.Fatalf("key %d of %d is %v, want %v", i, len(keys), a, want)
		}
	}
}

// realfsStore makes a store with n keys in dir and closes it.
func realfsStore(t testing.TB, dir string, o *Options, n int) {
	t.Helper()
	s, err := Open(dir, o)
	realfsMust(t, err)
	realfsAdd(t, s, realfsKeys(0, n), New)
	realfsMust(t, s.Close())
}

// realfsSound wants a store that has n keys and no fault.
func realfsSound(t testing.TB, dir string, n int) {
	t.Helper()
	r, err := Verify(context.Background(), dir, VerifyOptions{Deep: true})
	realfsMust(t, err)
	if !r.OK() || r.URLs != int64(n) {
		t.Errorf("verify finds %+v, want %d URLs and no fault", r, n)
	}
}

// realfsSmall publishes no STATUS, which would change under a test that looks
// at every file.
func realfsSmall() *Options {
	o := &Options{ExpectedURLs: 100_000, MemoryBytes: 1 << 20}
	SetSeams(o, seam.Seams{FS: vfs.Default})
	return o
}

// TestRealfsNoStore opens what is no store and cannot become one.
func TestRealfsNoStore(t *testing.T) {
	write := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			realfsMust(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			realfsMust(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	for _, test := range []struct {
		name string
		make func(t *testing.T, dir string)
	}{
		{"a file in it", write("notes.txt", "mine")},
		{"a directory in it", write("notes/a.txt", "mine")},
		{"a hidden file in it", write(".keep", "")},
		{"a foreign lock", write("LOCK", "of another program")},
		{"a foreign mark", write("CREATING", "of another program")},
		{"a foreign unpublished mark", write("CREATING.new", "of another program")},
		{"an empty mark", func(t *testing.T, dir string) {
			write("CREATING", "")(t, dir)
			write("log/0000000001.log", "of another program")(t, dir)
		}},
		{"names of ours without a mark", func(t *testing.T, dir string) {
			write("log/0000000001.log", "of another program")(t, dir)
			write("bitmap-0000000001", "of another program")(t, dir)
		}},
		{"a foreign file beside our mark", func(t *testing.T, dir string) {
			write("CREATING", creatingText)(t, dir)
			write("log/0000000001.log", "")(t, dir)
			write("notes.txt", "mine")(t, dir)
		}},
		{"a file beside lost+found", func(t *testing.T, dir string) {
			realfsMust(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
			write("notes.txt", "mine")(t, dir)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.make(t, dir)
			before := realfsForeign(t, dir)
			for name, o := range map[string]*Options{
				"Open": nil, "ReadOnly": {ReadOnly: true}, "MustExist": {MustExist: true}, "MustCreate": {MustCreate: true},
			} {
				s, err := Open(dir, o)
				if err == nil {
					t.Errorf("%s made a store there: %v", name, s.Close())
				} else if !errors.Is(err, ErrNotStore) || !strings.Contains(err.Error(), dir) {
					t.Errorf("%s: %v, want ErrNotStore with the directory's name", name, err)
				}
			}
			if _, err := Verify(t.Context(), dir, VerifyOptions{}); !errors.Is(err, ErrNotStore) {
				t.Errorf("Verify: %v, want ErrNotStore", err)
			}
			if after := realfsForeign(t, dir); after != before {
				t.Errorf("the directory has changed from\n%sto\n%s", before, after)
			}
		})
	}
}

// realfsForeign is realfsTree, where the lock is somebody else's.
func realfsForeign(t testing.TB, dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, lockName)) // "" where there is none
	return realfsTree(t, dir) + string(b)
}

// TestRealfsPlaces opens stores in places of every kind.
func TestRealfsPlaces(t *testing.T) {
	t.Run("lost+found", func(t *testing.T) {
		dir := t.TempDir()
		mine := filepath.Join(dir, "lost+found", "#1")
		realfsMust(t, os.Mkdir(filepath.Dir(mine), 0o700))
		realfsMust(t, os.WriteFile(mine, []byte("found"), 0o600))
		if _, err := Open(dir, &Options{MustExist: true}); !errors.Is(err, ErrNotExist) {
			t.Errorf("MustExist: %v, want ErrNotExist", err)
		}
		realfsStore(t, dir, realfsSmall(), 10)
		realfsSound(t, dir, 10)
		if b, err := os.ReadFile(mine); string(b) != "found" {
			t.Errorf("lost+found was touched: %q, %v", b, err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "s")
		realfsMust(t, os.WriteFile(dir, []byte("mine"), 0o644))
		for _, o := range []*Options{nil, {ReadOnly: true}, {MustExist: true}} {
			if _, err := Open(dir, o); !errors.Is(err, ErrNotStore) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want ErrNotStore with its name", err)
			}
		}
		if b, err := os.ReadFile(dir); string(b) != "mine" {
			t.Errorf("the file is %q, %v", b, err)
		}
		// One level below a file.
		if _, err := Open(filepath.Join(dir, "s"), nil); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("below a file: %v, want ENOTDIR", err)
		}
	})
	t.Run("missing parent", func(t *testing.T) {
		parent := filepath.Join(t.TempDir(), "no")
		_, err := Open(filepath.Join(parent, "s"), nil)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), parent) {
			t.Errorf("%v, want fs.ErrNotExist that names %s", err, parent)
		}
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the parent was made: %v", err)
		}
		for _, o := range []*Options{{ReadOnly: true}, {MustExist: true}} {
			if _, err := Open(filepath.Join(parent, "s"), o); !errors.Is(err, ErrNotExist) {
				t.Errorf("%v, want ErrNotExist", err)
			}
		}
	})
	t.Run("missing", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "s")
		for _, o := range []*Options{{ReadOnly: true}, {MustExist: true}} {
			if _, err := Open(dir, o); !errors.Is(err, ErrNotExist) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want ErrNotExist with its name", err)
			}
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it was made: %v", err)
		}
	})
	t.Run("dangling symlink", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "s")
		realfsMust(t, os.Symlink("nowhere", dir))
		s, err := Open(dir, realfsSmall())
		if err == nil {
			realfsMust(t, s.Close())
			return
		}
		if to, linkErr := os.Readlink(dir); to != "nowhere" {
			t.Errorf("%v, and the link is %q, %v", err, to, linkErr)
		}
	})
	t.Run("exists", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "s")
		realfsStore(t, dir, realfsSmall(), 10)
		before := realfsTree(t, dir)
		if _, err := Open(dir, &Options{MustCreate: true}); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), dir) {
			t.Errorf("MustCreate: %v, want fs.ErrExist with its name", err)
		}
		realfsSame(t, dir, before, "MustCreate")
	})
}

// TestRealfsMismatch asks for what a store was not made with.
func TestRealfsMismatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	o := realfsSmall()
	o.KeyProfile = "mine/1"
	realfsStore(t, dir, o, 10)
	before := realfsTree(t, dir)
	for _, test := range []struct {
		o    Options
		want MismatchError
	}{
		{Options{Hash: HashXXH64, KeyProfile: "mine/1"}, MismatchError{"hash", "siphash", "xxh64"}},
		{Options{}, MismatchError{"key profile", "mine/1", "none/1"}},
		{Options{KeyProfile: "none/1"}, MismatchError{"key profile", "mine/1", "none/1"}},
	} {
		for _, readOnly := range []bool{false, true} {
			test.o.ReadOnly = readOnly
			_, err := Open(dir, &test.o)
			m, ok := errors.AsType[*MismatchError](err)
			if !ok || *m != test.want || !errors.Is(err, ErrOptionsMismatch) {
				t.Errorf("%v, want %v", err, &test.want)
				continue
			}
			if text := err.Error(); !strings.Contains(text, m.Stored) || !strings.Contains(text, m.Asked) {
				t.Errorf("%q does not name both", text)
			}
		}
	}
	realfsSame(t, dir, before, "the refused options")
	s, err := Open(dir, &Options{Hash: HashSipHash, KeyProfile: "mine/1"})
	realfsMust(t, err)
	realfsHas(t, s, realfsKeys(0, 10), Seen)
	realfsMust(t, s.Close())
}

// TestRealfsLock has a store open twice, in every way.
func TestRealfsLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	link := filepath.Join(t.TempDir(), "link")
	realfsMust(t, os.Symlink(dir, link))
	realfsStore(t, dir, realfsSmall(), 10)
	host, _ := os.Hostname()

	// locked wants a LockedError with this holder; 0 stands for a holder that
	// did not write who it is.
	locked := func(what string, err error, pid int) {
		t.Helper()
		l, ok := errors.AsType[*LockedError](err)
		switch {
		case !ok || !errors.Is(err, ErrLocked):
			t.Errorf("%s: %v, want a LockedError", what, err)
		case l.PID != pid:
			t.Errorf("%s: %v, want process %d", what, err, pid)
		case pid != 0 && (l.Host != host || time.Since(l.Since) > time.Minute || time.Until(l.Since) > time.Minute):
			t.Errorf("%s: host %q since %v, want %q and now", what, l.Host, l.Since, host)
		}
	}
	tryAll := func(who string, pid int) {
		t.Helper()
		realfsQuiet(dir)
		before := realfsTree(t, dir)
		for _, path := range []string{dir, link, dir + "/../s/."} {
			_, err := Open(path, realfsSmall())
			locked(who+": Open "+path, err, pid)
		}
		_, err := Open(dir, &Options{ReadOnly: true})
		locked(who+": ReadOnly", err, pid)
		_, err = Verify(t.Context(), dir, VerifyOptions{})
		locked(who+": Verify", err, pid)
		realfsSame(t, dir, before, "a refused opener")
	}

	// The same process.
	s, err := Open(link, realfsSmall())
	realfsMust(t, err)
	tryAll("same process", os.Getpid())
	realfsAdd(t, s, realfsKeys(10, 10), New)
	realfsMust(t, s.Close())

	// Another process, which is then killed.
	for range 3 {
		cmd := realfsCommand(t, "hold", link)
		out, err := cmd.StdoutPipe()
		realfsMust(t, err)
		realfsMust(t, cmd.Start())
		buf := make([]byte, 4096)
		for text := ""; !strings.Contains(text, "held\n"); {
			n, err := out.Read(buf)
			realfsMust(t, err)
			text += string(buf[:n])
		}
		tryAll("another process", cmd.Process.Pid)
		realfsMust(t, cmd.Process.Kill())
		cmd.Wait()
		s, err := Open(dir, realfsSmall())
		if err != nil {
			t.Fatalf("the killed process's lock is left: %v", err)
		}
		realfsHas(t, s, realfsKeys(0, 20), Seen)
		realfsMust(t, s.Close())
	}

	// Readers beside each other, and a writer, who must not be told a name of
	// the past: readers write none.
	before := realfsTree(t, dir)
	var readers []*Store
	for range 3 {
		r, err := Open(dir, &Options{ReadOnly: true})
		realfsMust(t, err)
		readers = append(readers, r)
	}
	for _, r := range readers {
		realfsHas(t, r, realfsKeys(0, 20), Seen)
		if _, err := r.Add(t.Context(), "x"); !errors.Is(err, ErrReadOnly) {
			t.Errorf("Add: %v, want ErrReadOnly", err)
		}
	}
	_, err = Open(dir, realfsSmall())
	locked("a writer beside readers", err, 0)
	for _, r := range readers {
		realfsMust(t, r.Close())
	}
	realfsSame(t, dir, before, "reading")

	// The same, after a writer that was killed has left its name.
	cmd := realfsCommand(t, "hold", dir)
	realfsMust(t, os.WriteFile(filepath.Join(dir, lockName), []byte(
		fmt.Sprintf("pid %d\nhost %s\nsince %s\n", realfsDeadPID(t, cmd), host, time.Now().UTC().Format(time.RFC3339))), 0o600))
	r, err := Open(dir, &Options{ReadOnly: true})
	realfsMust(t, err)
	_, err = Open(dir, realfsSmall())
	locked("a writer beside a reader and a dead writer's name", err, 0)
	realfsMust(t, r.Close())
	realfsSound(t, dir, 20)
}

// realfsDeadPID runs a child to its end and returns the number it had.
func realfsDeadPID(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	realfsMust(t, cmd.Start())
	realfsMust(t, cmd.Process.Kill())
	cmd.Wait()
	return cmd.Process.Pid
}

// realfsHold keeps the store open until it is killed.
func realfsHold(t *testing.T, dir string) {
	_, err := Open(dir, realfsSmall())
	realfsMust(t, err)
	fmt.Println("held")
	time.Sleep(time.Minute)
}

// TestRealfsNoPermission takes permissions away.
func TestRealfsNoPermission(t *testing.T) {
	realfsAsNobody(t, "no-permission", t.TempDir())
}

func realfsNoPermission(t *testing.T, top string) {
	if os.Getuid() == 0 {
		t.Fatal("permissions do not bind root")
	}
	dir := filepath.Join(top, "s")
	realfsStore(t, dir, realfsSmall(), 100)
	s, err := Open(dir, realfsSmall()) // leave a log with something in it
	realfsMust(t, err)
	realfsAdd(t, s, realfsKeys(100, 10), New)
	killed := filepath.Join(top, "killed")
	realfsCopy(t, killed, dir)
	realfsMust(t, s.Close())
	realfsSound(t, killed, 110)

	denied := func(what string, err error, path string) {
		t.Helper()
		switch {
		case err == nil:
			t.Errorf("%s: no error", what)
		case !errors.Is(err, fs.ErrPermission):
			t.Errorf("%s: %v, want fs.ErrPermission", what, err)
		case errors.Is(err, ErrCorrupt):
			t.Errorf("%s: %v: nothing is corrupt", what, err)
		case !strings.Contains(err.Error(), path):
			t.Errorf("%s: %v, want the name %s in it", what, err, path)
		}
	}

	// Nothing may be made.
	closed := filepath.Join(top, "closed")
	realfsMust(t, os.Mkdir(closed, 0o500))
	_, err = Open(filepath.Join(closed, "s"), nil)
	denied("make a store in a directory that may not be written", err, closed)
	empty := filepath.Join(top, "empty")
	realfsMust(t, os.Mkdir(empty, 0o500))
	_, err = Open(empty, nil)
	denied("make a store of a directory that may not be written", err, empty)
	realfsMust(t, os.Chmod(empty, 0))
	_, err = Open(filepath.Join(empty, "s"), nil)
	denied("look into a directory that may not be looked into", err, empty)

	// Take each file and directory of a store away in turn.
	for _, dir := range []string{dir, killed} {
		var paths []string
		realfsMust(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			paths = append(paths, path)
			return err
		}))
		for _, path := range paths {
			info, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // an open has made this file obsolete
			}
			realfsMust(t, err)
			before := realfsTree(t, dir)
			realfsMust(t, os.Chmod(path, 0))
			name, _ := filepath.Rel(top, path)
			r, openErr := Open(dir, &Options{ReadOnly: true})
			if openErr == nil {
				realfsMust(t, r.Close())
			} else {
				denied("ReadOnly without "+name, openErr, top)
			}
			report, verifyErr := Verify(t.Context(), dir, VerifyOptions{Deep: true})
			if verifyErr != nil {
				denied("Verify without "+name, verifyErr, top)
			} else if openErr != nil && report.OK() {
				t.Errorf("Verify without %s finds nothing, and it does not open: %v", name, openErr)
			}
			s, writeErr := Open(dir, realfsSmall())
			if writeErr == nil {
				// Tables are opened when they are asked. What could not be
				// opened once is an error until the store is opened again.
				if err := os.Chmod(path, info.Mode()); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err) // but an old MANIFEST is removed by then
				}
				err := s.HasBatch(t.Context(), realfsKeys(0, 110), make([]Answer, 110))
				if err != nil {
					denied("Has without "+name, err, filepath.Base(path)[:6])
				}
				realfsMust(t, s.Close())
				s, err = Open(dir, realfsSmall())
				realfsMust(t, err)
				realfsHas(t, s, realfsKeys(0, 110), Seen)
				realfsMust(t, s.Close())
				continue
			}
			denied("Open without "+name, writeErr, top)
			realfsMust(t, os.Chmod(path, info.Mode()))
			// These are looked at last, when recovery has begun its work.
			if filepath.Base(path) != tmpDir && filepath.Ext(path) != ".sst" {
				realfsSame(t, dir, before, "Open without "+name)
			}
		}
	}
	realfsSound(t, dir, 110)
	realfsSound(t, killed, 110)

	// Nothing may be written.
	realfsReadOnlyTree(t, dir)
	denied("Open", realfsOpensForReadingOnly(t, dir), dir)
}

// realfsReadOnlyTree takes the right to write from everything under dir.
func realfsReadOnlyTree(t *testing.T, dir string) {
	t.Helper()
	realfsMust(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Chmod(path, 0o555)
		}
		return os.Chmod(path, 0o444)
	}))
	t.Cleanup(func() { // for whoever removes it
		filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error { return os.Chmod(path, 0o755) })
	})
}

// realfsOpensForReadingOnly wants a store with 110 keys to be read, and
// returns the error of an open for writing.
func realfsOpensForReadingOnly(t *testing.T, dir string) error {
	t.Helper()
	before := realfsTree(t, dir)
	r, err := Open(dir, &Options{ReadOnly: true})
	realfsMust(t, err)
	realfsHas(t, r, realfsKeys(0, 110), Seen)
	realfsHas(t, r, realfsKeys(110, 110), New)
	if n := r.Stats().URLs; n != 110 {
		t.Errorf("%d URLs, want 110", n)
	}
	if _, err := r.Add(t.Context(), "x"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Add: %v, want ErrReadOnly", err)
	}
	realfsMust(t, r.Close())
	realfsSound(t, dir, 110)
	s, err := Open(dir, realfsSmall())
	if err == nil {
		t.Errorf("it opens for writing; Close: %v", s.Close())
	}
	realfsSame(t, dir, before, "opening")
	return err
}

// TestRealfsReadOnlyMount opens stores on a file system that is mounted
// read-only. Where nobody may mount one, TestRealfsNoPermission has shown the
// same of a directory.
func TestRealfsReadOnlyMount(t *testing.T) {
	if cmd, ok := realfsMounting(t, "read-only-mount", t.TempDir()); ok {
		realfsRun(t, cmd)
		return
	}
	realfsAsNobody(t, "no-permission", t.TempDir())
}

func realfsReadOnlyMount(t *testing.T, dir string) {
	realfsTmpfs(t, dir, "64m")
	clean, killed := filepath.Join(dir, "clean"), filepath.Join(dir, "killed")
	realfsStore(t, clean, realfsSmall(), 110)
	s, err := Open(filepath.Join(dir, "s"), realfsSmall())
	realfsMust(t, err)
	realfsAdd(t, s, realfsKeys(0, 100), New)
	realfsMust(t, s.Flush(t.Context()))
	realfsAdd(t, s, realfsKeys(100, 10), New)
	realfsCopy(t, killed, filepath.Join(dir, "s"))
	realfsMust(t, s.Close())
	realfsMust(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	for _, store := range []string{clean, killed} {
		err := realfsOpensForReadingOnly(t, store)
		if !errors.Is(err, syscall.EROFS) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), store) {
			t.Errorf("Open: %v, want EROFS that names %s", err, store)
		}
	}
	if _, err := Open(filepath.Join(dir, "new"), nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("create: %v, want EROFS", err)
	}
	realfsMust(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""))
	for _, store := range []string{clean, killed} {
		s, err := Open(store, realfsSmall())
		realfsMust(t, err)
		realfsAdd(t, s, realfsKeys(0, 110), Seen)
		realfsMust(t, s.Close())
	}
}

// A realfsDisk is a disk that can be filled and given more room.
type realfsDisk struct {
	options func() *Options
	fill    func(leave int64) // leaves so many bytes free
	grow    func()
}

// realfsMounted is a tmpfs of 64 MiB on dir.
func realfsMounted(t *testing.T, dir string) realfsDisk {
	realfsTmpfs(t, dir, "64m")
	return realfsDisk{
		options: realfsSmall,
		fill: func(leave int64) {
			f, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			realfsMust(t, err)
			defer f.Close()
			for _, n := range []int{1 << 20, 4 << 10} {
				for err == nil {
					_, err = f.Write(make([]byte, n))
				}
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				err = nil
			}
			info, err := f.Stat()
			realfsMust(t, err)
			realfsMust(t, f.Truncate(info.Size()-leave))
		},
		grow: func() { realfsMust(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=256m")) },
	}
}

// realfsPretended is a directory whose file system says that it is full.
func realfsPretended(t *testing.T, dir string) realfsDisk {
	full := &realfsFS{FS: vfs.Default}
	return realfsDisk{
		options: func() *Options {
			o := realfsSmall()
			SetSeams(o, seam.Seams{FS: full})
			return o
		},
		fill: func(int64) { full.fail(syscall.ENOSPC) },
		grow: func() { full.fail(nil) },
	}
}

// realfsOnFullDisk runs a child on a disk of its own, or the same here on one that
// pretends.
func realfsOnFullDisk(t *testing.T, name string, pretend func(t *testing.T, dir string, d realfsDisk)) {
	dir := t.TempDir()
	if cmd, ok := realfsMounting(t, name, dir); ok {
		realfsRun(t, cmd)
		return
	}
	pretend(t, dir, realfsPretended(t, dir))
}

// TestRealfsFullDisk fills the disk under a store that is open.
func TestRealfsFullDisk(t *testing.T) { realfsOnFullDisk(t, "full-disk", realfsFullUnder) }

func realfsFullDisk(t *testing.T, dir string) { realfsFullUnder(t, dir, realfsMounted(t, dir)) }

func realfsFullUnder(t *testing.T, dir string, d realfsDisk) {
	ctx := t.Context()
	store := filepath.Join(dir, "s")
	s, err := Open(store, d.options())
	realfsMust(t, err)
	const first = 100_000
	realfsAdd(t, s, realfsKeys(0, first), New)
	d.fill(0)

	// Adds go on for as long as there is room, and then stop at once.
	keys := realfsKeys(first, 1_000_000)
	answered := 0
	for len(keys) > 0 {
		answers := make([]Answer, 1000)
		start := time.Now()
		err = s.AddBatch(ctx, keys[:1000], answers)
		if took := time.Since(start); took > time.Second {
			t.Errorf("a batch took %v", took)
		}
		if err != nil {
			for _, a := range answers {
				if a == New {
					answered++
				}
			}
			break
		}
		answered += 1000
		keys = keys[1000:]
	}
	if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrPoisoned) || s.Err() != nil {
		t.Fatalf("after %d more: %v, Err %v, want ErrDiskFull", answered, err, s.Err())
	}
	t.Logf("%d keys were taken on a full disk; then: %v", answered, err)

	// What is left of the log takes single keys.
	for {
		key := realfsKeys(first+answered, 1)[0]
		if _, err = s.Add(ctx, key); err != nil {
			break
		}
		answered++
	}
	if !errors.Is(err, ErrDiskFull) || s.Err() != nil {
		t.Fatalf("after %d more: %v, Err %v, want ErrDiskFull", answered, err, s.Err())
	}
	have := first + answered

	// It stays so, costs nothing, and lookups and seen keys go on.
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	start := time.Now()
	worst := time.Duration(0)
	for i := range 20 {
		one := time.Now()
		if _, err := s.Add(ctx, fmt.Sprint("x", i)); !errors.Is(err, ErrDiskFull) {
			t.Errorf("Add: %v, want ErrDiskFull", err)
		}
		worst = max(worst, time.Since(one))
		time.Sleep(50 * time.Millisecond)
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	busy := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	t.Logf("the worst refusal took %v; %v of CPU in %v", worst, busy, time.Since(start))
	if worst > time.Second {
		t.Errorf("a refusal took %v, want less than a second", worst)
	}
	if busy > time.Since(start)/2 {
		t.Errorf("a full disk kept the store busy: %v of CPU in %v", busy, time.Since(start))
	}
	realfsHas(t, s, realfsKeys(0, have), Seen)
	realfsAdd(t, s, realfsKeys(0, 1000), Seen)
	realfsAdd(t, s, realfsKeys(have-1000, 1000), Seen)
	if st := s.Stats(); st.URLs != int64(have) || len(st.Warnings) == 0 {
		t.Errorf("%d URLs and warnings %q, want %d and one", st.URLs, st.Warnings, have)
	}
	if err := s.Sync(ctx); err != nil {
		t.Errorf("Sync: %v", err)
	}
	if err := s.Flush(ctx); !errors.Is(err, ErrDiskFull) {
		t.Errorf("Flush: %v, want ErrDiskFull", err)
	}

	start = time.Now()
	err = s.Close()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	t.Logf("Close: %v", err)
	if !errors.Is(err, ErrDiskFull) {
		t.Errorf("Close: %v, want ErrDiskFull", err)
	}
	realfsHeals(t, store, have, d)
}

// realfsHeals opens a store on a full disk, and after it has grown.
func realfsHeals(t *testing.T, store string, have int, d realfsDisk) {
	t.Helper()
	ctx := t.Context()
	realfsSound(t, store, have)
	for _, leave := range []int64{0, 3 << 20, 0} { // 3 MiB: Pebble opens, and no log file can be made
		d.fill(leave)
		s, err := Open(store, d.options())
		if err != nil {
			t.Fatalf("open on the full disk: %v", err)
		}
		start := time.Now()
		if _, err = s.Add(ctx, "y"); !errors.Is(err, ErrDiskFull) {
			t.Errorf("Add: %v, want ErrDiskFull", err)
		}
		if err := s.Flush(ctx); err != nil && !errors.Is(err, ErrDiskFull) {
			t.Errorf("Flush: %v, want ErrDiskFull", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("a refusal took %v", took)
		}
		realfsHas(t, s, realfsKeys(0, have), Seen)
		realfsHas(t, s, realfsKeys(2_000_000, 1000), New)
		if st := s.Stats(); st.URLs != int64(have) || len(st.Warnings) == 0 {
			t.Errorf("%d URLs and warnings %q, want %d and one", st.URLs, st.Warnings, have)
		}
		start = time.Now()
		err = s.Close()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err != nil && !errors.Is(err, ErrDiskFull) {
			t.Errorf("Close: %v, want ErrDiskFull", err)
		}
	}
	d.grow()
	s, err := Open(store, d.options())
	realfsMust(t, err)
	realfsHas(t, s, realfsKeys(0, have), Seen)
	realfsAdd(t, s, realfsKeys(have, 50_000), New)
	realfsMust(t, s.Close())
	realfsSound(t, store, have+50_000)
}

// TestRealfsFullAtOpen opens what a killed process has left on a full disk.
func TestRealfsFullAtOpen(t *testing.T) { realfsOnFullDisk(t, "full-at-open", realfsFullOpen) }

func realfsFullAtOpen(t *testing.T, dir string) { realfsFullOpen(t, dir, realfsMounted(t, dir)) }

func realfsFullOpen(t *testing.T, dir string, d realfsDisk) {
	live, killed := filepath.Join(dir, "live"), filepath.Join(dir, "killed")
	s, err := Open(live, d.options())
	realfsMust(t, err)
	realfsAdd(t, s, realfsKeys(0, 30_000), New)
	realfsMust(t, s.Flush(t.Context()))
	realfsAdd(t, s, realfsKeys(30_000, 10_000), New)
	realfsCopy(t, killed, live)
	realfsMust(t, s.Close())
	realfsHeals(t, killed, 40_000, d)
}

// TestRealfsFullAtCreate makes a store where there is no room for it.
func TestRealfsFullAtCreate(t *testing.T) { realfsOnFullDisk(t, "full-at-create", realfsFullCreate) }

func realfsFullAtCreate(t *testing.T, dir string) { realfsFullCreate(t, dir, realfsMounted(t, dir)) }

func realfsFullCreate(t *testing.T, dir string, d realfsDisk) {
	store := filepath.Join(dir, "s")
	// 12 bits a URL: 1.5 GB, more than there is. The need is said in bytes.
	o := d.options()
	tries := 2
	o.ExpectedURLs = 1e9
	if o.seams.FS != nil { // the bitmap is on the real disk all the same
		u, err := vfs.Default.GetDiskUsage(dir)
		realfsMust(t, err)
		if o.ExpectedURLs = int64(u.AvailBytes); o.ExpectedURLs > 1e11 {
			t.Logf("no bitmap is too large for %d bytes", u.AvailBytes)
			tries = 0
		}
	}
	for range tries {
		start := time.Now()
		s, err := Open(store, o)
		if err == nil {
			t.Fatalf("it was made; Close: %v", s.Close())
		}
		need := fmt.Sprint(mmapfilter.ParamsFor(uint64(o.ExpectedURLs), 1).Bits() / 8)
		if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), need[:3]) || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%v, want ErrDiskFull with the need of %s bytes", err, need)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("that took %v", took)
		}
		t.Log(err)
	}
	// Not a byte free: nothing can be made at all, and nothing is in the way.
	d.fill(0)
	if _, err := Open(store, d.options()); !errors.Is(err, ErrDiskFull) {
		t.Errorf("on a full disk: %v, want ErrDiskFull", err)
	}
	if _, err := Open(filepath.Join(dir, "other"), d.options()); !errors.Is(err, ErrDiskFull) {
		t.Errorf("on a full disk: %v, want ErrDiskFull", err)
	}
	d.grow()
	for _, path := range []string{store, filepath.Join(dir, "other")} {
		s, err := Open(path, d.options())
		realfsMust(t, err)
		realfsAdd(t, s, realfsKeys(0, 100), New)
		realfsMust(t, s.Close())
		realfsSound(t, path, 100)
	}
}

// A realfsFS is the real file system with a word before each change of it.
type realfsFS struct {
	vfs.FS
	mu     sync.Mutex
	before func() // is called under mu, when not nil
	err    error  // what making something bigger fails with
	only   string // the start of the names of the files that err is for; "": all, and no space is free
}

func (f *realfsFS) Unwrap() vfs.FS { return f.FS }

func (f *realfsFS) step() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		f.before()
	}
}

func (f *realfsFS) grow() error {
	f.step()
	return f.fault()
}

// fail sets what making something bigger fails with.
func (f *realfsFS) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *realfsFS) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *realfsFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &realfsFile{File: file, fs: f}, nil
}

func (f *realfsFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.grow(); err != nil && strings.HasPrefix(filepath.Base(name), f.only) {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	return f.wrap(f.FS.Create(name, c))
}

func (f *realfsFS) Link(from, to string) error {
	if err := f.grow(); err != nil && f.only == "" {
		return &fs.PathError{Op: "link", Path: to, Err: err}
	}
	return f.FS.Link(from, to)
}

func (f *realfsFS) MkdirAll(dir string, perm os.FileMode) error {
	if err := f.grow(); err != nil && f.only == "" {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return f.FS.MkdirAll(dir, perm)
}

func (f *realfsFS) Remove(name string) error {
	f.step()
	return f.FS.Remove(name)
}

func (f *realfsFS) RemoveAll(name string) error {
	f.step()
	return f.FS.RemoveAll(name)
}

func (f *realfsFS) Rename(from, to string) error {
	f.step()
	return f.FS.Rename(from, to)
}

func (f *realfsFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	u, err := f.FS.GetDiskUsage(path)
	if f.fault() != nil && f.only == "" {
		u.AvailBytes = 0
	}
	return u, err
}

// A realfsFile is a file of a realfsFS. What was preallocated may be written
// on a full disk.
type realfsFile struct {
	vfs.File
	fs *realfsFS
}

func (f *realfsFile) Write(b []byte) (int, error) {
	f.fs.step()
	return f.File.Write(b)
}

func (f *realfsFile) Preallocate(offset, n int64) error {
	if err := f.fs.grow(); err != nil && f.fs.only == "" {
		return err
	}
	return f.File.Preallocate(offset, n)
}

// TestRealfsNoManifest fails Pebble's MANIFEST in a way that the free space
// does not foretell, a quota for example. Left to itself, Pebble's Open would
// then wait for ever.
func TestRealfsNoManifest(t *testing.T) {
	fsys := &realfsFS{FS: vfs.Default, err: syscall.EDQUOT, only: "MANIFEST"}
	options := func() *Options {
		o := realfsSmall()
		SetSeams(o, seam.Seams{FS: fsys})
		return o
	}
	open := func(dir string) {
		t.Helper()
		start := time.Now()
		s, err := Open(dir, options())
		if err == nil {
			t.Fatalf("it opens; Close: %v", s.Close())
		}
		if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%v, want ErrDiskFull", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("that took %v", took)
		}
	}
	old, young := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "young")
	realfsStore(t, old, realfsSmall(), 100)
	open(old)
	// What Pebble may still do in this process is not known: the store is
	// its own until it ends.
	if _, err := Open(old, realfsSmall()); !errors.Is(err, ErrLocked) {
		t.Errorf("open again in the same process: %v, want ErrLocked", err)
	}
	open(young)
	fsys.fail(nil)
	s, err := Open(young, options())
	if err != nil && !errors.Is(err, ErrLocked) {
		t.Errorf("creation after creation: %v", err)
	}
	if err == nil {
		realfsMust(t, s.Close())
	}
	// For a process that comes later it is a store like any other.
	later := filepath.Join(t.TempDir(), "later")
	realfsMust(t, os.CopyFS(later, os.DirFS(old)))
	s, err = Open(later, realfsSmall())
	realfsMust(t, err)
	realfsAdd(t, s, realfsKeys(0, 100), Seen)
	realfsMust(t, s.Close())
	realfsSound(t, later, 100)
}

// TestRealfsInterruptedCreation copies the directory before every step of a
// creation on the file system, as a kill there would leave it. The next Open
// makes the store or opens it, and a foreign file in it is never touched.
func TestRealfsInterruptedCreation(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "s")
	fsys := &realfsFS{FS: vfs.Default}
	var copies []string
	seen := map[string]bool{}
	steps := 0
	fsys.before = func() {
		steps++
		if _, err := os.Stat(dir); err != nil {
			return
		}
		if tree := realfsForeign(t, dir); !seen[tree] {
			seen[tree] = true
			to := filepath.Join(top, fmt.Sprintf("at-%04d", steps))
			realfsMust(t, os.CopyFS(to, os.DirFS(dir)))
			copies = append(copies, to)
		}
	}
	o := realfsSmall()
	SetSeams(o, seam.Seams{FS: fsys, Device: realfsDevice{mmapfilter.Files, fsys}})
	s, err := Open(dir, o)
	fsys.mu.Lock()
	fsys.before = nil
	fsys.mu.Unlock()
	realfsMust(t, err)
	realfsMust(t, s.Close())
	t.Logf("%d steps, %d states", steps, len(copies))
	if len(copies) < 20 {
		t.Errorf("only %d states: the steps are not seen", len(copies))
	}
	for _, dir := range copies {
		name := filepath.Base(dir)
		_, statErr := os.Stat(filepath.Join(dir, identityName))
		made := statErr == nil
		if !made {
			for what, o := range map[string]*Options{"ReadOnly": {ReadOnly: true}, "MustExist": {MustExist: true}} {
				before := realfsTree(t, dir)
				if _, err := Open(dir, o); !errors.Is(err, ErrNotExist) {
					t.Errorf("%s: %s: %v, want ErrNotExist", name, what, err)
				}
				realfsSame(t, dir, before, what)
			}
			mine := filepath.Join(dir, "notes.txt")
			realfsMust(t, os.WriteFile(mine, []byte("mine"), 0o600))
			before := realfsTree(t, dir)
			if s, err := Open(dir, realfsSmall()); err == nil {
				t.Errorf("%s: a store was made around a foreign file; Close: %v", name, s.Close())
			} else if !errors.Is(err, ErrNotStore) || !strings.Contains(err.Error(), "notes.txt") {
				t.Errorf("%s: %v, want ErrNotStore that names notes.txt", name, err)
			}
			realfsSame(t, dir, before, "a foreign file in "+name)
			realfsMust(t, os.Remove(mine))
		}
		s, err := Open(dir, realfsSmall())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		realfsAdd(t, s, realfsKeys(0, 10), New)
		realfsMust(t, s.Close())
		realfsSound(t, dir, 10)
		names, err := vfs.Default.List(dir)
		realfsMust(t, err)
		for _, left := range names {
			if left == creatingName || strings.HasSuffix(left, newSuffix) {
				t.Errorf("%s: %s is left", name, left)
			}
		}
		realfsMust(t, os.RemoveAll(dir))
	}
}

// A realfsDevice says when it makes or removes a file.
type realfsDevice struct {
	mmapfilter.Device
	fs *realfsFS
}

func (d realfsDevice) Create(path string, size int64) (mmapfilter.Mapping, error) {
	d.fs.step()
	m, err := d.Device.Create(path, size)
	d.fs.step() // zeros
	return m, err
}

func (d realfsDevice) Remove(path string) error {
	d.fs.step()
	return d.Device.Remove(path)
}

// TestRealfsBadCalls gives the methods what they cannot take.
func TestRealfsBadCalls(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Open(dir, realfsSmall())
	realfsMust(t, err)
	long := strings.Repeat("x", MaxKeyBytes)
	for _, test := range []struct {
		keys []string
		want error
		text string
	}{
		{[]string{""}, ErrEmptyKey, "member 0 of 1"},
		{[]string{"a", "", "b"}, ErrEmptyKey, "member 1 of 3"},
		{[]string{long + "y"}, ErrKeyTooLong, "1048577 bytes"},
		{[]string{"a", "b", long + "y"}, ErrKeyTooLong, "member 2 of 3"},
	} {
		answers := make([]Answer, len(test.keys))
		for what, batch := range map[string]func(context.Context, []string, []Answer) error{
			"AddBatch": s.AddBatch, "HasBatch": s.HasBatch,
		} {
			for i := range answers {
				answers[i] = New
			}
			if err := batch(ctx, test.keys, answers); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: %v, want %v with %q", what, err, test.want, test.text)
			}
			if slices.ContainsFunc(answers, func(a Answer) bool { return a != Unanswered }) {
				t.Errorf("%s: %v after an error", what, answers)
			}
		}
	}
	for what, n := range map[string]int{"fewer answers": 1, "more answers": 3} {
		answers := make([]Answer, n)
		if err := s.AddBatch(ctx, []string{"a", "b"}, answers); err == nil || answers[0] != Unanswered {
			t.Errorf("%s: %v, %v", what, err, answers)
		}
		if err := s.HasBatch(ctx, []string{"a", "b"}, answers); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if n := s.Stats().URLs; n != 0 {
		t.Errorf("%d URLs after calls that failed, want 0", n)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Add(canceled, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Add with a context that is done: %v", err)
	}
	realfsMust(t, s.AddBatch(ctx, nil, nil))
	realfsAdd(t, s, []string{"a", long, "\x00", "\xff\xfe"}, New)
	realfsAdd(t, s, []string{"a", long, "\x00", "\xff\xfe"}, Seen)
	realfsMust(t, s.Close())
}

// TestRealfsAfterClose calls every method of a store that is closed.
func TestRealfsAfterClose(t *testing.T) {
	ctx := t.Context()
	for _, readOnly := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "s")
		realfsStore(t, dir, realfsSmall(), 10)
		o := realfsSmall()
		o.ReadOnly = readOnly
		s, err := Open(dir, o)
		realfsMust(t, err)
		if !readOnly {
			realfsAdd(t, s, realfsKeys(10, 5), New)
		}
		realfsMust(t, s.Close())
		realfsMust(t, s.Close())
		closed := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, ErrClosed) && !(readOnly && errors.Is(err, ErrReadOnly)) {
				t.Errorf("read-only %v: %s: %v, want ErrClosed", readOnly, what, err)
			}
		}
		answers := make([]Answer, 2)
		_, err = s.Add(ctx, "a")
		closed("Add", err)
		_, err = s.Has(ctx, "a")
		closed("Has", err)
		closed("AddBatch", s.AddBatch(ctx, []string{"a", "b"}, answers))
		closed("HasBatch", s.HasBatch(ctx, []string{"a", "b"}, answers))
		closed("Sync", s.Sync(ctx))
		closed("Flush", s.Flush(ctx))
		_, err = s.Verify(ctx, VerifyOptions{Deep: true})
		closed("Verify", err)
		if err := s.Err(); err != nil {
			t.Errorf("Err: %v", err)
		}
		want := int64(10)
		if !readOnly {
			want = 15
		}
		if n := s.Stats().URLs; n != want {
			t.Errorf("Stats: %d URLs, want %d", n, want)
		}
		_ = s.Digest("a")
	}
}
