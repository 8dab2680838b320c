package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

// sent makes a ledger of n records of which the first two with the same key are first and second.
func sent(t *testing.T, n uint64) (l *ledger, first, second uint64) {
	t.Helper()
	o := options{seed: 1, rate: 1000, every: time.Second}
	l = newLedger(o)
	l.start(time.Unix(1000, 0))
	last := map[uint64]uint64{}
	for id := range n {
		key := keyOf(o.seed, id)
		l.sends(id, key, partitionOf(o.seed, key, 4))
		l.wasAcked(id, l.intended(id).Add(time.Millisecond))
		if before, found := last[key]; found && second == 0 {
			first, second = before, id
		}
		last[key] = id
	}
	if second == 0 {
		t.Fatal("no key came twice")
	}
	return l, first, second
}

func (l *ledger) says(what word, id uint64, after time.Duration) {
	l.hear(line{what: what, partition: l.records[id].partition, id: id, at: l.intended(id).Add(after).UnixNano()})
}

// TestLedgerFindsALoss: C1. A record that was neither handled nor dead-lettered is lost, one that was given up without a dead letter as well.
func TestLedgerFindsALoss(t *testing.T) {
	l, first, second := sent(t, 2000)
	for id := range uint64(2000) {
		if id != first && id != second {
			l.says(begun, id, 0)
			l.says(handled, id, 10*time.Millisecond)
		}
	}
	l.says(begun, first, 0)
	l.says(givenUp, first, 0)
	if c := l.close(); c.Lost != 2 || c.Handled != 1998 || c.Violations != 0 {
		t.Errorf("one was given up and one not handled: %+v", c)
	}
	l.inLetter(first)
	l.inLetter(first)
	l.hear(line{what: handled, copy: true, id: second}) // by a copy
	if c := l.close(); c.Lost != 0 || c.DeadLettered != 1 || c.CopiesHandled != 1 {
		t.Errorf("one was dead-lettered and one handled by its copy: %+v", c)
	}
	l.hear(line{what: handled, id: 1_000_000})
	if c := l.close(); c.Unknown != 1 {
		t.Errorf("a record that was not sent: %+v", c)
	}
}

// TestLedgerFindsAnOrderViolation: C6. A record that begins before an earlier one of its key is settled is one; one that begins again
// after a kill is not.
func TestLedgerFindsAnOrderViolation(t *testing.T) {
	l, first, second := sent(t, 2000)
	l.says(begun, first, 0)
	l.says(failed, first, 0)
	l.says(begun, second, 0)
	if c := l.close(); c.Violations != 1 {
		t.Errorf("the second began while the first waited for its retry: %+v", c)
	}
	l, first, second = sent(t, 2000)
	l.says(begun, first, 0)
	l.says(handled, first, 0)
	l.says(begun, second, 0)
	l.says(begun, first, 0)
	l.says(handled, first, 0)
	l.says(begun, second, 0)
	l.says(handled, second, 0)
	if c := l.close(); c.Violations != 0 || c.HandledAgain != 1 {
		t.Errorf("both began again, in order: %+v", c)
	}
}

// TestLatencyCountsFromTheIntendedTime: a record that was sent late is as late as that.
func TestLatencyCountsFromTheIntendedTime(t *testing.T) {
	l, _, _ := sent(t, 2000)
	for id := range uint64(2000) {
		after := 5 * time.Millisecond
		if id >= 1000 && id < 1500 { // nothing could be sent for half of the second interval, and then all at once
			after = time.Duration(1500-id) * time.Millisecond
		}
		l.says(handled, id, after)
	}
	all := l.latencies()
	if own := all[0].OwnP50; own < 3.9 || own > 4.1 { // acknowledged after 1 ms
		t.Errorf("%v ms of 5 are after the acknowledgement", own)
	}
	if len(all) != 2 || all[0].Records != 1000 || all[0].P99 > 5.1 || all[1].P99 < 485 || all[1].P99 > 495 || all[1].At != 2 {
		t.Errorf("latencies %+v", all)
	}
}

// TestJournal: what handlers write is what is read, by parts, and a line that nobody writes is an error.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := newJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.f.Close()
	var heard []line
	hear := func(l line) { heard = append(heard, l) }
	for i := range uint16(3) {
		p, err := openPen(path, i, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		p.write(begun, &engine.Record{Record: &kgo.Record{Partition: 7, Offset: 1 << 40, Headers: []kgo.RecordHeader{{Key: idHeader, Value: idBytes(99)}, {Key: copyHeader}}}})
		p.f.Close()
		if err := j.rest(hear); err != nil {
			t.Fatal(err)
		}
	}
	if len(heard) != 3 {
		t.Fatalf("%d lines", len(heard))
	}
	for i, l := range heard {
		if l.at == 0 || l != (line{what: begun, copy: true, life: uint16(i), partition: 7, id: 99, offset: 1 << 40, at: l.at}) {
			t.Errorf("line %d is %+v", i, l)
		}
	}
	if _, err := j.f.WriteAt(make([]byte, lineLength), j.read); err != nil {
		t.Fatal(err)
	}
	if err := j.rest(hear); err == nil {
		t.Error("a line of zeros was taken")
	}
}
