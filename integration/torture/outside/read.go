package outside

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/proof"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// Evidence reads the topic and its dead letters whole: Records, DeadLetters and Ends.
func (c *Client) Evidence(ctx context.Context) (*proof.Evidence, error) {
	ev := &proof.Evidence{}
	var err error
	if ev.Ends, err = c.Ends(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var txns transactions
	err = c.read(ctx, c.Topic, func(r *kgo.Record) error {
		if txns.see(r) {
			return nil
		}
		known, ok := c.produced[r.Partition][r.Offset]
		if !ok { // an answer that never came; the record is there all the same
			known = proof.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, ID: header(r, schedule.IDHeader)}
		}
		known.Gone, known.LeaderEpoch = false, r.LeaderEpoch
		if c.produced[r.Partition] == nil {
			c.produced[r.Partition] = map[int64]proof.Record{}
		}
		c.produced[r.Partition][r.Offset] = known
		return nil
	})
	if err != nil {
		return nil, err
	}
	for at, aborted := range txns.ended {
		r := c.produced[at.partition][at.offset]
		r.Aborted = aborted
		c.produced[at.partition][at.offset] = r
	}
	for _, of := range c.produced {
		for _, r := range of {
			ev.Records = append(ev.Records, r)
		}
	}
	ev.DeadLetters, err = c.deadLetters(ctx)
	return ev, err
}

// transactions are the outcomes of the transactions in a log, as its markers tell them.
type transactions struct {
	open  map[writer][]int64
	ended map[placed]bool // aborted, by record
}

// writer is a producer in a partition. It has one transaction at a time.
type writer struct {
	partition int32
	producer  int64
}

type placed struct {
	partition int32
	offset    int64
}

// see takes a record in. It says whether it is a marker, and nobody's record.
func (t *transactions) see(r *kgo.Record) (marker bool) {
	if t.open == nil {
		t.open, t.ended = map[writer][]int64{}, map[placed]bool{}
	}
	w := writer{r.Partition, r.ProducerID}
	switch {
	case r.Attrs.IsControl():
		key := kbin.Reader{Src: r.Key}
		_ = key.Int16() // version
		aborted := key.Int16() == 0
		for _, offset := range t.open[w] {
			t.ended[placed{r.Partition, offset}] = aborted
		}
		delete(t.open, w)
		return true
	case r.Attrs.IsTransactional():
		t.open[w] = append(t.open[w], r.Offset)
	}
	return false
}

// CommitLog is all that the group has committed, in order, from the log in which its coordinator keeps it. What a broker answers may be
// old: one that has lost the group goes on answering until it hears of that.
func (c *Client) CommitLog(ctx context.Context) (commits []proof.Commit, err error) {
	err = c.read(ctx, "__consumer_offsets", func(r *kgo.Record) error {
		var key kmsg.OffsetCommitKey
		var value kmsg.OffsetCommitValue
		about := kbin.Reader{Src: r.Key}
		if r.Attrs.IsControl() || about.Int16() > 1 || r.Value == nil { // a marker, members, or an offset that has expired
			return nil
		}
		if err := key.ReadFrom(r.Key); err != nil {
			return fmt.Errorf("decode the key of a commit: %w", err)
		}
		if key.Group != c.Group || key.Topic != c.Topic {
			return nil
		}
		if err := value.ReadFrom(r.Value); err != nil {
			return fmt.Errorf("decode a commit: %w", err)
		}
		// Its time is cut off at a millisecond: within the next it was written.
		at := time.UnixMilli(value.CommitTimestamp).Add(time.Millisecond)
		commits = append(commits, proof.Commit{At: at, Topic: key.Topic, Partition: key.Partition, Offset: value.Offset, Metadata: value.Metadata})
		return nil
	})
	return commits, err
}

func (c *Client) deadLetters(ctx context.Context) (dead []proof.DeadLetter, err error) {
	err = c.read(ctx, DeadLetterTopic(c.Topic), func(r *kgo.Record) error {
		if r.Attrs.IsControl() {
			return nil
		}
		p, err1 := strconv.ParseInt(header(r, engine.HeaderPartition), 10, 32)
		o, err2 := strconv.ParseInt(header(r, engine.HeaderOffset), 10, 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("dead letter %d of partition %d has no address: %v", r.Offset, r.Partition, r.Headers)
		}
		dead = append(dead, proof.DeadLetter{Topic: header(r, engine.HeaderTopic), Partition: int32(p), Offset: o, At: r.Timestamp})
		return nil
	})
	return dead, err
}

// DeadLetterTopic is where the dead letters of a topic are.
func DeadLetterTopic(topic string) string { return topic + ".dlq" }

func header(r *kgo.Record, name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value = string(h.Value)
		}
	}
	return value
}

// read reads a topic from its beginning to its end, aborted transactions and markers as well. A topic that is not there is empty.
func (c *Client) read(ctx context.Context, topic string, each func(*kgo.Record) error) error {
	details, err := c.adm.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	if !details.Has(topic) {
		return nil
	}
	var starts, ends kadm.ListedOffsets
	err = again(ctx, func() (err error) { // of all partitions: one whose leader moves is not empty
		if starts, err = c.adm.ListStartOffsets(ctx, topic); err == nil {
			err = starts.Error()
		}
		if err != nil {
			return err
		}
		if ends, err = c.adm.ListEndOffsets(ctx, topic); err == nil {
			err = ends.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	left := map[int32]int64{} // where it ends
	from := map[int32]kgo.Offset{}
	for p, e := range ends[topic] {
		if s, ok := starts.Lookup(topic, p); ok && s.Offset < e.Offset {
			left[p], from[p] = e.Offset, kgo.NewOffset().At(s.Offset)
		}
	}
	if len(left) == 0 {
		return nil
	}
	// Markers are kept, because a log may end in one.
	cl, err := c.dial(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		for it := fs.RecordIter(); !it.Done(); {
			r := it.Next()
			if err := each(r); err != nil {
				return err
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	return nil
}
