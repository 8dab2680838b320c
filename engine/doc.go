// Package engine runs a Kafka consumer group end to end: it handles many records at once inside every partition, commits an
// offset only when nothing before it is unfinished, retries, dead-letters, hands over in a rebalance and stops cleanly.
//
//	e, err := engine.New(engine.Config{
//		Brokers: []string{"localhost:9092"},
//		Group:   "billing",
//		Topics:  []string{"orders"},
//		Handler: engine.HandlerFunc(func(ctx context.Context, r *engine.Record) error {
//			return charge(ctx, r.Key, r.Value)
//		}),
//	})
//	if err != nil {
//		return err
//	}
//	return e.Run(ctx) // until ctx ends; then drains, commits and leaves
//
// # The delivery contract
//
// Every test of behaviour names the clause that it checks.
//
// C1 Settled before committed. A record is settled when its handler returned nil and its outputs are acknowledged, when its
// dead letter was acknowledged by the broker, or when an explicit policy skipped it (counted and logged). The offset that is
// committed for a partition is never above the lowest delivered record that is not settled.
//
// C2 Gaps in offsets are not gaps in work. Contiguity is over delivered records in delivery order. Transaction markers,
// aborted batches and compacted-away records leave holes in the numbers; the commit passes over them, up to the end of the log:
// lag reaches 0 behind a trailing marker (a tail that compaction removed is the exception). Lag is the high watermark less the
// committed offset, as Kafka's own tools count; the last stable offset and the frontier stand beside it.
//
// C3 One owner. Each assignment of a partition is an epoch (member id, generation, sequence number). Every record, completion
// and commit belongs to one. A completion of an epoch that has ended changes nothing but a counter. A commit whose member id is
// not the epoch's is not sent. After a loss nothing is committed. The client learns that it was thrown out only when the
// network is back, so the engine has a clock of its own: it runs from the sending of the last group request that was answered;
// its limit is the session timeout (KIP-848: the group's consumer.session.timeout.ms, else Config.SessionTimeout), plus the
// rebalance timeout while a JoinGroup is out. Past it the epochs are suspended: no start, no commit, handler contexts end. A
// good heartbeat for the same member id resumes them, a loss ends them.
//
// C4 Monotone. Within an epoch the committed offset never goes backwards, one commit request is in flight at a time, and
// "committed" means acknowledged by the broker for that partition.
//
// C5 Idempotent. A record that comes again is not handled again where its earlier owner's resume window says that it was
// settled: with the metadata of commits alone, a crash redoes what was in flight and what settled since the last acknowledged
// commit; with a dedupe store (Config.Dedupe), on the same host, what was in flight and what was not durable yet; after one
// quiet commit interval nothing that had finished. With business keys (Dedupe.Key), once a record is settled and its mark
// durable, no other record with that key reaches a handler while the mark is retained, in that store. A mark is durable only
// after its handler has succeeded and its outputs are acknowledged, and a record is settled only after its mark is durable. Two copies in
// flight run one after the other, and the second is skipped if the first succeeded. The store fails closed: a read error holds
// that partition; a store that cannot write stops starts and commits everywhere, unhealthy, until it can; it never says "seen"
// of a key that was not handled. A dead letter enters the resume window only, never a mark. An operator's rewind is honoured
// for redelivery; for business keys the rewind tool offers to forget them as well.
//
// C6 Order. OrderUnordered promises nothing. OrderKey: records of one key (per topic and partition) start in offset order and
// never overlap, including across retries and across a revoke and return to the same process; a record with no key is
// unordered, an empty key is a key. OrderPartition: strictly one after the other. The promise is per process, and across
// processes from a clean revoke on: no client can stop a paused zombie's handler from overlapping the new owner's, so that is
// bounded by the session and drain deadlines, counted, and Record.Owner is a fencing value. A violation is a record that starts
// while an earlier one of its key was never settled. A key is free when the handler has returned and its outputs are
// acknowledged. Batches: under OrderKey a batch holds at most one record of a key; under OrderPartition the first failure ends
// the batch; a batch is of one partition.
//
// C7 Bounded memory. What is held is bounded by count and by bytes, per partition and in total, whatever the handler does and
// however far the head of a partition is stuck. A partition that holds nothing is always admitted one fetch. The byte bound
// counts what is pinned: a fetched slice counts whole until each of its records is finished or copied, and the leftovers of a
// mostly finished slice are copied. The client's own fetch buffers come on top, and the total is logged at start. A slow key
// holds up no other key until its own waiting records fill the partition's bound; then the status names that key.
//
// C8 Bounded time. Every wait has a deadline. Engine.Stop returns by its context's deadline in every state and says which
// records it abandoned. A revoke never takes longer than the drain deadline (and a commit's), which is below the group's
// rebalance timeout. A drain, on revoke or stop, waits for running handlers and their outputs only; queued, parked and
// unstarted work is given up unsettled. A handler's context ends at the drain deadline, at its own deadline, on lost or
// suspended, and on a hard stop.
//
// C9 Never silent. A stuck handler, a stalled fetch, a partition that makes no progress with backlog, a commit that keeps
// failing: each is an event, a metric and a health failure. A member without partitions is healthy. Records that retention
// deleted before the group read them are the one true loss: by default the partition stops and says how many are gone; going
// on from earliest or latest is a choice.
package engine
