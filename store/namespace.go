package store

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A Namespace is a set of keys of its own in a store: the same key in two of
// them is two keys. A Namespace is a handle, made once and used often: it also
// holds how keys are added through it, see With. All its methods may be called
// by any number of goroutines at once.
type Namespace struct {
	s     *Store
	core  *namespace
	write WriteOptions
}

// namespace is what the handles of one namespace share.
type namespace struct {
	id   uint32
	name string
	// current is replaced under the store's lock, before the publication of a
	// new state, when the namespace is dropped.
	current atomic.Pointer[incarnation]
}

// incarnation is what the words of a namespace are made with, until it is
// dropped.
type incarnation struct {
	number uint64
	key    uint64
}

func (h *hasher) incarnation(number uint64) *incarnation {
	return &incarnation{number, h.incarnationKey(number)}
}

// Forever is the TTL of a key that does not expire.
const Forever = time.Duration(forever)

// NamespaceOptions are the settings of a namespace. They are recorded.
type NamespaceOptions struct {
	// MustExist refuses to make a namespace (ErrNotExist). It is not recorded.
	MustExist bool
	// TTL is how long a key is seen after it was added, if the add says nothing
	// else. 0 leaves a namespace as it is, and gives a new one the TTL of the
	// store, which is the default namespace's.
	TTL time.Duration
}

// WriteOptions say how keys are added through a handle. The zero value takes
// what the namespace and the store have.
type WriteOptions struct {
	// TTL is how long a key is seen after it was added; Forever is for ever.
	TTL time.Duration
	// Durability is the level that answers are given at. In a store that was
	// opened with NoSync, Interval is taken for Sync: nobody syncs there.
	Durability Durability
}

// With returns a handle to the same namespace that adds with other options.
// Those that are zero stay as they are. A negative TTL is an error of the adds.
func (n *Namespace) With(o WriteOptions) *Namespace {
	with := *n
	if o.TTL != 0 {
		with.write.TTL = o.TTL
	}
	if o.Durability != DurabilityDefault {
		with.write.Durability = o.Durability
	}
	return &with
}

// Name is the namespace's name, "" for the default one.
func (n *Namespace) Name() string { return n.core.name }

// level is the durability of the answers given through the handle.
func (n *Namespace) level() Durability {
	switch d := n.write.Durability; {
	case d == DurabilityDefault:
		return n.s.opts.Durability
	case d == Interval && n.s.opts.Durability == NoSync:
		return Sync
	default:
		return d
	}
}

// call calls fn with the handle, or, in a store that stands for another one,
// with one of that.
func (n *Namespace) call(fn func(*Namespace) error) error {
	if n.s.waiting == nil {
		return fn(n)
	}
	return n.s.waiting.call(func(s *Store) error {
		core, err := s.namespaceNamed(n.core.name)
		if err != nil {
			return err
		}
		return fn(&Namespace{s: s, core: core, write: n.write})
	})
}

// namespaceNamed returns what the handles of a namespace share.
func (s *Store) namespaceNamed(name string) (*namespace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	core, ok := s.mu.named[name]
	if !ok {
		return nil, noNamespace(name)
	}
	return core, nil
}

func noNamespace(name string) error { return fmt.Errorf("%w: namespace %q", ErrNotExist, name) }

// openNamespaces makes what handles share, from the registry's rows.
func (s *Store) openNamespaces() {
	s.mu.named = make(map[string]*namespace, len(s.mu.registry.namespaces))
	for id, row := range s.mu.registry.namespaces {
		s.nameLocked(id, &row)
	}
	s.Namespace = &Namespace{s: s, core: s.mu.named[""]}
}

func (s *Store) nameLocked(id uint32, row *namespaceRow) *namespace {
	core := &namespace{id: id, name: row.name}
	core.current.Store(s.identity.hasher.incarnation(row.incarnation))
	s.mu.named[row.name] = core
	return core
}

