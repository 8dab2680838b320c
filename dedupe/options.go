package dedupe

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"
)

// Defaults and limits of Options.
const (
	DefaultRetention    = 24 * time.Hour
	MaxRetention        = 10 * 365 * 24 * time.Hour
	DefaultMaxDelay     = 2 * time.Millisecond
	DefaultMaxGroup     = 8 << 10
	DefaultMaxPending   = 16 << 10
	DefaultCloseTimeout = 10 * time.Second
)

// eager is how many waiting completions start a group at once, without the rest of the delay. A sync is well paid for by
// so many, and on a slow disk the groups grow by themselves, because more come in while one is being synced.
const eager = 4096

// Options are the settings of a Store. The zero value is useful; only OnDurable is needed by nearly everybody.
//
// The callbacks are called without any lock of this package held and may call back into the store, except that OnDurable,
// OnFree (where it comes from the committer) and Rows must not wait for a group (Flush, Forget, ForgetScope, DeleteRow,
// Close): they run on the goroutine that would write it. They must be quick for the same reason.
type Options struct {
	// Retention is how long a mark counts, from the time of its first group commit: at least so long, at most a millisecond
	// longer for a retention of up to 18 hours and 1/67,000,000 of it longer above that. It is never extended by a
	// duplicate. Default 24 hours; at least 1 ms, at most 10 years. Marks that are in the store keep the retention that they
	// were made with.
	Retention time.Duration

	// MaxDelay is the longest that a completion waits for company before its group is written; default 2 ms, negative means
	// not at all. A longer delay means fewer syncs.
	MaxDelay time.Duration

	// MaxGroup is the most completions in one group, default 8,192. Groups start early once 4,096 wait.
	MaxGroup int

	// MaxPending is how many completions may be waiting or being written before Room blocks, default 16,384. It bounds
	// memory (about 60 bytes each) and, on a disk whose sync takes t, the rate: MaxPending/2t a second or less.
	MaxPending int

	// CloseTimeout is the longest that Close takes, and that a broken Pebble gets to close before its store is given up
	// (OnFatal). Default 10 s.
	CloseTimeout time.Duration

	// OnDurable says that the completions with these tags are durable, and their marks with them; or, with an error, that
	// they never will be in this process (ErrFatal or ErrClosed). Each tag that was given to Mark is reported once, unless
	// Pebble hangs for good, which OnFatal and a Close with ErrTimeout tell. It comes from the committer, and after ErrClosed
	// from Mark itself. The slice is good for the call only.
	OnDurable func(tags []Tag, err error)

	// OnFree says that the keys that these waiters were Busy for are free again: claim again. It comes from the committer,
	// from Release, and from Claim. The slice is good for the call only.
	OnFree func(waiters []Tag)

	// Rows is asked once a group for rows to write with it; see Store.Touch and Store.Row. A nil value deletes the row. put
	// copies. Should the group fail, it is asked again for the next attempt.
	Rows func(put func(key, value []byte))

	// OnState says that the store cannot write (what the reason is), or with nil that it can again. Until then nothing
	// becomes durable, and Room blocks. Calls do not overlap; fast changes are left out.
	OnState func(err error)

	// OnFatal says that the store cannot be repaired in this process: end it. The next start repairs it. It comes once.
	OnFatal func(err error)

	// Now is the clock, by default time.Now. A clock whose times lack the monotonic reading of time.Now must not jump.
	Now func() time.Time

	// FS is the file system, by default the machine's.
	FS vfs.FS

	// Log gets what an operator may want to know. The zero value is silent.
	Log zerolog.Logger

	elapsed  func() time.Duration // tests: the monotonic clock
	partSize int                  // tests: marks a part
	memtable uint64               // tests: bytes
	cache    int64                // tests: bytes
	pause    time.Duration        // tests: the longest between attempts
	hook     func(point string)   // tests: called at named points
}

// partSize is how many marks are kept in memory and in arrival rows before they are sealed into sorted rows.
const partSize = 500_000

func (o Options) withDefaults() (Options, error) {
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	if o.Retention < time.Millisecond || o.Retention > MaxRetention {
		return o, fmt.Errorf("dedupe: Options.Retention is %v; it must be between 1ms and %v (10 years)", o.Retention, MaxRetention)
	}
	if o.MaxGroup < 0 || o.MaxGroup > 1<<20 {
		return o, fmt.Errorf("dedupe: Options.MaxGroup is %d; it must be between 1 and %d, or 0 for the default", o.MaxGroup, 1<<20)
	}
	if o.MaxPending < 0 {
		return o, fmt.Errorf("dedupe: Options.MaxPending is %d; it must be at least 1, or 0 for the default", o.MaxPending)
	}
	if o.CloseTimeout < 0 {
		return o, fmt.Errorf("dedupe: Options.CloseTimeout is %v; it must not be negative", o.CloseTimeout)
	}
	setDefault(&o.MaxDelay, DefaultMaxDelay)
	setDefault(&o.MaxGroup, DefaultMaxGroup)
	setDefault(&o.MaxPending, DefaultMaxPending)
	setDefault(&o.CloseTimeout, DefaultCloseTimeout)
	setDefault(&o.partSize, partSize)
	setDefault(&o.memtable, 8<<20)
	setDefault(&o.cache, 32<<20)
	setDefault(&o.pause, lastPause)
	if o.OnDurable == nil {
		o.OnDurable = func([]Tag, error) {}
	}
	if o.OnFree == nil {
		o.OnFree = func([]Tag) {}
	}
	if o.Rows == nil {
		o.Rows = func(func(key, value []byte)) {}
	}
	if o.OnState == nil {
		o.OnState = func(error) {}
	}
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.hook == nil {
		o.hook = func(string) {}
	}
	return o, nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
