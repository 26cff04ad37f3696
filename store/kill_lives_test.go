package store

// kill -9 while keys are added, forgotten, dropped with their namespaces, and
// expire. A child does what diaries can account for; the diaries are in the
// parent, which the child tells of everything before and after it does it. The
// clock is a fake one that the child moves, and its successor goes on with.
//
//	go test ./store -run TestKill9Lives -kill.points=200

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"dedupstore/internal/seam"
)

const (
	killLivesEnv     = "DEDUPSTORE_TEST_KILL_LIVES" // a killLivesPlan as JSON
	killLivesWorkers = 3
)

// A killLivesPlan is what a child does.
type killLivesPlan struct {
	Dir   string
	Seed  uint64
	Level Durability
	// The clock as the last child has left it.
	Wall       time.Time
	Mono, Boot time.Duration
	BootID     [16]byte
	Excise     int64
	Point      string // where the child kills itself; empty: it waits to be killed
	Times      int64
}

func (p *killLivesPlan) clock() *fakeClock {
	return &fakeClock{wall: p.Wall, mono: p.Mono, boot: p.Boot, bootID: p.BootID}
}

func killLivesOptions(level Durability, clock Clock, excise int64) *Options {
	o := &Options{Durability: level, ExpectedURLs: 200, MemoryBytes: 1 << 20, SyncInterval: 20 * time.Millisecond, Clock: clock}
	SetSeams(o, seam.Seams{MemtableWords: 100, SpanWords: 400, BuildWords: 200, ExciseWords: excise})
	return o
}

// A killCall is a line that a child writes: a call of an account's method, or
// what it has found at its start.
type killCall struct {
	Who     int      `json:"w"`
	Verb    string   `json:"v"` // begin, end, settle, added, looked, forgot, passing, opened, failed
	Op      int      `json:"o,omitempty"`
	Keys    [][2]int `json:"k,omitempty"`
	From    int64    `json:"f,omitempty"`
	Forgets bool     `json:"g,omitempty"`
	Durable bool     `json:"d,omitempty"`
	Failed  bool     `json:"x,omitempty"`
	Answers []Answer `json:"a,omitempty"`
	Begun   int64    `json:"b,omitempty"`
	Ended   int64    `json:"e,omitempty"`
	TTL     int64    `json:"t,omitempty"`
	Removed int      `json:"r,omitempty"`
	Text    string   `json:"m,omitempty"`
}

// callPipe is the account of a child's worker: the parent keeps it.
type callPipe struct {
	who int
	w   io.Writer
	mu  *sync.Mutex
	ops int
}

func (p *callPipe) write(c killCall) {
	c.Who = p.who
	line, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.w.Write(append(line, '\n')); err != nil {
		os.Exit(3) // nobody keeps the account any more
	}
}

func pairs(keys []diaryKey) (p [][2]int) {
	for _, k := range keys {
		p = append(p, [2]int{k.space, k.key})
	}
	return p
}

func (p *callPipe) begin(keys []diaryKey, e diaryEntry) int {
	p.ops++
	p.write(killCall{Verb: "begin", Op: p.ops, Keys: pairs(keys), From: e.from, Forgets: e.forgets})
	return p.ops
}

func (p *callPipe) end(op int, durable bool) {
	p.write(killCall{Verb: "end", Op: op, Durable: durable})
}

func (p *callPipe) settle(keys []diaryKey, op int, failed bool) {
	p.write(killCall{Verb: "settle", Keys: pairs(keys), Op: op, Failed: failed})
}

func (p *callPipe) added(keys []diaryKey, op int, answers []Answer, begun, ended, ttl int64) error {
	p.write(killCall{Verb: "added", Keys: pairs(keys), Op: op, Answers: answers, Begun: begun, Ended: ended, TTL: ttl})
	return nil
}

func (p *callPipe) looked(keys []diaryKey, answers []Answer, begun, ended int64) error {
	p.write(killCall{Verb: "looked", Keys: pairs(keys), Answers: answers, Begun: begun, Ended: ended})
	return nil
}

func (p *callPipe) forgot(keys []diaryKey, op, removed int, begun, ended int64) error {
	p.write(killCall{Verb: "forgot", Keys: pairs(keys), Op: op, Removed: removed, Begun: begun, Ended: ended})
	return nil
}

