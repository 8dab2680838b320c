package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// finish lets all members leave, reads what is left to read, and counts.
func (s *soak) finish(ctx context.Context) (*result, error) {
	if err := s.profile(ctx, "heap-end.pb.gz"); err != nil {
		return nil, err
	}
	var problems []string
	for _, m := range s.present() {
		if err := s.leave(m); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if err := s.journal.rest(s.ledger.hear); err != nil {
		return nil, err
	}
	if err := s.readLetters(ctx); err != nil {
		return nil, fmt.Errorf("read the dead letters: %w", err)
	}
	lag, err := s.lag(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the lag: %w", err)
	}
	r := &result{options: s.o, Counts: s.ledger.close(), Lag: lag, Events: s.events, samples: s.samples, latencies: s.ledger.latencies(), Problems: problems}
	for _, l := range r.latencies {
		if err := s.out.Encode(struct {
			Type string `json:"type"`
			latency
		}{"latency", l}); err != nil {
			return nil, err
		}
	}
	r.judge()
	return r, nil
}

// lettersWithin bounds the reading of the dead letters.
const lettersWithin = 2 * time.Minute

// readLetters reads the dead-letter topic from its beginning to its end.
func (s *soak) readLetters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lettersWithin)
	defer cancel()
	const letters = topic + ".dlq"
	ends, err := s.adm.ListEndOffsets(ctx, letters)
	if err != nil {
		return err
	}
	if err := ends.Error(); err != nil {
		return err
	}
	from, left := map[int32]kgo.Offset{}, int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			from[o.Partition] = kgo.NewOffset().AtStart()
			left += o.Offset // no compaction, no transactions: each offset is a record
		}
	})
	if left == 0 {
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{letters: from}))
	if err != nil {
		return err
	}
	defer cl.Close()
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			id, _ := identify(r.Headers)
			s.ledger.inLetter(id)
		})
	}
	return nil
}
