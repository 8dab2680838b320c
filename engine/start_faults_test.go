package engine

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaderless makes the broker answer ListOffsets for a partition of "t" with LEADER_NOT_AVAILABLE, until heal.
func (w *world) leaderless(partition int32) (heal func()) {
	done := make(chan struct{})
	w.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-done:
			return nil, nil, false
		default:
		}
		w.cluster.KeepControl()
		r := req.(*kmsg.ListOffsetsRequest)
		resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, t := range r.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset = p.Partition, -1
				if p.Partition == partition {
					rp.ErrorCode = kerr.ReplicaNotAvailable.Code
				} else if info := w.cluster.PartitionInfo(t.Topic, p.Partition); info != nil {
					rp.Offset = info.LogStartOffset
					if p.Timestamp == -1 {
						rp.Offset = info.HighWatermark
					}
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return func() { close(done) }
}

// C9: a partition without a leader does not hold up the others, and is ill health; it begins when its log is there, and the
// others notice nothing of that.
func TestLeaderlessPartitionAtStart(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		var log callLog
		gates := w.shut("slow")
		w.produce(0, "a", "slow")
		w.produce(1, "b", "c")
		heal := w.leaderless(1)
		m := w.start(config(func(ctx context.Context, r *Record) error { log.add(r); return gates.pass(ctx, r) }))
		w.eventually("the healthy one", func() bool { return w.committed("t", 0) == 1 })
		w.eventually("unhealthy", func() bool { ok, _ := m.e.Healthy(); return !ok })
		if ev := m.awaitName(EventPaused); ev.Partition != 1 || ev.Reason != "not_assigned" || ev.Err == nil {
			w.Errorf("%+v", ev)
		}
		if at := w.committed("t", 1); at != -1 || log.len() != 2 {
			w.Errorf("committed %d, handled %v", at, log.all())
		}
		heal()
		begun := time.Now()
		w.eventually("the other", func() bool { return w.committed("t", 1) == 2 })
		if took := time.Since(begun); took > logEndTick+2*time.Second {
			w.Errorf("took %v", took)
		}
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		if m.count(EventLost) != 0 || m.count(EventAssigned) != 2 || m.count(EventUnpaused) != 1 || log.len() != 4 || !gates.isAt("slow") {
			w.Errorf("handled %v: %v", log.all(), m.names())
		}
		gates.openAll()
		w.eventually("all", func() bool { return w.committed("t", 0) == 2 })
		w.settled(m)
		m.stop()
	})
}

// It begins where Start says, and not where the client was kept waiting.
func TestLeaderlessPartitionStartsLatest(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var log callLog
		w.produce(1, "old", "older")
		heal := w.leaderless(1)
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.Start = StartLatest
		m := w.start(c)
		m.awaitName(EventPaused)
		heal()
		w.eventually("claimed", func() bool { return w.committed("t", 1) == 2 })
		w.produce(1, "new")
		w.eventually("committed", func() bool { return w.committed("t", 1) == 3 })
		if got := log.all(); len(got) != 1 || got[0] != "new" || m.count(EventRenewed) != 0 {
			t.Errorf("%v: %v", got, m.names())
		}
		m.stop()
	})
}

// C3: a partition without a leader that is taken away before its log is back begins nothing, and leaves no ill health behind.
func TestLeaderlessPartitionIsTakenAway(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		heal := w.leaderless(0)
		h := func(context.Context, *Record) error { return nil }
		a := w.start(brisk(w.config(h)))
		a.awaitName(EventPaused)
		w.kick(a.id())
		a.awaitName(EventLost)
		heal()
		w.produce(0, "x")
		w.eventually("it begins anew", func() bool { return w.committed("t", 0) == 1 })
		w.eventually("healthy", func() bool { ok, _ := a.e.Healthy(); return ok })
		w.settled(a)
		a.stop()
	})
}

// C1, C9: where the group has a commit, the log's ends are not needed to begin; a loss is counted once, however often they are
// asked for.
func TestLossIsCountedOnceAtStart(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.produce(0, numbered("v", 8)...)
		w.produce(1, "x")
		w.commitAs("t", 0, 2)
		w.deleteRecords("t", 0, 6)
		heal := w.leaderless(1)
		c := w.config(func(context.Context, *Record) error { return nil })
		c.OnDataLoss = DataLossEarliest
		m := w.start(c)
		w.eventually("the healthy one", func() bool { return w.committed("t", 0) == 8 })
		if n, lost := m.count(EventDataLoss), m.e.Status().Counts.Lost; n != 1 || lost != 4 {
			t.Errorf("%d events, %d lost", n, lost)
		}
		heal()
		w.eventually("the other", func() bool { return w.committed("t", 1) == 1 })
		m.stop()
	})
}

