// Package tracker answers one question about one assignment of one Kafka
// partition: what is settled, and up to where?
//
// The engine runs many handlers at once inside a partition, so records finish
// in any order, but Kafka keeps a single committed offset. A Tracker stands
// between the two. It numbers the records as they are delivered, takes their
// completions in any order, and derives the one offset that may be committed:
// the frontier.
//
// # Contract
//
// One Tracker is one epoch, that is one assignment of one partition. The clause
// numbers are those of the delivery contract in the engine's documentation.
//
//   - The frontier is the offset of the first delivered record that is not
//     done, or the offset after the last delivered record when all are done
//     (C1). It is the offset to commit: the next one to read, not the last one
//     that was read.
//   - Contiguity is over delivered records in delivery order (C2). Transaction
//     markers, aborted batches and compacted records leave holes in the offsets,
//     and no arithmetic on offsets ever decides that a record is next. The
//     frontier passes a hole as soon as the record behind it was delivered:
//     deliver 0, 2, 4, 6, finish 0, 2 and 6, and it stands at 4, not 3. Behind the
//     last delivered record it moves over a hole when [Tracker.Pass] says so.
//   - A completion that belongs to a dead epoch changes nothing but a counter
//     (C3). An epoch dies in [Tracker.Close]; in [Tracker.Rebase] everything that
//     was delivered dies while the tracker lives on. Sequence numbers are never
//     used twice, so an old completion can never be mistaken for a new one.
//   - Until a Rebase, the frontier never moves backwards (C4).
//   - Memory is bounded by Options.MaxSpan (C7): see there for the price.
//   - [NoOffset] means that the position is not known yet. It is never an operand
//     of arithmetic; the first delivered record ends it.
//
// # Concurrency
//
// All methods may be called at any time from any goroutine. Done, DoneRange,
// IsDone and Undone take no lock: the first two cost one atomic OR per 64-bit
// word that they touch. All others share a mutex that is held for a short,
// bounded computation and never across a wait. Done does not move the frontier;
// whoever next asks for it does, 64 records a step.
//
// Done bits only ever turn from 0 to 1, and every answer that has several parts
// is derived from one reading of them (see [Tracker.Snapshot]).
//
// A Done that races with a Close or a Rebase falls on exactly one side of it:
// either it returns true, is counted in Stats.DoneCount and belongs to the state
// that is being left (the frontier that Close freezes includes it), or it returns
// false and is counted in Stats.StaleDone. No completion is counted twice or not
// at all.
//
// The package has no I/O, no clock, no goroutines and no Kafka types.
package tracker
