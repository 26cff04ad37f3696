package store

import (
	"errors"
	"fmt"
	"math"
	"time"

	"dedupstore/mmapfilter"
)

// Stats are the figures of a store at one moment. Sizes are in bytes, counts
// in URLs unless they say otherwise; counters run from Open.
type Stats struct {
	// URLs is the exact number of URLs that the store has seen.
	URLs int64 `json:"urls"`
	// Namespaces is how many there are, the default one too, and TTL that of
	// the default one, Forever where nothing else was said.
	Namespaces int           `json:"namespaces"`
	TTL        time.Duration `json:"ttl_ns"`

	Dir        string `json:"dir"`
	Hash       string `json:"hash"`
	KeyProfile string `json:"key_profile"`
	Durability string `json:"durability"`
	// Promise is the durability level in words.
	Promise string `json:"promise"`

	Answers    AnswerStats     `json:"answers"`
	Claims     ClaimStats      `json:"claims"`
	Disk       DiskStats       `json:"disk"`
	Memory     MemoryStats     `json:"memory"`
	Bitmap     BitmapStats     `json:"bitmap"`
	Filters    FilterStats     `json:"filters"`
	Log        LogStats        `json:"log"`
	Flush      FlushStats      `json:"flush"`
	Build      BuildStats      `json:"build"`
	Snapshots  SnapshotStats   `json:"snapshots"`
	Compaction CompactionStats `json:"compaction"`
	Cache      CacheStats      `json:"cache"`
	Memtable   MemtableStats   `json:"memtable"`
	// Spans are those that have segments, the newest first. There are some
	// dozens, however many namespaces and segments there are.
	Spans    []SpanStats   `json:"spans"`
	Expiry   ExpiryStats   `json:"expiry"`
	Clock    ClockStats    `json:"clock"`
	Recovery RecoveryStats `json:"recovery"`

	// FalseSeenOdds is the probability that the next new URL is answered
	// "seen" because its digest is that of another one: URLs / 2^64.
	FalseSeenOdds float64 `json:"false_seen_odds"`
	// AnyCollisionOdds is the expected number of pairs of URLs so far that
	// share a digest: URLs^2 / 2^65.
	AnyCollisionOdds float64 `json:"any_collision_odds"`

	// Degraded names the filters that are missing or that cannot be believed,
	// and why: until a build has replaced them answers take longer, and are
	// exact all the same.
	Degraded []string `json:"degraded"`
	// Unverified names the filters that a crash has left. They answer, and a
	// build replaces them: a bit that the crash has taken, and that recovery
	// could not know of, would make a seen URL new.
	Unverified []string `json:"unverified"`

	// Warnings say in words what an operator should know.
	Warnings []string `json:"warnings"`
	// Err is the text of the error that poisoned the store, if one did.
	Err string `json:"err,omitempty"`
}

// AnswerStats count what was answered since Open.
type AnswerStats struct {
	New  int64 `json:"new"`
	Seen int64 `json:"seen"`
	Busy int64 `json:"busy"`
}

// ClaimStats count claims since Open, but for those that are held.
type ClaimStats struct {
	// Held may count some that have expired and that nobody has asked for
	// since.
	Held    int64 `json:"held"`
	Granted int64 `json:"granted"`
	// Lost count the times that a claim was used which did not hold.
	Lost    int64 `json:"lost"`
	Expired int64 `json:"expired"`
}

// DiskStats are the bytes on disk by part.
type DiskStats struct {
	Pebble  int64 `json:"pebble"`
	Bitmap  int64 `json:"bitmap"`
	Filters int64 `json:"filters"` // of the segments
	// Counters are those beside the bitmap, see Options.Counters.
	Counters int64 `json:"counters"`
	Log      int64 `json:"log"`
	// Reserve is given up when the disk is full, and made again.
	Reserve int64 `json:"reserve"`
	Total   int64 `json:"total"`
	// PerURL is Total / URLs, 0 for an empty store.
	PerURL float64 `json:"per_url"`
}

// MemoryStats are the bytes of RAM by part. Anonymous memory is the store's
// own; file-backed memory is the page cache's, which takes it back when
// somebody needs it.
type MemoryStats struct {
	Memtables  int64 `json:"memtables"`   // anonymous
	Cache      int64 `json:"cache"`       // anonymous
	BlockCache int64 `json:"block_cache"` // anonymous
	Log        int64 `json:"log"`         // anonymous
	// Claims counts 56 bytes for each of the most claims that were held at
	// once since Open: what they take at most. The table does not shrink.
	Claims     int64 `json:"claims"` // anonymous
	Anonymous  int64 `json:"anonymous"`
	FileBacked int64 `json:"file_backed"` // the mapped bitmap and segment filters
}

