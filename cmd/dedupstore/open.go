package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"dedupstore/store"
)

// openOrMake opens the store for adding. If there is none it makes one, which
// it says, unless o forbids that.
func (p *program) openOrMake(o store.Options) (*store.Store, error) {
	mayMake := !o.MustExist
	o.MustExist = true
	s, err := p.open(o)
	if !mayMake || !errors.Is(err, store.ErrNotExist) {
		return s, err
	}
	o.MustExist = false
	if s, err = p.open(o); err == nil {
		p.note("made a new store in %s", p.path())
	}
	return s, err
}

// open opens the store and sees to it that its keys are made as this program
// makes them.
func (p *program) open(o store.Options) (*store.Store, error) {
	s, err := store.Open(p.dir, &o)
	if err != nil {
		return nil, err
	}
	if profile := s.Stats().KeyProfile; !knownProfile(profile) {
		err := fmt.Errorf("%s has keys of profile %q, which this version cannot make", p.path(), profile)
		return nil, closeStore(s, err)
	}
	return s, nil
}

func knownProfile(profile string) bool {
	for _, known := range keyProfiles {
		if profile == known {
			return true
		}
	}
	return false
}

// closeStore closes s at the end of a run that ended with err, and returns
// what the run then ends with: the first error that needs a message.
func closeStore(s *store.Store, err error) error {
	if closeErr := s.Close(); closeErr != nil && (err == nil || isSilent(err)) {
		return fmt.Errorf("close the store: %w", closeErr)
	}
	return err
}

// path is where the store is, for messages.
func (p *program) path() string {
	if abs, err := filepath.Abs(p.dir); err == nil {
		return abs
	}
	return p.dir
}
