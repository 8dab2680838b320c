package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (w *world) deleteRecords(topic string, partition int32, before int64) {
	w.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: partition, At: before})
	if _, err := w.adm.DeleteRecords(context.Background(), os); err != nil {
		w.Fatal(err)
	}
}

func (w *world) commitAs(topic string, partition int32, offset int64) {
	w.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1})
	if err := w.adm.CommitAllOffsets(context.Background(), testGroup, os); err != nil {
		w.Fatal(err)
	}
}

// Where a group without a commit begins: the resolved start is committed at the first assignment, so that an idle partition
// keeps it over a restart (otherwise "latest" would skip what came while nobody looked).
func TestStart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		start Start
		want  int64
	}{{"earliest", StartEarliest, 0}, {"latest", StartLatest, 5}, {"timestamp", Start{}, 3}} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				var log callLog
				h := func(_ context.Context, r *Record) error { log.add(r); return nil }
				w.produce(0, "a", "b", "c")
				time.Sleep(time.Hour)
				then := time.Now()
				w.produce(0, "d", "e")
				time.Sleep(time.Hour)
				c := w.config(h)
				c.Start = tc.start
				if tc.name == "timestamp" {
					c.Start = StartAt(then)
				}
				hold := make(chan struct{})
				c.Handler = HandlerFunc(func(ctx context.Context, r *Record) error { <-hold; return h(ctx, r) })
				m := w.start(c)
				w.eventually("the start is committed before anything is handled", func() bool { return w.committed("t", 0) == tc.want })
				close(hold)
				w.eventually("the rest", func() bool { return w.committed("t", 0) == 5 })
				m.stop()
				if tc.name == "latest" && m.count(EventStartsLatest) != 1 {
					t.Error("no warning of latest")
				}
				w.produce(0, "f") // nobody is there
				m = w.start(c)
				w.eventually("what came meanwhile", func() bool { return w.committed("t", 0) == 6 })
				m.stop()
				if got := log.all(); len(got) != int(6-tc.want) || got[len(got)-1] != "f" {
					t.Errorf("handled %v", got)
				}
			})
		})
	}
}

// A partition that is added later begins at its beginning, whatever Start says: all in it is new to the group.
func TestAddedPartitionStartsAtItsBeginning(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.Start = StartLatest
		c.KgoOpts = append(c.KgoOpts, kgo.MetadataMaxAge(time.Minute))
		m := w.start(c)
		w.eventually("claimed", func() bool { return w.committed("t", 0) == 0 })
		if _, err := w.adm.CreatePartitions(context.Background(), 1, "t"); err != nil {
			t.Fatal(err)
		}
		fresh := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer fresh.Close()
		if err := fresh.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Partition: 1, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.eventually("handled", func() bool { return w.committed("t", 1) == 1 })
		ev := m.awaitName(EventPartitionsAdded)
		if !strings.Contains(ev.Hint, "keys move") {
			t.Errorf("no word on the keys: %q", ev.Hint)
		}
		m.stop()
	})
}

// C9: retention overtook the group. By default the partition stops and says how many are gone; going on is a choice.
func TestRetentionOvertookTheGroup(t *testing.T) {
	for _, tc := range []struct {
		mode DataLoss
		want []string
		at   int64
	}{{DataLossStop, nil, 2}, {DataLossEarliest, []string{"v6", "v7"}, 8}, {DataLossLatest, nil, 8}} {
		t.Run(string(tc.mode), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				var log callLog
				w.produce(0, numbered("v", 8)...)
				w.commitAs("t", 0, 2)
				w.deleteRecords("t", 0, 6)
				c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
				c.OnDataLoss = tc.mode
				m := w.start(c)
				ev := m.awaitName(EventDataLoss)
				if ev.Count != 4 || ev.Offset != 2 {
					t.Errorf("%+v", ev)
				}
				w.eventually("settled", func() bool { return w.committed("t", 0) == tc.at && log.len() == len(tc.want) })
				time.Sleep(time.Minute)
				if got := log.all(); !slices.Equal(got, tc.want) {
					t.Errorf("handled %v", got)
				}
				st := m.e.Status()
				if stopped := slices.Contains(st.Partitions[0].Paused, "data_loss"); stopped != (tc.mode == DataLossStop) || stopped == st.Healthy {
					t.Errorf("paused %v healthy %v", st.Partitions[0].Paused, st.Healthy)
				}
				if st.Counts.Lost != 4 {
					t.Errorf("lost %d", st.Counts.Lost)
				}
				m.stop()
				if at := w.committed("t", 0); at != tc.at {
					t.Errorf("committed %d", at)
				}
			})
		})
	}
}

