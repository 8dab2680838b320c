package engine

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C1: a look at the topics ends while an assignment finds out where it starts. What the client knows of the topics is not forgotten then: the
// group's offsets come by topic id, and offsets in a topic without a name would be nobody's, so that the added partition began at its end.
func TestNothingIsForgottenAmidStarts(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		ctx := context.Background()
		if _, err := w.adm.CreateTopic(ctx, 1, 1, nil, "old"); err != nil {
			t.Fatal(err)
		}
		os := kadm.Offsets{}
		os.Add(kadm.Offset{Topic: "old", Partition: 0, At: 0, LeaderEpoch: -1}) // a topic that the group has a commit in, and that is not looked at here
		if err := w.adm.CommitAllOffsets(ctx, testGroup, os); err != nil {
			t.Fatal(err)
		}
		var log callLog
		c := brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		c.Start = StartLatest
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 0 })
		time.Sleep(21 * time.Second)
		hold, arrived := make(chan struct{}), make(chan struct{}, 10)
		w.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			for _, rt := range req.(*kmsg.MetadataRequest).Topics {
				if rt.Topic == nil { // by id
					arrived <- struct{}{}
					w.cluster.SleepControl(func() { <-hold })
				}
			}
			return nil, nil, false
		})
		if _, err := w.adm.CreatePartitions(ctx, 1, "t"); err != nil {
			t.Fatal(err)
		}
		w.produce(1, "x")
		<-arrived
		m.e.forgetMetadata([]string{"t"}) // what logEndLoop does at the end of its look
		time.Sleep(10 * time.Millisecond)
		close(hold)
		time.Sleep(time.Minute)
		if log.len() != 1 {
			t.Errorf("handled %v: the record of the added partition was skipped", log.all())
		}
		m.stop()
	})
}
