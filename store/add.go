package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"dedupstore/internal/planted"
	"dedupstore/wal"
)

// An Answer is what the store says of one key of a batch.
type Answer uint8

const (
	// Unanswered is the zero value: the store has not decided.
	Unanswered Answer = iota
	// New means that the key was not there.
	New
	// Seen means that the key was there.
	Seen
	// Busy means that the key was not there and that somebody holds a claim
	// on it: it is not decided yet whether it will be seen.
	Busy
)

var answerNames = [...]string{Unanswered: "unanswered", New: "new", Seen: "seen", Busy: "busy"}

// String returns the answer in lower case.
func (a Answer) String() string {
	if int(a) < len(answerNames) {
		return answerNames[a]
	}
	return fmt.Sprintf("answer(%d)", uint8(a))
}

// maxPartKeys is how many keys of a batch are decided in one hold of the lock.
const maxPartKeys = 4096

// An ask is what a caller wants of the keys of a batch.
type ask struct {
	verb   verb
	lease  time.Duration // of verbClaim
	claims []Claim       // of verbClaim, one for each key: where those granted go
}

type verb uint8

const (
	verbHas    verb = iota // look
	verbAdd                // insert what is not there
	verbClaim              // claim what is not there
	verbCommit             // insert what is claimed
	verbForget             // take out what is there
)

// part is the scratch of some keys of a batch on their way: key -> digest ->
// word -> answer.
type part struct {
	n       *Namespace
	verb    verb
	lease   time.Duration
	digests []Digest // none if the words were given
	// incarnation is what the words are made with, and now the store time at
	// which they are looked at; 0 where nothing expires.
	incarnation *incarnation
	now         int64
	words       []word
	copies      []copyOf // of verbForget: what the look found of them
	decided     []Answer // New: inserted or claimed by this part; Busy; else Unanswered
	tokens      []uint64 // of verbClaim: those granted; of verbCommit: those to check
	open        []int    // indexes of the words that the look did not find
	rests       wal.LSN  // highest record that the answers rest on
	marked      wal.LSN  // highest record of this part's own
	fresh       int      // answers that are New
	busy        int      // answers that are Busy
	payload     []byte   // of the log record
	key         []byte   // of a Get

	filtered  filtered
	unchecked int    // denied words since the last self-check
	touched   uint64 // keeps loads from being optimised away
}

var parts = sync.Pool{New: func() any { return new(part) }}

// load hashes the keys.
func (p *part) load(n *Namespace, keys []string, a ask) {
	p.reset(n, a, len(keys))
	for _, k := range keys {
		p.digests = append(p.digests, n.s.Digest(k))
	}
}

func (p *part) reset(n *Namespace, a ask, size int) {
	p.n, p.incarnation = n, nil
	p.verb, p.lease = a.verb, a.lease
	p.digests, p.words = p.digests[:0], p.words[:0]
	p.decided = append(p.decided[:0], make([]Answer, size)...)
	p.tokens = p.tokens[:0]
	if a.verb == verbClaim {
		p.tokens = append(p.tokens, make([]uint64, size)...)
	}
	p.fresh, p.busy, p.marked = 0, 0, 0
}

// mix makes the words of the digests, in the namespace's incarnation of now.
func (p *part) mix() {
	now := p.n.core.current.Load()
	if now == p.incarnation || len(p.digests) == 0 || planted.StaleIncarnation && len(p.words) > 0 {
		return
	}
	p.incarnation, p.words = now, p.words[:0]
	for _, d := range p.digests {
		p.words = append(p.words, wordOf(now.key, d))
	}
}

// rest notes that an answer rests on a memtable's records.
func (p *part) rest(m *memtable) {
	p.rests = max(p.rests, wal.LSN(m.lsn.Load()))
}

// Add reports whether the key is new, and remembers it: one atomic step. When
// err is not nil the key was not answered; it may have been remembered if the
// error is ErrPoisoned. A key that somebody has claimed is ErrClaimed.
//
// The context is looked at before the key is remembered, and not between that
// and the answer. Costs a hash, two or three cache misses and a write(2) for a
// new key; see the package documentation for what the answer has survived.
func (n *Namespace) Add(ctx context.Context, key string) (added bool, err error) {
	keys, answers := [1]string{key}, [1]Answer{}
	err = n.AddBatch(ctx, keys[:], answers[:])
	if answers[0] == Busy {
		err = ErrClaimed
	}
	return answers[0] == New, err
}

// Has reports whether the key was added before. It is never wrong with "no"
// about a key whose Add was answered before the call. A key that is claimed was
// not added.
func (n *Namespace) Has(ctx context.Context, key string) (bool, error) {
	keys, answers := [1]string{key}, [1]Answer{}
	err := n.HasBatch(ctx, keys[:], answers[:])
	return answers[0] == Seen, err
}