// BitmapStats describe the bitmap.
type BitmapStats struct {
	Bits     int64   `json:"bits"`
	Probes   int     `json:"probes"`
	Capacity int64   `json:"capacity"` // URLs it is sized for
	Load     float64 `json:"load"`     // words in it, those that have left too / Capacity
	Fill     float64 `json:"fill"`     // share of bits set
	// Dead counts the words that have left, and whose bits are still set.
	Dead int64 `json:"dead"`
	// DesignedRate is the formula's false-positive rate at load 1.
	DesignedRate float64 `json:"designed_rate"`
	// Maybes and FalseMaybes count its answers "maybe" since Open, and those
	// of them that Pebble denied.
	Negatives   int64 `json:"negatives"`
	Maybes      int64 `json:"maybes"`
	FalseMaybes int64 `json:"false_maybes"`
	// MeasuredRate is FalseMaybes / (Negatives + FalseMaybes): the share of
	// words not in Pebble that the bitmap lets through.
	MeasuredRate float64 `json:"measured_rate"`
	// SaturatedCounters are those of 15, whose bits stay set until there are
	// new counters. 0 if there are none.
	SaturatedCounters int64 `json:"saturated_counters"`
	// SyncedIngest is the ingest number up to which it is known synced.
	SyncedIngest uint64 `json:"synced_ingest"`
}

// LogStats describe the write-ahead log.
type LogStats struct {
	Files           int    `json:"files"`
	LSN             uint64 `json:"lsn"`
	WrittenLSN      uint64 `json:"written_lsn"`
	SyncedLSN       uint64 `json:"synced_lsn"`
	UnsyncedRecords int64  `json:"unsynced_records"`
	Records         int64  `json:"records"`
	Bytes           int64  `json:"bytes"`
	Writes          int64  `json:"writes"`
	Syncs           int64  `json:"syncs"`
}

// FlushStats describe what the maintainer has flushed since Open.
type FlushStats struct {
	Flushes      int64         `json:"flushes"`
	Words        int64         `json:"words"`
	Bytes        int64         `json:"bytes"`
	Time         time.Duration `json:"time_ns"`
	LastTime     time.Duration `json:"last_time_ns"`
	BitmapSyncs  int64         `json:"bitmap_syncs"`
	IngestNumber uint64        `json:"ingest_number"`
	// Stalls count the times that an Add had to wait for a flush.
	Stalls int64 `json:"stalls"`
}

// FilterStats describe the segment filters, one for each span of a store that
// has more than one span, and what checks the filters, the bitmap too, has seen.
type FilterStats struct {
	Filters   int   `json:"filters"`
	Negatives int64 `json:"negatives"` // spans that a filter has saved a Get
	// PagesUnchecked are those of which no "no" counts yet: each is checked
	// when it is asked, and all of them in the background.
	PagesUnchecked int64 `json:"pages_unchecked"`
	// PagesBad were found damaged and not set again yet, PagesHealed were.
	PagesBad    int64 `json:"pages_bad"`
	PagesHealed int64 `json:"pages_healed"`
	// SelfChecks count the denied words that Pebble was asked for all the
	// same, and BitsLost those of them that were there.
	SelfChecks int64 `json:"self_checks"`
	BitsLost   int64 `json:"bits_lost"`
}

// BuildStats describe the builds of bitmaps and segment filters since Open.
type BuildStats struct {
	Builds int64 `json:"builds"` // that ended with a switch
	// FromCounters are those of the bitmap that went by the old counters, and
	// NewCounters those that have made counters from Pebble. All others had
	// nothing to do with counters.
	FromCounters int64 `json:"from_counters"`
	NewCounters  int64 `json:"new_counters"`
	// GivenUp count those that the disk had no space for.
	GivenUp int64         `json:"given_up"`
	Time    time.Duration `json:"time_ns"`
	// Building is the path of the file that is being built, "" if none is.
	Building string `json:"building,omitempty"`
}

// CompactionStats are Pebble's.
type CompactionStats struct {
	Compactions  int64 `json:"compactions"`
	BytesWritten int64 `json:"bytes_written"`
	L0Sublevels  int   `json:"l0_sublevels"`
	Tables       int64 `json:"tables"`
	// DebtBytes is what Pebble estimates it has still to compact.
	DebtBytes int64 `json:"debt_bytes"`
}

