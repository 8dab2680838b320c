package engine

import (
	"encoding/hex"
	"fmt"
	"time"
)

// DedupeStatus is the state of the dedupe store.
type DedupeStatus struct {
	Dir        string        `json:"dir"`
	ID         string        `json:"id"`
	Seq        uint64        `json:"seq"`        // of the last group that is durable
	Keys       int64         `json:"keys"`       // marks in the store
	Hits       int64         `json:"hits"`       // records settled without their handler: their key was handled before
	Differing  int64         `json:"differing"`  // records whose key was handled with another payload
	Waits      int64         `json:"waits"`      // records that waited for another one with their key
	Misses     uint64        `json:"misses"`     // keys that were new
	Unkeyed    int64         `json:"unkeyed"`    // records without a business key, handled without looking
	Marks      uint64        `json:"marks"`      // made durable since the start
	Pending    int64         `json:"pending"`    // finished, and not durable yet
	Groups     uint64        `json:"groups"`     // synced batches
	GroupTime  time.Duration `json:"group_ns"`   // that all of them took
	Slowest    time.Duration `json:"slowest_ns"` // the longest that one took
	DiskBytes  int64         `json:"disk_bytes"`
	Memory     int64         `json:"memory_bytes"` // of filters and unsealed keys; some 60 MB of Pebble's come on top
	WriteError string        `json:"write_error,omitempty"`
}

func (m *marks) status() *DedupeStatus {
	store := m.shown.Load()
	if store == nil {
		return nil
	}
	st := m.stats()
	id := store.ID()
	s := &DedupeStatus{
		Dir: store.Dir(), ID: hex.EncodeToString(id[:]), Seq: st.Seq, Keys: st.Keys, Hits: m.duplicates.Load(), Differing: m.differing.Load(),
		Waits: m.waits.Load(), Misses: st.Mine, Unkeyed: m.unkeyed.Load(), Marks: st.Marks, Pending: st.Pending, Groups: st.Groups, GroupTime: st.GroupTime, Slowest: st.SlowestGroup,
		DiskBytes: st.DiskBytes, Memory: st.MemoryBytes,
	}
	if st.Err != nil {
		s.WriteError = st.Err.Error()
	}
	return s
}

// sizingAfter is how long the store is watched before what it will need is said.
const sizingAfter = 30 * time.Second

// sizing says once, from the rate that was observed, what the store will need when it holds a whole retention.
type sizing struct {
	from  time.Time
	marks uint64
	said  bool
}

func (z *sizing) look(e *Engine, now time.Time) {
	s := e.marks.store
	if s == nil || e.cfg.Dedupe.Key == nil || z.said {
		return
	}
	marks := e.marks.stats().Marks
	if z.from.IsZero() || z.marks == marks { // begins with the first key
		z.from, z.marks = now, marks
		return
	}
	took := now.Sub(z.from)
	if took < sizingAfter {
		return
	}
	z.said = true
	rate := float64(marks-z.marks) / took.Seconds()
	need := s.Estimate(rate)
	ev := Event{Name: EventStoreSizing, Partition: -1, Count: need.Keys,
		Hint: fmt.Sprintf("at the observed %.0f new keys a second and a retention of %v the store will hold up to %d keys, in about %s of disk and %s of memory", rate, e.cfg.Dedupe.Retention, need.Keys, inBytes(need.DiskBytes), inBytes(need.MemoryBytes))}
	if free, has := e.diskSpace(); has > 0 && uint64(need.DiskBytes) > free+uint64(e.marks.stats().DiskBytes) {
		ev.Name = EventStoreSpace
		ev.Hint += fmt.Sprintf("; but only %s is free under %s: a full disk stops the work. Give it more space, or shorten Dedupe.Retention", inBytes(int64(free)), s.Dir())
	}
	e.emit(ev)
}

func inBytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
}
