package engine

import (
	"errors"
	"time"

	"github.com/rs/zerolog"
)

// EventName says what happened. The names are stable: logs and alerts may rely on them.
type EventName string

// The events.
const (
	EventUnreachable      EventName = "broker_unreachable" // at start; tried again for a while
	EventStarted          EventName = "started"
	EventStopping         EventName = "stopping"
	EventStopped          EventName = "stopped"
	EventRebalanced       EventName = "rebalanced"               // Count = partitions assigned here now
	EventAssigned         EventName = "assigned"                 // Offset = where it begins, Count = records beyond it that an earlier owner has settled
	EventWindowIgnored    EventName = "window_ignored"           // what the commit says of the work beyond it can't be used
	EventStoreOpened      EventName = "dedupe_store_opened"      // Count = keys in it
	EventStoreQuarantined EventName = "dedupe_store_quarantined" // unreadable: moved away, and begun anew (Dedupe.Quarantine)
	EventStoreSizing      EventName = "dedupe_store_sizing"      // Count = keys that it will hold
	EventStoreSpace       EventName = "dedupe_store_space"       // the same, where the disk has no room for it
	EventUnkeyed          EventName = "dedupe_unkeyed"           // a record without a business key, the first of its topic
	EventStoreFailed      EventName = "dedupe_store_failed"      // it can't write: nothing starts, nothing is committed
	EventStoreRecovered   EventName = "dedupe_store_recovered"   //
	EventStoreRolledBack  EventName = "dedupe_store_rolled_back" // it has lost writes since the group's commit
	EventCrashLoop        EventName = "crash_loop"               // Count = assignments that ended uncleanly at this offset
	EventRevoked          EventName = "committed_on_revoke"      // handed over in a rebalance; Offset = committed, Took = the drain
	EventReleased         EventName = "committed_on_stop"        // the same at a stop
	EventLost             EventName = "lost"                     // another member may own it; nothing was committed
	EventRenewed          EventName = "renewed"                  // a new epoch of the same assignment, at another offset
	EventSuspended        EventName = "suspended"                // the coordinator is silent: nothing starts, nothing is committed
	EventResumed          EventName = "resumed"                  // the end of a suspension
	EventSessionEnded     EventName = "session_ended"            // the client rejoins
	EventLeaveFailed      EventName = "leave_failed"             //
	EventProtocolFellBack EventName = "protocol_fell_back"       // KIP-848 was asked for, and the client joined by the classic protocol
	EventCommitFailed     EventName = "commit_failed"            // Count = times in a row
	EventRetryExhausted   EventName = "retry_exhausted"          // Count = attempts
	EventDeadLettered     EventName = "dead_lettered"            // acknowledged
	EventDeadLetterFailed EventName = "dead_letter_failed"       // the partition holds; Count = tries
	EventOutputFailed     EventName = "output_failed"            // the partition holds; Count = tries
	EventDeadLetterCut    EventName = "dead_letter_cut"          // too large: written without key and value
	EventSkipped          EventName = "skipped"                  // settled without its work, by policy
	EventHeld             EventName = "held"                     // the partition stops at this record
	EventKeyHeld          EventName = "key_held"                 // it waits because an earlier record of its key was dead-lettered
	EventPaused           EventName = "paused"                   // fetching stops for a reason that needs somebody, or for long; Reason, Took so far
	EventUnpaused         EventName = "unpaused"                 // the end of a pause that was an event; Took = how long it lasted
	EventBreakerOpen      EventName = "breaker_open"             //
	EventBreakerReset     EventName = "breaker_reset"            //
	EventFetchFailed      EventName = "fetch_failed"             //
	EventDataLoss         EventName = "data_loss"                // retention deleted Count records before they were read
	EventTruncated        EventName = "log_truncated"            //
	EventTopicRecreated   EventName = "topic_recreated"          // deleted and created again: consumed afresh
	EventTopicDeleted     EventName = "topic_deleted"            //
	EventPartitionsAdded  EventName = "partitions_added"         //
	EventStartFailed      EventName = "start_offsets_failed"     //
	EventStartsLatest     EventName = "starts_latest"            // a warning
	EventNoPartitions     EventName = "no_partitions"            // a warning
	EventUnowned          EventName = "partitions_unowned"       // Count partitions that no member had; the group is made to rebalance
	EventConfigWarning    EventName = "config_warning"           // a warning
	EventStuck            EventName = "stuck"                    // a handler runs longer than StuckAfter
	EventUnstuck          EventName = "unstuck"                  //
	EventStalled          EventName = "stalled"                  // backlog, but no progress for StalledAfter
	EventOpenTransaction  EventName = "open_transaction"         // an undecided transaction holds the log's stable end back
	EventFlushFailed      EventName = "flush_failed"             //
	EventLogEndsStale     EventName = "log_ends_stale"           // nothing is heard of where the logs of Count partitions end
	EventWorkers          EventName = "workers"                  // the limit changed; Count = total, Reason = who or what did it
)