// OpenNamespace returns the namespace of that name, and makes it if there is
// none; "" is the default one, whose TTL is the store's. Options that differ
// from what is recorded are recorded, for the keys that are added from then
// on; nil changes nothing. A name has at most 255 bytes, and no control
// characters.
//
// A namespace costs some 200 bytes of memory and a row of the registry, and
// no file of its own: there may be tens of thousands. It stays, empty, when it
// is dropped.
func (s *Store) OpenNamespace(name string, o *NamespaceOptions) (*Namespace, error) {
	if s.waiting != nil {
		err := s.waiting.call(func(s *Store) error {
			_, err := s.OpenNamespace(name, o)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &Namespace{s: s, core: &namespace{name: name}}, nil
	}
	var ttl time.Duration
	mustExist := false
	if o != nil {
		ttl, mustExist = o.TTL, o.MustExist
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if ttl < 0 {
		return nil, fmt.Errorf("store: namespace %q: a TTL of %v", name, ttl)
	}
	if s.current.Load().closed {
		return nil, ErrClosed
	}
	s.mu.Lock()
	core := s.mu.named[name]
	if core == nil && mustExist {
		s.mu.Unlock()
		return nil, noNamespace(name)
	}
	recorded := core != nil && (ttl == 0 || s.mu.registry.namespaces[core.id].ttl == int64(ttl))
	s.mu.Unlock()
	if !recorded {
		var err error
		if core, err = s.recordNamespace(name, int64(ttl)); err != nil {
			return nil, err
		}
	}
	return &Namespace{s: s, core: core}, nil
}

// setTTL records the default namespace's TTL, if it is another one.
func (s *Store) setTTL(ttl time.Duration) error {
	if ttl == 0 || s.mu.registry.namespaces[0].ttl == int64(ttl) {
		return nil
	}
	_, err := s.recordNamespace("", int64(ttl))
	return err
}

func checkName(name string) error {
	switch {
	case len(name) > maxNamespaceBytes:
		return fmt.Errorf("store: the name of a namespace has %d bytes, at most %d", len(name), maxNamespaceBytes)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("store: namespace %q has a control character in its name", name)
	}
	return nil
}

// recordNamespace makes a namespace, or changes its TTL.
func (s *Store) recordNamespace(name string, ttl int64) (*namespace, error) {
	var core *namespace
	err := s.record(func() (recorded bool) {
		r := s.mu.registry
		core = s.mu.named[name]
		var row namespaceRow
		if core != nil {
			if row = r.namespaces[core.id]; ttl == 0 || row.ttl == ttl {
				return false // somebody else has made it since
			}
			row.ttl = ttl
		} else {
			row = namespaceRow{incarnation: r.nextIncarnation, ttl: ttl, name: name}
			if ttl == 0 {
				row.ttl = r.namespaces[0].ttl
			}
			core = s.nameLocked(r.nextNamespace, &row)
		}
		r.setNamespace(core.id, row)
		s.log.Append(recordNamed, appendNamed(nil, core.id, &row))
		return true
	})
	return core, err
}

// record has fn change the registry and append the record that says so, in one
// hold of the lock, and returns when that is synced.
func (s *Store) record(fn func() (recorded bool)) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.reserveLog(room{logBytes: keepLogBytes}); err != nil {
		return err
	}
	s.mu.Lock()
	if s.mu.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	recorded := fn()
	last := s.log.Last()
	s.mu.Unlock()
	if !recorded {
		return nil
	}
	s.kick()
	return s.waitSynced(last)
}

// DropNamespace forgets all keys of a namespace, in one step: when it returns,
// durably, each of them is new, and the space comes back by and by. The name
// and its options stay, and so do handles. Claims on its keys are lost. One
// that there is not is ErrNotExist.
func (s *Store) DropNamespace(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.waiting != nil {
		return s.waiting.call(func(s *Store) error { return s.DropNamespace(ctx, name) })
	}
	if s.current.Load().closed {
		return ErrClosed
	}
	core, err := s.namespaceNamed(name)
	if err != nil {
		return err
	}
	return s.record(func() (recorded bool) {
		r := s.mu.registry
		row := r.namespaces[core.id]
		row.incarnation = r.nextIncarnation
		r.setNamespace(core.id, row)
		s.log.Append(recordNamed, appendNamed(nil, core.id, &row))
		core.current.Store(s.identity.hasher.incarnation(row.incarnation))
		s.publishLocked(func(*state) {})
		return true
	})
}

// NamespaceStats are the figures of a namespace.
type NamespaceStats struct {
	Name string        `json:"name"`
	URLs int64         `json:"urls"` // exact
	TTL  time.Duration `json:"ttl_ns"`
}

// Namespaces returns the namespaces as they are now, in the order of their
// names, the default one first.
func (s *Store) Namespaces() iter.Seq[NamespaceStats] {
	if s.waiting != nil {
		var seq iter.Seq[NamespaceStats]
		if s.waiting.call(func(s *Store) error { seq = s.Namespaces(); return nil }) != nil {
			return func(func(NamespaceStats) bool) {}
		}
		return seq
	}
	s.mu.Lock()
	r := s.mu.registry
	urls := make(map[uint32]int64, len(r.namespaces))
	s.eachLiveLocked(func(row *segmentRow, words int64) { urls[row.namespace] += words })
	all := make([]NamespaceStats, 0, len(r.namespaces))
	for id, row := range r.namespaces {
		all = append(all, NamespaceStats{Name: row.name, URLs: urls[id], TTL: time.Duration(row.ttl)})
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b NamespaceStats) int { return strings.Compare(a.Name, b.Name) })
	return slices.Values(all)
}

// eachLiveLocked calls fn with each segment whose words count, and how many they
// are, those of the memtables too.
func (s *Store) eachLiveLocked(fn func(row *segmentRow, words int64)) {
	st := s.current.Load()
	now := s.now()
	for id, row := range s.mu.registry.segments {
		if !s.mu.registry.live(&row, now) {
			continue
		}
		words := int64(row.words)
		for _, m := range []*memtable{st.active, st.frozen} {
			if m != nil {
				words += m.wordsOf(id) - m.deleted[id]
			}
		}
		fn(&row, words)
	}
}

// urlsLocked is the exact number of URLs.
func (s *Store) urlsLocked() (n int64) {
	s.eachLiveLocked(func(_ *segmentRow, words int64) { n += words })
	return n
}
