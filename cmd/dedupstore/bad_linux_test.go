package main

// What takes a file system of its own: a full disk and a read-only one. The
// test runs a shell in a mount namespace where it may have one.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dedupstore/store"
)

// badMounted runs a script in a mount namespace, with a tmpfs of 12 MiB on
// $disk. It reports false where nobody may have one.
func badMounted(t *testing.T, script string) bool {
	t.Helper()
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	disk := t.TempDir()
	run := func(script string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.SysProcAttr = attr
		cmd.Env = append(os.Environ(), "disk="+disk)
		return cmd.CombinedOutput()
	}
	const mount = `mount --make-rprivate / && mount -t tmpfs -o size=12m none "$disk" || exit 9
`
	if out, err := run(mount); err != nil {
		t.Logf("no mount namespace here: %v %s", err, out)
		return false
	}
	out, err := run(mount + `
fail() { echo "FAILED: $*"; exit 1; }
exits() { # CODE COMMAND... ; the output goes to $disk.out and $disk.err
	want=$1; shift
	"$@" > "$disk.out" 2> "$disk.err"; got=$?
	[ $got = $want ] || { cat "$disk.err"; fail "exit code $got, want $want: $*"; }
}
says() { grep -q "$1" "$disk.err" || { cat "$disk.err"; fail "no \"$1\" on stderr"; }; }
cd "$disk"
` + script)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return true
}

// TestBadFullDisk wants exit code 5, and to go on when there is room.
func TestBadFullDisk(t *testing.T) {
	if badMounted(t, `
exits 5 dedupstore create --store big --urls 1e9
says 'disk full.*1502934040 bytes.*make room and run it again'
exits 0 dedupstore create --store big --urls 1e5
exits 0 dedupstore filter --store s --urls 1e5 --quiet -- /dev/null
seq 1 1500000 > "$disk.lines"
exits 5 dedupstore import --store s "$disk.lines"
says 'read=.* new=.*errors=[1-9]'
says 'disk full.*; make room and run it again'
exits 0 dedupstore verify --deep --store s
exits 0 dedupstore check --store s --quiet 1 2 3
cat /dev/zero > ballast 2> /dev/null
exits 5 dedupstore add --store s never-seen
exits 0 dedupstore check --store s 1 2 3
exits 1 dedupstore check --store s never-seen
echo never-seen > "$disk.one"
exits 5 dedupstore filter --store s "$disk.one"
rm ballast
mount -o remount,size=256m "$disk" || fail remount
exits 0 dedupstore import --store s "$disk.lines"
exits 0 dedupstore check --store s 1 1500000
exits 0 dedupstore stats --json --store s
grep -q '"urls": 1500000,' "$disk.out" || fail "$(cat "$disk.out")"
exits 5 dedupstore grow --store s --urls 1e9
says 'disk full.*; make room and run it again'
exits 0 dedupstore check --store s 1 1500000
exits 0 dedupstore add --store s another
`) {
		return
	}
	// Without a disk to fill: a store too large for the one that is there.
	var st syscall.Statfs_t
	if err := syscall.Statfs(t.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	urls := min(float64(st.Bavail)*float64(st.Bsize), store.MaxExpectedURLs)
	out, err := exec.CommandContext(t.Context(), "dedupstore", "create",
		"--store", filepath.Join(t.TempDir(), "s"), "--urls", fmt.Sprintf("%.0f", urls)).CombinedOutput()
	if code := exitCode(t, err); code != 5 || !strings.Contains(string(out), "make room") {
		t.Errorf("exit code %d, want 5: %s", code, out)
	}
}

// TestBadReadOnlyDisk looks at a store where nothing can be written.
func TestBadReadOnlyDisk(t *testing.T) {
	if badMounted(t, `
exits 0 dedupstore create --store s --urls 1e5
exits 0 dedupstore add --store s a
mount -o remount,ro "$disk" || fail remount
exits 0 dedupstore check --store s a
exits 1 dedupstore check --store s b
exits 0 dedupstore stats --store s
exits 0 dedupstore verify --deep --store s
exits 6 dedupstore add --store s b
says 'read-only file system'
exits 6 dedupstore create --store t
says 'read-only file system'
`) || os.Getuid() == 0 {
		return
	}
	dir := filepath.Join(t.TempDir(), "s")
	filterAll(t, dir, "a\n")
	if err := os.Chmod(filepath.Join(dir, "LOCK"), 0o400); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "dedupstore", "add", "--store", dir, "b").CombinedOutput()
	if code := exitCode(t, err); code != exitOther || !strings.Contains(string(out), "permission denied") {
		t.Errorf("exit code %d, want %d: %s", code, exitOther, out)
	}
}
