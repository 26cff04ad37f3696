package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"dedupstore/wal"
)

// RepairOptions say what Repair may do.
type RepairOptions struct {
	// Apply does what the report says. Without it nothing is written.
	Apply bool
	// To is the directory of the new store that what can be read of damaged
	// tables goes to. It must not exist. Default: the store's with
	// ".repaired" behind it.
	To string
	// Progress, if not nil, is called now and then with the share of the words
	// that have been read, 0 to 1.
	Progress func(done float64)
}

// A RepairReport says what was wrong, what Repair did or would do, and what is
// lost.
type RepairReport struct {
	Applied bool    `json:"applied"`
	Faults  []Fault `json:"faults"` // that a deep Verify found
	// Refused says why the store cannot be repaired; "" if it can.
	Refused string `json:"refused,omitempty"`

	Identity string        `json:"identity,omitempty"` // what was wrong with STORE
	Log      *LogRepair    `json:"log,omitempty"`
	Tables   *TablesRepair `json:"tables,omitempty"`
	Filters  []string      `json:"filters"` // those that are built anew

	// Store is the directory of the repaired store: the old one, or the new
	// one beside it.
	Store string `json:"store"`
	URLs  int64  `json:"urls"` // that it holds afterwards; -1 if it cannot be told
	// Left are the faults that a deep Verify finds afterwards.
	Left  []Fault  `json:"left"`
	Notes []string `json:"notes"`
}

// Sound reports that there is nothing to repair.
func (r *RepairReport) Sound() bool {
	return r.Refused == "" && r.Identity == "" && r.Log == nil && r.Tables == nil && len(r.Filters) == 0 && len(r.Faults) == 0
}

func (r *RepairReport) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Repair makes a damaged store usable again, and says what is lost. Without
// Apply it only says what it would do, and writes nothing. Nothing that it
// cannot read is deleted: bad files are kept under names that end in ".bad".
//
// A damaged log is read record by record: what verifies goes into the store,
// and a clean log is begun. Damaged tables, or a damaged MANIFEST, make a new
// store beside the old one, which is not written to, with every word that can
// be read and was not forgotten or dropped: where what is left does not tell, it
// is kept, and a note says that forgotten URLs may be seen again. Filters are
// built anew from Pebble.
//
// What could not be repaired is in the report; the error says why Repair could
// not go on. It may be called again after it was cut short, and needs as much
// memory as an open store, and sixteen bytes for each URL in the log.
func Repair(ctx context.Context, dir string, o RepairOptions) (*RepairReport, error) {
	return repairDir(ctx, dir, o, nil)
}

func repairDir(ctx context.Context, dir string, o RepairOptions, so *Options) (*RepairReport, error) {
	opts := so.withDefaults()
	opts.MustExist = true
	dir = filepath.Clean(dir)
	if _, err := examineDir(&opts, dir); err != nil {
		return nil, err
	}
	if o.To == "" {
		o.To = dir + ".repaired"
	}
	if rel, err := filepath.Rel(dir, o.To); err == nil && filepath.IsLocal(rel) {
		return nil, fmt.Errorf("store: %s is in the store that is to be repaired", o.To)
	}
	lock, err := lockStore(opts.seams.FS, dir, !o.Apply)
	if err != nil {
		return nil, err
	}
	r := &repairer{
		ctx: ctx, dir: dir, o: o, opts: opts,
		report: &RepairReport{Applied: o.Apply, Store: dir, URLs: -1, Faults: []Fault{}, Left: []Fault{}, Filters: []string{}, Notes: []string{}},
	}
	err = errors.Join(r.repairLocked(), lock.Close())
	if err == nil && o.Apply && r.report.Refused == "" {
		err = r.finish()
	}
	if err != nil {
		return nil, err
	}
	return r.report, nil
}

// A repairer is one run of Repair.
type repairer struct {
	ctx      context.Context
	dir      string
	o        RepairOptions
	opts     Options
	identity *identity
	report   *RepairReport
	record   *repairRecord
	// badIdentity is what STORE holds if it is to be put right, else nil.
	badIdentity []byte
}

// store returns the means to look into the directory; it is not open.
func (r *repairer) store(readOnly bool) *Store {
	space := newSpace(&r.opts, r.dir)
	s := &Store{dir: r.dir, opts: *space.mind(&r.opts), identity: r.identity, space: space, poisoned: make(chan struct{})}
	s.opts.ReadOnly = readOnly
	s.mu.changed = make(chan struct{})
	s.memtableLimit = memtableWords(r.opts.MemoryBytes * memtableShare / 64)
	s.events = newPebbleEvents(s.poison, r.opts.Logger)
	return s
}

