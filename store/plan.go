package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A plan is a run without the words: the memtables that a store of these
// options would flush pass by as numbers, under the rules that the store goes
// by itself, and what its files and its memory then take is added up.

// PlanInput says what a store is planned for.
type PlanInput struct {
	// URLs is how many are live at a time, or, without a TTL, how many there
	// will ever be. 0 with a TTL: NewPerDay for the time of it.
	URLs int64 `json:"urls"`
	// TTL is how long a URL is seen after it was added. 0, or Forever: always.
	TTL time.Duration `json:"ttl_ns"`
	// NewPerDay is how many new URLs are added in a day. 0 with a TTL: as many
	// as keep URLs live. 0 without: not known, and so is DeviceBytesPerDay.
	NewPerDay int64 `json:"new_per_day"`
	// MemoryBytes is Options.MemoryBytes, with its default and its bounds.
	MemoryBytes int64 `json:"memory_bytes"`
	// ExpectedURLs is Options.ExpectedURLs, with its default and its bounds.
	ExpectedURLs int64 `json:"expected_urls"`

	exciseWords int64 // instead of exciseWords, in a test
}

// Plan is what a store takes that has taken in what it is planned for.
//
// Bytes are those that Stats reports, and within a tenth of what is measured
// ("bench plan" in bench/, of 10 and 100 million URLs). Where fewer than 65,536
// URLs expire at once, in a 24th to a 48th of a TTL, they are an upper bound: what
// expires then leaves with merges.
type Plan struct {
	Input PlanInput `json:"input"` // with what was left out

	// Memory is at work, with the caches full and without claims. It does not
	// depend on the number of URLs but for FileBacked, the bitmap and the
	// segment filters, which the page cache holds as far as there is room.
	Memory MemoryStats `json:"memory"`
	// Disk is at rest, after Close. Peak is the most that it takes until then:
	// when a bitmap is built beside the one before, tables are merged, and two
	// memtables stand in the log.
	Disk DiskStats `json:"disk"`
	Peak DiskStats `json:"peak"`

	BitmapCapacity int64         `json:"bitmap_capacity"` // URLs it is made for
	Growths        int           `json:"growths"`         // builds that have made it larger
	Spans          int           `json:"spans"`           // with segments, one each in one namespace
	SpanWidth      time.Duration `json:"span_width_ns"`   // of time spans, 0 for those of size

	// DeviceBytesPerDay is what is written in a day, at level Interval, with
	// merges and pages of filters; 0 without NewPerDay. It is an estimate: at
	// full rate some 30 % more was measured. What the file system's journal
	// takes is not in it.
	DeviceBytesPerDay int64 `json:"device_bytes_per_day"`

	// FalseSeenOdds is the probability that one more new URL is answered "seen"
	// because its digest is that of another one: URLs / 2^64.
	FalseSeenOdds float64 `json:"false_seen_odds"`
	// CollidingPairs is how many pairs of live URLs are expected to share a
	// digest: URLs^2 / 2^65.
	CollidingPairs float64 `json:"colliding_pairs"`
}

// NewPlan computes what a store takes. It opens none and does no I/O. It takes
// some milliseconds, and half a second for the largest stores.
func NewPlan(in PlanInput) (Plan, error) {
	in, err := in.withDefaults()
	if err != nil {
		return Plan{}, err
	}
	r := newPlannedRun(&in)
	r.fill()
	p := Plan{
		Input: in, Memory: r.memory(), Disk: r.disk(), Peak: r.peak,
		BitmapCapacity: int64(r.capacity), Growths: r.growths, Spans: len(r.spans),
		SpanWidth:         time.Duration(r.width),
		DeviceBytesPerDay: r.deviceBytes(),
		FalseSeenOdds:     math.Ldexp(float64(in.URLs), -64),
		CollidingPairs:    math.Ldexp(float64(in.URLs)*float64(in.URLs), -65),
	}
	for _, d := range []*DiskStats{&p.Disk, &p.Peak} {
		d.PerURL = float64(d.Total) / float64(in.URLs)
	}
	return p, nil
}

func (in PlanInput) withDefaults() (PlanInput, error) {
	if in.TTL == 0 {
		in.TTL = Forever
	}
	expires := in.TTL != Forever
	days := in.TTL.Hours() / 24
	if in.URLs == 0 && expires {
		in.URLs = clampURLs(float64(in.NewPerDay) * days)
	}
	if in.NewPerDay == 0 && expires {
		in.NewPerDay = max(clampURLs(float64(in.URLs)/days), 1)
	}
	o := (&Options{MemoryBytes: in.MemoryBytes, ExpectedURLs: in.ExpectedURLs, TTL: in.TTL}).withDefaults()
	if o.ExpectedURLs == 0 {
		o.ExpectedURLs = defaultExpectedURLs
	}
	in.MemoryBytes, in.ExpectedURLs = o.MemoryBytes, o.ExpectedURLs
	err := o.validate()
	if in.URLs < 1 || in.URLs > MaxExpectedURLs {
		err = errors.Join(err, fmt.Errorf("store: plan: %d URLs, want 1 to %d", in.URLs, int64(MaxExpectedURLs)))
	}
	if in.NewPerDay < 0 {
		err = errors.Join(err, fmt.Errorf("store: plan: %d new URLs a day", in.NewPerDay))
	}
	return in, err
}

