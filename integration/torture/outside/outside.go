// Package outside is what a torture round's parent does with the brokers: it writes the records, moves the group's offsets as an
// operator would, and reads the evidence. It knows nothing of the engine but the headers of dead letters.
package outside

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/integration/proof"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// Client is another client of the brokers, for one topic and one group.
type Client struct {
	Topic, Group string

	opts     []kgo.Opt   // to reach the brokers
	producer *kgo.Client // made anew when partitions are added: a client learns of those when it likes
	cl       *kgo.Client
	adm      *kadm.Client

	mu         sync.Mutex
	partitions int
	produced   map[int32]map[int64]proof.Record
	txns       int
}

// New makes a client that reaches the brokers by these options.
func New(topic, group string, opts ...kgo.Opt) (*Client, error) {
	c := &Client{Topic: topic, Group: group, opts: opts, produced: map[int32]map[int64]proof.Record{}}
	var err error
	if c.cl, err = c.dial(); err != nil {
		return nil, err
	}
	c.adm = kadm.NewClient(c.cl)
	if err := c.newProducer(); err != nil {
		c.cl.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) newProducer() error {
	cl, err := c.dial(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.producer != nil {
		c.producer.Close()
	}
	c.producer = cl
	return nil
}

// quick are the settings that make clients see soon that a broker is back.
var quick = []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.RequestRetries(1000), kgo.RetryTimeout(time.Minute), kgo.UnknownTopicRetries(-1),
	kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond })}

func (c *Client) dial(opts ...kgo.Opt) (*kgo.Client, error) {
	all := append(append(append([]kgo.Opt{}, quick...), c.opts...), opts...)
	return kgo.NewClient(all...)
}

// Close ends the client.
func (c *Client) Close() {
	c.producer.Close()
	c.cl.Close()
}

// Create makes the topic.
func (c *Client) Create(ctx context.Context, partitions int, replication int16, configs map[string]string) error {
	values := map[string]*string{}
	for name, value := range configs {
		values[name] = &value
	}
	if _, err := c.adm.CreateTopic(ctx, int32(partitions), replication, values, c.Topic); err != nil {
		return fmt.Errorf("create topic %s: %w", c.Topic, err)
	}
	c.Has(partitions)
	return nil
}

// Has says how many partitions the topic has, where somebody else has made it.
func (c *Client) Has(partitions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitions = partitions
}

// records are the messages as the broker gets them.
func (c *Client) records(ms []schedule.Message) []*kgo.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	rs := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		rs[i] = &kgo.Record{
			Topic: c.Topic, Partition: m.Partition % int32(c.partitions), Key: m.Key, Value: m.Value(),
			Headers: []kgo.RecordHeader{{Key: schedule.IDHeader, Value: []byte(m.ID)}, {Key: schedule.WorkHeader, Value: []byte(m.Work.String())}},
		}
	}
	return rs
}

// remember notes what was acknowledged.
func (c *Client) remember(ms []schedule.Message, rs []*kgo.Record, aborted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range rs {
		if c.produced[r.Partition] == nil {
			c.produced[r.Partition] = map[int64]proof.Record{}
		}
		c.produced[r.Partition][r.Offset] = proof.Record{
			Topic: c.Topic, Partition: r.Partition, Offset: r.Offset, LeaderEpoch: -1, Key: r.Key, ID: ms[i].ID, Aborted: aborted, Gone: true,
		}
	}
}

// Produce writes messages and waits until they are acknowledged.
func (c *Client) Produce(ctx context.Context, ms []schedule.Message) error {
	for tries := 0; ; tries++ {
		rs := c.records(ms)
		err := c.producer.ProduceSync(ctx, rs...).FirstErr()
		if err == nil {
			c.remember(ms, rs, false)
			return nil
		}
		if tries == triesForID || !hasNoID(err) {
			return fmt.Errorf("produce: %w", err)
		}
		time.Sleep(pauseForID)
		if err := c.newProducer(); err != nil {
			return err
		}
	}
}

// hasNoID says whether a producer could not get its id, from a broker that was killed just then. It never tries again, and has written
// nothing; another one may be luckier.
func hasNoID(err error) bool {
	return strings.Contains(err.Error(), "unable to initialize a producer ID")
}

// So many producers are made for one step, with a pause between them.
const (
	triesForID = 100
	pauseForID = 200 * time.Millisecond
)

// Transact writes them in a transaction, which stays open for a while.
func (c *Client) Transact(ctx context.Context, ms []schedule.Message, open time.Duration, commit bool) error {
	c.mu.Lock()
	c.txns++
	id := fmt.Sprintf("%s-%d", c.Group, c.txns)
	c.mu.Unlock()
	cl, err := c.begin(id)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer cl.Close()
	rs := c.records(ms)
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		return fmt.Errorf("produce in a transaction: %w", err)
	}
	c.remember(ms, rs, !commit)
	select {
	case <-time.After(open):
	case <-ctx.Done():
	}
	// Where the answer does not come, the client has it aborted, if it is not committed; the log tells which (see Evidence).
	err = cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	if err != nil {
		err = again(ctx, func() error { return cl.EndTransaction(ctx, kgo.TryAbort) })
	}
	if err != nil {
		return fmt.Errorf("end a transaction: %w", err)
	}
	return nil
}

// begin makes a client that has begun a transaction.
func (c *Client) begin(id string) (*kgo.Client, error) {
	for tries := 0; ; tries++ {
		cl, err := c.dial(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(id), kgo.TransactionTimeout(5*time.Minute))
		if err != nil {
			return nil, err
		}
		if err = cl.BeginTransaction(); err == nil {
			return cl, nil
		}
		cl.Close()
		if tries == triesForID || !hasNoID(err) {
			return nil, err
		}
		time.Sleep(pauseForID)
	}
}

