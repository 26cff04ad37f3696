// Package store is an exact, durable set of URLs on one machine: the answer to
// "have I seen this URL?" for a crawler that meets billions of links, most of
// them again.
//
// # Guarantees
//
// Exact: Add says New once for a key, to one caller, and Seen from then on, until
// the key expires or is forgotten. It does not say Seen of a key that was not added,
// but for two keys with the same 64-bit digest: the next new key meets one with a
// probability of n/2^64 when n are stored, 5e-11 at a billion.
//
// Durable, at a level that [Options.Durability] chooses:
//
//   - [Interval], the default: an answer is given after its record is written
//     to the log file. kill -9 of the process takes nothing back. A power loss
//     takes back at most what was answered in the last [Options.SyncInterval],
//     a second, and during one fdatasync(2).
//   - [Sync]: an answer is given after an fdatasync that began after its
//     record was written. Power loss takes nothing back.
//   - [NoSync]: an answer is given after its record is written. kill -9 takes
//     nothing back; power loss may take back all that was not flushed.
//
// "Seen" is as safe as "New": it is answered when the record that it rests on
// has come as far as the level promises. What was answered is never lost in
// silence: a store that cannot tell returns an error, and one that is damaged
// does not open.
//
// A key that is to be seen only when something has been done about it, a page
// fetched, is claimed before and committed afterwards, see [Namespace.Claim]. A
// claim is not durable; its commit is, like an Add.
//
// A key that was added with a TTL is seen for that long, never shorter, and new
// from then on, or from a little later: a 24th of the TTL at most, or a second.
// The Add that found it new decides. What time it is is told by the monotonic
// clock while the store is open; see [ClockStats] for the rest.
//
// What [Namespace.Forget] and [Store.DropNamespace] have made new is so durably,
// when they return, at every level.
//
// # Namespaces and handles
//
// A [Namespace] is a set of keys of its own; a Store has the default one
// embedded, and [Store.OpenNamespace] opens others. It is a handle too, which says
// how keys are added through it: [Namespace.With] returns one with another TTL or
// durability. Tens of thousands of namespaces share files, filters and memory.
//
// # What it does not do
//
// It keeps digests and no keys, so keys cannot be listed: keep your list. One
// process has a store open for writing at a time. It cannot tell a key that
// was changed in any byte from another key: make them canonical first, with package
// urlkey, and name the profile in [Options.KeyProfile].
//
// A page of the mapped bitmap that the disk cannot read is an error of the call
// that needed it. A full disk causes none: the bitmap's blocks are allocated
// when it is made.
//
// It does not fill the disk: what would leave less than [Options.MinFreeBytes]
// is refused with ErrDiskFull, which is no poison. Lookups go on, and so does
// the store, by itself, when there is space again; also one that was opened on
// a full disk.
//
// # What it tells
//
// [Store.Stats] has the figures, [Namespace.Explain] what is known of one key and
// which part of the store answers, [NewPlan] what a store takes before there is
// one. [Store.Verify] checks all of it, [Store.Snapshot] makes a copy while it goes
// on, and [Repair] has back what damage has left.
//
// # Concurrency
//
// All methods of a Store may be called by any number of goroutines at once. A
// batch is decided in parts of at most 4096 keys, each of them atomic.
//
// # How it works
//
// A key becomes an 8-byte digest; what is stored is its word, a keyed 64-bit
// bijection of it. Words are uniform, so that position = value, and everything
// is laid out in word order: the bitmap's blocks, the memtable's slots, the
// keys in Pebble. Only RAM sees random work; whatever goes to disk is a
// sequential pass.
//
//	key -> digest -> word -> cache -> memtables -> bitmap ("no" is final) -> Pebble
//	                                     |
//	                                     +- log, before the answer
//
// An LSN is the number of a record in the log; they count up without a gap.
// Group commit means that many who wait for the log share one write and one
// fdatasync. The maintainer, one goroutine, flushes a full memtable: it ingests
// the words and the rows of the registry into Pebble in one call, sets their
// bits in the bitmap, and lets the memtable and its log file go. Words that expire
// together are a segment, one range of keys, which leaves Pebble as a whole. Past the
// bitmap's designed fill it builds one of twice the size meanwhile. See view.go
// for what a look rests on, add.go for the lock, recover.go for what an open
// does after a crash, span.go and drop.go for how words leave.
package store
