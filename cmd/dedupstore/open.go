package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"dedupstore/store"
	"dedupstore/urlkey"
)

// clock is what stores tell the time by. Nil: the machine's. A test puts
// another one here.
var clock store.Clock

// An adding is what the flags of a verb that adds say.
type adding struct {
	options   store.Options
	namespace string        // "" is the default one
	urls      []string      // that must have keys, before a store is made
	ttl       time.Duration // 0: that of the namespace
}

// openAdding opens the store, and the namespace in it, for adding. It makes
// either if there is none, unless the flags forbid that.
func (p *program) openAdding(a adding) (*store.Store, *store.Namespace, error) {
	s, err := p.openOrMake(a.options, a.urls...)
	if err != nil {
		return nil, nil, err
	}
	var n *store.Namespace
	if a.options.MustExist {
		n, err = p.namespace(s, a.namespace)
	} else {
		n, err = s.OpenNamespace(a.namespace, nil)
	}
	if err != nil {
		return nil, nil, closeStore(s, err)
	}
	return s, n.With(store.WriteOptions{TTL: a.ttl}), nil
}

// namespace returns a namespace of s, which has to be there.
func (p *program) namespace(s *store.Store, name string) (*store.Namespace, error) {
	n, err := s.OpenNamespace(name, &store.NamespaceOptions{MustExist: true})
	if errors.Is(err, store.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w %q", p.path(), errNoNamespace, name)
	}
	return n, err
}

// openOrMake opens the store for adding. If there is none it makes one, which
// it says, unless o forbids that, or one of urls would have no key in it.
func (p *program) openOrMake(o store.Options, urls ...string) (*store.Store, error) {
	mayMake := !o.MustExist
	o.MustExist = true
	s, err := p.open(o)
	if !mayMake || !errors.Is(err, store.ErrNotExist) {
		return s, err
	}
	o.MustExist = false
	if err := p.newProfile(&o); err != nil {
		return nil, err
	}
	if _, err := p.keysOf(urls); err != nil {
		return nil, err
	}
	if s, err = p.open(o); err == nil {
		p.note("made a new store in %s", p.path())
	}
	return s, err
}

// newProfile makes keys as a store that o makes has them.
func (p *program) newProfile(o *store.Options) (err error) {
	o.KeyProfile = cmp.Or(o.KeyProfile, defaultProfile)
	p.profile, err = urlkey.Parse(o.KeyProfile)
	return err
}

// open opens the store and sees to it that its keys are made as this program
// makes them.
func (p *program) open(o store.Options) (*store.Store, error) {
	s, err := p.openAny(o)
	if err != nil {
		return nil, err
	}
	profile := s.Stats().KeyProfile
	if p.profile, err = urlkey.Parse(profile); err != nil {
		err = fmt.Errorf("%s has keys of profile %q, which this version cannot make", p.path(), profile)
		return nil, closeStore(s, err)
	}
	return s, nil
}

// openAny opens the store, whatever its keys are.
func (p *program) openAny(o store.Options) (*store.Store, error) {
	o.Clock, o.KeyProfile = clock, cmp.Or(o.KeyProfile, store.AnyKeyProfile)
	var s *store.Store
	err := p.during(doing("opening the store"), func() (err error) {
		s, err = store.Open(p.dir, &o)
		return err
	})
	return s, err
}

// closeStore closes s at the end of a run that ended with err, and returns
// what the run then ends with: the first error that needs a message.
func closeStore(s io.Closer, err error) error {
	if closeErr := s.Close(); closeErr != nil && (err == nil || isSilent(err)) {
		return fmt.Errorf("close the store: %w", closeErr)
	}
	return err
}

// close closes s as closeStore does, and shows that it takes its time: what is
// in memory is written, and a bitmap that was lost is built.
func (p *program) close(s io.Closer, err error) error {
	return p.during(doing("closing the store"), func() error { return closeStore(s, err) })
}

// path is where the store is, for messages.
func (p *program) path() string {
	if abs, err := filepath.Abs(p.dir); err == nil {
		return abs
	}
	return p.dir
}