// clampURLs keeps what is too much for any store in the range of an int64.
func clampURLs(n float64) int64 { return int64(min(n, 2*MaxExpectedURLs)) }

// maxPlanSteps is how many flushes are gone through one by one. Of more,
// several are taken for one: a store of so many forgets how it began.
const maxPlanSteps = 1 << 14

// plannedRun is a store in numbers.
type plannedRun struct {
	in       *PlanInput
	memtable uint64 // words of one
	width    int64  // of a time span, ns; 0 without TTL
	perSpan  uint64 // words that are added while a time span is the newest

	spans    []plannedSpan // the oldest first
	added    uint64
	dead     uint64 // whose bits are still set
	capacity uint64 // of the bitmap
	growths  int
	peak     DiskStats
}

type plannedSpan struct {
	number   uint64
	words    uint64
	capacity uint64 // of its filter, 0 without one
	closed   bool
}

func newPlannedRun(in *PlanInput) *plannedRun {
	r := &plannedRun{
		in: in, capacity: uint64(in.ExpectedURLs),
		memtable: uint64(memtableWords(in.MemoryBytes * memtableShare / 64)),
	}
	if id, ok := timeSpan(0, int64(in.TTL)); ok {
		r.width = int64(time.Second) << id.log2
		// The live words are those of a TTL and, for they end late, half a span.
		r.perSpan = uint64(max(float64(in.URLs)/(r.spansOfTTL()+0.5), 1))
	}
	return r
}

// expires reports whether the words do.
func (r *plannedRun) expires() bool { return r.width > 0 }

// spansOfTTL is the TTL in spans, which need not be a whole number.
func (r *plannedRun) spansOfTTL() float64 { return float64(r.in.TTL) / float64(r.width) }

// fill adds the words, memtable by memtable: with a TTL for three times as long
// as it is, until what leaves is what comes, and to the middle of a span.
func (r *plannedRun) fill() {
	total := uint64(r.in.URLs)
	if r.expires() {
		spans := r.spansOfTTL()
		total = uint64((spans + 1.5 + 2*math.Floor(spans)) * float64(r.perSpan))
	}
	step := max(r.memtable, total/maxPlanSteps)
	for r.added < total {
		n := min(step, total-r.added)
		r.drop(n)
		replaced := r.buildBitmap(n)
		r.flush(n)
		r.note(n, min(step, total-r.added), replaced)
		r.buildFilters()
	}
	r.drop(0)
	if rest := r.disk(); rest.Total > r.peak.Total {
		r.peak = rest
	}
}

// live are the words that have not left.
func (r *plannedRun) live() (n uint64) {
	for _, sp := range r.spans {
		n += sp.words
	}
	return n
}

// buildBitmap does what wantsBitmapLocked wants before a flush of n words, and
// returns the bytes of the bitmap that was replaced.
func (r *plannedRun) buildBitmap(n uint64) (replaced int64) {
	live := r.live() + n
	if live+r.dead <= r.capacity {
		return 0
	}
	replaced = filterFileBytes(r.capacity)
	next := capacityFor(live, tooSmall, r.capacity, uint64(r.in.ExpectedURLs), r.dead > 0)
	for c := r.capacity; c < next; c *= 2 {
		r.growths++
	}
	r.capacity, r.dead = next, 0
	return replaced
}

// flush brings n words.
func (r *plannedRun) flush(n uint64) {
	known := len(r.spans)
	first := uint64(minFilterCapacity)
	if known > 0 {
		last := r.spans[known-1]
		first = max(first, last.capacity, last.words)
	}
	for n > 0 {
		sp := r.open()
		part := n
		if r.expires() {
			part = min(n, r.perSpan-r.added%r.perSpan)
		}
		sp.words += part
		r.added += part
		n -= part
	}
	if len(r.spans) > 1 {
		for i := known; i < len(r.spans); i++ {
			r.spans[i].capacity = first
		}
	}
	if last := &r.spans[len(r.spans)-1]; !r.expires() {
		last.closed = last.words >= max(minSpanWords, r.added/spanShare)
	}
}

// open is the span that the next word goes to.
func (r *plannedRun) open() *plannedSpan {
	number := uint64(0)
	if r.expires() {
		number = r.added / r.perSpan
	}
	last := len(r.spans) - 1
	if last < 0 || r.spans[last].closed || r.spans[last].number != number {
		r.spans = append(r.spans, plannedSpan{number: number})
		last++
	}
	return &r.spans[last]
}

// drop takes out the time spans that are over when n more words have been added:
// when the last word of a span is as old as the TTL.
func (r *plannedRun) drop(n uint64) {
	if !r.expires() {
		return
	}
	now := float64(r.added+n) / float64(r.perSpan)
	r.spans = slices.DeleteFunc(r.spans, func(sp plannedSpan) bool {
		over := float64(sp.number)+1+r.spansOfTTL() <= now
		if over {
			r.dead += sp.words
		}
		return over
	})
}

// buildFilters does what wantsSpanFilterLocked wants.
func (r *plannedRun) buildFilters() {
	if len(r.spans) == 1 && r.spans[0].words < loneFilterWords {
		return
	}
	for i := range r.spans {
		sp := &r.spans[i]
		if sp.capacity == 0 {
			sp.capacity = max(2*sp.words, 1)
		}
		for float64(sp.words) > maxFilterLoad*float64(sp.capacity) {
			sp.capacity *= 2
		}
	}
}
