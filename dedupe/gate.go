package dedupe

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// gate holds compactions back until the database is open: one that runs while Pebble's Open fails, as it does on a full
// disk, finds its surroundings gone and ends the process.
type gate struct {
	*pebble.ConcurrencyLimitScheduler
	db     pebble.DBForCompaction
	opened atomic.Bool
}

func newGate() *gate {
	// The periodic kind cannot be had from outside. What it is for, compactions that are allowed later without anybody asking,
	// does not happen with a fixed limit.
	return &gate{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

func (g *gate) Register(n int, db pebble.DBForCompaction) {
	g.db = db
	g.ConcurrencyLimitScheduler.Register(n, db)
}

func (g *gate) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !g.opened.Load() {
		return false, nil
	}
	return g.ConcurrencyLimitScheduler.TrySchedule()
}

func (g *gate) UpdateGetAllowedWithoutPermission() {
	if g.opened.Load() {
		g.ConcurrencyLimitScheduler.UpdateGetAllowedWithoutPermission()
	}
}

// open lets compactions run, and starts one that was held back.
func (g *gate) open() {
	g.opened.Store(true)
	if waiting, _ := g.db.GetWaitingCompaction(); !waiting {
		return
	}
	if ok, handle := g.ConcurrencyLimitScheduler.TrySchedule(); ok && !g.db.Schedule(handle) {
		handle.Done()
	}
}
