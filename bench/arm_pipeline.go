package bench

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/gaplesshq/gapless/tracker"
	"github.com/gaplesshq/gapless/workers"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pipeline is workers and tracker, fed by the client's decoder; or the decoder alone.
type pipeline struct {
	idleRunner
	j       *job
	m       *meter
	d       *decoder
	n       atomic.Int64 // decoded, where nothing else is done
	pool    *workers.Pool[*kgo.Record]
	subs    []*settling
	records recordpool.Pool
	low     chan struct{}
}

// settling is a partition of it.
type settling struct {
	t    *tracker.Tracker
	lane *workers.Lane[*kgo.Record]
	n    atomic.Int64
	full atomic.Bool
}

// pipelineHeld is how many records a partition holds: the engine's default.
const pipelineHeld = 32_768

func newPipeline(j *job, m *meter) (*pipeline, error) {
	b, err := j.canned()
	if err != nil {
		return nil, err
	}
	p := &pipeline{j: j, m: m, low: make(chan struct{}, 1)}
	p.d = newDecoder(b, []kgo.Pool{&p.records})
	if j.Arm == ArmDecode {
		return p, nil
	}
	p.pool = workers.New(workers.Options[*kgo.Record]{
		Total: j.Case.Workers, BatchSize: max(j.Case.Batch, 1),
		Key:       func(r **kgo.Record) []byte { return (*r).Key },
		Handle:    p.handle,
		Completed: completed,
		Release:   p.records.Release,
		Low:       p.wake,
	})
	order := map[engine.Order]workers.Order{engine.OrderKey: workers.ByKey, engine.OrderPartition: workers.ByPartition}[j.Case.Order]
	for i := range j.Case.Partitions {
		s := &settling{t: tracker.New(0, -1, tracker.Options{})}
		held := max(pipelineHeld, 4*j.Case.Workers)
		s.lane = p.pool.Open(uint64(i), order, s, held, held/2)
		p.subs = append(p.subs, s)
	}
	return p, nil
}

func (p *pipeline) handle(t *workers.Task[*kgo.Record]) {
	if t.Len() == 1 {
		_ = p.m.handle(context.Background(), *t.Item(0), 1) // a failure has no retry here
	} else {
		_ = p.m.run(context.Background(), *t.Item(0), 1, nil, nil)
	}
	for i := range t.Len() {
		t.Mark(i)
	}
}

func completed(l *workers.Lane[*kgo.Record], done []workers.Span) {
	s := l.Owner().(*settling)
	n := 0
	for _, d := range done {
		n += s.t.DoneRange(tracker.Seq(d.First), d.N)
	}
	s.n.Add(int64(n))
}

func (p *pipeline) wake(l *workers.Lane[*kgo.Record]) {
	l.Owner().(*settling).full.Store(false)
	select {
	case p.low <- struct{}{}:
	default:
	}
}

func (p *pipeline) run(ctx context.Context) error {
	if p.j.Arm == ArmDecode {
		for partition := int32(0); ctx.Err() == nil; partition = (partition + 1) % int32(p.j.Case.Partitions) {
			records := p.d.next(partition).Records
			for _, r := range records {
				touch(r)
				r.Recycle()
			}
			p.n.Add(int64(len(records)))
		}
		return nil
	}
	err := p.feed(ctx)
	for _, s := range p.subs {
		s.lane.Close()
	}
	p.m.release()
	p.pool.Wait()
	return err
}

// feed gives each partition that is not full its next fetch.
func (p *pipeline) feed(ctx context.Context) error {
	for ctx.Err() == nil {
		fed := false
		for i, s := range p.subs {
			if s.full.Load() {
				continue
			}
			fed = true
			f := p.d.next(int32(i))
			if f.Err != nil {
				return f.Err
			}
			for recs := f.Records; len(recs) > 0; {
				batch := recordpool.Batch(recs)
				p.records.Lend(batch)
				recs = recs[len(batch):]
			}
			first, err := s.t.AddRange(f.Records[0].Offset, len(f.Records), -1)
			if err != nil {
				return fmt.Errorf("partition %d: %w", i, err)
			}
			s.full.Store(true) // first, as Low may come before Push has returned
			if !s.lane.Push(uint64(first), f.Records) {
				s.full.Store(false)
			}
		}
		if !fed {
			select {
			case <-p.low:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (p *pipeline) done() int64 {
	n := p.n.Load()
	for _, s := range p.subs {
		n += s.n.Load()
	}
	return n
}

func (p *pipeline) peak() int {
	if p.pool == nil {
		return 0
	}
	return p.pool.Stats().Peak
}
