package engine

import (
	"errors"

	"github.com/gaplesshq/gapless/workers"
)

// keyState is what is remembered of a key whose record was dead-lettered.
type keyState struct{ waiting *retryState }

var errFollows = errors.New("an earlier record of its key was dead-lettered, and DeadLetter.AfterKey is \"follow\"")

// rememberKey notes the key of a record that is given up, where later records of it are to wait or to follow.
func (e *Engine) rememberKey(ep *epoch, it *item) {
	if e.cfg.DeadLetter.AfterKey == KeyContinues || it.rec.Key == nil {
		return
	}
	ep.keys.mu.Lock()
	defer ep.keys.mu.Unlock()
	if ep.keys.keys == nil {
		ep.keys.keys = map[string]*keyState{}
	}
	if ep.keys.keys[string(it.rec.Key)] == nil {
		ep.keys.keys[string(it.rec.Key)] = &keyState{}
	}
	if len(ep.keys.keys) >= e.cfg.DeadLetter.AfterKeyMax {
		e.emit(Event{Name: EventPaused, Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset, Count: int64(len(ep.keys.keys)),
			Hint: "DeadLetter.AfterKeyMax keys with dead letters are remembered; release some (Engine.ReleaseKey), or restart to forget them"})
		go e.stop(ep, stopKeys, nil)
	}
}

// bySpoiltKey handles a record of a key that has a dead letter. It says whether it did.
func (e *Engine) bySpoiltKey(t *workers.Task[item], i int, ep *epoch, it *item) bool {
	if it.rec.Key == nil {
		return false
	}
	ep.keys.mu.Lock()
	k := ep.keys.keys[string(it.rec.Key)]
	ep.keys.mu.Unlock()
	if k == nil {
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
	e.emit(Event{Name: EventKeyHeld, Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset,
		Hint: "a record of this key was dead-lettered; it waits for Engine.ReleaseKey"})
	ep.keys.mu.Lock()
	k.waiting = st
	ep.keys.mu.Unlock()
	e.park(t, i, ep, it, st, stageHeld, 0)
	return true
}

// ReleaseKey lets the records of a key go on that wait because one of them was dead-lettered (KeyHolds), or stop following it
// (KeyFollows). It says whether the key was remembered.
func (e *Engine) ReleaseKey(topic string, partition int32, key []byte) bool {
	ep := e.lookup(topic, partition)
	if ep == nil {
		return false
	}
	ep.keys.mu.Lock()
	k := ep.keys.keys[string(key)]
	delete(ep.keys.keys, string(key))
	room := len(ep.keys.keys) < e.cfg.DeadLetter.AfterKeyMax
	ep.keys.mu.Unlock()
	if k == nil {
		return false
	}
	if k.waiting != nil {
		e.unpark(k.waiting)
	}
	if room {
		e.resume(ep, stopKeys)
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
