package store

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"dedupstore/wal"
)

// A logLife is a store whose log a test writes on with, file by file, as if its
// process had been killed with more than two that are not flushed.
type logLife struct {
	t        *testing.T
	w        *world
	clock    *fakeClock
	id       *identity
	segments []logSegment
	log      *wal.Log
	// copies are where the words are, by key: of each segment the file, 0 for
	// Pebble.
	copies map[int]map[segmentID]int
	file   int
	// accepted is the store time when the boot clock was at begun.
	accepted int64
	begun    time.Duration
}

// A logSegment is one that takes words.
type logSegment struct {
	id    segmentID
	space string
	key   uint64 // of its incarnation
	first int    // its keys are from there on
	span  spanID
	ends  int64
}

const logLifeKeys = 60 // for each namespace

// newLogLife makes one with words in Pebble: of keys that do not expire, and that
// do, and of another namespace.
func newLogLife(t *testing.T) *logLife {
	t.Helper()
	w, c := clocked(inMemory(t))
	s := w.open()
	l := &logLife{t: t, w: w, clock: c, id: s.identity, copies: map[int]map[segmentID]int{}}
	n := s.named("a", nil)
	s.add(New, keys(0, 20)...)
	s.with(time.Minute).add(New, keys(20, 40)...)
	n.add(New, keys(1000, 1020)...)
	s.close()
	for _, id := range slices.Sorted(maps.Keys(s.segmentRows())) {
		row := s.segmentRows()[id]
		seg := logSegment{id: id, key: l.id.hasher.incarnationKey(row.incarnation), span: row.spanID(), ends: row.ends}
		from := []int{0, 20, 1000}[len(l.segments)]
		if row.namespace != 0 {
			seg.space, seg.first = "a", 1000
		}
		for i := from; i < from+20; i++ {
			l.copies[i] = map[segmentID]int{id: 0}
		}
		l.segments = append(l.segments, seg)
	}
	l.accept()
	return l
}

// accept takes the wall clock for right.
func (l *logLife) accept() { l.accepted, l.begun = l.clock.Wall().UnixNano(), l.clock.boot }

// now is the store time.
func (l *logLife) now() int64 { return l.accepted + int64(l.clock.boot-l.begun) }

// begin begins a log file behind those that there are.
func (l *logLife) begin() {
	l.t.Helper()
	dir := l.w.dir + "/" + logDir
	c, err := wal.Read(l.w.mem, dir, l.id.id)
	must(l.t, err)
	last := c.Files[len(c.Files)-1]
	l.log, err = wal.Create(l.w.mem, dir, c.Next(last.Meta), wal.Options{StoreID: l.id.id})
	must(l.t, err)
	l.file++
}

func (l *logLife) end() { must(l.t, l.log.Close()) }

func (l *logLife) word(seg *logSegment, i int) word {
	return wordOf(seg.key, l.id.hasher.digest(key(i)))
}

// live is how many copies of a key are. There may be two when a clock was set back:
// one that had expired is live again.
func (l *logLife) live(i int, now int64) (n int) {
	for _, seg := range l.segments {
		if _, ok := l.copies[i][seg.id]; ok && seg.ends > now {
			n++
		}
	}
	return n
}

// add adds a key to a segment, if it is not live.
func (l *logLife) add(seg *logSegment, i int, now int64) {
	if l.live(i, now) > 0 {
		return
	}
	l.log.Append(recordAdds, appendWord(beginAdds(nil, seg.id), l.word(seg, i)))
	if l.copies[i] == nil {
		l.copies[i] = map[segmentID]int{}
	}
	// A memtable has one copy: the one that expired makes room.
	maps.DeleteFunc(l.copies[i], func(_ segmentID, file int) bool { return file == l.file })
	l.copies[i][seg.id] = l.file
}

