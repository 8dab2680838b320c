package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// replayQuiet is how long nothing may come before what is left of a range is taken for a hole: compaction leaves some at the
// end of which no record stands.
const replayQuiet = 5 * time.Second

type part struct {
	topic     string
	partition int32
}

// span is a range of offsets, [from, to).
type span struct{ from, to int64 }

// replay hands the last N records before each partition's committed offset to the sink again. It reads beside the group:
// nothing is committed, and the group's members do not notice.
func (r *runner) replay(ctx context.Context, s sink) error {
	cl, err := connect(ctx, r.cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	ranges, starts, err := r.replayRanges(ctx, kadm.NewClient(cl))
	if err != nil {
		return err
	}
	if ranges, err = r.exactRanges(ctx, ranges, starts); err != nil {
		return err
	}
	var handled atomic.Int64
	err = r.readRanges(ctx, ranges, func(ctx context.Context, _ part, records []*kgo.Record) error {
		for _, rec := range records {
			if err := s.Handle(ctx, &engine.Record{Record: rec, Attempt: 1}); err != nil {
				return fmt.Errorf("%s[%d]@%d: %w", rec.Topic, rec.Partition, rec.Offset, err)
			}
			handled.Add(1)
		}
		return nil
	})
	if r.progress.json {
		writeJSON(r.console, map[string]any{"event": "replayed", "handled": handled.Load(), "partitions": len(ranges)})
	} else {
		_, _ = fmt.Fprintf(r.console, "handled %s records of %d partitions again; nothing was committed\n", count(handled.Load()), len(ranges))
	}
	return err
}

// replayRanges are the N offsets before each commit, and the first offsets that the logs still have.
func (r *runner) replayRanges(ctx context.Context, adm *kadm.Client) (ranges map[part]span, starts kadm.ListedOffsets, err error) {
	wanted, err := r.topicFilter()
	if err != nil {
		return nil, nil, err
	}
	committed, err := adm.FetchOffsets(ctx, r.cfg.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil, offsetsRefused(r.cfg.Group, err)
	}
	ranges = map[part]span{}
	topics := map[string]bool{}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At > 0 && wanted(o.Topic) {
			ranges[part{o.Topic, o.Partition}] = span{max(o.At-int64(r.replayLast), 0), o.At}
			topics[o.Topic] = true
		}
	})
	if len(ranges) == 0 {
		return nil, nil, fmt.Errorf("group %q has committed nothing in these topics that this user may see (it needs READ on them): there is nothing to replay", r.cfg.Group)
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	if starts, err = adm.ListStartOffsets(ctx, names...); err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the first offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the last offsets: %w", err)
	}
	for p, s := range ranges { // a commit beyond the end, of a topic that was truncated or made anew
		if end, ok := ends.Lookup(p.topic, p.partition); ok {
			ranges[p] = span{s.from, min(s.to, end.Offset)}
		}
	}
	return ranges, starts, nil
}

func (r *runner) topicFilter() (func(string) bool, error) {
	if r.cfg.TopicPattern != "" {
		re, err := regexp.Compile(r.cfg.TopicPattern)
		return re.MatchString, err
	}
	return func(t string) bool { return contains(r.cfg.Topics, t) }, nil
}

// exactRanges moves the starts of the ranges so that each holds N records, or all that are left. Offsets are not enough: the
// markers of transactions and compaction leave holes in them.
func (r *runner) exactRanges(ctx context.Context, ranges map[part]span, starts kadm.ListedOffsets) (map[part]span, error) {
	exact := map[part]span{}
	for len(ranges) > 0 {
		last := map[part]*[]int64{} // the offsets of the last N records
		for p, s := range ranges {
			first, _ := starts.Lookup(p.topic, p.partition)
			ranges[p] = span{max(s.from, first.Offset), s.to}
			last[p] = new([]int64)
		}
		err := r.readRanges(ctx, ranges, func(_ context.Context, p part, records []*kgo.Record) error {
			for _, rec := range records {
				*last[p] = append(*last[p], rec.Offset)
			}
			*last[p] = (*last[p])[max(len(*last[p])-r.replayLast, 0):]
			return nil
		})
		if err != nil {
			return nil, err
		}
		wider := map[part]span{}
		for p, s := range ranges {
			first, _ := starts.Lookup(p.topic, p.partition)
			switch got := *last[p]; {
			case len(got) < r.replayLast && s.from > first.Offset:
				wider[p] = span{s.to - 2*(s.to-s.from), s.to}
			case len(got) > 0:
				exact[p] = span{got[0], s.to}
			}
		}
		ranges = wider
	}
	return exact, nil
}

// readRanges reads ranges of partitions with a client that is in no group. each is called with consecutive records of one
// partition, for several partitions at once, and never twice at once for one.
func (r *runner) readRanges(ctx context.Context, ranges map[part]span, each func(context.Context, part, []*kgo.Record) error) error {
	left := map[part]span{}
	offsets := map[string]map[int32]kgo.Offset{}
	for p, s := range ranges {
		if s.from >= s.to {
			continue
		}
		left[p] = s
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]kgo.Offset{}
		}
		offsets[p.topic][p.partition] = kgo.NewOffset().At(s.from)
	}
	// Control records are kept to see where a range ends that ends with one.
	opts := []kgo.Opt{kgo.ConsumePartitions(offsets), kgo.KeepControlRecords(), kgo.FetchMaxWait(250 * time.Millisecond)}
	if !r.cfg.ReadUncommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := connect(ctx, r.cfg, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(left) > 0 {
		fetches, err := pollWithin(ctx, cl, replayQuiet)
		if err != nil || fetches == nil {
			return err
		}
		arrived := map[part][]*kgo.Record{}
		fetches.EachRecord(func(rec *kgo.Record) {
			p := part{rec.Topic, rec.Partition}
			s, reading := left[p]
			if !reading {
				return
			}
			if rec.Offset < s.to && !rec.Attrs.IsControl() {
				arrived[p] = append(arrived[p], rec)
			}
			if rec.Offset >= s.to-1 {
				delete(left, p)
				cl.PauseFetchPartitions(map[string][]int32{p.topic: {p.partition}})
			}
		})
		var g errgroup.Group
		g.SetLimit(r.replayWorkers())
		for p, records := range arrived {
			g.Go(func() error { return each(ctx, p, records) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// replayWorkers is how many records are handled at once. It is over too soon for a number to be found.
func (r *runner) replayWorkers() int {
	if r.cfg.Workers == engine.Auto {
		return engine.Config{}.WithDefaults().Workers
	}
	return max(r.cfg.Workers, 1)
}

// pollWithin polls for at most quiet; nil = nothing came.
func pollWithin(ctx context.Context, cl *kgo.Client, quiet time.Duration) (kgo.Fetches, error) {
	limited, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	fetches := cl.PollFetches(limited)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if limited.Err() != nil && fetches.NumRecords() == 0 {
		return nil, nil
	}
	var failed error
	fetches.EachError(func(t string, p int32, err error) {
		if failed == nil && !errors.Is(err, context.DeadlineExceeded) {
			failed = fmt.Errorf("%s[%d]: %w", t, p, err)
		}
	})
	return fetches, failed
}
