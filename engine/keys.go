package engine

import (
	"errors"
	"sync"
)

// keyMemory remembers the keys of dead-lettered records for DeadLetter.AfterKey. It lives and dies with its epoch. Its lock comes
// before the engine's and the epoch's.
type keyMemory struct {
	mu   sync.Mutex
	keys map[string]*keyState
	full bool // AfterKeyMax are remembered, and the partition holds
}

// keyState is what is remembered of a key whose record was dead-lettered.
type keyState struct {
	waiting *retryState // the next record of the key; those behind it wait for that one
}

var errFollows = errors.New("an earlier record of its key was dead-lettered, and DeadLetter.AfterKey is \"follow\"")

// rememberKey notes the key of a record that is given up, where later records of it are to wait or to follow.
func (e *Engine) rememberKey(ep *epoch, it *item) {
	if ep.keys == nil || it.rec.Key == nil {
		return
	}
	m := ep.keys
	m.mu.Lock()
	if m.keys == nil {
		m.keys = map[string]*keyState{}
	}
	if m.keys[string(it.rec.Key)] == nil {
		m.keys[string(it.rec.Key)] = &keyState{}
	}
	crossed := len(m.keys) >= e.cfg.DeadLetter.AfterKeyMax && !m.full
	if crossed {
		m.full = true
		e.setStop(ep, stopKeys, nil)
	}
	m.mu.Unlock()
	if crossed {
		e.flowNow()
	}
}

// bySpoiltKey handles a record of a key that has a dead letter. It says whether it did.
func (e *Engine) bySpoiltKey(t *task, i int, ep *epoch, it *item) bool {
	if it.rec.Key == nil {
		return false
	}
	m := ep.keys
	m.mu.Lock()
	remembered := m.keys[string(it.rec.Key)] != nil
	m.mu.Unlock()
	if !remembered {
		return false
	}
	st := it.st
	if st == nil {
		st = &retryState{ep: ep, seq: it.seq}
	}
	if e.cfg.DeadLetter.AfterKey == KeyFollows {
		st.lastErr = errFollows
		e.park(t, i, ep, it, st, stageDeadLetter, 0)
		return true
	}
	e.park(t, i, ep, it, st, stageHeld, 0)
	m.mu.Lock()
	k := m.keys[string(st.rec.Key)]
	if k != nil {
		k.waiting = st
	}
	m.mu.Unlock()
	if k == nil { // released while it was being parked
		e.unpark(st)
		return true
	}
	e.emit(Event{Name: EventKeyHeld, Topic: ep.topic, Partition: ep.partition, Offset: st.rec.Offset,
		Hint: "a record of this key was dead-lettered; it waits for Engine.ReleaseKey"})
	return true
}

// ReleaseKey lets the records of a key go on that wait because one of them was dead-lettered (KeyHolds), or stop following it
// (KeyFollows). It says whether the key was remembered.
func (e *Engine) ReleaseKey(topic string, partition int32, key []byte) bool {
	ep := e.lookup(topic, partition)
	if ep == nil || ep.keys == nil {
		return false
	}
	m := ep.keys
	m.mu.Lock()
	k := m.keys[string(key)]
	if k == nil {
		m.mu.Unlock()
		return false
	}
	delete(m.keys, string(key))
	waiting := k.waiting
	if m.full && len(m.keys) < e.cfg.DeadLetter.AfterKeyMax {
		m.full = false
		e.resume(ep, stopKeys)
	}
	m.mu.Unlock()
	if waiting != nil {
		e.unpark(waiting)
	}
	return true
}

// Unhold tries a record again that holds its partition (Hold, GiveUpHold), with all its attempts. It says whether there was one.
func (e *Engine) Unhold(topic string, partition int32) bool {
	ep := e.lookup(topic, partition)
	if ep == nil {
		return false
	}
	ep.mu.Lock()
	var waiting []*retryState
	if ep.stops&stopHold != 0 {
		for st := range ep.held {
			if st.stage == stageHeld {
				waiting = append(waiting, st)
			}
		}
	}
	ep.mu.Unlock()
	for _, st := range waiting {
		e.unpark(st)
	}
	if len(waiting) == 0 {
		return false
	}
	e.resume(ep, stopHold)
	return true
}
