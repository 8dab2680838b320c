package dedupe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// lookup finds the newest entry of a key, and its bucket. A key that was never marked is told by the filters in memory.
func (s *Store) lookup(k *Key) (*bucket, entry, bool, error) {
	for _, b := range *s.buckets.Load() {
		if !b.filter.has(k) {
			continue
		}
		for _, p := range *b.parts.Load() {
			if p.mem != nil {
				if e := p.mem.get(k); e != nil {
					return b, *e, true, nil
				}
			} else if p.sealed.filter.has(k) {
				e, found, err := s.readSealed(b, p, k)
				if found || err != nil {
					return b, e, found, err
				}
			}
		}
	}
	return nil, entry{}, false, nil
}

// readSealed looks for a key in the rows of a sealed part.
func (s *Store) readSealed(b *bucket, p *part, k *Key) (e entry, found bool, err error) {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	if s.db == nil {
		if err := s.ended(); err != nil {
			return e, false, err
		}
		return e, false, ErrUnavailable
	}
	s.probes.Add(1)
	it, err := s.iters.get(s.db)
	if err != nil {
		return e, false, fmt.Errorf("dedupe: reading: %w", err)
	}
	first := p.sealed.first
	prefix := binary.BigEndian.Uint64(k[:8])
	// The last row whose first key is not above. Keys that share eight bytes may straddle rows.
	i, _ := slices.BinarySearch(first, prefix)
	for i < len(first) && first[i] == prefix {
		i++
	}
	for i--; i >= 0; i-- {
		row, err := s.readRow(it, b, p.no, uint32(i))
		if err != nil || row == nil {
			s.iters.close(it.Iterator)
			return e, false, err
		}
		if hit := search(row, k); hit != nil {
			e, found = *hit, true
			break
		}
		if first[i] != prefix {
			break
		}
	}
	s.iters.put(it)
	return e, found, nil
}

// readRow returns the entries of a row, good until the iterator moves, or nil if the bucket has ended meanwhile.
func (s *Store) readRow(it *pooledIter, b *bucket, part, row uint32) ([]byte, error) {
	var buf [13]byte
	key := putSealedKey(&buf, b.serial, part, row)
	if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
		if err := it.Error(); err != nil {
			return nil, fmt.Errorf("dedupe: reading: %w", err)
		}
		if b.dropped.Load() {
			return nil, nil
		}
		return nil, fmt.Errorf("%w: row %x is missing", ErrDamaged, key)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("dedupe: reading: %w", err)
	}
	entries, _, err := openRow(key, value)
	return entries, err
}

// iterPool keeps iterators over the sealed rows. Making one costs more than a seek; keeping one pins what was there when it
// was made. So each carries the epoch that it was made in, an epoch ends when a part was sealed or a memtable flushed, and
// an iterator of an older epoch is closed instead of used: it might not see the part that its user knows of.
type iterPool struct {
	epoch   atomic.Uint64
	mu      sync.Mutex
	free    []*pooledIter
	closing sync.WaitGroup
}

type pooledIter struct {
	*pebble.Iterator
	epoch uint64
}

const mostFreeIters = 16

func (p *iterPool) get(db *pebble.DB) (*pooledIter, error) {
	epoch := p.epoch.Load()
	p.mu.Lock()
	for len(p.free) > 0 {
		it := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		if it.epoch == epoch {
			p.mu.Unlock()
			return it, nil
		}
		p.mu.Unlock()
		p.close(it.Iterator)
		p.mu.Lock()
	}
	p.mu.Unlock()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{sealedPrefix}, UpperBound: []byte{sealedPrefix + 1}})
	if err != nil {
		return nil, err
	}
	return &pooledIter{it, epoch}, nil
}

func (p *iterPool) put(it *pooledIter) {
	p.mu.Lock()
	if it.epoch == p.epoch.Load() && len(p.free) < mostFreeIters {
		p.free = append(p.free, it)
		it = nil
	}
	p.mu.Unlock()
	if it != nil {
		p.close(it.Iterator)
	}
}

// close closes an iterator, whose error, if any, was seen when it was used. It does so on another goroutine: the last one of what
// was there takes the database's lock, and where Pebble was stopped with that lock (stopHere), a claim would wait for ever.
func (p *iterPool) close(it *pebble.Iterator) {
	p.closing.Go(func() { _ = it.Close() })
}

// drain closes the free iterators of past epochs, or all, which it waits for: nobody makes more meanwhile.
func (p *iterPool) drain(all bool) {
	epoch := p.epoch.Load()
	p.mu.Lock()
	var old []*pooledIter
	p.free = slices.DeleteFunc(p.free, func(it *pooledIter) bool {
		if all || it.epoch != epoch {
			old = append(old, it)
			return true
		}
		return false
	})
	p.mu.Unlock()
	for _, it := range old {
		p.close(it.Iterator)
	}
	if all {
		p.closing.Wait()
	}
}

// MarkInfo is what the store knows of a key.
type MarkInfo struct {
	At          time.Time // when the mark was made, by the store's clock; rounded down by at most the granularity
	Expires     time.Time // when it ceases to count
	Fingerprint uint64    // 40 bits
}

// Get returns the mark of a key that is durable and counts, whether or not the key is also held. The error is that of Claim.
func (s *Store) Get(k Key) (MarkInfo, bool, error) {
	if err := s.ended(); err != nil {
		return MarkInfo{}, false, err
	}
	b, e, found, err := s.lookup(&k)
	if err != nil || !found || e.at() == forgotten || b.expired(e.at(), s.clock.read()) {
		return MarkInfo{}, false, err
	}
	at := b.time(e.at())
	return MarkInfo{
		At:          time.UnixMilli(at),
		Expires:     time.UnixMilli(at + b.unit() - 1 + b.retention),
		Fingerprint: e.fingerprint(),
	}, true, nil
}
