package store

import (
	"cmp"
	"math"

	"dedupstore/mmapfilter"
)

// What the words of a planned store take, in bytes.

// tableBytesOf is what so many words of one segment take in tables.
//
// A key is 12 bytes, and a column of keys is written in bundles of 16: what all
// keys of a block, and then of a bundle, begin with is written once, and of each
// key the rest and an offset of 2 bytes (Pebble v2, sstable/colblk,
// prefix_bytes.go). The words are in order, so that 16 neighbours of n words
// lie between two multiples of 256^(8-k), and share k bytes, with a probability
// of exp(-15 * 256^k / n). A bit says of each key that it differs from the one
// before, and a block has a header, a trailer and an entry in the index.
func tableBytesOf(words uint64) float64 {
	const bundle, offset, differs = 16, 2, 1.0 / 8
	if words == 0 {
		return 0
	}
	n := float64(words)
	shared := func(keys float64) (bytes float64) {
		for k := 1; k < 8; k++ {
			bytes += math.Exp(-(keys - 1) * math.Exp2(float64(8*k)) / n)
		}
		return bytes
	}
	inBundle, inBlock := shared(bundle), shared(blockKeys)
	key := offset + 8 - inBundle + (offset+inBundle-inBlock)/bundle + differs
	return n*key + math.Ceil(n/blockKeys)*blockOverhead
}

const (
	// blockKeys is how many keys a block of tableBlockBytes holds.
	blockKeys = 450
	// blockOverhead is what a block takes beside its keys: 105 to 130 bytes,
	// measured (TestPlanTableBytes).
	blockOverhead = 115
)

// tables are what all words take. Small spans leave by range tombstones, and their
// words with a merge: until then there may be as many of them as there are live
// ones.
func (r *plannedRun) tables() (bytes int64) {
	for _, sp := range r.spans {
		bytes += int64(tableBytesOf(sp.words))
	}
	if r.expires() && r.perSpan < uint64(cmp.Or(r.in.exciseWords, exciseWords)) {
		bytes *= 2
	}
	return bytes
}

// merges are how often tables of a span of so many words have been merged, four
// flushes at a time with all that was merged before, and merged how many of the
// words the last one took.
func (r *plannedRun) merges(words uint64) (times, merged uint64) {
	times = words / (mergedFlushes * r.memtable)
	return times, times * mergedFlushes * r.memtable
}

// mergedFlushes are as many sublevels as pebbleOptions has Pebble merge at once.
const mergedFlushes = 4

// filterFileBytes is the size of the file of a bitmap or a segment filter.
func filterFileBytes(capacity uint64) int64 {
	return mmapfilter.ParamsFor(capacity, 0).FileBytes()
}

func (r *plannedRun) filterBytes() (bytes int64) {
	for _, sp := range r.spans {
		if sp.capacity > 0 {
			bytes += filterFileBytes(max(sp.capacity, minFilterCapacity))
		}
	}
	return bytes
}

// logAheadBytes is what the log preallocates for the next file, see
// wal.Options.PreallocateBytes.
const logAheadBytes = 4 << 20

// disk is what the store takes at rest.
func (r *plannedRun) disk() DiskStats {
	return total(DiskStats{
		Pebble: r.tables(), Bitmap: filterFileBytes(r.capacity), Filters: r.filterBytes(), Reserve: reserveBytes,
	})
}

func total(d DiskStats) DiskStats {
	d.Total = d.Pebble + d.Bitmap + d.Filters + d.Counters + d.Log + d.Reserve
	return d
}

// note notes what the store takes when n words have been flushed, if that is the
// most so far: with the bitmap that is being replaced, the tables of the span that
// are being merged, and the log files of the memtable that was flushed, of the
// next one with the words that have come meanwhile, and of the one after.
func (r *plannedRun) note(n, next uint64, replaced int64) {
	last := r.spans[len(r.spans)-1].words
	times, merging := r.merges(last)
	if before, _ := r.merges(last - min(n, last)); before == times {
		merging = 0
	}
	d := total(DiskStats{
		Pebble: r.tables() + int64(tableBytesOf(merging)),
		Bitmap: filterFileBytes(r.capacity) + replaced, Filters: r.filterBytes(),
		Log: int64(min(n, r.memtable)+min(next, r.memtable))*8 + logAheadBytes, Reserve: reserveBytes,
	})
	if d.Total > r.peak.Total {
		r.peak = d
	}
}

// memory is what Stats reports of a store at work.
func (r *plannedRun) memory() MemoryStats {
	mem := r.in.MemoryBytes
	slots := int64(r.memtable)*100/maxLoadPercent + slackSlots
	slotBytes := int64(8)
	if r.expires() {
		slotBytes += 2 // the number of its segment
	}
	m := MemoryStats{
		Memtables:  2 * slots * slotBytes,
		Cache:      mem * cacheShare / 64,
		BlockCache: max(mem*blockShare/64, minCacheBytes),
		FileBacked: filterFileBytes(r.capacity) + r.filterBytes(),
	}
	m.Anonymous = m.Memtables + m.Cache + m.BlockCache
	return m
}

// deviceBytes is what is written in a day.
func (r *plannedRun) deviceBytes() int64 {
	n := float64(r.in.NewPerDay)
	if n == 0 {
		return 0
	}
	words := float64(r.memtable)
	flushes := n / words
	open := r.spans[len(r.spans)-1]

	// The log: a page for each sync of at least one record, at most one a second.
	log := 8*n + devicePageBytes*min(n, secondsPerDay)
	// Tables are written by a flush, and by merges of four flushes of a span with
	// what was merged of it before.
	spanWords := max(open.words, r.perSpan)
	times, merged := r.merges(spanWords)
	tables := n * tableBytesOf(spanWords) / float64(spanWords) *
		(1 + float64(merged*(times+1)/2)/float64(spanWords))

	// The kernel writes a page of a filter once, however many bits of a flush it
	// has, or of the flushes of half a minute.
	writes := min(flushes, secondsPerDay/writebackSeconds)
	pages := func(bytes int64) float64 {
		all := float64(bytes) / devicePageBytes
		return writes * devicePageBytes * all * -math.Expm1(-n/writes/all)
	}
	bitmap := filterFileBytes(r.capacity)
	filters := pages(bitmap)
	if open.capacity > 0 {
		filters += pages(filterFileBytes(open.capacity))
	}
	// A bitmap is built when the last one is full: of what has left, or, twice the
	// size, of as many as it holds.
	builds := n / float64(r.capacity) * float64(2*bitmap)
	if r.expires() {
		builds = n / max(float64(r.capacity)-float64(r.live()), 1) * float64(bitmap)
	}
	return int64(log + tables + filters + builds)
}

const (
	devicePageBytes = 4 << 10
	secondsPerDay   = 24 * 60 * 60
	// writebackSeconds is the age at which Linux writes a dirty page
	// (vm.dirty_expire_centisecs).
	writebackSeconds = 30
)