// CacheStats describe the cache of words known to be seen.
type CacheStats struct {
	Slots  int64 `json:"slots"`
	Hits   int64 `json:"hits"`
	Misses int64 `json:"misses"`
	// Gets count the questions that reached Pebble.
	Gets int64 `json:"gets"`
}

// MemtableStats describe the words that are not in Pebble yet.
type MemtableStats struct {
	Capacity int64 `json:"capacity"`
	Active   int64 `json:"active"`
	Frozen   int64 `json:"frozen"`
}

// SnapshotStats are figures of the snapshots that were made since Open: how
// many, and of the last one the rest.
type SnapshotStats struct {
	Made int64 `json:"made"`
	// URLs and LSN are those of the store at the moment that it shows.
	URLs int64  `json:"urls"`
	LSN  uint64 `json:"lsn"`
	// LinkedBytes of its tables are the store's too, and take no space until
	// the store has merged them away. CopiedBytes are its own.
	LinkedBytes int64         `json:"linked_bytes"`
	CopiedBytes int64         `json:"copied_bytes"`
	Time        time.Duration `json:"time_ns"`
	// FlushesHeld is for how long of that flushes waited.
	FlushesHeld time.Duration `json:"flushes_held_ns"`
}

// RecoveryStats say what Open found and did.
type RecoveryStats struct {
	// Clean says that there was nothing to replay.
	Clean        bool          `json:"clean"`
	Time         time.Duration `json:"time_ns"`
	LogFiles     int           `json:"log_files"`
	Records      int64         `json:"records"`
	Words        int64         `json:"words"`
	BitsSetAgain int64         `json:"bits_set_again"` // words whose bits were set again
	// TornFile, TornOffset and TornBytes describe the torn tail that was
	// dropped, if there was one: bytes that no answer rested on.
	TornFile   string `json:"torn_file,omitempty"`
	TornOffset int64  `json:"torn_offset,omitempty"`
	TornBytes  int64  `json:"torn_bytes,omitempty"`
	// Removed lists left-over temporary files that were removed.
	Removed []string `json:"removed,omitempty"`
	// BadFilters lists the files of filters that could not be used.
	BadFilters []BadFilter `json:"bad_filters,omitempty"`
}

// A BadFilter is the file of a bitmap or segment filter that could not be used
// and is built anew.
type BadFilter struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Kept is the name that the file has now, "" if there was none.
	Kept string `json:"kept,omitempty"`
}

// promises are the durability levels in words.
var promises = [...]string{
	Sync:     "an answer is given after its record is synced: it survives kill -9 and power loss",
	Interval: "an answer is given after its record is written: it survives kill -9; power loss takes back at most the last %v and one fdatasync",
	NoSync:   "an answer is given after its record is written: it survives kill -9; power loss may take back what was not flushed",
}

// promise is the store's level in words.
func (s *Store) promise() string {
	p := promises[s.opts.Durability]
	if s.opts.Durability == Interval {
		return fmt.Sprintf(p, s.opts.SyncInterval)
	}
	return p
}

// Stats returns the store's figures. It does no I/O and takes the lock for a
// moment. After Close they are those of before it, without Pebble's.
func (s *Store) Stats() Stats {
	if s.waiting != nil {
		return s.waiting.stats()
	}
	x := Stats{
		Dir:        s.dir,
		Hash:       s.identity.hasher.hash.String(),
		KeyProfile: s.identity.profile,
		Durability: s.opts.Durability.String(),
		Promise:    s.promise(),
		Clock:      s.time.stats(),
		Recovery:   s.recovery,
		Degraded:   []string{},
		Unverified: []string{},
		Warnings:   []string{},
	}
	s.mu.Lock()
	row := s.mu.registry.storeRow
	inPebble := s.mu.registry.words()
	s.lifeStatsLocked(&x)
	x.URLs = s.urlsLocked()
	st := s.current.Load()
	active := st.active.count.Load()
	claims, claimBytes := len(s.mu.claims.held), s.mu.claims.bytes()
	var frozen, memtables int64
	if st.frozen != nil {
		frozen = st.frozen.count.Load()
	}
	for _, m := range []*memtable{st.active, st.frozen, s.mu.spare} {
		if m != nil {
			memtables += m.bytes()
		}
	}
	s.mu.Unlock()

	x.Memtable = MemtableStats{Capacity: int64(s.memtableLimit), Active: active, Frozen: frozen}
	s.counterStats(&x)
	x.Claims.Held = int64(claims)
	x.Flush.IngestNumber = row.ingest
	x.Memory.Memtables = memtables
	x.Memory.Cache = s.current.Load().cache.bytes()
	x.Memory.Claims = claimBytes
	s.logStats(&x)
	if view, slot := s.enter(); view != nil {
		s.pebbleStats(&x)
		s.bitmapStats(&x, view, inPebble, row.dead)
		s.filterStats(&x, view)
		slot.leave()
	}
	x.Memory.Anonymous = x.Memory.Memtables + x.Memory.Cache + x.Memory.BlockCache + x.Memory.Log + x.Memory.Claims
	x.Disk.Reserve = s.space.reserved()
	x.Disk.Total = x.Disk.Pebble + x.Disk.Bitmap + x.Disk.Filters + x.Disk.Counters + x.Disk.Log + x.Disk.Reserve
	if x.URLs > 0 {
		x.Disk.PerURL = float64(x.Disk.Total) / float64(x.URLs)
	}
	n := float64(x.URLs)
	x.FalseSeenOdds = math.Ldexp(n, -64)
	x.AnyCollisionOdds = math.Ldexp(n*n, -65)
	s.warn(&x)
	return x
}