// repairLocked finds out what is wrong and repairs what stands in the way of
// an Open.
func (r *repairer) repairLocked() error {
	if ok, err := r.repairIdentity(); err != nil || !ok {
		return err
	}
	if err := r.readRecord(); err != nil {
		return err
	}
	found, err := verifyLocked(r.ctx, r.dir, VerifyOptions{Deep: true, Progress: r.o.Progress}, &r.opts, r.identity)
	if errors.Is(err, syscall.EIO) {
		// The disk does not give a page. If that is of a table, the others can
		// be read; else reading it for the copy fails again.
		found, err = &Report{URLs: -1}, nil
		found.add(r.opts.seams.FS.PathJoin(r.dir, pebbleDir), readsFail, errUnreadable)
	}
	if err != nil {
		return err
	}
	r.report.Faults = append(r.report.Faults, found.Faults...)
	r.report.URLs = found.URLs
	var log, tables bool
	for _, f := range found.Faults {
		switch r.partOf(f.Path) {
		case logDir:
			log = true
		case pebbleDir:
			tables = true
		default:
			if !slices.Contains(r.report.Filters, f.Path) {
				r.report.Filters = append(r.report.Filters, f.Path)
			}
		}
	}
	if !log && !tables {
		if log, err = r.tornHolds(); err != nil {
			return err
		}
	}
	if log && !tables {
		// Without the log nobody may know of an ingest that the MANIFEST lost.
		if tables, err = r.olderManifest(); err != nil {
			return err
		}
	}
	if tables {
		r.report.Filters = []string{}
		return r.repairTables()
	}
	if r.o.Apply && r.badIdentity != nil {
		if err := r.replaceIdentity(); err != nil {
			return err
		}
	}
	if log {
		return r.repairLog()
	}
	return nil
}

// errUnreadable stands for EIO where it is a fault of the store.
var errUnreadable = errors.New("the disk does not give all of it")

// partOf is the part of the store that a fault's path is in: logDir, pebbleDir
// or a file's name.
func (r *repairer) partOf(path string) string {
	if rel, err := filepath.Rel(r.dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		path = rel
	}
	first, _, _ := strings.Cut(filepath.ToSlash(path), "/")
	if strings.HasSuffix(path, ".sst") {
		return pebbleDir
	}
	return first
}

// repairIdentity reads STORE, and puts right one byte of it if that makes its
// checksum come right. More cannot be had back: without the keys no URL's word
// is known. It reports false if it cannot go on.
func (r *repairer) repairIdentity() (bool, error) {
	fsys := r.opts.seams.FS
	path := fsys.PathJoin(r.dir, identityName)
	var err error
	if r.identity, err = readIdentity(fsys, path); err == nil {
		return true, nil
	}
	if isSystem(err) || errors.Is(err, ErrNotExist) {
		return false, err
	}
	r.report.Faults = append(r.report.Faults, Fault{Path: path, Offset: -1, Reason: err.Error(), Consequence: doesNotOpen})
	b, readErr := readSmallFile(fsys, path, 4<<10)
	if readErr == nil {
		var at int
		if r.identity, at = mendIdentity(b); r.identity != nil {
			r.report.Identity = fmt.Sprintf("one byte of %s is wrong, at offset %d: the checksum proves what it was", path, at)
			r.badIdentity = b
			return true, nil
		}
	}
	if errors.Is(err, ErrVersion) {
		return false, err
	}
	r.report.Refused = fmt.Sprintf("%s holds the keys of the hash, and more than one byte of it is damaged: "+
		"without them no URL can be found again; a copy of that file from a backup of this store is all that is needed", path)
	return false, nil
}

// mendIdentity tries every value of every byte, and returns the identity and
// the place if one makes the file verify: by its checksum of 64 bits.
func mendIdentity(b []byte) (*identity, int) {
	if len(b) != identityBytes {
		return nil, 0
	}
	tried := append([]byte(nil), b...)
	for i := range tried {
		for range 255 {
			tried[i]++
			if d, fault := decodeIdentity(tried); fault == nil {
				return d, i
			}
		}
		tried[i] = b[i]
	}
	return nil, 0
}

// replaceIdentity keeps the bad file and publishes the mended one.
func (r *repairer) replaceIdentity() error {
	fsys := r.opts.seams.FS
	path := fsys.PathJoin(r.dir, identityName)
	kept, err := badName(fsys, path)
	if err == nil {
		err = publishFile(fsys, r.dir, fsys.PathBase(kept), r.badIdentity)
	}
	if err != nil {
		return fmt.Errorf("store: keep %s: %w", path, err)
	}
	r.report.note("%s is kept as %s", path, kept)
	if err := publishFile(fsys, r.dir, identityName, appendIdentity(nil, r.identity)); err != nil {
		return fmt.Errorf("store: write %s: %w", path, err)
	}
	return nil
}

// badName returns a name that is free for a bad file.
func badName(fsys vfs.FS, path string) (string, error) {
	names, err := fsys.List(fsys.PathDir(path))
	if err != nil {
		return "", err
	}
	kept := path + badSuffix
	for i := 1; slices.Contains(names, fsys.PathBase(kept)); i++ {
		kept = fmt.Sprintf("%s%s.%d", path, badSuffix, i)
	}
	return kept, nil
}

