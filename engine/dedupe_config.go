package engine

import (
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Dedupe is a store on this host's disk. It makes the resume window of each partition durable within milliseconds instead of
// with the next commit, and, where Key is set, remembers the business keys that were handled, so that a producer's duplicate at
// another offset is settled without its handler. A store does not follow a partition to another host. Losing it costs
// duplicates, never a record.
type Dedupe struct {
	// Enable opens a store in the default directory. Any of Dir, Base and Key does so as well.
	Enable bool
	// Dir is the store's directory, for this process alone: it is refused where another one has it open.
	Dir string
	// Base is where the default directory lies: the first free one of <Base>/<group>/0, 1, 2 ... So several members on one host
	// just work. Default $XDG_STATE_HOME/gapless/dedupe, or ~/.local/state/gapless/dedupe. It must survive restarts.
	Base string
	// Key appends a record's business key to dst and returns it; one that is nil or empty is none, and its record is handled in any
	// case. Default none: business keys are not looked at. It must be quick and must not keep the record. See RecordKey and HeaderKey.
	Key func(dst []byte, r *kgo.Record) []byte
	// Quarantine has a store that can't be read (dedupe.ErrDamaged) moved away at start, to <dir>.bad-<time>, and begins with an
	// empty one, with an error event: the records whose keys it knew are handled again where they come again. Default false: the
	// start is refused, and says what is wrong. It does nothing about a store that another process has open, of a newer version,
	// or without permission.
	Quarantine bool
	// Retention is how long a key is remembered, from when it was first handled. Default 24 h.
	Retention time.Duration
	// Scope is a name for what the keys are unique in: topics with the same Scope share their keys.
	// Default: each group and topic has its own.
	Scope string
	// OnDiffer says what to do with a record whose key was handled before with another value. Default DifferRun.
	OnDiffer Differ
	// MaxDelay is the longest that a finished record waits to be made durable together with others. Default 2 ms.
	MaxDelay time.Duration
	// MaxGroup is the most records that are made durable at once. Default 8,192.
	MaxGroup int
	// MaxPending is how many finished records may wait to be durable before no more start. Default 16,384.
	MaxPending int
	// FS is the file system, for tests. Default the machine's.
	FS vfs.FS
}

// Differ says what to do with a record whose business key was handled before with another value.
type Differ string

// The choices.
const (
	DifferRun        Differ = "run"         // handle it, counted
	DifferDeadLetter Differ = "dead-letter" // give it up, as DeadLetter.GiveUp says
	DifferHold       Differ = "hold"        // its partition holds until Engine.Unhold or a restart
)

func (c *Config) validateDedupe() error {
	d := &c.Dedupe
	if !d.enabled() {
		return nil
	}
	if d.Dir != "" && d.Base != "" {
		return bad("Dedupe.Dir", "is a store's own directory and Dedupe.Base is where the default one lies: set one of them")
	}
	if d.Retention < time.Second || d.Retention > dedupe.MaxRetention {
		return bad("Dedupe.Retention", "%v is not between 1s and %v", d.Retention, dedupe.MaxRetention)
	}
	if strings.Contains(d.Scope, "\x00") {
		return bad("Dedupe.Scope", "has a zero byte, which keeps the default scopes apart from those with a name")
	}
	if d.Scope != "" && d.Key == nil {
		return bad("Dedupe.Scope", "needs Dedupe.Key: without one no business keys are looked at")
	}
	if d.MaxDelay > time.Second {
		return bad("Dedupe.MaxDelay", "%v is above 1s: every record would wait for it", d.MaxDelay)
	}
	if d.MaxGroup < 1 || d.MaxGroup > 1<<20 {
		return bad("Dedupe.MaxGroup", "%d is not between 1 and %d", d.MaxGroup, 1<<20)
	}
	if d.MaxPending < 1 || d.MaxPending > 1<<24 {
		return bad("Dedupe.MaxPending", "%d is not between 1 and %d", d.MaxPending, 1<<24)
	}
	return oneOf("Dedupe.OnDiffer", d.OnDiffer, DifferRun, DifferDeadLetter, DifferHold)
}