// Two members that begin a new group together: Start is for the partitions of both, also where one has claimed its own before
// the other looks.
func TestLatestWithTwoMembersOfANewGroup(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var log callLog
		w.produce(0, numbered("old", 5)...)
		w.produce(1, numbered("old", 5)...)
		claimed := window.Window{Partitions: 2, Frontier: 5, Highest: 4, Trying: -1}
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: "t", Partition: 0, At: 5, LeaderEpoch: -1, Metadata: string(claimed.Append(nil, 0))}) // the other member's claim
		if err := w.adm.CommitAllOffsets(context.Background(), testGroup, os); err != nil {
			t.Fatal(err)
		}
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.Start = StartLatest
		a, b := w.start(c), w.start(c)
		w.eventually("claimed", func() bool { return w.committed("t", 1) == 5 })
		w.eventually("one each", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		w.produce(1, "new")
		w.eventually("the new one", func() bool { return w.committed("t", 1) == 6 })
		if got := log.all(); !slices.Equal(got, []string{"new"}) {
			t.Errorf("handled %v", got)
		}
		resp, _ := w.adm.FetchOffsets(context.Background(), testGroup)
		if o, _ := resp.Lookup("t", 1); claimedPartitions(o.Metadata) != 2 {
			t.Errorf("metadata %q", o.Metadata)
		}
		a.stop()
		b.stop()
	})
}

// What another library committed says nothing about the topic's size: nothing is skipped.
func TestClaimedPartitions(t *testing.T) {
	ours := window.Window{Partitions: 12, Highest: -1, Trying: -1}
	for s, want := range map[string]int32{"": 0, "kgo-1234": 0, "gapless:1:AA": 0, string(ours.Append(nil, 0)): 12} {
		if got := claimedPartitions(s); got != want {
			t.Errorf("%q: %d", s, got)
		}
	}
}

// C9: OnDataLoss latest, while running: it goes on from the end.
func TestRetentionOvertakesARunningMemberLatest(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		gate := make(chan struct{})
		c := w.config(func(_ context.Context, r *Record) error { <-gate; log.add(r); return nil })
		c.PartitionRecords, c.Workers, c.OnDataLoss = 4, 1, DataLossLatest
		c.FetchMaxPartitionBytes = 200
		for i := range 40 {
			w.produce(0, numbered(strings.Repeat("x", 50)+string(rune('a'+i%26)), 1)...)
		}
		m := w.start(c)
		w.eventually("full", func() bool { p := m.part(0); return p != nil && slices.Contains(p.Paused, "records") })
		held := m.part(0).Position
		w.deleteRecords("t", 0, 30)
		close(gate)
		m.awaitName(EventDataLoss)
		w.eventually("at the end", func() bool { return w.committed("t", 0) == 40 })
		w.produce(0, "new")
		w.eventually("goes on", func() bool { return w.committed("t", 0) == 41 })
		if got := log.all(); int64(len(got)) != held+1 || got[len(got)-1] != "new" {
			t.Errorf("held %d, handled %d, the last %q", held, len(got), got[len(got)-1])
		}
		w.settled(m)
		m.stop()
	})
}

// C9: retention empties the partition, so that no record tells of the loss.
func TestRetentionEmptiesAPartition(t *testing.T) {
	for _, mode := range []DataLoss{DataLossStop, DataLossEarliest} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				c := w.config(func(context.Context, *Record) error { return nil })
				c.OnDataLoss = mode
				w.produce(0, "a")
				m := w.start(c)
				w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
				release := w.stall(nil, kmsg.Fetch)
				w.produce(0, numbered("v", 9)...)
				time.Sleep(time.Second)
				w.deleteRecords("t", 0, 10)
				release()
				time.Sleep(time.Minute)
				evs := m.all(EventDataLoss)
				if n := len(evs); n != 1 || m.e.Status().Counts.Lost != 9 || evs[0].Offset != 1 {
					t.Errorf("%d events, %d lost: %v", n, m.e.Status().Counts.Lost, evs)
				}
				want := map[DataLoss]int64{DataLossStop: 1, DataLossEarliest: 10}[mode]
				if at := w.committed("t", 0); at != want {
					t.Errorf("committed %d", at)
				}
				m.stop()
			})
		})
	}
}

