package store

import "time"

// Stats are the figures of a store at one moment. Sizes are in bytes, counts
// in URLs unless they say otherwise; counters run from Open.
type Stats struct {
	// URLs is the exact number of URLs that the store has seen.
	URLs       int64  `json:"urls"`
	Dir        string `json:"dir"`
	Hash       string `json:"hash"`
	KeyProfile string `json:"key_profile"`
	Durability string `json:"durability"`
	// Promise is the durability level in words.
	Promise string `json:"promise"`

	Answers    AnswerStats     `json:"answers"`
	Disk       DiskStats       `json:"disk"`
	Memory     MemoryStats     `json:"memory"`
	Bitmap     BitmapStats     `json:"bitmap"`
	Log        LogStats        `json:"log"`
	Flush      FlushStats      `json:"flush"`
	Compaction CompactionStats `json:"compaction"`
	Cache      CacheStats      `json:"cache"`
	Memtable   MemtableStats   `json:"memtable"`
	Segments   []SegmentStats  `json:"segments"`
	Recovery   RecoveryStats   `json:"recovery"`

	// FalseSeenOdds is the probability that the next new URL is answered
	// "seen" because its digest is that of another one: URLs / 2^64.
	FalseSeenOdds float64 `json:"false_seen_odds"`
	// AnyCollisionOdds is the expected number of pairs of URLs so far that
	// share a digest: URLs^2 / 2^65.
	AnyCollisionOdds float64 `json:"any_collision_odds"`

	// Warnings say in words what an operator should know.
	Warnings []string `json:"warnings"`
	// Err is the text of the error that poisoned the store, if one did.
	Err string `json:"err,omitempty"`
}

// AnswerStats count what was answered since Open.
type AnswerStats struct {
	New  int64 `json:"new"`
	Seen int64 `json:"seen"`
}

// DiskStats are the bytes on disk by part.
type DiskStats struct {
	Pebble int64 `json:"pebble"`
	Bitmap int64 `json:"bitmap"`
	Log    int64 `json:"log"`
	Total  int64 `json:"total"`
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
	Anonymous  int64 `json:"anonymous"`
	FileBacked int64 `json:"file_backed"` // the mapped bitmap
}

// BitmapStats describe the bitmap.
type BitmapStats struct {
	Bits     int64   `json:"bits"`
	Probes   int     `json:"probes"`
	Capacity int64   `json:"capacity"` // URLs it is sized for
	Load     float64 `json:"load"`     // URLs in it / Capacity
	Fill     float64 `json:"fill"`     // share of bits set
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

// SegmentStats describe one live segment.
type SegmentStats struct {
	ID     uint32 `json:"id"`
	URLs   int64  `json:"urls"` // in Pebble
	Closed bool   `json:"closed"`
	Ingest uint64 `json:"ingest"` // number of the last ingest that touched it
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
}
