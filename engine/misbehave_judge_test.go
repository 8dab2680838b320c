//go:build synctests

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// judge knows what every record has come to, and holds the members to the contract whatever the broker does: it looks at each
// handler call as it begins, and at each commit as it reaches the broker.
type judge struct {
	w     *world
	order Order

	mu      sync.Mutex
	made    map[int32]int64 // records by partition
	fate    map[at]*fate
	running map[string]bool // lanes by member
	highest map[string]int64
	applied map[int32]int64
}

type at struct {
	partition int32
	offset    int64
}

// fate is what a record has come to. It is settled when it was handled and its output, if it has one, acknowledged, or when its
// dead letter was.
type fate struct{ handled, emitted, dead bool }

func newJudge(w *world, order Order) *judge {
	return &judge{
		w: w, order: order, made: map[int32]int64{}, fate: map[at]*fate{}, running: map[string]bool{},
		highest: map[string]int64{}, applied: map[int32]int64{},
	}
}

// What handlers do with a record goes by its offset.
func alwaysFails(offset int64) bool { return offset%7 == 3 }
func failsFirst(offset int64) bool  { return offset%5 == 2 }
func emitsOne(offset int64) bool    { return offset%6 == 1 }

func (j *judge) of(r at) *fate {
	if j.fate[r] == nil {
		j.fate[r] = &fate{}
	}
	return j.fate[r]
}

func (j *judge) settled(r at) bool {
	f := j.of(r)
	return f.dead || f.handled && (f.emitted || !emitsOne(r.offset))
}

// lane is where the order of a record is promised; empty = nowhere.
func (j *judge) lane(r *Record) string {
	switch j.order {
	case OrderKey:
		return fmt.Sprintf("%d/%s", r.Partition, r.Key)
	case OrderPartition:
		return fmt.Sprint(r.Partition)
	}
	return ""
}

// handler is that of one member. (C1, C6)
func (j *judge) handler(member int) HandlerFunc {
	return func(ctx context.Context, r *Record) error {
		me := at{r.Partition, r.Offset}
		lane := j.lane(r)
		here := fmt.Sprint(member, " ", lane)
		if lane != "" {
			j.mu.Lock()
			if j.running[here] {
				j.w.Errorf("C6: two records of %q run at member %d", lane, member)
			}
			j.running[here] = true
			for o := int64(0); o < r.Offset; o++ {
				if (j.order == OrderPartition || o%keyCount == r.Offset%keyCount) && !j.settled(at{r.Partition, o}) {
					j.w.Errorf("C6: %d[%d] starts at member %d, and %d of the same order was never settled", r.Offset, r.Partition, member, o)
				}
			}
			j.mu.Unlock()
		}
		var err error
		select {
		case <-time.After(time.Duration(20+r.Offset*37%80) * time.Millisecond):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil && (alwaysFails(r.Offset) || failsFirst(r.Offset) && r.Attempt == 1) {
			err = errBoom
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if lane != "" {
			j.running[here] = false
		}
		if err == nil {
			j.of(me).handled = true
			if emitsOne(r.Offset) {
				r.Emit(&kgo.Record{Topic: "out", Value: fmt.Appendf(nil, "%d %d", r.Partition, r.Offset)})
			}
		}
		return err
	}
}

// heard looks at a commit before the broker has it: what it says must be so. (C1, C4)
func (j *judge) heard(client string, req kmsg.Request) {
	r, ok := req.(*kmsg.OffsetCommitRequest)
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			epoch := fmt.Sprintf("%s %s %d %d %d", client, r.MemberID, r.Generation, p.Partition, j.renewals(client, p.Partition))
			if was, known := j.highest[epoch]; known && p.Offset < was {
				j.w.Errorf("C4: the commit of %s goes back from %d to %d", epoch, was, p.Offset)
			}
			j.highest[epoch] = p.Offset
			var says window.Window
			if p.Metadata != nil {
				says, _ = window.Decode(*p.Metadata)
			}
			for o := range j.made[p.Partition] {
				if (o < p.Offset || says.Settled(o, 0)) && !j.settled(at{p.Partition, o}) {
					j.w.Errorf("C1: %s commits %d of partition %d, %v, and %d is not settled", client, p.Offset, p.Partition, &says, o)
				}
			}
		}
	}
}