func (s *Store) counterStats(x *Stats) {
	c := &s.counters
	x.Answers = AnswerStats{New: c.answeredNew.Load(), Seen: c.answeredSeen.Load(), Busy: c.answeredBusy.Load()}
	x.Claims = ClaimStats{
		Granted: c.claimsGranted.Load(), Lost: c.claimsLost.Load(), Expired: c.claimsExpired.Load(),
	}
	x.Expiry.DroppedURLs, x.Expiry.DroppedSegments = c.dropWords.Load(), c.drops.Load()
	x.Expiry.Forgotten = c.forgotten.Load()
	x.Cache = CacheStats{
		Slots: s.current.Load().cache.bytes() / 8, Hits: c.cacheHits.Load(), Misses: c.cacheMisses.Load(), Gets: c.gets.Load(),
	}
	x.Build = BuildStats{
		Builds: c.builds.Load(), FromCounters: c.buildsCounted.Load(), NewCounters: c.buildsAnew.Load(), GivenUp: c.buildsGivenUp.Load(), Time: time.Duration(c.buildNanos.Load()),
	}
	if last := c.snapshot.Load(); last != nil {
		x.Snapshots = *last
		x.Snapshots.Made = c.snapshots.Load()
	}
	x.Disk.Counters = c.counterBytes.Load()
	if path := c.building.Load(); path != nil {
		x.Build.Building = *path
	}
	x.Flush = FlushStats{
		Flushes: c.flushes.Load(), Words: c.flushWords.Load(), Bytes: c.flushBytes.Load(),
		Time: time.Duration(c.flushNanos.Load()), LastTime: time.Duration(c.lastFlushNanos.Load()),
		BitmapSyncs: c.bitmapSyncs.Load(), Stalls: c.stalls.Load(),
	}
}

func (s *Store) logStats(x *Stats) {
	if s.log == nil {
		return
	}
	l := s.log.Stats()
	last, written, synced := s.log.Last(), s.log.Written(), s.log.Synced()
	x.Log = LogStats{
		Files: int(l.Files), LSN: uint64(last), WrittenLSN: uint64(written), SyncedLSN: uint64(synced),
		UnsyncedRecords: int64(last) - int64(synced),
		Records:         l.Records, Bytes: l.Bytes, Writes: l.Writes, Syncs: l.Syncs,
	}
	x.Memory.Log = l.PendingBytes
	s.mu.Lock()
	x.Disk.Log = l.Bytes - s.mu.logCut + s.log.Room()
	s.mu.Unlock()
}

func (s *Store) pebbleStats(x *Stats) {
	m := s.metrics()
	if m == nil {
		return
	}
	total := m.Total()
	x.Disk.Pebble = int64(m.DiskSpaceUsage())
	x.Memory.BlockCache = m.BlockCache.Size
	x.Compaction = CompactionStats{
		Compactions: m.Compact.Count, BytesWritten: int64(total.TableBytesCompacted),
		L0Sublevels: int(m.Levels[0].Sublevels), Tables: total.TablesCount,
		DebtBytes: int64(m.Compact.EstimatedDebt),
	}
}