func (p *callPipe) passing(d time.Duration) { p.write(killCall{Verb: "passing", TTL: int64(d)}) }

// TestKillLivesChild is the child. Without its environment it does nothing.
func TestKillLivesChild(t *testing.T) {
	text := os.Getenv(killLivesEnv)
	if text == "" {
		return
	}
	var plan killLivesPlan
	must(t, json.Unmarshal([]byte(text), &plan))
	w := &livesWorld{t: t, clock: plan.clock(), level: plan.Level, rng: rand.New(rand.NewPCG(plan.Seed, 0))}
	o := killLivesOptions(plan.Level, w.clock, plan.Excise)
	if plan.Point != "" {
		o.seams.Point = killAt(plan.Point, plan.Times)
	}
	var mu sync.Mutex
	pipe := childAccount()
	parent := &callPipe{who: -1, w: pipe, mu: &mu}
	var err error
	if w.s, err = Open(plan.Dir, o); err != nil {
		parent.write(killCall{Verb: "failed", Text: err.Error()})
		return
	}
	var workers []*diarist
	for i := range killLivesWorkers {
		d := w.diarist(i, nil)
		account := &callPipe{who: i, w: pipe, mu: &mu}
		d.account = account
		if err := d.open(); err != nil {
			parent.write(killCall{Verb: "failed", Text: err.Error()})
		}
		var seen []diaryKey
		for k := range d.look(t) {
			seen = append(seen, k)
		}
		account.write(killCall{Verb: "opened", Keys: pairs(seen)})
		workers = append(workers, d)
	}
	parent.write(killCall{Verb: "running"})
	for _, d := range workers {
		go func() {
			for {
				if err := d.step(context.Background()); err != nil {
					parent.write(killCall{Verb: "failed", Text: err.Error()})
				}
			}
		}()
	}
	time.Sleep(time.Minute)
	os.Exit(4) // the parent is gone
}

// killLives is what the parent knows of one store.
type killLives struct {
	*livesWorld
	dir   string
	calls int
}

// take does in the diaries what a child has done.
func (l *killLives) take(c *killCall) error {
	l.calls++
	var keys []diaryKey
	for _, p := range c.Keys {
		keys = append(keys, diaryKey{p[0], p[1]})
	}
	switch c.Verb {
	case "failed":
		return fmt.Errorf("the child got an error: %s", c.Text)
	case "running":
		return nil
	case "passing":
		l.clock.pass(time.Duration(c.TTL))
		return nil
	case "opened":
		seen := map[diaryKey]bool{}
		for _, k := range keys {
			seen[k] = true
		}
		return l.resolve(c.Who, seen)
	}
	d := l.cuts[c.Who].d
	switch c.Verb {
	case "begin":
		if op := d.begin(keys, diaryEntry{from: c.From, by: byOf(c), forgets: c.Forgets}); op != c.Op {
			return fmt.Errorf("operation %d has the number %d here", c.Op, op)
		}
	case "end":
		d.end(c.Op, c.Durable)
	case "settle":
		d.settle(keys, c.Op, c.Failed)
	case "added":
		return d.added(keys, c.Op, c.Answers, c.Begun, c.Ended, c.TTL)
	case "looked":
		return d.looked(keys, c.Answers, c.Begun, c.Ended)
	case "forgot":
		return d.forgot(keys, c.Op, c.Removed, c.Begun, c.Ended)
	}
	return nil
}

// byOf is the end of an entry that is not answered yet.
func byOf(c *killCall) int64 {
	if c.From == 0 {
		return 0
	}
	return math.MaxInt64
}

// resolve takes over what was found after a kill, which loses nothing that was
// answered, whatever the level.
func (l *killLives) resolve(who int, seen map[diaryKey]bool) error {
	c := &l.cuts[who]
	if !c.crashed {
		c.from = c.d.moment()
		c.to, c.all = c.from, true
	}
	d, err := c.resolve(seen, l.clock.Wall().UnixNano())
	if err != nil {
		return fmt.Errorf("diarist %d: %w", who, err)
	}
	l.cuts[who] = diaryCut{d: d}
	return nil
}

