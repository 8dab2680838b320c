package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C1: an offset that the broker does not name is -1, which never passes for an offset: the partition waits, and then
// begins where it should.
// Seen at grafana/mimir#16125.
func TestNoOffsetIsNoOffset(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var log callLog
		w.produce(0, "x")
		w.produce(1, "old", "older")
		healed := make(chan struct{})
		w.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if isClosed(healed) {
				return nil, nil, false
			}
			w.cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			for _, t := range req.(*kmsg.ListOffsetsRequest).Topics {
				rt := kmsg.NewListOffsetsResponseTopic()
				rt.Topic = t.Topic
				for _, p := range t.Partitions {
					rp := kmsg.NewListOffsetsResponseTopicPartition()
					rp.Partition, rp.Offset = p.Partition, -1
					if p.Partition == 0 {
						rp.Offset = 0
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.Start = StartLatest
		m := w.start(c)
		m.awaitName(EventPaused)
		time.Sleep(time.Minute)
		if at := w.committed("t", 1); at != -1 || slices.Contains(log.all(), "old") {
			t.Errorf("committed %d, handled %v", at, log.all())
		}
		close(healed)
		w.eventually("claimed", func() bool { return w.committed("t", 1) == 2 })
		w.produce(1, "new")
		w.eventually("committed", func() bool { return w.committed("t", 1) == 3 })
		if got := log.all(); slices.Contains(got, "old") || !slices.Contains(got, "new") {
			t.Error(got)
		}
		m.stop()
	})
}

// C1: what another tool wrote beside a commit says nothing, and the committed offset is the next to be handled.
// Seen at confluentinc/parallel-consumer#62.
func TestForeignMetadata(t *testing.T) {
	for _, metadata := range []string{"", "kgo-1234", "gapless:1 ", "gapless:1 window=AA==, partitions=x", "\x00\xff", "AAAAAQ=="} {
		inWorld(t, 1, func(w *world) {
			var log callLog
			w.produce(0, "a", "b", "c")
			var at kadm.Offsets
			at.Add(kadm.Offset{Topic: "t", Partition: 0, At: 1, LeaderEpoch: -1, Metadata: metadata})
			if err := w.adm.CommitAllOffsets(context.Background(), testGroup, at); err != nil {
				t.Fatal(err)
			}
			m := w.start(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
			w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
			got := log.all()
			slices.Sort(got)
			if !slices.Equal(got, []string{"b", "c"}) {
				t.Errorf("%q: %v", metadata, got)
			}
			m.stop()
		})
	}
}
