package store

import "context"

// An Answer is what the store says of one key of a batch.
type Answer uint8

const (
	// Unanswered is the zero value: the store has not decided.
	Unanswered Answer = iota
	// New means that the key was not there.
	New
	// Seen means that the key was there.
	Seen
)

var answerNames = [...]string{Unanswered: "unanswered", New: "new", Seen: "seen"}

func (a Answer) String() string { return answerNames[a] }

// A Digest is the fixed-width hash of a key: the identity that a store keeps.
type Digest uint64

type Store struct{}

func Open(dir string, o *Options) (*Store, error)                            { panic("not built") }
func (s *Store) Add(ctx context.Context, key string) (added bool, err error) { panic("not built") }
func (s *Store) Has(ctx context.Context, key string) (bool, error)           { panic("not built") }
func (s *Store) AddBatch(ctx context.Context, keys []string, answers []Answer) error {
	panic("not built")
}
func (s *Store) HasBatch(ctx context.Context, keys []string, answers []Answer) error {
	panic("not built")
}
func (s *Store) Digest(key string) Digest                                      { panic("not built") }
func (s *Store) Sync(ctx context.Context) error                                { panic("not built") }
func (s *Store) Flush(ctx context.Context) error                               { panic("not built") }
func (s *Store) Stats() Stats                                                  { panic("not built") }
func (s *Store) Err() error                                                    { panic("not built") }
func (s *Store) Close() error                                                  { panic("not built") }
func (s *Store) Verify(ctx context.Context, o VerifyOptions) (*Report, error)  { panic("not built") }
func Verify(ctx context.Context, dir string, o VerifyOptions) (*Report, error) { panic("not built") }