// forget forgets all copies of a key: first the one in this file.
func (l *logLife) forget(i int) {
	at := l.copies[i]
	ids := slices.SortedFunc(maps.Keys(at), func(a, b segmentID) int { return at[b] - at[a] })
	for _, id := range ids {
		seg := &l.segments[slices.IndexFunc(l.segments, func(s logSegment) bool { return s.id == id })]
		l.log.Append(recordForgets, appendWord(beginAdds(nil, id), l.word(seg, i)))
	}
	delete(l.copies, i)
}

// TestFold opens a store read-only whose log has three files, or more, that are
// not flushed, with forgets across them, adds over what has expired, and a clock
// that was accepted: answers and counts are those of the same store when it is
// opened to be written, and of Verify.
func TestFold(t *testing.T) {
	rng := seeded(t)
	for range 20 {
		l := newLogLife(t)
		for range 3 + rng.IntN(2) {
			l.begin()
			l.someRecords(rng)
			l.end()
			l.clock.pass(time.Duration(rng.IntN([]int{10, 120}[rng.IntN(2)])) * time.Second)
			if rng.IntN(4) == 0 {
				l.clock.step(-time.Duration(rng.IntN(60)) * time.Minute)
			}
		}
		now := l.now()
		want := map[string][]int{}
		copies := map[string]int64{}
		all := slices.Concat(numbers(0, logLifeKeys), numbers(1000, 1000+logLifeKeys))
		for _, i := range all {
			space := ""
			if i >= 1000 {
				space = "a"
			}
			if n := l.live(i, now); n > 0 {
				want[space] = append(want[space], i)
				copies[space] += int64(n)
			}
		}
		urls := copies[""] + copies["a"]
		check := func(how string, s *testStore) {
			t.Helper()
			for _, i := range all {
				n := s.named("", nil)
				space := ""
				if i >= 1000 {
					n, space = s.named("a", nil), "a"
				}
				has, err := n.Has(t.Context(), key(i))
				must(t, err)
				if has != slices.Contains(want[space], i) {
					t.Errorf("%s: key %d: got seen %v; its copies: %v", how, i, has, l.copies[i])
				}
			}
			sum := int64(0)
			for n := range s.Namespaces() {
				if n.URLs != copies[n.Name] {
					t.Errorf("%s: namespace %q has %d URLs, want %d", how, n.Name, n.URLs, copies[n.Name])
				}
				sum += n.URLs
			}
			if got := s.Stats().URLs; got != sum {
				t.Errorf("%s: %d URLs, and %d in the namespaces", how, got, sum)
			}
		}
		r, err := verifyDir(t.Context(), l.w.dir, VerifyOptions{Deep: true}, l.w.options())
		noFaults(t, "as it is", r, err)
		if r.URLs != urls {
			t.Errorf("Verify: %d URLs, want %d", r.URLs, urls)
		}
		l.w.openReadOnly(func(s *testStore) { check("read-only", s) })
		s := l.w.open()
		check("writable", s)
		s.close()
		l.w.openReadOnly(func(s *testStore) { check("read-only, closed", s) })
		if t.Failed() {
			return
		}
	}
}

// someRecords writes random records, as a store would.
func (l *logLife) someRecords(rng *rand.Rand) {
	for range 60 {
		now := l.now()
		seg := &l.segments[rng.IntN(len(l.segments))]
		i := seg.first + rng.IntN(logLifeKeys)
		switch op := rng.IntN(20); {
		case op < 11:
			if seg.ends > now { // else it would be another one
				l.add(seg, i, now)
			}
		case op < 18:
			l.forget(i)
		case op < 19:
			l.clock.pass(time.Second)
		default:
			l.accept()
			now = l.now()
			stamp := clockStamp{store: now, wall: now, boot: int64(l.clock.boot), bootID: l.clock.bootID}
			l.log.Append(recordClock, appendClockStamp(nil, stamp))
			for j := range l.segments {
				s := &l.segments[j]
				if s.ends != forever {
					s.ends = min(s.ends, now+s.span.longestTTL())
				}
			}
		}
	}
}

func numbers(lo, hi int) (n []int) {
	for ; lo < hi; lo++ {
		n = append(n, lo)
	}
	return n
}
