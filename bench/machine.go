package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// machine is one line that says where a figure comes from.
func machine() string {
	model := "unknown CPU"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	ram := "unknown"
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		ram = strings.Join(strings.Fields(strings.SplitN(string(b), "\n", 2)[0])[1:], " ")
	}
	kernel := ""
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(b))
	}
	return fmt.Sprintf("%s, %d CPUs, %s of RAM, %s %s/%s %s",
		model, runtime.NumCPU(), ram, runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel)
}

// diskBytes is the size of all files below dir.
func diskBytes(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// rssAnon is the process's anonymous memory, 0 where the kernel does not tell.
func rssAnon() int64 {
	runtime.GC()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// dropCaches empties the page cache and says whether it could: it takes root.
func dropCaches() string {
	syscall.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3\n"), 0); err != nil {
		return "page cache kept: " + err.Error()
	}
	return "page cache dropped"
}

// tempStore is where a store is made: dir, or a new place if it is empty.
// clean removes the new place.
func tempStore(dir string) (path string, clean func(), err error) {
	if dir != "" {
		return dir, func() {}, nil
	}
	tmp, err := os.MkdirTemp("", "bench")
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(tmp, "store"), func() { os.RemoveAll(tmp) }, nil
}
