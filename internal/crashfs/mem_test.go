package crashfs

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCloneWhileLinked takes images while files are linked: with Pebble's own
// MemFS it hangs within some thousand.
func TestCloneWhileLinked(t *testing.T) {
	fs := NewMem()
	f, err := fs.Create("a", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	done := make(chan error, 1)
	go func() {
		for i := range 20_000 {
			name := fmt.Sprint(i)
			if err := fs.Link("a", name); err != nil {
				done <- err
				return
			}
			if err := fs.Remove(name); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
		}
	}
}
