package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where the brokers answer fetches and nothing comes of them, compaction may have removed the log's tail, and nothing is wrong. It may also
// be that each answer is an error for the fetch as a whole, or that the client never asks for the partition because it waits for another
// answer. The client tells of none of that, so the watchdog has a look at the log itself.

// probeTimeout bounds a look.
const probeTimeout = 5 * time.Second

// finding is what a look at a log has found: nil = there is no record up to the end of the log.
type finding struct {
	ep   *epoch
	next int64 // where it looked
	err  error
}

var errNotFetched = errors.New("there are records at its position, and the client does not bring them: look at the brokers' answers to its other requests (OffsetForLeaderEpoch, Metadata)")

// probe fetches from a partition's position, past the consumer.
func (e *Engine) probe(ctx context.Context, ep *epoch, next int64, leader int32) finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	f := finding{ep: ep, next: next}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MaxBytes = 0, e.cfg.FetchMaxPartitionBytes
	if !e.cfg.ReadUncommitted {
		req.IsolationLevel = 1
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = ep.topic
	e.mu.Lock()
	rt.TopicID = e.topics[ep.topic].id
	e.mu.Unlock()
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = ep.partition, next, req.MaxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := e.side.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		f.err = fmt.Errorf("fetching from it fails: %w", err)
		return f
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		f.err = fmt.Errorf("the broker answers fetches with an error: %w", err)
		return f
	}
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: next, Topic: ep.topic, Partition: ep.partition, KeepControlRecords: true}, &t.Partitions[i], kgo.DefaultDecompressor(), nil)
			switch {
			case got.Err != nil:
				f.err = fmt.Errorf("the broker answers fetches with an error: %w", got.Err)
			case len(got.Records) > 0:
				f.err = errNotFetched
			}
		}
	}
	return f
}

// tail is the end of a log that the client brings nothing of.
type tail struct {
	stalled Event // what is to be said of it
	next    int64
	looked  time.Time
	looking bool
	told    bool
}

// lookAtTails looks at the logs of partitions whose tails seem to be compacted away, once each StalledAfter, and makes of what was found what
// it is: an event, and ill health where something is wrong.
func (w *watchdog) lookAtTails(ctx context.Context, e *Engine, now time.Time) {
	for heard := true; heard; {
		select {
		case f := <-w.found:
			if t := w.tails[f.ep]; t != nil && t.next == f.next {
				t.looking = false
				t.found(e, f)
			}
		default:
			heard = false
		}
	}
	for ep, t := range w.tails {
		if t.looking || now.Sub(t.looked) < e.cfg.StalledAfter {
			continue
		}
		leader, _, err := e.cl.PartitionLeader(ep.topic, ep.partition)
		if err != nil {
			continue
		}
		t.looking, t.looked = true, now
		go func() {
			select {
			case w.found <- e.probe(ctx, ep, t.next, leader):
			case <-ctx.Done():
			}
		}()
	}
}

func (t *tail) found(e *Engine, f finding) {
	news := e.health.set(stalledSubject(f.ep), f.err)
	if t.told && !news {
		return
	}
	t.told = true
	ev := t.stalled
	if f.err != nil {
		ev.Err, ev.Hint = f.err, "fetches bring nothing although the log goes on"
	}
	e.emit(ev)
}