// AddBatch does for each key what Add does, and stores its answer at the same
// index. Keys are decided in their order, in parts of at most 4096, each
// atomic by itself; a key that stands in the batch twice is new once. The
// answer of a key that somebody has claimed is Busy, without an error. After an
// error only the members that are Unanswered may be asked again: an error that
// is not ErrPoisoned has marked none of them.
func (n *Namespace) AddBatch(ctx context.Context, keys []string, answers []Answer) error {
	return n.batch(ctx, keys, answers, ask{verb: verbAdd})
}

// AddDigests is AddBatch for keys whose digests the caller has, from Digest of
// this store.
func (n *Namespace) AddDigests(ctx context.Context, digests []Digest, answers []Answer) error {
	if n.s.waiting != nil {
		return n.call(func(n *Namespace) error { return n.AddDigests(ctx, digests, answers) })
	}
	load := func(p *part, i, size int) {
		p.reset(n, ask{verb: verbAdd}, size)
		p.digests = append(p.digests, digests[i:i+size]...)
	}
	return n.parts(ctx, len(digests), answers, ask{verb: verbAdd}, load)
}

// HasBatch does for each key what Has does: its answer is Seen or New, and
// nothing is remembered.
func (n *Namespace) HasBatch(ctx context.Context, keys []string, answers []Answer) error {
	return n.batch(ctx, keys, answers, ask{verb: verbHas})
}

func (n *Namespace) batch(ctx context.Context, keys []string, answers []Answer, a ask) error {
	if n.s.waiting != nil {
		return n.call(func(n *Namespace) error { return n.batch(ctx, keys, answers, a) })
	}
	if err := checkKeys(keys); err != nil {
		clear(answers)
		return err
	}
	load := func(p *part, i, size int) { p.load(n, keys[i:i+size], a) }
	return n.parts(ctx, len(keys), answers, a, load)
}

// parts does something for so many keys, part by part. load makes the part of
// the keys from the i-th on.
func (n *Namespace) parts(ctx context.Context, size int, answers []Answer, a ask, load func(p *part, i, size int)) error {
	s := n.s
	if size != len(answers) {
		return fmt.Errorf("store: %d keys and %d answers", size, len(answers))
	}
	clear(answers)
	if n.write.TTL < 0 {
		return fmt.Errorf("store: %w", checkTTL(int64(n.write.TTL)))
	}
	p := parts.Get().(*part)
	defer parts.Put(p)
	for i := 0; i < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		m := min(size-i, s.maxPart)
		load(p, i, m)
		var err error
		switch a.verb {
		case verbAdd:
			err = s.addPart(ctx, p, answers[i:i+m])
		case verbClaim:
			err = s.claimPart(ctx, p, answers[i:i+m], a.claims[i:i+m])
		default:
			err = s.hasPart(p, answers[i:i+m])
		}
		addIf(&s.counters.answeredNew, int64(p.fresh))
		addIf(&s.counters.answeredBusy, int64(p.busy))
		if err != nil {
			return err
		}
		addIf(&s.counters.answeredSeen, int64(m-p.fresh-p.busy))
		i += m
	}
	return nil
}

func checkKeys(keys []string) error {
	for i, k := range keys {
		switch {
		case k == "":
			return fmt.Errorf("%w: member %d of %d", ErrEmptyKey, i, len(keys))
		case len(k) > MaxKeyBytes:
			return fmt.Errorf("%w: member %d of %d has %d bytes", ErrKeyTooLong, i, len(keys), len(k))
		}
	}
	return nil
}

// hasPart looks until nothing has changed under the look.
func (s *Store) hasPart(p *part, answers []Answer) error {
	for {
		_, same, err := s.look(p)
		if err != nil {
			return err
		}
		if same {
			break
		}
	}
	if err := s.await(p.rests, p.n.level()); err != nil {
		return err
	}
	p.fresh = len(p.open)
	for i := range answers {
		answers[i] = Seen
	}
	for _, i := range p.open {
		answers[i] = New
	}
	return nil
}

// addPart decides the keys of a part and answers for them.
func (s *Store) addPart(ctx context.Context, p *part, answers []Answer) error {
	err := s.mark(ctx, p)
	rests := p.rests
	if err != nil {
		// What was marked all the same, in a memtable that was full before
		// its time, is answered.
		if rests = p.marked; rests == 0 {
			return err
		}
	}
	if werr := s.await(rests, p.n.level()); werr != nil {
		return werr
	}
	p.answer(answers, err == nil)
	return err
}

// answer tells what was decided. What the look has found is Seen, if all of
// the part is decided.
func (p *part) answer(answers []Answer, all bool) {
	for i, a := range p.decided {
		switch {
		case a == New:
			p.fresh++
		case a == Busy:
			p.busy++
		case all:
			a = Seen
		}
		answers[i] = a
	}
}

// mark decides the keys of a part in one hold of the lock, after a look that
// has answered for most of them outside of it.
func (s *Store) mark(ctx context.Context, p *part) error {
	if err := s.writable(); err != nil {
		return err
	}
	for {
		epoch, same, err := s.look(p)
		if err != nil {
			return err
		}
		if !same {
			continue
		}
		if len(p.open) == 0 && p.verb != verbForget {
			return nil
		}
		decided, err := s.decide(ctx, p, epoch)
		if err != nil || decided {
			return err
		}
	}
}

