package main

// A row says which test fails when a rule is taken out.
type row struct {
	constant string // of package planted
	fault    string // what the environment variable is set to
	rule     string
	pkg      string
	test     string
}

// table has at least one row for each constant of package planted.
var table = []row{
	{"FreezeOutsideLock", "freeze-outside-lock", "2: memtable and log file are switched in one hold", "store", "TestFreezeIsOneHold"},
	{"NoSecondLook", "no-second-look", "2: the second look, the record and the insert are one hold", "store", "TestSecondLook"},
	{"StaleView", "stale-view", "4: the epoch is noted before the look", "store", "TestEpochOfTheLook"},
	{"ReleaseBeforeBits", "release-before-bits", "5: bits are set before a memtable is let go", "store", "TestBitsBeforeRelease"},
	{"SeenBeforeWriteActive", "seen-before-write-active", "6: \"seen\" waits for the record in the active memtable", "store", "TestSeenWaitsActive"},
	{"SeenBeforeWriteFrozen", "seen-before-write-frozen", "6: \"seen\" waits for the record in the frozen memtable", "store", "TestSeenWaitsFrozen"},
	{"MemtableWordsInCache", "memtable-words-in-cache", "7: the cache holds words found in Pebble only", "store", "TestMemtableWordsNotCached"},
	{"StampsLate", "stamps-late", "7: at its stamp, which is rounded down, an entry is a miss", "store", "TestCacheNeverLate"},
	{"AckBeforeSync", "ack-before-sync", "10: level Sync answers after fdatasync", "store", "TestSyncBeforeAnswer"},
	{"AckBeforeSync", "ack-before-sync", "10: who waits for a sync waits for it", "wal", "TestFailedSyncTakesBackWritten"},
	{"SyncStartedEarlier", "sync-started-earlier", "11: a sync covers what was written when it started", "wal", "TestGroupCommit"},
	{"NoChainCheck", "no-chain-check", "12: a frame follows the one before", "wal", "TestChain"},
	{"TornIsSkipped", "torn-is-skipped", "12: bad bytes below the synced position are corruption", "wal", "TestTornBelowSynced"},
	{"StaleView", "stale-view", "5: a look across a switch is taken again", "store", "TestLookAcrossSwitch"},
	{"UnmapAtOnce", "unmap-at-once", "8: what a view may look into stays mapped", "store", "TestLookAcrossSwitch"},
	{"UnlinkBeforeIngestRow", "unlink-before-ingest-row", "15: an ingest is on record before its log file is unlinked", "store", "TestIngestOnRecordBeforeUnlink"},
	{"NoBitsAtOpen", "no-bits-at-open", "15: bits that may not be synced are set again at open", "store", "TestBitsAtOpen"},
	{"SegmentIDReused", "segment-id-reused", "16: segment ids are never used again", "store", "TestSegmentIDs"},
	{"SegmentRecordLate", "segment-record-late", "16: a segment's record stands before the first that names it", "store", "TestSegmentRecordFirst"},
	{"BuildMissesFlush", "build-misses-flush", "17: a flush beside a build sets its bits in both", "store", "TestFlushDuringBuild"},
	{"PagesUnchecked", "pages-unchecked", "21: a page is checked before its \"no\" counts", "store", "TestFlippedAtRest"},
	{"RepairUnrecorded", "repair-unrecorded", "repair: what is lost is written down before a change", "store", "TestRepairPowerLoss"},
	{"TableTailForgotten", "table-tail-forgotten", "repair: a table's missing end is a gap", "store", "TestCarveDamage"},
	{"RepairDeletesUnread", "repair-deletes-unread", "repair: a word that was deleted in a newer table does not come back", "store", "TestRepairDeletes"},
	{"WaitForRoomInside", "wait-for-room-inside", "2: nobody waits inside the lock", "store", "TestNobodyWaitsInside"},
	{"NoFloor", "no-floor", "24: tables are refused below the disk's floor", "store", "TestCompactionMeetsFloor"},
	{"CountersUnstuck", "counters-unstuck", "18: a counter of 15 is never taken from", "counting", "TestSaturated"},
	{"CountedDropped", "counted-dropped", "18: a counted segment is subtracted before it is dropped", "store", "TestCountedBuild"},
	{"CountedUnflushed", "counted-unflushed", "16: a segment is counted when the log file in which it closed is flushed", "store", "TestCountedUnflushed"},
	{"ClaimsUnasked", "claims-unasked", "4: the claims are asked under the lock", "store", "TestClaimAgainstAdd"},
	{"ClockBelieved", "clock-believed", "22: an unconfirmed gap is doubted for ten minutes", "store", "TestStoreTimeWalk"},
	{"ClockBelieved", "clock-believed", "22: an unconfirmed gap is doubted for ten minutes", "store", "TestStoreTimeAtOpen"},
	{"StampInDoubt", "stamp-in-doubt", "22: a wrong clock is not written down in a doubt", "store", "TestStoreTimeWrongClock"},
	{"TokenIgnored", "token-ignored", "claims: a token that does not hold changes nothing", "store", "TestClaimLost"},
	{"ForgetKeepsEpoch", "forget-keeps-epoch", "4: who has found a word that was forgotten since looks again", "store", "TestForgetAgainstAdd"},
	{"FillUnchecked", "fill-unchecked", "7: what was forgotten since a look does not come into the cache", "store", "TestForgetAgainstFill"},
	{"LastAddDecides", "last-add-decides", "9: the first live Add decides when a key expires", "store", "TestFirstAddDecides"},
	{"UnlinkBeforeSwitch", "unlink-before-switch", "17: a switch is on record before what it replaces is unlinked", "store", "TestSwitchBeforeUnlink"},
	{"DroppedUnknown", "dropped-unknown", "16: records that name a dropped segment are dead", "store", "TestDroppedReplayed"},
	{"DroppedFlushed", "dropped-flushed", "19: what was dropped since an add has chosen it is not flushed", "store", "TestDroppedNotFlushed"},
	{"DropOverLive", "drop-over-live", "19: what is dropped as one range has no live segment in it", "store", "TestDropOfNeighbours"},
	{"ForgetUnsynced", "forget-unsynced", "20: a Forget is durable when it returns", "store", "TestForgetIsDurable"},
	{"ForgetReplayedLast", "forget-replayed-last", "20: an add behind a forget in the log counts", "store", "TestForgetReplayed"},
	{"TombstoneLifted", "tombstone-lifted", "20: what is older than an add over a tombstone is deleted", "store", "TestAddOverTombstone"},
	{"StaleIncarnation", "stale-incarnation", "20: the incarnation is read again when the state has changed", "store", "TestStaleIncarnation"},
	{"DropInDoubt", "drop-in-doubt", "22: nothing is dropped while the clock is in doubt", "store", "TestNothingDroppedInDoubt"},
	{"MarkBeforeWrite", "mark-before-write", "filter: a line is seen after it was written", "cmd/dedupstore", "TestFilterOutputFails"},
	{"MarkBeforeWrite", "mark-before-write", "filter: a line is seen after it was written", "cmd/dedupstore", "TestFilterEndsInWrite"},
	{"MarkBeforeWrite", "mark-before-write", "import: a URL is in the file of --added-to before it is seen", "cmd/dedupstore", "TestAddedFails"},
}
