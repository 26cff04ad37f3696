//go:build planted

package planted

import "os"

var fault = os.Getenv(EnvVar)

// Faults, of which the environment variable EnvVar names the one that is in.
var (
	FreezeOutsideLock     = fault == "freeze-outside-lock"
	NoSecondLook          = fault == "no-second-look"
	StaleView             = fault == "stale-view"
	ReleaseBeforeBits     = fault == "release-before-bits"
	SeenBeforeWriteActive = fault == "seen-before-write-active"
	SeenBeforeWriteFrozen = fault == "seen-before-write-frozen"
	MemtableWordsInCache  = fault == "memtable-words-in-cache"
	StampsLate            = fault == "stamps-late"
	AckBeforeSync         = fault == "ack-before-sync"
	SyncStartedEarlier    = fault == "sync-started-earlier"
	NoChainCheck          = fault == "no-chain-check"
	TornIsSkipped         = fault == "torn-is-skipped"
	UnmapAtOnce           = fault == "unmap-at-once"
	UnlinkBeforeIngestRow = fault == "unlink-before-ingest-row"
	NoBitsAtOpen          = fault == "no-bits-at-open"
	SegmentIDReused       = fault == "segment-id-reused"
	SegmentRecordLate     = fault == "segment-record-late"
	BuildMissesFlush      = fault == "build-misses-flush"
	PagesUnchecked        = fault == "pages-unchecked"
	RepairUnrecorded      = fault == "repair-unrecorded"
	TableTailForgotten    = fault == "table-tail-forgotten"
	WaitForRoomInside     = fault == "wait-for-room-inside"
	NoFloor               = fault == "no-floor"
	CountersUnstuck       = fault == "counters-unstuck"
	CountedDropped        = fault == "counted-dropped"
	CountedUnflushed      = fault == "counted-unflushed"
	ClaimsUnasked         = fault == "claims-unasked"
	TokenIgnored          = fault == "token-ignored"
	ClockBelieved         = fault == "clock-believed"
	StampInDoubt          = fault == "stamp-in-doubt"
	ForgetKeepsEpoch      = fault == "forget-keeps-epoch"
	MarkBeforeWrite       = fault == "mark-before-write"
	FillUnchecked         = fault == "fill-unchecked"
	LastAddDecides        = fault == "last-add-decides"
	UnlinkBeforeSwitch    = fault == "unlink-before-switch"
	DroppedUnknown        = fault == "dropped-unknown"
	DroppedFlushed        = fault == "dropped-flushed"
	DropOverLive          = fault == "drop-over-live"
	ForgetUnsynced        = fault == "forget-unsynced"
	ForgetReplayedLast    = fault == "forget-replayed-last"
	TombstoneLifted       = fault == "tombstone-lifted"
	StaleIncarnation      = fault == "stale-incarnation"
	DropInDoubt           = fault == "drop-in-doubt"
)
