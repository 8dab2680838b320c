package ground

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Uncommitted says how many of a topic's records the broker does not hold as committed by a group.
func (g *Ground) Uncommitted(ctx context.Context, group string, f *Filled) (int64, error) {
	offsets, err := g.admin.FetchOffsets(ctx, group)
	if err != nil {
		return 0, fmt.Errorf("offsets of group %s: %w", group, err)
	}
	var open int64
	for p, end := range f.Ends {
		at := int64(0)
		if o, ok := offsets.Lookup(f.Name, int32(p)); ok && o.At > 0 {
			at = o.At
		}
		open += end - at
	}
	return open, nil
}

// sharePatience is how long a share group's state may take to be written.
const sharePatience = 10 * time.Second

// Unaccepted says how many of a topic's records the broker does not hold as accepted by a share group.
func (g *Ground) Unaccepted(ctx context.Context, group string, f *Filled) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, sharePatience)
	defer cancel()
	var open int64
	asked := false
	for {
		n, err := g.unaccepted(ctx, group, f)
		if ctx.Err() != nil && asked {
			return open, nil
		}
		if err != nil {
			return 0, fmt.Errorf("offsets of share group %s: %w", group, err)
		}
		open, asked = n, true
		if open == 0 {
			return 0, nil
		}
		// The coordinator may still be writing what a member that has gone said last.
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (g *Ground) unaccepted(ctx context.Context, group string, f *Filled) (int64, error) {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	wanted := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	wanted.GroupID = group
	topic := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	topic.Topic = f.Name
	for p := range f.Ends {
		topic.Partitions = append(topic.Partitions, int32(p))
	}
	wanted.Topics = append(wanted.Topics, topic)
	req.Groups = append(req.Groups, wanted)
	resp, err := req.RequestWith(ctx, g.client)
	if err != nil {
		return 0, err
	}
	return shareLag(resp, f)
}

// shareLag adds up what the broker calls lag: what is neither below a partition's start offset nor accepted beyond it. The start offset
// alone says too little: it is written with the acknowledgements that follow, so after the last ones it lags behind.
func shareLag(resp *kmsg.DescribeShareGroupOffsetsResponse, f *Filled) (int64, error) {
	var open int64
	for _, end := range f.Ends {
		open += end
	}
	for _, group := range resp.Groups {
		if err := kerr.ErrorForCode(group.ErrorCode); err != nil {
			return 0, err
		}
		for _, topic := range group.Topics {
			for _, p := range topic.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return 0, err
				}
				switch {
				case p.StartOffset < 0: // nothing is known of it yet
				case resp.Version >= 1 && p.Lag >= 0:
					open -= f.Ends[p.Partition] - p.Lag
				default:
					open -= p.StartOffset
				}
			}
		}
	}
	return open, nil
}
