package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C4, C9: whatever a commit is answered with, once or for a long time, for one partition or for all:
// the codes are read partition by partition, what was refused is sent again, and while it is refused the engine is either
// visibly ill or has said why it stopped.
// Seen at astubbs/parallel-consumer#100, astubbs/parallel-consumer#470, confluentinc/parallel-consumer#597, twmb/franz-go (CommitOffsetsSync),
// twmb/franz-go#1338.
func TestCommitErrors(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.NotCoordinator, kerr.CoordinatorNotAvailable,
		kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut, kerr.OffsetMetadataTooLarge, kerr.GroupAuthorizationFailed,
		kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition, kerr.InvalidCommitOffsetSize, kerr.StaleMemberEpoch,
		kerr.FencedMemberEpoch, kerr.UnknownServerError, kerr.InvalidGroupID, kerr.FencedInstanceID,
	} {
		for _, protocol := range []Protocol{ProtocolClassic, ProtocolConsumer} {
			for _, partitions := range [][]int32{{0}, nil} {
				t.Run(fmt.Sprint(err.Message, " ", protocol, partitions, " once"), func(t *testing.T) {
					refuseCommits(t, err, protocol, partitions, 1)
				})
				t.Run(fmt.Sprint(err.Message, " ", protocol, partitions, " for ever"), func(t *testing.T) {
					refuseCommits(t, err, protocol, partitions, -1)
				})
			}
		}
	}
}

func refuseCommits(t *testing.T, code *kerr.Error, protocol Protocol, partitions []int32, count int) {
	inWorld(t, 2, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Protocol = protocol
		if code == kerr.FencedInstanceID {
			c.InstanceID = "one"
		}
		m := w.start(c)
		w.eventually("the starts are committed", func() bool { return w.committed("t", 0) == 0 && w.committed("t", 1) == 0 })
		h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "t", Partitions: partitions, Err: code, Count: count})
		w.produce(0, numbered("a", 10)...)
		w.produce(1, numbered("b", 10)...)
		if code == kerr.FencedInstanceID { // another live member has its name: it must stop, and say so
			if err := <-m.done; err == nil {
				t.Error("it ended without an error")
			}
			return
		}
		if count < 0 {
			w.eventually("refused", func() bool { return h.Hits() > 0 })
			if partitions != nil && memberGone(code) == false {
				w.eventually("the other partition is committed", func() bool { return w.committed("t", 1) == 10 })
			}
			w.eventually("it is said", func() bool {
				ok, _ := m.e.Healthy()
				return !ok || m.count(EventLost) > 2 || m.count(EventSessionEnded) > 2
			})
			if at := w.committed("t", 0); at != 0 && code != kerr.RequestTimedOut { // which is applied all the same
				t.Errorf("committed %d", at)
			}
			h.Remove()
		}
		begun := time.Now()
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 10 && w.committed("t", 1) == 10 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		w.produce(0, "x")
		w.eventually("it goes on", func() bool { return w.committed("t", 0) == 11 })
		m.stop()
	})
}

// memberGone says whether a code means the member, so that it concerns all its partitions.
func memberGone(code *kerr.Error) bool {
	return slices.Contains([]*kerr.Error{kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.IllegalGeneration, kerr.NotCoordinator,
		kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress}, code)
}

// C4: the first commit is refused for one of two partitions. The next one sends that one alone.
// Seen at astubbs/parallel-consumer#470.
func TestRefusedPartitionIsSentAgain(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		m := w.start(brisk(w.config(func(context.Context, *Record) error { return nil })))
		w.eventually("the starts are committed", func() bool { return w.committed("t", 0) == 0 && w.committed("t", 1) == 0 })
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "t", Partitions: []int32{1}, Err: kerr.InvalidCommitOffsetSize})
		tr := w.trace()
		w.produce(0, "x")
		w.produce(1, "y")
		w.eventually("both", func() bool { return w.committed("t", 0) == 1 && w.committed("t", 1) == 1 })
		if a, b := tr.commitsOf("t", 0), tr.commitsOf("t", 1); !slices.Equal(a, []int64{1}) || !slices.Equal(b, []int64{1, 1}) {
			t.Errorf("sent %v and %v", a, b)
		}
		if n := m.count(EventCommitFailed); n != 1 {
			t.Errorf("%d commit failures", n)
		}
		m.stop()
	})
}