// C9: the same while running: the partition was full while retention moved on.
func TestRetentionOvertakesARunningMember(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gate := make(chan struct{})
		c := w.config(func(ctx context.Context, r *Record) error { <-gate; return nil })
		c.PartitionRecords, c.Workers = 4, 1
		c.FetchMaxPartitionBytes = 200 // a few records a fetch
		for i := range 40 {            // a batch each, so that they are fetched apart
			w.produce(0, numbered(strings.Repeat("x", 50)+string(rune('a'+i%26)), 1)...)
		}
		m := w.start(c)
		w.eventually("full", func() bool {
			s := m.e.Status()
			return len(s.Partitions) == 1 && slices.Contains(s.Partitions[0].Paused, "records")
		})
		held := m.e.Status().Partitions[0].Position
		w.deleteRecords("t", 0, 30)
		close(gate)
		ev := m.awaitName(EventDataLoss)
		if ev.Offset != held || ev.Count != 30-held {
			t.Errorf("%+v, held up to %d", ev, held)
		}
		w.eventually("what was delivered is committed, and no more", func() bool { return w.committed("t", 0) == held })
		m.stop()
	})
}

// A commit beyond the end of the log: the log was truncated or begun anew. Nothing is skipped: it is consumed from its start.
func TestCommitBeyondTheEnd(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		w.produce(0, "a", "b")
		w.commitAs("t", 0, 5000)
		m := w.start(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		m.awaitName(EventTruncated)
		w.eventually("consumed", func() bool { return w.committed("t", 0) == 2 && log.len() == 2 })
		m.stop()
	})
}

// C3: a topic that is deleted and created again is consumed afresh; its offsets mean nothing in the new one.
// Seen at twmb/franz-go#1426.
func TestTopicRecreated(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		w.produce(0, numbered("old", 100)...)
		m := w.start(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		w.eventually("the old ones", func() bool { return w.committed("t", 0) == 100 })
		if err := w.cluster.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		m.awaitName(EventTopicDeleted)
		if ok, _ := m.e.Healthy(); ok {
			t.Error("healthy although its topic is gone")
		}
		if err := w.cluster.CreateTopic("t", 1, nil); err != nil {
			t.Fatal(err)
		}
		fresh := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer fresh.Close()
		for _, v := range numbered("new", 10) {
			if err := fresh.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		m.awaitName(EventTopicRecreated)
		w.eventually("the new ones", func() bool { return w.committed("t", 0) == 10 })
		if n := log.len(); n != 110 {
			t.Errorf("handled %d", n)
		}
		m.stop()
	})
}

// A topic pattern consumes what matches, new topics too, and never the dead letters that this configuration writes.
func TestTopicPattern(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		c := w.config(func(_ context.Context, r *Record) error {
			log.add(r)
			if string(r.Value) == "bad" {
				return Permanent(errBoom)
			}
			return nil
		})
		c.Topics, c.TopicPattern = nil, "^(t|u.*)$|dlq"
		c.KgoOpts = append(c.KgoOpts, kgo.MetadataMaxAge(10*time.Second))
		w.produce(0, "bad")
		m := w.start(c)
		w.eventually("dead-lettered", func() bool { return w.committed("t", 0) == 1 })
		if _, err := w.adm.CreateTopic(context.Background(), 1, 1, nil, "users"); err != nil {
			t.Fatal(err)
		}
		w.produceTo("users", 0, "good")
		w.eventually("the new topic", func() bool { return w.committed("users", 0) == 1 })
		time.Sleep(time.Minute)
		m.stop()
		if got := log.all(); !slices.Equal(got, []string{"bad", "good"}) {
			t.Errorf("handled %v", got)
		}
	}, kfake.DefaultNumPartitions(1))
}

// What is wrong at start is an exact error within seconds, not a silent poll.
func TestStartChecks(t *testing.T) {
	nop := func(context.Context, *Record) error { return nil }
	t.Run("no such topic", func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			c := w.config(nop)
			c.Topics = []string{"t", "nope"}
			if err := <-w.launch(c).done; !errors.Is(err, kerr.UnknownTopicOrPartition) || !strings.Contains(err.Error(), `"nope"`) {
				t.Error(err)
			}
		})
	})
	t.Run("no broker", func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			c := w.config(nop)
			c.Brokers = []string{"127.0.0.1:1"}
			if err := <-w.launch(c).done; err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
				t.Error(err)
			}
		})
	})
	t.Run("no dead-letter topic", func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			c := w.config(nop)
			c.DeadLetter.NoCreate = true
			if err := <-w.launch(c).done; err == nil || !strings.Contains(err.Error(), `"t.dlq" does not exist`) {
				t.Error(err)
			}
		})
	})
	t.Run("wrong password", func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			c := w.config(nop)
			c.SASL = SASL{Mechanism: "PLAIN", User: "alice", Password: "wrong"}
			if err := <-w.launch(c).done; err == nil || !strings.Contains(err.Error(), "credentials") {
				t.Error(err)
			}
		}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "right"))
	})
}