// await returns when the answers' records have come as far as the durability
// level promises. "Seen" waits like "new": whoever sees a word in a memtable
// must not answer before the record is as safe as the one who added it waits
// for.
func (s *Store) await(lsn wal.LSN, level Durability) error {
	if lsn == 0 || s.log == nil {
		return nil
	}
	if lsn > s.log.Written() && lsn > s.log.Last() {
		// Whoever inserted the word has not appended its record yet, and has
		// the lock until it is.
		s.mu.Lock()
		//lint:ignore SA2001 there is nothing to do inside
		s.mu.Unlock()
	}
	if level == Sync && !planted.AckBeforeSync {
		return s.waitSynced(lsn)
	}
	return s.waitWritten(lsn)
}

// room is what an Add must find before it may insert.
type room struct {
	words    int
	logBytes int64
}

// keepLogBytes is left in the reserved part of a log file for the records of
// the maintainer, which must not fail for want of room.
const keepLogBytes = 4 << 10

func (p *part) room() room {
	switch p.verb {
	case verbClaim:
		return room{} // a claim is neither in the memtable nor in the log
	case verbForget: // at most one record for each copy, and the active memtable may have got one since
		n := len(p.words)
		return room{words: n, logBytes: int64(n+len(p.copies))*wal.FrameBytes(addsHeaderBytes+8) + keepLogBytes}
	}
	adds := addsHeaderBytes + 8*len(p.open)
	return room{
		words:    len(p.open),
		logBytes: wal.FrameBytes(madeBytes) + wal.FrameBytes(adds) + keepLogBytes,
	}
}

// decide takes the second look, inserts what is new and logs it: one hold of
// the lock. It reports false if the look has to be done again.
func (s *Store) decide(ctx context.Context, p *part, epoch uint64) (bool, error) {
	need := p.room()
	for {
		if err := s.reserveLog(need); err != nil {
			return false, err
		}
		s.mu.Lock()
		st := s.current.Load()
		switch {
		case s.mu.closing:
			s.mu.Unlock()
			return false, ErrClosed
		case st.epoch != epoch && p.verb != verbCommit:
			s.mu.Unlock()
			return false, nil
		case !s.hasRoom(st.active, need):
			if err := s.makeRoomAndUnlock(ctx, need); err != nil {
				return false, err
			}
			continue
		}
		switch p.verb {
		case verbClaim:
			lsn, err := s.grantLocked(st.active, p)
			s.mu.Unlock()
			p.rests = max(p.rests, lsn)
			return true, err
		case verbForget:
			done := s.forgetLocked(st.active, p)
			s.mu.Unlock()
			return done, nil
		}
		lsn, all := s.insertLocked(st.active, p)
		low := int(st.active.spent.Load()) > s.memtableLimit/2 && !s.log.Prepared()
		s.mu.Unlock()
		if low {
			s.kick() // the next log file takes a while to make
		}
		p.rests = max(p.rests, lsn)
		return all, nil
	}
}

// insertLocked puts the words that are not in the active memtable there and
// logs them, but for those whose claim forbids it. It reports false if the table
// was full before all were in. A word that has expired there, or was forgotten,
// gets another segment.
//
// The record's LSN is published before the first word is: whoever finds a
// word then finds an LSN that covers it. Nothing between the two can fail.
func (s *Store) insertLocked(m *memtable, p *part) (rests wal.LSN, all bool) {
	all = true
	p.payload = p.payload[:0]
	claimed := p.verb == verbCommit || len(s.mu.claims.held) > 0
	now := s.now()
	var in segment
	var mono time.Duration // what leases go by
	if claimed {
		mono = s.opts.Clock.Monotonic()
	}
	for _, i := range p.open {
		w := p.words[i]
		slot, found := m.find(w)
		if found && !planted.NoSecondLook && m.holds(slot, now) {
			rests = max(rests, wal.LSN(m.lsn.Load()))
			continue
		}
		if !found && m.full(slot) {
			m.filled, all = true, false
			break
		}
		if len(p.payload) == 0 {
			var ok bool
			if in, ok = s.segmentFor(m, p); !ok {
				m.filled, all = true, false
				break
			}
		}
		if claimed && !s.claimAllowsLocked(p, i, mono) {
			continue
		}
		if len(p.payload) == 0 {
			p.payload = beginAdds(p.payload, in.id)
			if !planted.SeenBeforeWriteActive {
				m.cover(s.log.Next())
			}
			s.opts.seams.At("insert")
		}
		m.put(slot, w, in.number)
		p.payload = appendWord(p.payload, w)
		p.decided[i] = New
	}
	if claimed && !all {
		p.forgetBusy()
	}
	if len(p.payload) > 0 {
		s.opts.seams.At("append")
		rests = s.log.Append(recordAdds, p.payload)
		p.marked = rests
		if planted.SegmentRecordLate && in.made {
			s.logMadeLocked(in.id)
		}
	}
	return rests, all
}
