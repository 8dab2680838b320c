package proof

import (
	"fmt"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// Evidence is what Judge looks at. All times are of one clock.
type Evidence struct {
	Order   engine.Order  // what was asked of the engine
	Dedupe  bool          // business keys were looked at: a record whose copy has ended is settled
	Session time.Duration // after which the group throws a silent member out. Default: the engine's
	Drain   time.Duration // Config.DrainTimeout. Default: the engine's

	Records     []Record     // of the topics, whether they still exist or not
	Lines       []Line       // the journal, in the order in which it was written
	Commits     []Commit     // samples of what the group had committed, as a client was told
	Logged      []Commit     // all that the group has committed, in order, as the coordinator's log has it; nil: only the samples are known
	DeadLetters []DeadLetter // what lies in the dead-letter topics
	Marks       []Mark       // business keys that were found in copies of stores
	Incidents   []Incident   // what was done to the group
	Ends        []End        // how it ended

	Seed uint64        // for the verdict
	Took time.Duration // for the verdict
}

// Record is a record that was produced.
type Record struct {
	Topic       string
	Partition   int32
	Offset      int64
	LeaderEpoch int32  // -1: not known, and then any is taken as the same
	Key         []byte // nil: none
	ID          string // the business key; empty: none
	Gone        bool   // deleted by retention, an operator or compaction: it need not have been handled
	Aborted     bool   // of an aborted transaction, which the group does not read: it must not have been handled
}

// Commit is what the group had committed for a partition.
type Commit struct {
	From, At  time.Time // when it was asked, and when the answer was there; of a logged one only At: by then it had been written
	Topic     string
	Partition int32
	Offset    int64 // the next to read; -1: none
	Metadata  string
}

// DeadLetter is a dead letter by the address of its origin.
type DeadLetter struct {
	Topic     string
	Partition int32
	Offset    int64
	At        time.Time // the timestamp of the dead letter, which is that of the failure
}

// Mark is a business key that was durable in the store of a host.
type Mark struct {
	Host string
	ID   string
	At   time.Time // when the store was copied or its process was dead
}

// End is how a partition ended.
type End struct {
	Topic     string
	Partition int32
	Start     int64 // of the log
	End       int64 // the high watermark
	Committed int64 // -1: nothing
}

// What names a kind of incident.
type What string

// The kinds of incidents.
const (
	Killed    What = "killed"     // From the signal To when the process was surely gone
	Paused    What = "paused"     // the process did not run
	Cut       What = "cut"        // it could not reach a broker that it needs, or was not answered; no Member: none could
	Stopping  What = "stopping"   // a clean stop
	Reset     What = "reset"      // an operator set the group's offset of a partition to Offset
	StoreLost What = "store lost" // Member's host lost its dedupe store
	Note      What = "note"       // anything else worth showing; it excuses nothing
)

// Incident is something that was done to the group.
type Incident struct {
	What      What
	From, To  time.Time // zero To: for good
	Member    string    // as in the journal
	Topic     string
	Partition int32
	Offset    int64
	Text      string
}

// String is the incident in words.
func (i Incident) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", i.From.Format("15:04:05.000"), i.What)
	if i.Member != "" {
		b.WriteString(" " + i.Member)
	}
	if i.What == Reset {
		fmt.Fprintf(&b, " %s[%d] to %d", i.Topic, i.Partition, i.Offset)
	}
	if !i.To.IsZero() {
		fmt.Fprintf(&b, " until %s", i.To.Format("15:04:05.000"))
	}
	if i.Text != "" {
		b.WriteString(": " + i.Text)
	}
	return b.String()
}

// Host is where a member runs: its name without the number of its life. Lives of one host share a store.
func Host(member string) string {
	host, _, _ := strings.Cut(member, ".")
	return host
}