// C1: records 4 to 9 are done while 3 runs: 3 is what is committed, and after a crash 3 comes again.
// Seen at IBM/sarama#1840.
func TestCommitStaysBelowTheUnfinished(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gates := w.shut("v3")
		c := brisk(w.config(func(_ context.Context, r *Record) error { return gates.pass(context.Background(), r) }))
		w.produce(0, numbered("v", 10)...)
		m := w.start(c)
		w.eventually("the others are done", func() bool { return m.e.Status().Counts.Handled == 9 })
		if err := m.e.Commit(context.Background()); err != nil {
			t.Error(err)
		}
		if at := w.committed("t", 0); at != 3 {
			t.Errorf("committed %d", at)
		}
		w.kick(m.id()) // as good as a crash: nothing more of it may be committed
		var log callLog
		b := w.start(brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })))
		w.eventually("handled again", func() bool { return slices.Contains(log.all(), "v3") })
		if got := log.all(); slices.Contains(got, "v2") {
			t.Errorf("what was committed came again: %v", got)
		}
		b.stop()
		gates.openAll()
	})
}

// C4: one commit is in flight at a time, and what is sent for an epoch never goes back, however slow the broker is and
// however many ask for a commit.
// Seen at IBM/sarama#2940.
func TestCommitsAreMonotoneAndOneAtATime(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Commit = Commit{Each: true, Interval: 10 * time.Millisecond}
		m := w.start(c)
		w.eventually("the start is committed", func() bool { return w.committed("t", 0) == 0 })
		var mu sync.Mutex
		inFlight, most, n := 0, 0, 0
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			n++
			wait := time.Duration(n%3) * 50 * time.Millisecond
			mu.Unlock()
			w.cluster.SleepControl(func() { time.Sleep(wait) })
			mu.Lock()
			inFlight--
			mu.Unlock()
			return nil, nil, false
		})
		tr := w.trace()
		for i := range 100 {
			w.produce(0, fmt.Sprint(i))
			go func() { _ = m.e.Commit(context.Background()) }()
			time.Sleep(7 * time.Millisecond)
		}
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 100 })
		sent := tr.commitsOf("t", 0)
		if !slices.IsSorted(sent) || len(slices.Compact(slices.Clone(sent))) != len(sent) || len(sent) < 10 {
			t.Errorf("sent %v", sent)
		}
		if most != 1 {
			t.Errorf("%d commits in flight", most)
		}
		m.stop()
	})
}

// Commit policies: by time, after so many records, after each, and on demand.
func TestCommitPolicies(t *testing.T) {
	for _, p := range []struct {
		name        string
		commit      Commit
		least, most int
	}{
		{"interval", Commit{Interval: 10 * time.Second}, 1, 2},
		{"records", Commit{Interval: time.Hour, Records: 10}, 4, 6},
		{"each", Commit{Interval: time.Hour, Each: true}, 50, 51},
		{"on demand", Commit{Interval: time.Hour}, 1, 1},
	} {
		t.Run(p.name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				c := brisk(w.config(func(context.Context, *Record) error { return nil }))
				c.Commit = p.commit
				m := w.start(c)
				w.eventually("the start is committed", func() bool { return w.committed("t", 0) == 0 })
				tr := w.trace()
				for i := range 50 {
					w.produce(0, fmt.Sprint(i))
					w.eventually("handled", func() bool { return m.part(0).Frontier == int64(i)+1 })
				}
				if p.name == "on demand" {
					if err := m.e.Commit(context.Background()); err != nil {
						t.Error(err)
					}
				}
				w.eventually("committed", func() bool { return w.committed("t", 0) == 50 })
				if n := len(tr.commitsOf("t", 0)); n < p.least || n > p.most {
					t.Errorf("%d commits: %v", n, tr.commitsOf("t", 0))
				}
				m.stop()
			})
		})
	}
}

// C2: a fetch with markers between its records settles as a whole: the records behind a marker are not taken for those before it.
// Seen at spring-projects/spring-kafka#4258.
func TestMarkersWithinAFetch(t *testing.T) {
	for _, order := range []Order{OrderUnordered, OrderKey, OrderPartition} {
		t.Run(string(order), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				tx := w.client(kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
				defer tx.Close()
				for _, values := range []string{"ab", "cd", "e"} {
					if err := tx.BeginTransaction(); err != nil {
						t.Fatal(err)
					}
					for _, v := range values {
						if err := tx.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Value: []byte(string(v))}).FirstErr(); err != nil {
							t.Fatal(err)
						}
					}
					if err := tx.EndTransaction(context.Background(), kgo.TryCommit); err != nil {
						t.Fatal(err)
					}
				}
				var log callLog
				c := brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
				c.Order = order
				m := w.start(c)
				w.eventually("all are settled, the last marker included", func() bool { return m.part(0).Frontier == 8 })
				got := log.all()
				slices.Sort(got)
				if !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
					t.Errorf("handled %v", got)
				}
				w.settled(m)
				m.stop()
			})
		})
	}
}

