// Package wal is a write-ahead log: records go into numbered log files and
// are waited for, until they are written or until they are synced.
//
// The payload of a record is opaque; it has a [Kind] of the caller's. Every
// record has an [LSN], its position: one more than that of the record before,
// across files. Two positions advance in order: everything up to Written has
// been handed to the operating system and survives the death of the process;
// everything up to Synced survives the loss of power.
//
// # Guarantees
//
//   - WaitSynced returns nil only after an fdatasync that started when the
//     record was written already. A crash does not lose what it acknowledged,
//     and [Read] returns a [CorruptError] if that was damaged later, but for
//     the case below.
//   - A sync of one file implies one of all files before it.
//   - The first failed write or sync poisons the Log: nothing is written or
//     synced after it, and whoever waits for more than was safe by then gets
//     the same error. A failed sync is never tried again, for the second try
//     reports success and the data is gone.
//   - A full disk is found by Reserve and Prepare, before anything changed,
//     unless the file system cannot preallocate.
//
// # Not guaranteed
//
// Records that are above the synced position may be lost, and are lost from
// the end: what is read back is a prefix. Damage to a record is told from an
// incomplete tail by the synced position that is on record: a record which was
// acknowledged and is the very last that was written, with no sync mark behind
// it, counts as part of the tail: what is dropped is reported, not an error.
// A log that syncs in intervals, or that was closed, has such a mark.
//
// Without SyncInterval and WaitSynced, nothing is synced before Close, and
// files that were switched from stay open. The package takes no lock on its directory.
//
// # Concurrency
//
// The caller serialises Append and Switch. Every other method may be called
// at any time from any goroutine. Two leaders at most do I/O on a file: one
// writes, one syncs, and everybody else waits for them.
//
// # Format
//
// Integers are little-endian. A directory holds log files that are numbered
// without a gap and named like 0000000001.log. A file is a header and frames.
//
//	file header, 136 bytes
//	+-----+------------------------------------------------------------+
//	|   0 | magic "DEDUPWAL"                                           |
//	|   8 | version, uint32: 1                                         |
//	|  12 | flags, uint32: 0                                           |
//	|  16 | store id, 16 bytes                                         |
//	|  32 | file number, uint64, that of the name                      |
//	|  40 | first LSN, uint64                                          |
//	|  48 | chain, uint64: checksum of the last frame of the file before |
//	|  56 | sealed end, int64: where the file before was ended         |
//	|  64 | meta, 64 bytes of the caller's                             |
//	| 128 | checksum, uint64: xxh64 of bytes 0 to 127                  |
//	+-----+------------------------------------------------------------+
//
//	frame, 40 bytes + payload + 0 to 7 bytes of zeros, 8-byte aligned
//	+-----+------------------------------------------------------------+
//	|   0 | magic, uint16: 0xd7c5                                      |
//	|   2 | kind, uint8                                                |
//	|   3 | reserved, uint8: 0                                         |
//	|   4 | payload bytes, uint32, at most 16 MiB                      |
//	|   8 | LSN, uint64                                                |
//	|  16 | synced LSN, uint64, as of when the frame was made          |
//	|  24 | previous frame's checksum, uint64                          |
//	|  32 | checksum, uint64                                           |
//	|  40 | payload, zeros up to a multiple of 8                       |
//	+-----+------------------------------------------------------------+
//
// A frame's checksum is the xxh64 of its bytes 0 to 31 and 40 to its end,
// padding included, with the seed (previous checksum) XOR (xxh64 of the store
// id and the file number). So a frame can be verified by itself, behind bad
// bytes too, and never in a file that it was not written to.
//
// Kinds: 0 is invalid, so that zeros are no frame. 1 is a sync mark: it has no
// payload, carries the LSN of the record before it and uses none up. 2 is a
// switch: its payload is the number of the next file, uint64; it is the last
// frame of its file. 3 to 15 are reserved, from 16 on they are the caller's.
//
// A file begins in one of two ways, and its header tells which:
//
//   - First LSN, chain and sealed end are 0: it was prepared. It is the next
//     file once the switch record of the file before names it, and that record
//     gives its first LSN and its chain. Not named, it is a left-over. (It is
//     made before the switch, outside the caller's lock, when neither is known
//     yet; writing the header again at the switch would be one more write that
//     a crash can tear.)
//   - Otherwise it was created. It continues the file before, which was read
//     up to the sealed end and synced before this header was written; or,
//     where the sealed end is 0, there is no file before.
//
// Zeros from the last frame to the end of the file are its normal end. Read
// says what else may follow.
package wal