// renewals is how often members, or one of them, began anew in a partition because the broker had said that their place is outside of its
// log: there the position goes back, and commits with it, in an epoch of their own.
func (j *judge) renewals(client string, partition int32) (n int) {
	for _, m := range j.w.launched() {
		if client != "" && m.e.cfg.ClientID != client {
			continue
		}
		for _, ev := range m.all(EventRenewed) {
			if ev.Partition == partition {
				n++
			}
		}
	}
	return n
}

// answered notes which outputs and dead letters a member has been told are written. A broker that speaks of a duplicate says that it
// has the record.
func (j *judge) answered(client string, req kmsg.Request, resp kmsg.Response) {
	r, ok := req.(*kmsg.ProduceRequest)
	if !ok || !strings.HasPrefix(client, memberClient) {
		return
	}
	acked := map[string]bool{}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			acked[fmt.Sprint(t.Topic, t.TopicID, p.Partition)] = p.ErrorCode == 0 || p.ErrorCode == kerr.DuplicateSequenceNumber.Code
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if acked[fmt.Sprint(t.Topic, t.TopicID, p.Partition)] {
				j.written(p.Records)
			}
		}
	}
}

func (j *judge) written(raw []byte) {
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(raw); err != nil {
		panic(err)
	}
	for src := batch.Records; len(src) > 0; {
		n, used := kbin.Varint(src)
		var rec kmsg.Record
		if err := rec.ReadFrom(src[:used+int(n)]); err != nil {
			panic(err)
		}
		src = src[used+int(n):]
		headers := map[string]int64{}
		for _, h := range rec.Headers {
			if v, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				headers[h.Key] = v
			}
		}
		var r at
		if o, ok := headers[HeaderOffset]; ok {
			r = at{int32(headers[HeaderPartition]), o}
			j.of(r).dead = true
		} else if n, _ := fmt.Sscan(string(rec.Value), &r.partition, &r.offset); n == 2 && len(rec.Key) == 0 {
			j.of(r).emitted = true
		}
	}
}

const keyCount = 3

// produce writes n records to each partition, past the trouble.
func (j *judge) produce(n int) {
	j.w.Helper()
	for p := range int32(2) {
		var values []string
		j.mu.Lock()
		for range n {
			values = append(values, fmt.Sprintf("%d=", j.made[p]%keyCount))
			j.made[p]++
		}
		j.mu.Unlock()
		j.w.produce(p, values...)
	}
}

// progress reads what the group holds, past the network. It never goes back. (C3, C4)
func (j *judge) progress() (committed map[int32]int64, all bool) {
	info := j.w.cluster.GroupInfo(testGroup)
	j.mu.Lock()
	defer j.mu.Unlock()
	all = true
	for p, n := range j.made {
		now := int64(0)
		if info != nil {
			now = info.Commits["t"][p].Offset
		}
		if now < j.applied[p] && j.renewals("", p) == 0 {
			j.w.Errorf("C3: the group's commit of partition %d went back from %d to %d", p, j.applied[p], now)
		}
		j.applied[p] = now
		all = all && now == n
	}
	return j.applied, all
}

// lost are the records that are not settled though the group is past them.
func (j *judge) lost() (lost []at) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for p, n := range j.made {
		for o := range n {
			if o < j.applied[p] && !j.settled(at{p, o}) {
				lost = append(lost, at{p, o})
			}
		}
	}
	return lost
}

// names says whether what a member's end was reported with tells of the trouble, if only in words.
func (t *trouble) names(err error) bool {
	if t.code == nil {
		return err != nil
	}
	return errors.Is(err, t.code) || err != nil && strings.Contains(err.Error(), t.code.Message)
}

// passing says that a member has to live through the trouble: it is over soon, and of a kind that the protocol calls passing. A topic that
// is not there is not waited for at start, as it calls that: most likely the name is wrong.
func (t *trouble) passing() bool {
	return t.left > 0 && (t.code == nil || t.code.Retriable) && t.code != kerr.UnknownTopicOrPartition
}

// launched are the members so far.
func (w *world) launched() []*member {
	w.enlisting.Lock()
	defer w.enlisting.Unlock()
	return slices.Clone(w.members)
}
