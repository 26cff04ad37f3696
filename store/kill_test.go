package store

// kill -9 at random moments. The test runs its own binary again as a child
// that adds and claims keys and writes what it was answered into a pipe; the
// parent keeps the account, kills the child, and compares what is on disk with
// the account. The child goes on where the last one was killed.
//
//	go test ./store -run TestKill9 -kill.points=200

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dedupstore/internal/seam"
)

var (
	killPoints = flag.Int("kill.points", 21, "kills by TestKill9; 200 is a full run")
	killSeed   = flag.Uint64("kill.seed", 0, "seed of TestKill9; 0 takes one from the clock")
)

const (
	killChildEnv = "DEDUPSTORE_TEST_KILL_CHILD" // a killPlan as JSON
	killPerStore = 7                            // kills of one store before the next one is made
	killWorkers  = 6
	killMaxBatch = 400 // a record of so many keys is one atomic write to a pipe
	killRunMax   = 90 * time.Millisecond
)

// A killPlan is what a child does.
type killPlan struct {
	Dir        string
	Seed       uint64
	Durability Durability
	NextKey    uint64 // keys below it may have been added before
	// Point and Times say where the child kills itself: when it passes the
	// named point for the Times-th time. Empty: it waits to be killed.
	Point string
	Times int64
}

func killKey(i uint64) string { return fmt.Sprintf("https://example.com/%d/page", i) }

// killOptions are small, so that freezes, flushes, closes and builds are many.
func killOptions(d Durability) *Options {
	o := &Options{Durability: d, ExpectedURLs: 1000, MemoryBytes: 1 << 20, SyncInterval: 20 * time.Millisecond}
	SetSeams(o, seam.Seams{MemtableWords: 1500, SpanWords: 8000, BuildWords: 2000})
	return o
}

// The records that a child writes: a kind, the number of values, the values.
// A child that is killed leaves whole records, and at most one that is cut.
type killKind byte

const (
	killOpening   killKind = 1 + iota // Open is about to be called
	killOpened                        // URLs, ns that Open took, words replayed
	killSubmit                        // keys that are about to be added or committed
	killAnswers                       // key << 2 | Answer, of Add
	killLooks                         // key << 2 | Answer, of Has
	killClaiming                      // keys that are about to be claimed
	killClaims                        // key << 2 | Answer, of Claim
	killCommitted                     // keys whose commit was answered
	killFailed                        // the text of an error, a byte a value
)

type killPipe struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *killPipe) write(k killKind, values ...uint64) {
	b := make([]byte, 0, 3+8*len(values))
	b = append(b, byte(k))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.w.Write(b); err != nil {
		os.Exit(3) // nobody keeps the account any more
	}
}

func (p *killPipe) fail(err error) {
	text := err.Error()
	values := []uint64{}
	for i := range min(len(text), killMaxBatch) {
		values = append(values, uint64(text[i]))
	}
	p.write(killFailed, values...)
}

// TestKillChild is the child. Without its environment it does nothing.
func TestKillChild(t *testing.T) {
	text := os.Getenv(killChildEnv)
	if text == "" {
		return
	}
	var plan killPlan
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	pipe := &killPipe{w: childAccount()}
	o := killOptions(plan.Durability)
	if plan.Point != "" {
		s := o.seams
		s.Point = killAt(plan.Point, plan.Times)
		SetSeams(o, s)
	}
	pipe.write(killOpening)
	start := time.Now()
	s, err := Open(plan.Dir, o)
	if err != nil {
		pipe.fail(err)
		return
	}
	pipe.write(killOpened, uint64(s.Stats().URLs), uint64(time.Since(start)), uint64(s.Stats().Recovery.Words))
	w := killWorker{s: s, pipe: pipe, next: new(atomic.Uint64)}
	w.next.Store(plan.NextKey)
	for i := range killWorkers {
		r := rand.New(rand.NewPCG(plan.Seed, uint64(i)))
		if i%3 == 2 {
			go w.claim(r)
			continue
		}
		go w.run(r, i%3 == 1)
	}
	time.Sleep(time.Minute)
	os.Exit(4) // the parent is gone
}

// A killWorker adds keys for ever.
type killWorker struct {
	s    *Store
	pipe *killPipe
	next *atomic.Uint64
}

