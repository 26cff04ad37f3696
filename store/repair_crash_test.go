package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"dedupstore/internal/crashfs"
)

// TestRepairPowerLoss cuts the power at steps of a repair, and repairs what is
// left: the store is sound then, what the second report gives up for lost is
// what the first would have, and nothing else is.
func TestRepairPowerLoss(t *testing.T) {
	killed := damageStores(t)["killed"]
	logs := damageFiles(killed, logDir, func(name string) bool { return strings.HasSuffix(name, ".log") })
	tables := damageLive(t, killed)
	for _, d := range []struct {
		name   string
		damage func(*crashfs.Disk) error
	}{
		{"log", func(d *crashfs.Disk) error { return d.Flip(logs[0], 300, 3) }},
		{"log gone", func(d *crashfs.Disk) error {
			return errors.Join(d.Flip(logs[0], 300, 3), d.Remove(logs[1]))
		}},
		{"table", func(d *crashfs.Disk) error { return d.Flip(tables[len(tables)-1], 40, 3) }},
		{"table and log", func(d *crashfs.Disk) error {
			return errors.Join(d.Flip(logs[0], 300, 3), d.Flip(tables[len(tables)-1], 40, 3))
		}},
	} {
		t.Run(d.name, func(t *testing.T) {
			damaged := killed.Clone()
			if err := d.damage(damaged); err != nil {
				t.Fatal(err)
			}
			whole := damaged.Clone()
			var ops atomic.Int64
			whole.SetHook(func(op crashfs.Op) error {
				if op.Changes() {
					ops.Add(1)
				}
				return nil
			})
			first := repairOn(t, whole)
			repairSound(t, whole, first)
			rng := seeded(t)
			const points = max(25/damageThin, 3)
			for i := range points {
				repairCut(t, damaged.Clone(), rng, 1+int(ops.Load())*i/points, first)
			}
		})
	}
}

// repairOn repairs the store on a disk.
func repairOn(t *testing.T, disk *crashfs.Disk) *RepairReport {
	t.Helper()
	r, err := repairDir(t.Context(), crashDir, RepairOptions{Apply: true}, damageOptions(disk))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// repairSound checks that the repaired store is sound, and holds what the
// report says.
func repairSound(t *testing.T, disk *crashfs.Disk, r *RepairReport) {
	t.Helper()
	for _, f := range r.Left {
		t.Errorf("left: %+v", f)
	}
	s, err := Open(r.Store, damageOptions(disk))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seen := int64(0)
	for i := range damageKeys + 1 {
		has, err := s.Has(t.Context(), crashKey(i))
		if err != nil {
			t.Fatal(err)
		}
		if has {
			seen++
		}
	}
	if seen != r.URLs || s.Stats().URLs != seen {
		t.Errorf("%d URLs are there, the report says %d, the store %d", seen, r.URLs, s.Stats().URLs)
	}
}

// repairCut cuts the power at the n-th change of a repair, and repairs again.
func repairCut(t *testing.T, disk *crashfs.Disk, rng *rand.Rand, n int, first *RepairReport) {
	t.Helper()
	percent := []int{0, 50, 100}[rng.IntN(3)]
	var image *crashfs.Disk
	var where string
	var ops atomic.Int64
	taken := make(chan struct{})
	disk.SetHook(func(op crashfs.Op) error {
		if op.Changes() && ops.Add(1) == int64(n) {
			image, where = disk.Crash(rng, percent), op.Kind+" "+op.Path
			close(taken)
		}
		return nil
	})
	repairOn(t, disk)
	disk.SetHook(nil)
	if ops.Load() >= int64(n) {
		<-taken
	}
	if image == nil {
		return // this time there were fewer
	}
	again := repairOn(t, image)
	repairSound(t, image, again)
	if again.URLs != first.URLs {
		t.Errorf("cut at %d, %s, %d %%: %d URLs, uncut %d", n, where, percent, again.URLs, first.URLs)
	}
	gone := repairFinished(t, image)
	switch {
	case first.Log == nil:
	case again.Log == nil && gone == nil:
		t.Errorf("cut at %d, %s, %d %%: nothing of the log's loss is said or kept", n, where, percent)
	case again.Log != nil && len(again.Log.Gaps) < len(first.Log.Gaps):
		t.Errorf("cut at %d, %s, %d %%: gaps %+v, uncut %+v", n, where, percent, again.Log.Gaps, first.Log.Gaps)
	}
	switch {
	case first.Tables == nil:
	case again.Tables == nil || again.Tables.Lost != first.Tables.Lost:
		t.Errorf("cut at %d, %s, %d %%: tables %+v, uncut %+v", n, where, percent, again.Tables, first.Tables)
	}
}

// repairFinished returns the gaps that a repair which has ended has kept.
func repairFinished(t *testing.T, disk *crashfs.Disk) []LogGap {
	t.Helper()
	for _, p := range damageFiles(disk, ".", func(name string) bool { return strings.HasPrefix(name, repairPrefix) }) {
		if path.Ext(p) != repairSuffix {
			continue
		}
		var rec repairRecord
		if err := json.Unmarshal(disk.Read(p), &rec); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		if rec.Finished {
			return rec.Gaps
		}
	}
	return nil
}

// TestRepairToExists: a store that is in the place of the new one is left
// alone.
func TestRepairToExists(t *testing.T) {
	disk := damageStores(t)["closed"]
	tables := damageLive(t, disk)
	if err := disk.Flip(tables[0], 40, 3); err != nil {
		t.Fatal(err)
	}
	o := damageOptions(disk)
	s, err := Open(crashDir+".repaired", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := disk.Contents(crashDir + ".repaired")
	if _, err := repairDir(t.Context(), crashDir, RepairOptions{Apply: true}, o); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want %v", err, fs.ErrExist)
	}
	if diff := crashfs.Diff(before, disk.Contents(crashDir+".repaired"), "LOCK"); diff != "" {
		t.Error(diff)
	}
}
