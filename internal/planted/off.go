//go:build !planted

package planted

// Faults, all out.
const (
	FreezeOutsideLock     = false
	NoSecondLook          = false
	StaleView             = false
	ReleaseBeforeBits     = false
	SeenBeforeWriteActive = false
	SeenBeforeWriteFrozen = false
	MemtableWordsInCache  = false
	StampsLate            = false // rule 7
	AckBeforeSync         = false
	SyncStartedEarlier    = false // rule 11
	NoChainCheck          = false // rule 12
	TornIsSkipped         = false // rule 12
	UnmapAtOnce           = false // rule 8
	UnlinkBeforeIngestRow = false // rule 15
	NoBitsAtOpen          = false // rule 15
	SegmentIDReused       = false // rule 16
	SegmentRecordLate     = false // rule 16
	BuildMissesFlush      = false // rule 17
	PagesUnchecked        = false // rule 21
	RepairUnrecorded      = false // repair
	TableTailForgotten    = false // repair
	RepairDeletesUnread   = false // repair
	WaitForRoomInside     = false
	NoFloor               = false // rule 24
	CountersUnstuck       = false // rule 18
	CountedDropped        = false // rule 18
	CountedUnflushed      = false // rule 16
	ClaimsUnasked         = false // rule 4
	TokenIgnored          = false // claims
	ClockBelieved         = false // rule 22
	StampInDoubt          = false // rule 22
	ForgetKeepsEpoch      = false // rule 4
	MarkBeforeWrite       = false // filter
	FillUnchecked         = false // rule 7
	LastAddDecides        = false // rule 9
	UnlinkBeforeSwitch    = false // rule 17
	DroppedUnknown        = false // rule 16
	DroppedFlushed        = false // rule 19
	DropOverLive          = false // rule 19
	ForgetUnsynced        = false // rule 20
	ForgetReplayedLast    = false // rule 20
	TombstoneLifted       = false // rule 20
	StaleIncarnation      = false // rule 20
	DropInDoubt           = false // rule 22
)