func (s *Store) bitmapStats(x *Stats, st *state, inPebble, dead uint64) {
	c := &s.counters
	b := BitmapStats{Dead: int64(dead), Negatives: c.negatives.Load(), Maybes: c.maybes.Load(), FalseMaybes: c.falseMaybes.Load()}
	if f := st.bitmap.Filter; f != nil {
		h := f.Header()
		b.Bits, b.Probes, b.Capacity = int64(h.Params.Bits()), int(h.Probes), int64(h.Capacity)
		b.Load, b.Fill = float64(inPebble+dead)/float64(h.Capacity), f.Fill()
		b.DesignedRate = mmapfilter.BlockedRate(h.Params, h.Capacity)
		b.SyncedIngest = h.Ingest
	}
	if asked := b.Negatives + b.FalseMaybes; asked > 0 {
		b.MeasuredRate = float64(b.FalseMaybes) / float64(asked)
	}
	b.SaturatedCounters = c.saturated.Load()
	x.Bitmap = b
	x.Disk.Bitmap = st.bitmap.bytes()
	x.Memory.FileBacked = st.bitmap.bytes()
}

func (s *Store) filterStats(x *Stats, st *state) {
	c := &s.counters
	x.Filters = FilterStats{
		Negatives: c.filterNegatives.Load(), PagesHealed: c.pagesHealed.Load(),
		SelfChecks: c.selfChecks.Load(), BitsLost: c.bitsLost.Load(),
	}
	x.state("bitmap", st.bitmap, true)
	s.mu.Lock()
	needed := s.mu.registry.needsFilters(st.spans)
	s.mu.Unlock()
	for _, sp := range st.spans {
		if sp.filter.Filter != nil {
			x.Filters.Filters++
			x.Disk.Filters += sp.filter.bytes()
			x.Memory.FileBacked += sp.filter.bytes()
		}
		x.state(fmt.Sprintf("segment filter of span %d", sp.id.number), sp.filter, needed)
	}
}

// state notes what state a filter is in, one that is needed or not.
func (x *Stats) state(name string, f *filter, needed bool) {
	if f.Filter != nil {
		x.Filters.PagesUnchecked += int64(f.Unchecked())
		if n := len(f.BadPages()); n > 0 {
			x.Filters.PagesBad += int64(n)
			x.Degraded = append(x.Degraded, fmt.Sprintf("%s: %d pages are damaged", name, n))
		}
	}
	d := f.doubt.Load()
	switch {
	case !needed:
	case d != nil && d.unverified:
		x.Unverified = append(x.Unverified, name+": "+d.reason)
	case d != nil:
		x.Degraded = append(x.Degraded, name+": "+d.reason)
	case f.Filter == nil:
		x.Degraded = append(x.Degraded, name+": it is to be built")
	}
}

// minRateSample is how many words that are not in Pebble the bitmap must have
// been asked about before its measured rate says anything.
const minRateSample = 10_000

func (s *Store) warn(x *Stats) {
	warn := func(format string, args ...any) { x.Warnings = append(x.Warnings, fmt.Sprintf(format, args...)) }
	b := &x.Bitmap
	if b.Load > overfull || x.Build.GivenUp > 0 {
		warn("the bitmap is sized for %d URLs and the store holds %d: answers stay exact and become slower", b.Capacity, x.URLs)
	}
	if b.Negatives+b.FalseMaybes >= minRateSample && b.MeasuredRate > 2*b.DesignedRate {
		warn("the bitmap lets %.3f %% through, and was designed for %.3f %%", 100*b.MeasuredRate, 100*b.DesignedRate)
	}
	if x.Clock.Warning != "" && s.expires.Load() {
		warn("%s", x.Clock.Warning)
	}
	for _, d := range x.Degraded {
		warn("degraded: %s; answers are exact and take longer until it is built anew", d)
	}
	if p := s.counters.buildErr.Load(); p != nil {
		warn("a filter could not be built anew: %v", *p)
	}
	if x.Filters.BitsLost > 0 {
		warn("%d lost bits of filters were found by asking Pebble all the same", x.Filters.BitsLost)
	}
	for _, b := range x.Recovery.BadFilters {
		warn("%s could not be used and is built anew: %s", b.Path, b.Reason)
	}
	if t := x.Recovery.TornFile; t != "" {
		warn("recovery dropped a torn tail of %d bytes of %s", x.Recovery.TornBytes, t)
	}
	if p := s.events.background.Load(); p != nil {
		warn("pebble had trouble in the background: %v", *p)
	}
	if s.refuse != nil && !errors.Is(s.refuse, ErrReadOnly) {
		warn("nothing is added: %v", s.refuse)
	}
	s.mu.Lock()
	full := s.mu.full
	s.mu.Unlock()
	if full != nil {
		warn("the maintainer cannot flush: %v", full)
	}
	if s.log != nil && s.space.wantsReserve() {
		warn("the reserve is given up: the disk was full to the last byte, or has too little for it")
	}
	if err := s.Err(); err != nil {
		x.Err = err.Error()
		warn("%v", err)
	}
}