func (w killWorker) run(r *rand.Rand, batches bool) {
	ctx := context.Background()
	for {
		n := 1
		if batches {
			n = 1 + r.IntN(killMaxBatch)
		}
		numbers, keys := make([]uint64, n), make([]string, n)
		for i := range numbers {
			numbers[i] = w.pick(r)
			keys[i] = killKey(numbers[i])
		}
		answers := make([]Answer, n)
		var err error
		kind := killAnswers
		switch x := r.IntN(200); {
		case x == 0:
			err = w.s.Flush(ctx)
			n = 0
		case x == 1:
			err = w.s.Sync(ctx)
			n = 0
		case x < 20:
			kind = killLooks
			err = w.s.HasBatch(ctx, keys, answers)
		case batches:
			w.pipe.write(killSubmit, numbers...)
			err = w.s.AddBatch(ctx, keys, answers)
		default:
			w.pipe.write(killSubmit, numbers...)
			var added bool
			added, err = w.s.Add(ctx, keys[0])
			switch {
			case added:
				answers[0] = New
			case errors.Is(err, ErrClaimed):
				answers[0], err = Busy, nil
			default:
				answers[0] = Seen
			}
		}
		if err != nil {
			w.pipe.fail(err)
			return
		}
		for i := range numbers {
			numbers[i] = numbers[i]<<2 | uint64(answers[i])
		}
		if n > 0 {
			w.pipe.write(kind, numbers...)
		}
	}
}

// claim claims keys for ever. Of what it holds then it commits half, releases a
// quarter, and keeps the others, so that a kill meets them.
func (w killWorker) claim(r *rand.Rand) {
	ctx := context.Background()
	type held struct {
		Claim
		number uint64
	}
	var kept []held
	for {
		n := 1 + r.IntN(killMaxBatch/4)
		numbers, keys := make([]uint64, n), make([]string, n)
		for i := range numbers {
			numbers[i] = w.pick(r)
			keys[i] = killKey(numbers[i])
		}
		claims, answers := make([]Claim, n), make([]Answer, n)
		w.pipe.write(killClaiming, numbers...)
		if err := w.s.ClaimBatch(ctx, keys, 0, claims, answers); err != nil {
			w.pipe.fail(err)
			return
		}
		told := make([]uint64, n)
		for i, a := range answers {
			told[i] = numbers[i]<<2 | uint64(a)
			if a == New {
				kept = append(kept, held{claims[i], numbers[i]})
			}
		}
		w.pipe.write(killClaims, told...)
		r.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
		var batch []Claim
		numbers = numbers[:0]
		for _, h := range kept[:len(kept)/2] {
			batch, numbers = append(batch, h.Claim), append(numbers, h.number)
		}
		kept = kept[len(kept)/2:]
		w.pipe.write(killSubmit, numbers...)
		if err := w.s.CommitBatch(ctx, batch, 0, make([]bool, len(batch))); err != nil {
			w.pipe.fail(err)
			return
		}
		w.pipe.write(killCommitted, numbers...)
		for range len(kept) / 2 {
			if err := kept[0].Release(); err != nil {
				w.pipe.fail(err)
				return
			}
			kept = kept[1:]
		}
	}
}

// pick returns a key that is new, that others are adding at this moment, or
// that is old.
func (w killWorker) pick(r *rand.Rand) uint64 {
	next := w.next.Load()
	switch x := r.IntN(10); {
	case x < 5 || next < 64:
		return w.next.Add(1) - 1
	case x < 7:
		return next - 1 - r.Uint64N(64)
	default:
		return r.Uint64N(next)
	}
}

// A killAccount is what the parent knows of one store.
type killAccount struct {
	t         *testing.T
	submitted []uint32 // how often a key was about to be added or committed, and was not Busy
	claimed   []uint32 // how often a key was about to be claimed in this round
	isNew     []bool   // was answered New, or committed
	answered  []int    // the round of the first answer of Add, or of a commit, from 1; 0: none
	round     int
	records   int
	claims    int64           // granted
	opens     []time.Duration // of stores that were there
	opened    bool            // in this round
	urls      int64           // as Open said
}

func (a *killAccount) grow(key uint64) {
	for uint64(len(a.submitted)) <= key {
		a.submitted = append(a.submitted, 0)
		a.claimed = append(a.claimed, 0)
		a.isNew = append(a.isNew, false)
		a.answered = append(a.answered, 0)
	}
}

// counts returns how many keys were answered and how many submitted.
func (a *killAccount) counts() (answered, submitted int64) {
	for i := range a.submitted {
		if a.answered[i] > 0 {
			answered++
		}
		if a.submitted[i] > 0 {
			submitted++
		}
	}
	return answered, submitted
}

