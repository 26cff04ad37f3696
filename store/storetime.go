package store

import (
	"time"
)

type Clock interface {
	Wall() time.Time
	Monotonic() time.Duration
	Boot() (time.Duration, [16]byte)
}
type storeTime struct{ c Clock }

func newStoreTime(c Clock, last clockStamp) *storeTime { return &storeTime{} }
func (t *storeTime) now() int64                        { return time.Now().UnixNano() }
func (t *storeTime) stamp() clockStamp                 { return stampClock() }
func (t *storeTime) dropsAllowed() bool                { return true }
func (t *storeTime) tick() bool                        { return false }
func (t *storeTime) nextTick() time.Duration           { return 0 }
func (t *storeTime) accept() int64                     { return t.now() }