// AddPartitions adds some.
func (c *Client) AddPartitions(ctx context.Context, n int) error {
	c.mu.Lock()
	to := c.partitions + n
	c.mu.Unlock()
	err := again(ctx, func() error {
		resp, err := c.adm.UpdatePartitions(ctx, to, c.Topic)
		if err == nil {
			err = resp.Error()
		}
		if errors.Is(err, kerr.InvalidPartitions) { // an earlier try had come through
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("add partitions: %w", err)
	}
	if err := c.everywhere(ctx, to); err != nil {
		return fmt.Errorf("add partitions: %w", err)
	}
	c.Has(to)
	return c.newProducer()
}

// everywhere returns when all brokers that answer know of so many partitions. A producer that asks one that does not refuses to write to the
// new ones.
func (c *Client) everywhere(ctx context.Context, partitions int) error {
	brokers, err := c.adm.ListBrokers(ctx)
	if err != nil {
		return err
	}
	for _, b := range brokers {
		if err := again(ctx, func() error { return c.knows(ctx, b.NodeID, partitions) }); err != nil {
			return err
		}
	}
	return nil
}

// knows is nil where a broker knows of so many partitions, or does not answer: it may be down, and will know when it is back.
func (c *Client) knows(ctx context.Context, broker int32, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(c.Topic)
	req.Topics = append(req.Topics, t)
	resp, err := c.cl.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil // see above
	}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		if len(t.Partitions) >= partitions {
			return nil
		}
	}
	return fmt.Errorf("broker %d does not know of %d partitions yet", broker, partitions)
}

// Reset sets the group's offset of a partition back to a share of what is committed, once the group has no members; -1: nothing was
// committed.
func (c *Client) Reset(ctx context.Context, partition int32, share float64) (offset int64, err error) {
	offset = -1
	err = again(ctx, func() error {
		committed, err := c.committed(ctx)
		if err != nil {
			return err
		}
		o, ok := committed.Lookup(c.Topic, partition)
		if !ok || o.At < 0 {
			return nil
		}
		ends, err := c.adm.ListStartOffsets(ctx, c.Topic)
		if err != nil {
			return err
		}
		start, _ := ends.Lookup(c.Topic, partition)
		to := max(start.Offset, int64(share*float64(o.At)))
		if to > o.At {
			return nil
		}
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: c.Topic, Partition: partition, At: to, LeaderEpoch: -1})
		if err := c.adm.CommitAllOffsets(ctx, c.Group, os); err != nil {
			return err // the group has members still
		}
		offset = to
		return nil
	})
	if err != nil {
		err = fmt.Errorf("reset partition %d: %w", partition, err)
	}
	return offset, err
}

// again tries until it works or the time is over.
func again(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// DeleteRecords deletes up to a share of a partition's log.
func (c *Client) DeleteRecords(ctx context.Context, partition int32, share float64) error {
	err := again(ctx, func() error {
		starts, err := c.adm.ListStartOffsets(ctx, c.Topic)
		if err != nil {
			return err
		}
		ends, err := c.adm.ListEndOffsets(ctx, c.Topic)
		if err != nil {
			return err
		}
		start, _ := starts.Lookup(c.Topic, partition)
		end, _ := ends.Lookup(c.Topic, partition)
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: c.Topic, Partition: partition, At: start.Offset + int64(share*float64(end.Offset-start.Offset))})
		resp, err := c.adm.DeleteRecords(ctx, os)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete records of partition %d: %w", partition, err)
	}
	return nil
}

// committed are the group's offsets; none where there is no group yet.
func (c *Client) committed(ctx context.Context) (kadm.OffsetResponses, error) {
	resp, err := c.adm.FetchOffsets(ctx, c.Group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	return resp, err
}

// Commits are what the group has committed now.
func (c *Client) Commits(ctx context.Context) (commits []proof.Commit, err error) {
	resp, err := c.committed(ctx)
	if err != nil {
		return nil, err
	}
	resp.Each(func(o kadm.OffsetResponse) {
		if o.Topic == c.Topic && o.Err == nil {
			commits = append(commits, proof.Commit{Topic: o.Topic, Partition: o.Partition, Offset: o.At, Metadata: o.Metadata})
		}
	})
	return commits, nil
}

// Done says whether the group has committed everything up to the ends of the log.
func (c *Client) Done(ctx context.Context) (bool, error) {
	ends, err := c.Ends(ctx)
	for _, e := range ends {
		if e.End > 0 && e.Committed < e.End {
			return false, err
		}
	}
	return err == nil, err
}

// Ends are the ends of the log, and where the group stands.
func (c *Client) Ends(ctx context.Context) (ends []proof.End, err error) {
	resp, err := c.committed(ctx)
	if err != nil {
		return nil, err
	}
	starts, err := c.adm.ListStartOffsets(ctx, c.Topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	highs, err := c.adm.ListEndOffsets(ctx, c.Topic)
	if err == nil {
		err = highs.Error()
	}
	if err != nil {
		return nil, err
	}
	highs.Each(func(l kadm.ListedOffset) {
		e := proof.End{Topic: l.Topic, Partition: l.Partition, End: l.Offset, Committed: -1}
		if s, ok := starts.Lookup(l.Topic, l.Partition); ok {
			e.Start = s.Offset
		}
		if o, ok := resp.Lookup(l.Topic, l.Partition); ok {
			e.Committed = o.At
		}
		ends = append(ends, e)
	})
	return ends, nil
}