// C2: transaction markers, an aborted transaction and compaction leave holes; the commit passes them up to the end
// of the log, and nothing is left in memory.
// Seen at spring-projects/spring-kafka#4258, redpanda-data/connect#701.
func TestHolesInOffsets(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		tx := w.client(kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer tx.Close()
		transaction := func(end kgo.TransactionEndTry, values ...string) {
			if err := tx.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for _, v := range values {
				if err := tx.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte(v)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.EndTransaction(context.Background(), end); err != nil {
				t.Fatal(err)
			}
		}
		var log callLog
		m := w.start(brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })))
		lag := func() int64 {
			lags, err := w.adm.Lag(context.Background(), testGroup)
			if err != nil {
				t.Fatal(err)
			}
			return lags[testGroup].Lag.Total()
		}
		w.produce(0, "a", "b")
		transaction(kgo.TryCommit, "c", "d")
		transaction(kgo.TryAbort, "x", "y", "z")
		w.eventually("lag 0 behind an abort marker", func() bool { return lag() == 0 })
		w.produce(0, "e")
		transaction(kgo.TryCommit, "f")
		w.eventually("lag 0 behind a commit marker", func() bool { return lag() == 0 })
		got := log.all()
		slices.Sort(got)
		if !slices.Equal(got, []string{"a", "b", "c", "d", "e", "f"}) {
			t.Errorf("handled %v", got)
		}
		w.settled(m)
		m.stop()

		w.compact()
		log = callLog{}
		w.produce(0, "g")
		m = w.start(brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })))
		w.eventually("lag 0", func() bool { return lag() == 0 })
		if got := log.all(); !slices.Equal(got, []string{"g"}) {
			t.Errorf("handled %v", got)
		}
		m.stop()
	})
}

// C3: a topic that is deleted and created again is consumed from its first record on, however long it is by then.
// Seen at twmb/franz-go#1426.
func TestTopicIsCreatedAgain(t *testing.T) {
	for _, n := range []int{10, 150} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				var log callLog
				m := w.start(brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })))
				w.produce(0, numbered("old", 100)...)
				w.eventually("committed", func() bool { return w.committed("t", 0) == 100 })
				if err := w.cluster.DeleteTopic("t"); err != nil {
					t.Fatal(err)
				}
				if err := w.cluster.CreateTopic("t", 1, nil); err != nil {
					t.Fatal(err)
				}
				w.cl.PurgeTopicsFromProducing("t")
				w.produce(0, numbered("new", n)...)
				w.eventually("committed", func() bool { return w.committed("t", 0) == int64(n) })
				got := log.all()[100:]
				slices.Sort(got)
				if want := numbered("new", n); len(slices.Compact(got)) != len(want) {
					t.Errorf("handled %d of %d new records", len(slices.Compact(got)), n)
				}
				m.stop()
			})
		})
	}
}

// C8: the last commit of a revoke or a stop is tried again while the group is between two generations.
// Seen at astubbs/parallel-consumer#100.
func TestLastCommitIsTriedAgain(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Commit.Interval = time.Hour
		m := w.start(c)
		w.eventually("the start is committed", func() bool { return w.committed("t", 0) == 0 })
		w.produce(0, "x")
		w.eventually("handled", func() bool { return m.part(0).Frontier == 1 })
		h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "t", Err: kerr.RebalanceInProgress, Count: 3})
		m.stop()
		if at := w.committed("t", 0); at != 1 || h.Hits() != 3 {
			t.Errorf("committed %d after %d refusals", at, h.Hits())
		}
	})
}

// C4: an answer that says nothing of a partition is no acknowledgement: its offset stays dirty.
// Seen at astubbs/parallel-consumer#470.
func TestUnansweredPartition(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.Commit.Interval = time.Hour
		m := w.start(c)
		w.eventually("claimed", func() bool { return w.committed("t", 0) == 0 })
		w.produce(0, "a", "b", "c")
		w.eventually("handled", func() bool { return log.len() == 3 && m.e.Status().Partitions[0].Frontier == 3 })
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			return req.ResponseKind(), nil, true
		})
		if err := m.e.Commit(context.Background()); !errors.Is(err, errUnanswered) {
			t.Errorf("Commit: %v", err)
		}
		if at := m.e.Status().Partitions[0].Committed; at != 0 {
			t.Errorf("taken for committed: %d", at)
		}
		if err := m.e.Commit(context.Background()); err != nil {
			t.Error(err)
		}
		if at := w.committed("t", 0); at != 3 {
			t.Errorf("committed %d", at)
		}
		m.stop()
	})
}
