package tracker

// Stats are the counters of one Tracker since New. Delivered = DoneCount +
// Forgotten + those that are pending.
type Stats struct {
	Delivered  uint64 // records that Add and AddRange took
	DoneCount  uint64 // records that were done, each counted once
	DoubleDone uint64 // completions of records that were already done
	StaleDone  uint64 // completions of numbers that died in a Close or Rebase, or were never delivered
	Forgotten  uint64 // records that were not done when a Close or Rebase forgot them
}

// Stats returns the counters. It counts bits, like Pending; concurrent Done
// calls may be in or out of it, each counter for itself.
func (t *Tracker) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := Seq(t.tail.Load())
	return Stats{
		Delivered:  uint64(tail),
		DoneCount:  t.done + uint64(t.bits.count(t.frontier, tail)),
		DoubleDone: t.doubleDone.Load(),
		StaleDone:  t.staleDone.Load(),
		Forgotten:  t.forgotten,
	}
}