// killed notes that the child was killed.
func (l *killLives) killed() {
	for i := range l.cuts {
		if c := &l.cuts[i]; !c.crashed {
			c.from = c.d.moment()
			c.to, c.all, c.crashed = c.from, true, true
		}
	}
}

// round runs a child to its end.
func (l *killLives) round(how killHow) {
	t := l.t
	plan := killLivesPlan{
		Dir: l.dir, Seed: l.rng.Uint64(), Level: l.level, Excise: l.excise, Point: how.point,
		Wall: l.clock.wall, Mono: l.clock.mono, Boot: l.clock.boot, BootID: l.clock.bootID,
	}
	if plan.Point != "" {
		plan.Times = 1 + l.rng.Int64N(4)
	}
	c := startChild(t, "TestKillLivesChild", killLivesEnv, plan)
	kill := func() { c.killIn(time.Duration(l.rng.Int64N(int64(how.delay)))) }
	if how.after == 0 {
		kill()
	}
	lines := bufio.NewReader(c.account)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // one that is cut was not done
		}
		var call killCall
		must(t, json.Unmarshal(line, &call))
		if err := l.take(&call); err != nil {
			t.Errorf("%s: %v", how.name, err)
		}
		if call.Verb == "running" && how.after != 0 {
			kill()
		}
	}
	if err := c.wait(); err != nil {
		t.Fatalf("%s: %v", how.name, err)
	}
	l.killed()
}

// recover opens the store here, and compares and verifies it.
func (l *killLives) recover(how string) {
	t := l.t
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("after %s: %s", how, fmt.Sprintf(format, args...))
	}
	var err error
	if l.s, err = Open(l.dir, killLivesOptions(l.level, l.clock, l.excise)); err != nil {
		t.Fatalf("after %s: %v", how, err)
	}
	l.check(fail)
	if err := l.s.Close(); err != nil {
		fail("close: %v", err)
	}
	if r, err := Verify(t.Context(), l.dir, VerifyOptions{Deep: true}); err != nil || !r.OK() {
		fail("verify: %v, %+v", err, r)
	}
}

// livesEnds are the ends of the children of one store, in this order.
func livesEnds(rng *rand.Rand) []killHow {
	running := killHow{name: "running", after: killOpened, delay: 3 * killRunMax}
	opening := killHow{name: "opening", delay: 120 * time.Millisecond}
	points := slices.Concat([]string{"insert", "append", "recovered-file"}, steps[:len(steps)-2], dropSteps, dropSteps)
	point := func() killHow {
		name := points[rng.IntN(len(points))]
		return killHow{name: "at " + name, after: killOpened, delay: 3 * killRunMax, point: name}
	}
	return []killHow{running, opening, point(), opening, running, point(), point()}
}

func TestKill9Lives(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: go test ./store -run TestKill9Lives -kill.seed=%d -kill.points=%d", seed, *killPoints)
	rng := rand.New(rand.NewPCG(seed, 1))
	calls, ends := 0, map[string]int{}
	for done, n := 0, 0; done < *killPoints; n++ {
		level := []Durability{Interval, Sync, NoSync}[n%3]
		t.Run(fmt.Sprintf("%d-%v", n, level), func(t *testing.T) {
			l := &killLives{dir: filepath.Join(t.TempDir(), "s"), livesWorld: &livesWorld{
				t: t, clock: newFakeClock(), level: level, rng: rng, excise: []int64{1, 50, 1 << 40}[rng.IntN(3)],
			}}
			l.begin(killLivesWorkers)
			must(t, mustOpen(t, l.dir, killLivesOptions(level, l.clock, l.excise)).Close())
			for i, how := range livesEnds(rng) {
				if i == *killPoints-done {
					break
				}
				if rng.IntN(4) == 0 {
					l.clock.reboot(time.Minute)
				}
				l.round(how)
				ends[how.name]++
				if rng.IntN(2) == 0 {
					l.recover(how.name)
				}
				if t.Failed() {
					return
				}
			}
			l.recover("all")
			done += len(livesEnds(rng))
			calls += l.calls
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d calls, ends %v", calls, ends)
}