// Event is something that happened to the engine or to one of its partitions. Unused fields are zero; Partition is -1 where
// the event is not about one.
type Event struct {
	Name      EventName
	Topic     string
	Partition int32
	Offset    int64
	Count     int64
	Owner     Owner
	Took      time.Duration
	Err       error
	Reason    string // of a pause: as in PartitionStatus.Paused, with commas between; of EventWorkers: see there
	Hint      string // what it means, and what to do

	minor bool // worth an info line only
}

var eventLevels = map[EventName]zerolog.Level{
	EventUnreachable: zerolog.WarnLevel, EventLost: zerolog.WarnLevel, EventSuspended: zerolog.WarnLevel, EventSessionEnded: zerolog.WarnLevel, EventLeaveFailed: zerolog.WarnLevel, EventProtocolFellBack: zerolog.WarnLevel,
	EventCommitFailed: zerolog.WarnLevel, EventRetryExhausted: zerolog.WarnLevel, EventDeadLettered: zerolog.WarnLevel,
	EventDeadLetterFailed: zerolog.ErrorLevel, EventOutputFailed: zerolog.ErrorLevel, EventDeadLetterCut: zerolog.WarnLevel, EventSkipped: zerolog.WarnLevel, EventHeld: zerolog.ErrorLevel,
	EventKeyHeld: zerolog.WarnLevel, EventPaused: zerolog.WarnLevel, EventBreakerOpen: zerolog.ErrorLevel, EventFetchFailed: zerolog.ErrorLevel,
	EventDataLoss: zerolog.ErrorLevel, EventTruncated: zerolog.WarnLevel, EventTopicRecreated: zerolog.WarnLevel, EventTopicDeleted: zerolog.ErrorLevel,
	EventStartFailed: zerolog.WarnLevel, EventStartsLatest: zerolog.WarnLevel, EventNoPartitions: zerolog.WarnLevel, EventUnowned: zerolog.WarnLevel, EventConfigWarning: zerolog.WarnLevel,
	EventStuck: zerolog.ErrorLevel, EventStalled: zerolog.ErrorLevel, EventOpenTransaction: zerolog.WarnLevel, EventFlushFailed: zerolog.WarnLevel, EventLogEndsStale: zerolog.WarnLevel,
	EventPartitionsAdded: zerolog.WarnLevel, EventWindowIgnored: zerolog.WarnLevel, EventCrashLoop: zerolog.ErrorLevel,
	EventStoreFailed: zerolog.ErrorLevel, EventStoreRolledBack: zerolog.ErrorLevel, EventStoreQuarantined: zerolog.ErrorLevel,
	EventStoreSpace: zerolog.WarnLevel, EventUnkeyed: zerolog.WarnLevel, EventRebalanced: zerolog.DebugLevel,
}

// emit logs an event as one line, and tells OnEvent.
func (e *Engine) emit(ev Event) {
	level, ok := eventLevels[ev.Name]
	if !ok || ev.minor {
		level = zerolog.InfoLevel
	}
	e.counts.event(ev.Name)
	if l := e.log.WithLevel(level); l != nil && level >= e.log.GetLevel() {
		if ev.Topic != "" {
			l.Str("topic", ev.Topic)
		}
		if ev.Topic != "" && ev.Partition >= 0 {
			l.Int32("partition", ev.Partition).Int64("offset", ev.Offset)
		}
		if ev.Count != 0 {
			l.Int64("count", ev.Count)
		}
		if ev.Owner.Sequence != 0 {
			l.Str("member", ev.Owner.MemberID).Int32("generation", ev.Owner.Generation).Uint64("epoch", ev.Owner.Sequence)
		}
		if ev.Took != 0 {
			l.Dur("took", ev.Took)
		}
		if ev.Reason != "" {
			l.Str("reason", ev.Reason)
		}
		if ev.Err != nil {
			l.Err(ev.Err)
			var p *PanicError
			if errors.As(ev.Err, &p) {
				l.Bytes("stack", p.Stack)
			}
		}
		if ev.Hint != "" {
			l.Str("hint", ev.Hint)
		}
		l.Msg(string(ev.Name))
	}
	if e.cfg.OnEvent != nil {
		e.eventMu.Lock()
		defer e.eventMu.Unlock()
		e.cfg.OnEvent(ev)
	}
}

// once emits an event the first time only.
func (e *Engine) once(key string, ev Event) {
	e.mu.Lock()
	seen := e.seen[key]
	e.seen[key] = true
	e.mu.Unlock()
	if !seen {
		e.emit(ev)
	}
}