// olderManifest reports whether a table holds a registry that is newer than the
// one that Pebble opens with.
func (r *repairer) olderManifest() (bool, error) {
	s := r.store(true)
	db, _, err := s.openPebble(true)
	if err != nil {
		return true, nil
	}
	opened, err := s.loadRegistry(db)
	if err = errors.Join(err, wrapPebble(db.Close())); err != nil {
		return true, nil
	}
	tables, _, err := s.listTables()
	if err != nil {
		return false, err
	}
	rows, err := s.readRegistry(tables)
	if err != nil {
		return false, err
	}
	if rows.ingest > opened.ingest {
		r.report.note("%s names ingest %d as the last one, and there is a table of ingest %d", s.manifestPath(), opened.ingest, rows.ingest)
	}
	return rows.ingest > opened.ingest, nil
}

// finish has the filters built, and verifies what came of it.
func (r *repairer) finish() error {
	if r.report.Sound() && (r.record == nil || r.record.Finished) {
		return nil
	}
	if err := r.healFilters(); err != nil {
		return err
	}
	opts := r.opts
	left, err := verifyDir(r.ctx, r.report.Store, VerifyOptions{Deep: true, Progress: r.o.Progress}, &opts)
	if err != nil {
		return err
	}
	r.report.Left = append(r.report.Left, left.Faults...)
	if r.report.URLs >= 0 && r.report.URLs != left.URLs {
		r.report.note("%d URLs were expected, and there are %d", r.report.URLs, left.URLs)
	}
	r.report.URLs = left.URLs
	return r.closeRecord()
}

// healFilters opens the repaired store and waits until every filter that is
// missing or cannot be believed has been built anew. What Verify has found bits
// to be missing in is put aside first, for Open believes it.
func (r *repairer) healFilters() error {
	done := map[string]bool{}
	for _, f := range r.report.Faults {
		if f.Consequence != asksInVain || r.report.Tables != nil || done[f.Path] {
			continue // there may be a fault for each segment
		}
		done[f.Path] = true
		kept, err := badName(r.opts.seams.FS, f.Path)
		if err == nil {
			err = r.opts.seams.Device.Rename(f.Path, kept)
		}
		if err != nil {
			return fmt.Errorf("store: put a bad filter aside: %w", err)
		}
		r.report.note("%s is kept as %s", f.Path, kept)
	}
	s, err := Open(r.report.Store, &r.opts)
	if err != nil {
		return err
	}
	return errors.Join(s.awaitHealthy(r.ctx), s.Close())
}

// awaitHealthy waits until no filter is degraded or unverified, or a build was
// given up because the disk is full.
func (s *Store) awaitHealthy(ctx context.Context) error {
	for {
		x := s.Stats()
		if len(x.Degraded)+len(x.Unverified) == 0 || x.Build.GivenUp > 0 {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		case <-s.poisoned:
			return s.Err()
		}
	}
}

// tornHolds reports whether there are records behind a torn tail's first bad
// bytes. Open would drop them; that nobody was promised them is no reason to.
func (r *repairer) tornHolds() (bool, error) {
	s := r.store(true)
	chain, err := wal.Read(r.opts.seams.FS, s.logDir(), r.identity.id)
	if err != nil || chain.Torn == nil {
		return false, wrapLog(err)
	}
	salvaged, _, err := wal.Salvage(r.opts.seams.FS, s.logDir(), r.identity.id, wal.Needed{})
	if err != nil {
		return false, wrapLog(err)
	}
	return records(salvaged) > records(chain), nil
}

func records(c *wal.Chain) (n int64) {
	for _, f := range c.Files {
		n += f.Records
	}
	return n
}

// readLog reads the log: as it is if nothing is missing, and else as far as
// that is possible. A log that was salvaged has gaps that are not nil.
func (r *repairer) readLog(s *Store, flushed, flushedLSN uint64) (*wal.Chain, []wal.Gap, error) {
	chain, err := wal.Read(r.opts.seams.FS, s.logDir(), r.identity.id)
	if err != nil && !errors.Is(err, wal.ErrCorrupt) {
		return nil, nil, wrapLog(err)
	}
	salvaged, gaps, serr := wal.Salvage(r.opts.seams.FS, s.logDir(), r.identity.id,
		wal.Needed{File: flushed + 1, LSN: wal.LSN(flushedLSN + 1)})
	if serr != nil {
		return nil, nil, wrapLog(serr)
	}
	if err == nil && len(chain.Files) > 0 && records(chain) == records(salvaged) &&
		chain.Files[0].File <= flushed+1 && chain.Files[len(chain.Files)-1].File > flushed {
		return chain, nil, nil
	}
	return salvaged, append([]wal.Gap{}, gaps...), nil
}