// read takes a child's records until its end, and calls on for each.
func (a *killAccount) read(r io.Reader, on func(killKind)) {
	buf := bufio.NewReaderSize(r, 1<<20)
	for {
		var head [3]byte
		if _, err := io.ReadFull(buf, head[:]); err != nil {
			return
		}
		body := make([]byte, 8*int(binary.LittleEndian.Uint16(head[1:])))
		if _, err := io.ReadFull(buf, body); err != nil {
			return
		}
		values := make([]uint64, len(body)/8)
		for i := range values {
			values[i] = binary.LittleEndian.Uint64(body[8*i:])
		}
		a.take(killKind(head[0]), values)
		on(killKind(head[0]))
	}
}

func (a *killAccount) take(k killKind, values []uint64) {
	a.records++
	switch k {
	case killOpened:
		a.opened, a.urls = true, int64(values[0])
		if answered, submitted := a.counts(); a.urls < answered || a.urls > submitted {
			a.t.Errorf("round %d: opened with %d URLs, %d were answered and %d submitted", a.round, a.urls, answered, submitted)
		}
		if a.round > 1 {
			a.opens = append(a.opens, time.Duration(values[1]))
		}
	case killSubmit:
		for _, key := range values {
			a.grow(key)
			a.submitted[key]++
		}
	case killClaiming:
		for _, key := range values {
			a.grow(key)
			a.claimed[key]++
		}
	case killAnswers, killLooks, killClaims:
		for _, v := range values {
			a.grow(v >> 2)
			a.answer(k, v>>2, Answer(v&3))
		}
	case killCommitted:
		for _, key := range values {
			a.answer(k, key, New)
		}
	case killFailed:
		var text strings.Builder
		for _, v := range values {
			text.WriteByte(byte(v))
		}
		a.t.Errorf("round %d: the child got an error: %s", a.round, &text)
	}
}

func (a *killAccount) answer(k killKind, key uint64, answer Answer) {
	marks := k == killAnswers || k == killCommitted
	before := a.answered[key] > 0 && a.answered[key] < a.round
	// How often it must have been submitted, or claimed in this round, by this
	// call and another, that the answer can be true.
	submitted, claimed := uint32(1), uint32(1)
	switch k {
	case killAnswers:
		submitted = 2
	case killClaims:
		claimed = 2
	}
	switch {
	case answer != Seen && before:
		a.t.Errorf("round %d: key %d was answered in round %d and is %v", a.round, key, a.answered[key], answer)
	case answer == New && marks && a.isNew[key]:
		a.t.Errorf("round %d: key %d is new for the second time", a.round, key)
	case answer == Seen && a.submitted[key] < submitted:
		a.t.Errorf("round %d: key %d is seen, and nobody has added it", a.round, key)
	case answer == Busy && (a.claimed[key] < claimed || k == killLooks):
		a.t.Errorf("round %d: key %d is busy, and nobody has claimed it", a.round, key)
	case answer == Unanswered:
		a.t.Errorf("round %d: key %d is %v", a.round, key, answer)
	}
	switch {
	case k == killClaims && answer == New:
		a.claims++
	case !marks:
	case answer == Busy:
		a.submitted[key]-- // it was as if nobody had asked
	default:
		a.isNew[key] = a.isNew[key] || answer == New
		if a.answered[key] == 0 {
			a.answered[key] = a.round
		}
	}
}

// check compares the account with a store that answers.
func (a *killAccount) check(s *Store) {
	a.t.Helper()
	keys := make([]string, len(a.submitted))
	for i := range keys {
		keys[i] = killKey(uint64(i))
	}
	answers := make([]Answer, len(keys))
	if err := s.HasBatch(a.t.Context(), keys, answers); err != nil {
		a.t.Fatal(err)
	}
	there := int64(0)
	for i, answer := range answers {
		if answer == Seen {
			there++
		}
		switch {
		case answer == New && a.answered[i] > 0:
			a.t.Errorf("round %d: key %d was answered in round %d and is lost", a.round, i, a.answered[i])
		case answer == Seen && a.submitted[i] == 0:
			a.t.Errorf("round %d: key %d is there, and nobody has added it", a.round, i)
		}
	}
	if st := s.Stats(); st.URLs != there {
		a.t.Errorf("round %d: the store counts %d URLs and has %d", a.round, st.URLs, there)
	}
}

