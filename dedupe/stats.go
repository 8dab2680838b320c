package dedupe

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Stats are a picture of the store, all of it since it was opened unless it says otherwise.
type Stats struct {
	Keys        int64  // marks in the store, with those that were replaced, forgotten, or have expired in a bucket that lives
	Pending     int64  // completions that are not durable yet
	Held        int64  // keys that are held or pending
	Buckets     int    // live
	Parts       int    // of the live buckets
	Unsealed    int    // of these, in memory
	Seq         uint64 // see Store.Seq
	MemoryBytes int64  // filters and unsealed parts; Pebble's cache (32 MB) and memtables (8 MB each, up to 4) come on top
	DiskBytes   int64

	Marks    uint64 // made durable
	Forgets  uint64
	Mine     uint64 // claims of keys that nobody held, by what they came to; Mine includes Differs and errors
	Seen     uint64
	Busy     uint64
	Stale    uint64 // claims that were given to Release or Mark and held nothing any more
	Reads    uint64 // lookups that went to the disk or its cache
	Groups   uint64
	Seals    uint64
	Dropped  uint64 // buckets that ended
	Reopened uint64 // times the store was reopened after a write error

	GroupTime    time.Duration // that all groups took to be written: divided by Groups, the mean latency
	SlowestGroup time.Duration // the longest that a group took to be written, repairs included
	Time         time.Time     // by which marks age
	FutureTimes  int64         // stream times that were refused for being ahead of the wall clock
	WallDrift    time.Duration // how far the wall clock was set since the store was opened
	Err          error         // why the store cannot write, or nil
}

// Pending returns how many completions are not durable yet. Unlike Stats it never waits, whatever the disk does.
func (s *Store) Pending() int64 { return s.q.pending.Load() }

// Stats returns a picture of the store. It takes some microseconds; its parts are not from one moment. DiskBytes is 0 while the
// store is being reopened and when it has failed for good.
func (s *Store) Stats() Stats {
	st := Stats{
		Pending:      s.q.pending.Load(),
		Seq:          s.seq.Load(),
		Marks:        s.marks.Load(),
		Forgets:      s.forgets.Load(),
		Reads:        s.probes.Load(),
		Groups:       s.groups.Load(),
		Seals:        s.seals.Load(),
		Dropped:      s.drops.Load(),
		Reopened:     s.reopens.Load(),
		GroupTime:    time.Duration(s.writing.Load()),
		SlowestGroup: time.Duration(s.slowest.Load()),
		Time:         time.UnixMilli(s.clock.read()),
		FutureTimes:  s.clock.future.Load(),
		WallDrift:    s.clock.drift(),
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		st.Held += int64(sh.held.n)
		st.Mine += sh.tokens - sh.seen
		st.Seen += sh.seen
		st.Busy += sh.busy
		st.Stale += sh.stale
		sh.mu.Unlock()
	}
	for _, b := range *s.buckets.Load() {
		st.Buckets++
		st.Keys += b.keys.Load()
		st.MemoryBytes += int64(b.filter.bytes())
		for _, p := range *b.parts.Load() {
			st.Parts++
			if p.mem != nil {
				st.Unsealed++
				st.MemoryBytes += int64(p.mem.bytes())
			} else {
				st.MemoryBytes += int64(p.sealed.filter.bytes() + 8*len(p.sealed.first))
			}
		}
	}
	st.DiskBytes, _ = apart(s, func(db *pebble.DB) (int64, error) { return int64(db.Metrics().DiskSpaceUsage()), nil })
	s.health.mu.Lock()
	st.Err = s.health.reason()
	s.health.mu.Unlock()
	if err := s.health.fatal.Load(); err != nil {
		st.Err = *err
	}
	return st
}

// Sizing is what a store needs. See Estimate.
type Sizing struct {
	Keys        int64
	DiskBytes   int64
	MemoryBytes int64
}

// Estimate returns what the store would need at a steady rate of new keys a second, from measurements: 24.6 bytes of disk
// a key, and some hundred megabytes more after a crash; 2.6 bytes of memory a key, and what is always there. A mark takes
// space for up to 1.25 retentions.
func (s *Store) Estimate(rate float64) Sizing { return Estimate(rate, s.o.Retention) }

// Estimate is Store.Estimate without a store; a retention of 0 is the default.
func Estimate(rate float64, retention time.Duration) Sizing {
	if retention <= 0 {
		retention = DefaultRetention
	}
	keys := max(0, rate) * retention.Seconds() * (1 + 1.0/bucketsPerRetention)
	keys = min(keys, 1e15)
	return Sizing{Keys: int64(keys), DiskBytes: int64(keys*24.6) + 120<<20, MemoryBytes: int64(keys*2.6) + 150<<20}
}
