package tracker

import (
	"math/bits"
	"sync/atomic"
)

const (
	wordBits  = 64
	pageWords = 16
	pageBits  = pageWords * wordBits // 1,024 records: small, for ten thousand quiet partitions
)

// bitmap holds one done bit per delivered record, in pages of fixed size that
// are found through a ring. Setting a bit needs no lock: find the word, OR.
//
// What makes that safe is that a page is never used a second time. A completion
// may sleep for an hour between finding its word and setting its bit; by then the
// page is either still in use, or all of its bits were set before it was let go
// (drop, seal). So a late bit never lands on another record. Slots of the ring
// are used again, hence the number inside the page.
type bitmap struct {
	ring   atomic.Pointer[ring]
	lo, hi Seq // the numbers of the pages held are [lo, hi)
}

type page struct {
	number Seq // s / pageBits of its records
	words  [pageWords]atomic.Uint64
}

// full stands for each page that is wholly done, but for those near the tail. Behind a stuck record these are nearly all, and
// as many bits as there are records become as many pages as have a record that is not done. To set a bit of it changes nothing.
var full = func() *page {
	p := &page{number: ^Seq(0)}
	for i := range p.words {
		p.words[i].Store(^uint64(0))
	}
	return p
}()

// foldBehind is how many pages before the last one a page is looked at: later than most of its records take, if there is work for all
// workers. It is looked at once; what is done only after that stays a page until the frontier has passed it.
// (A variable for the tests, which set it to 1.)
var foldBehind Seq = 64

// ring maps page number % len(slots) to a page; the length is a power of two.
type ring struct {
	slots []atomic.Pointer[page]
}

func (r *ring) slot(number Seq) *atomic.Pointer[page] {
	return &r.slots[number&Seq(len(r.slots)-1)]
}

// find returns the word of s, or nil if s is not below the tail, or no longer
// held. The tail must have been loaded before the call: Add puts the pages in
// place before it moves the tail, so whoever has seen the tail sees the pages.
func (b *bitmap) find(s, tail Seq) *atomic.Uint64 {
	r := b.ring.Load()
	if s >= tail || r == nil {
		return nil
	}
	p := r.slot(s / pageBits).Load()
	if p == nil || p.number != s/pageBits && p != full { // full may stand for another page than that of s, which is let go of then: done
		return nil
	}
	return &p.words[s/wordBits%pageWords]
}

// folded says whether the page of s, which is held, is known to be wholly done.
func (b *bitmap) folded(s Seq) bool { return b.ring.Load().slot(s/pageBits).Load() == full }

// fold lets go of a page that is full. Whoever has found a word in it finds all of its bits set.
func (b *bitmap) fold(number Seq) {
	slot := b.ring.Load().slot(number)
	p := slot.Load()
	for i := range p.words {
		if p.words[i].Load() != ^uint64(0) {
			return
		}
	}
	slot.Store(full)
}

// grow makes room for [from, to), where from is the end of what it holds.
func (b *bitmap) grow(from, to Seq) {
	if b.lo == b.hi {
		b.lo = from / pageBits
		b.hi = b.lo
	}
	end := (to-1)/pageBits + 1
	if end == b.hi {
		return
	}
	r := b.ring.Load()
	if r == nil || end-b.lo > Seq(len(r.slots)) {
		r = b.resize(end - b.lo)
	}
	for ; b.hi < end; b.hi++ {
		p := &page{number: b.hi}
		if b.hi == from/pageBits {
			p.fillBelow(from)
		}
		r.slot(b.hi).Store(p)
		if b.hi-b.lo > foldBehind {
			b.fold(b.hi - foldBehind)
		}
	}
}

// fillBelow sets the bits below s in a new page that starts in the middle. They
// belong to records that are done, or that a Rebase forgot.
func (p *page) fillBelow(s Seq) {
	word := s / wordBits % pageWords
	for i := range p.words[:word] {
		p.words[i].Store(^uint64(0))
	}
	p.words[word].Store(uint64(1)<<(s%wordBits) - 1)
}

// resize replaces the ring by one with room for n pages. A Done that still holds
// the old ring finds the same pages there.
func (b *bitmap) resize(n Seq) *ring {
	r := &ring{slots: make([]atomic.Pointer[page], 1<<bits.Len64(uint64(n-1)))}
	if old := b.ring.Load(); old != nil {
		for i := b.lo; i < b.hi; i++ {
			r.slot(i).Store(old.slot(i).Load())
		}
	}
	b.ring.Store(r)
	return r
}

// drop lets go of the pages that lie wholly below s, all of whose bits are set.
func (b *bitmap) drop(s Seq) {
	r := b.ring.Load()
	for ; b.lo < b.hi && b.lo < s/pageBits; b.lo++ {
		r.slot(b.lo).Store(nil)
	}
	// A ring that grew behind a stuck record shrinks again. It halves only at a
	// quarter, so that a span that swings does not resize at each turn.
	if held := max(b.hi-b.lo, 1); held*4 <= Seq(len(r.slots)) {
		b.resize(held * 2)
	}
}

// seal sets all bits of [from, to) and returns the first number whose bit was 0
// and how many were 1. The answer is exact against concurrent Done calls, since
// each word is exchanged in one step.
func (b *bitmap) seal(from, to Seq) (first Seq, done int) {
	first = from
	for s := from; s < to; s = s&^(wordBits-1) + wordBits {
		word := b.find(s, to).Swap(^uint64(0))
		if first == s {
			first += Seq(leadingDone(word, s))
		}
		done += bits.OnesCount64(word >> (s % wordBits))
	}
	return first, done
}

// count returns how many of [from, to) are done.
func (b *bitmap) count(from, to Seq) (done int) {
	for s := from; s < to; s = s&^(wordBits-1) + wordBits {
		done += bits.OnesCount64(b.find(s, to).Load() >> (s % wordBits))
	}
	return done
}

// reset lets go of everything.
func (b *bitmap) reset() {
	b.ring.Store(nil)
	b.lo, b.hi = 0, 0
}