// checkKilled looks at what a kill has left, without changing it.
func (a *killAccount) checkKilled(dir string, d Durability) {
	t := a.t
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, identityName)); err != nil {
		if answered, _ := a.counts(); answered > 0 {
			t.Fatalf("round %d: %d keys were answered, and there is no store: %v", a.round, answered, err)
		}
		return
	}
	report, err := Verify(t.Context(), dir, VerifyOptions{Deep: true})
	if err != nil {
		t.Fatalf("round %d: %v", a.round, err)
	}
	if answered, submitted := a.counts(); !report.OK() || report.URLs < answered || report.URLs > submitted {
		t.Errorf("round %d: %d answered, %d submitted, and Verify finds %+v", a.round, answered, submitted, report)
	}
	o := killOptions(d)
	o.ReadOnly = true
	s, err := Open(dir, o)
	if err != nil {
		t.Fatalf("round %d: %v", a.round, err)
	}
	a.check(s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// checkRecovered recovers the store, and opens it again.
func (a *killAccount) checkRecovered(dir string, d Durability) {
	t := a.t
	t.Helper()
	for range 2 {
		start := time.Now()
		s, err := Open(dir, killOptions(d))
		if err != nil {
			t.Fatalf("round %d: %v", a.round, err)
		}
		a.opens = append(a.opens, time.Since(start))
		a.check(s)
		report, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
		if err != nil || !report.OK() {
			t.Errorf("round %d: %v, %+v", a.round, err, report)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// How a child meets its end.
type killHow struct {
	name  string
	after killKind      // the record after which the time runs; 0: the start
	delay time.Duration // at most
	point string        // or where it kills itself
}

// killEnds are the ends of the children of one store, in this order. Three in
// a row hit Open, before anybody else has recovered what the last one left.
func killEnds(r *rand.Rand, reopen time.Duration) [killPerStore]killHow {
	running := killHow{name: "running", after: killOpened, delay: killRunMax}
	opening := killHow{name: "opening", after: killOpening, delay: 3 * reopen / 2}
	points := []string{
		"insert", "append", "look-frozen", "recovered-file",
		"freeze", "flush", "ingested", "released", "unlinked", "filter-made",
		"build-begun", "build-step", "build-synced", "build-switched", "build-removed",
	}
	point := func() killHow {
		name := points[r.IntN(len(points))]
		return killHow{name: "at " + name, after: killOpened, delay: 2 * killRunMax, point: name}
	}
	return [...]killHow{running, opening, opening, opening, point(), running, point()}
}

// killRound runs a child to its end.
func killRound(a *killAccount, r *rand.Rand, plan killPlan, how killHow) {
	t := a.t
	a.round++
	a.opened = false
	clear(a.claimed) // claims die with the process
	plan.NextKey = uint64(len(a.submitted))
	if plan.Point = how.point; plan.Point != "" {
		plan.Times = 1
		if how.point == "insert" || how.point == "append" || how.point == "look-frozen" {
			plan.Times += r.Int64N(2000)
		} else if how.point != "recovered-file" {
			plan.Times += r.Int64N(4)
		}
	}
	c := startChild(t, "TestKillChild", killChildEnv, plan)
	delay := time.Duration(r.Int64N(int64(how.delay) + 1))
	if how.after == 0 {
		c.killIn(delay)
	}
	a.read(c.account, func(k killKind) {
		if k == how.after {
			c.killIn(delay)
		}
	})
	if err := c.wait(); err != nil {
		t.Fatalf("round %d (%s): %v", a.round, how.name, err)
	}
}

func TestKill9(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: go test ./store -run TestKill9 -kill.seed=%d -kill.points=%d", seed, *killPoints)
	r := rand.New(rand.NewPCG(seed, 0))
	var opens []time.Duration
	ends := map[string]int{}
	var keys, claims, records int64
	for done, n := 0, 0; done < *killPoints; n++ {
		d := []Durability{Interval, Sync, NoSync}[n%3]
		t.Run(fmt.Sprintf("%d-%v", n, d), func(t *testing.T) {
			a := &killAccount{t: t}
			dir := filepath.Join(t.TempDir(), "s")
			for i := range min(killPerStore, *killPoints-done) {
				// A creation takes longer than an open: it is hit at the
				// start of every other store.
				reopen := 60 * time.Millisecond
				if len(a.opens) > 0 {
					reopen = slices.Max(a.opens)
				}
				how := killEnds(r, reopen)[i]
				if i == 0 && n%2 == 1 {
					how = killHow{name: "creating", after: killOpening, delay: reopen}
				}
				ends[how.name]++
				killRound(a, r, killPlan{Dir: dir, Seed: r.Uint64(), Durability: d}, how)
				a.checkKilled(dir, d)
				done++
			}
			a.checkRecovered(dir, d)
			opens = append(opens, a.opens...)
			_, submitted := a.counts()
			keys += submitted
			claims += a.claims
			records += int64(a.records)
		})
		if t.Failed() {
			break
		}
	}
	if len(opens) > 0 {
		slices.Sort(opens)
		t.Logf("%d keys, %d claims granted, %d records, ends %v; reopening took %v in the median, %v at most (%d opens)",
			keys, claims, records, ends, opens[len(opens)/2], opens[len(opens)-1], len(opens))
	}
}
