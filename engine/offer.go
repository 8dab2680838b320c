package engine

import (
	"hash/maphash"
	"math"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kerr"
)

// offer is what is to be committed of a partition.
type offer struct {
	ep          *epoch
	offset      int64
	leaderEpoch int32
	metadata    string // the resume window; none where it does not fit
	says        saidWindow
	plain       bool // nothing is settled beyond the offset
	tooLong     bool // the broker did not take the metadata
}

// saidWindow is what is kept of a resume window once it is acknowledged, to see whether there is anything new: a sum of the metadata without what
// changes by itself, and the record that it announces (-1: none).
type saidWindow struct {
	sum    uint64
	trying int64
}

// nothingSaid is of a commit without a window.
var nothingSaid = saidWindow{trying: -1}

var saidSeed = maphash.MakeSeed()

func saidOf(metadata string, announces bool) saidWindow {
	if metadata == "" {
		return nothingSaid
	}
	s := saidWindow{sum: maphash.String(saidSeed, metadata), trying: -1}
	if announces { // and has had room for it
		if w, err := window.Decode(metadata); err == nil {
			s.trying = w.Trying
		}
	}
	return s
}

type offers map[tp]*offer

func (o offers) epochs() map[tp]*epoch {
	eps := map[tp]*epoch{}
	for p, offer := range o {
		eps[p] = offer.ep
	}
	return eps
}

// dirty collects what is to be committed: the frontier has moved, or what is settled beyond it has changed. The committer's
// turn guards the scratch space.
func (e *Engine) dirty(eps []*epoch) offers {
	sent := offers{}
	for _, ep := range eps {
		if p := phase(ep.phase.Load()); p != phaseActive && p != phaseDraining {
			continue
		}
		if o := e.offer(ep); o != nil {
			sent[ep.tp] = o
		}
	}
	return sent
}

// offer is what there is to commit of a partition; nil = nothing new.
func (e *Engine) offer(ep *epoch) *offer {
	if ep.opened() == nil {
		return nil
	}
	final := ep.drained.Load() // not already in the drain: the process may end with its handlers still running
	ep.mu.Lock()
	idle := !ep.claim && !final && ep.saidPlain && ep.before.Load() == nil
	acked := ep.acked
	ep.mu.Unlock()
	if idle && ep.tr.Span() == 0 {
		if offset := ep.frontier(); offset == acked {
			return nil
		}
	}
	w := e.committing.window(ep, listMax)
	o := &offer{ep: ep, offset: w.Frontier, leaderEpoch: e.committing.tr.LeaderEpoch}
	if o.offset < 0 {
		return nil
	}
	ep.crash.tell(w, final)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	w.BypassBelow = ep.bypassBelow
	if w.BypassBelow <= w.Frontier {
		w.BypassBelow = 0 // all of it has been passed
	}
	o.plain = w.Highest < w.Frontier && w.Trying < 0
	cut := e.describe(o, w)
	if o.offset <= ep.acked && !ep.claim && o.says == ep.said {
		return nil
	}
	if cut {
		e.counts.cutWindows.Add(1)
	}
	return o
}

// describe encodes the window of an offer. It says whether it had to be shortened.
func (e *Engine) describe(o *offer, w *window.Window) (cut bool) {
	o.says = nothingSaid
	limit := int(e.metadataMax.Load())
	if limit <= 0 {
		return e.cfg.Commit.MetadataBytes > 0 && w.Highest > w.Frontier // where it was asked for and the broker takes none
	}
	named := e.marks.store != nil && e.rowSaid(o.ep)
	if named {
		w.Store, w.StoreSeq = e.marks.store.ID(), math.MaxUint64 // leaves room, and does not change by itself
	}
	o.metadata = string(w.Append(nil, limit))
	o.says = saidOf(o.metadata, w.Trying >= 0)
	n := len(o.metadata)
	if named {
		w.StoreSeq = e.marks.store.Seq()
		o.metadata = string(w.Append(nil, limit))
	}
	return w.Cut || n == 0 || n > limit*3/4 && len(w.Append(nil, 0)) > limit
}

// metadataRefused notes that the broker keeps less with a commit than is configured. The same offset goes out without it at
// once, and later windows are shorter.
func (e *Engine) metadataRefused(o *offer) {
	o.tooLong = true
	limit := int64(max(len(o.metadata)/2, metadataMin))
	if len(o.metadata) <= metadataMin {
		limit = 0
	}
	if was := e.metadataMax.Load(); limit < was {
		e.metadataMax.CompareAndSwap(was, limit)
	}
	e.once("metadata", Event{Name: EventConfigWarning, Topic: o.ep.topic, Partition: o.ep.partition, Offset: o.offset, Err: kerr.OffsetMetadataTooLarge, Count: int64(len(o.metadata)),
		Hint: "the broker refuses the metadata of a commit, which says what is settled beyond the offset: raise its offset.metadata.max.bytes, or lower Commit.MetadataBytes. Until then shorter ones are sent, and a crash redoes more"})
}

// metadataMin is the least that is worth sending.
const metadataMin = 64

// tooLong are the offers whose metadata was refused, without it.
func tooLong(sent offers) offers {
	again := offers{}
	for p, o := range sent {
		if o.tooLong {
			again[p] = &offer{ep: o.ep, offset: o.offset, leaderEpoch: o.leaderEpoch, says: nothingSaid}
		}
	}
	return again
}
