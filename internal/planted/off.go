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
	WaitForRoomInside     = false
	NoFloor               = false // rule 24
	CountersUnstuck       = false // rule 18
	ClaimsUnasked         = false // rule 4
	TokenIgnored          = false // claims
)