// A static KIP-848 member that crashed is let in again when its old session has ended.
func TestStaticMemberAfterACrash(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		instance := "a"
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.InstanceID, req.RebalanceTimeoutMillis = testGroup, "crashed", &instance, 60000
		req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if resp, err := req.RequestWith(context.Background(), w.cl); err != nil || resp.ErrorCode != 0 {
			t.Fatal(err, resp)
		}
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Protocol, c.InstanceID = ProtocolConsumer, instance
		w.produce(0, "x")
		m := w.start(c)
		w.eventually("let in", func() bool { return w.committed("t", 0) == 1 })
		m.stop()
	}, kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "500", "group.consumer.session.timeout.ms": "30000"}))
}

// One that another live member holds is fatal, with a word on what to do.
func TestInstanceIDInUse(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Protocol, c.InstanceID = ProtocolConsumer, "a"
		a := w.start(c)
		w.eventually("in", func() bool { return len(a.owns()) == 1 })
		b := w.launch(c)
		if err := <-b.done; err == nil || !strings.Contains(err.Error(), "its own InstanceID") {
			t.Error(err)
		}
		a.stop()
	}, kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "500", "group.consumer.session.timeout.ms": "30000"}))
}

// C8, C9: a member that starts while the group's coordinator is down, as in a rolling restart, waits for it rather than end: where its
// connections are refused, and where something before it takes them and then breaks them.
func TestCoordinatorIsDownAtStart(t *testing.T) {
	for name, dial := range map[string]func(network string) (net.Conn, error){
		"refused": func(network string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		},
		"reset": func(string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = there.Read(make([]byte, 1))
				_ = there.Close()
			}()
			return resetConn{here}, nil
		},
	} {
		t.Run(name, func(t *testing.T) { coordinatorIsDownAtStart(t, dial) })
	}
}

// resetConn is a connection that is reset, as soon as it ends.
type resetConn struct{ net.Conn }

func (c resetConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return n, err
}

func (c resetConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		err = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	}
	return n, err
}

func coordinatorIsDownAtStart(t *testing.T, dial func(network string) (net.Conn, error)) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		w.produce(0, "a")
		down := w.cluster.CoordinatorFor(testGroup)
		up := 1 - down
		var back atomic.Bool
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.Brokers = []string{fmt.Sprintf("127.0.0.1:%d", 9093+up)}
		c.StartTimeout = 5 * time.Minute // the client itself tries a while, too
		c.KgoOpts = append(c.KgoOpts, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !back.Load() && strings.HasSuffix(addr, fmt.Sprint(9093+down)) {
				return dial(network)
			}
			return w.net.DialContext(ctx, network, addr)
		}))
		m := w.launch(c)
		m.awaitName(EventUnreachable)
		time.Sleep(3 * time.Second)
		back.Store(true)
		w.eventually("it consumes", func() bool { return w.committed("t", 0) == 1 })
		if m.count(EventUnreachable) != 1 {
			t.Errorf("%v", m.names())
		}
		m.stop()
	}, kfake.NumBrokers(2), kfake.Ports(9093, 9094))
}

// C9: a member that can't learn where its partitions begin is ill, though a group that is rebalanced again and again leaves it time for
// one ask in each assignment. It is well once they begin.
func TestStartsFailAcrossRebalances(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "t", Err: kerr.UnknownServerError, Count: -1})
		w.produce(0, "a")
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Balancer = BalancerRange // all is assigned anew each time
		m := w.start(c)
		for i := range startTries {
			w.eventually("asked", func() bool { return m.count(EventStartFailed) > i })
			if asked := m.count(EventStartFailed); asked != i+1 {
				t.Fatalf("asked %d times in %d assignments", asked, i+1)
			}
			m.e.cl.ForceRebalance()
			w.eventually("assigned anew", func() bool { return m.count(EventRebalanced) == i+2 })
		}
		if ok, _ := m.e.Healthy(); ok {
			t.Errorf("healthy: %v", m.names())
		}
		h.Remove()
		w.eventually("handled", func() bool { return w.committed("t", 0) == 1 })
		if ok, why := m.e.Healthy(); !ok {
			t.Errorf("ill: %v", why)
		}
		m.stop()
	})
}
