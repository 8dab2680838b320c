package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// rawBatch is one batch of a log.
func rawBatch(base int64, leaderEpoch int32, values ...string) []byte {
	var records []byte
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		body := r.AppendTo(nil)[1:] // after the length, which is one byte while it is 0
		r.Length = int32(len(body))
		records = r.AppendTo(records)
	}
	b := kmsg.RecordBatch{
		FirstOffset: base, PartitionLeaderEpoch: leaderEpoch, Magic: 2, LastOffsetDelta: int32(len(values) - 1), FirstTimestamp: 1e12, MaxTimestamp: 1e12,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(values)), Records: records,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// rewritten makes fetches of partition 0 below the end of its log get these batches instead, one a fetch. The members must not
// use fetch sessions.
func (w *world) rewritten(end int64, batches map[int64][]byte) {
	w.cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		if len(req.Topics) == 0 || req.Topics[0].Partitions[0].FetchOffset >= end {
			return nil, nil, false
		}
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset = end, end
		at := req.Topics[0].Partitions[0].FetchOffset
		for base, raw := range batches {
			if n := int64(binary.BigEndian.Uint32(raw[23:])) + 1; base <= at && at < base+n {
				p.RecordBatches = raw
			}
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID, t.Partitions = req.Topics[0].Topic, req.Topics[0].TopicID, []kmsg.FetchResponseTopicPartition{p}
		resp.Topics = append(resp.Topics, t)
		return resp, nil, true
	})
}

// C1, C5: the log was truncated above an unfinished record. What was settled below comes again, with the leader epoch that it had,
// and is not handled again; what took the place of the rest has another one, and is, at offsets that were settled as well.
func TestTruncatedAndWrittenAnew(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		g := w.shut("3")
		c := w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) })
		c.KgoOpts = append(c.KgoOpts, kgo.DisableFetchSessions())
		w.produce(0, numbers(10)...)
		m := w.start(c)
		w.eventually("quiet", func() bool { win := w.window(0); return win.Frontier == 3 && win.Highest == 9 })
		w.rewritten(10, map[int64][]byte{0: rawBatch(0, 0, numbers(7)...), 7: rawBatch(7, 1, "new7", "new8", "new9")})
		m.e.fetchError("t", 0, &kgo.ErrDataLoss{Topic: "t", Partition: 0, ConsumedTo: 10, ResetTo: 7})
		w.eventually("the new ones", func() bool { n, _ := g.calls("new9"); return n == 1 })
		w.eventually("and the stuck one", func() bool { n, _ := g.calls("3"); return n == 2 })
		w.eventually("in the window", func() bool { win := w.window(0); return win.Highest == 9 && win.Frontier == 3 && win.Settled(8, 1) })
		if win := w.window(0); win.Settled(8, 0) || !win.Settled(5, 0) {
			t.Errorf("the window says %v", &win)
		}
		g.openAll()
		w.eventually("all of it", func() bool { return w.committed("t", 0) == 10 })
		if again := g.again(10); !slices.Equal(again, []string{"3"}) {
			t.Errorf("handled again: %v", again)
		}
		if n := m.e.Status().Counts.Redelivered; n != 3 {
			t.Errorf("%d redelivered, not 4 to 6", n)
		}
		m.stop()
	})
}

// C5: a topic that was deleted and created again uses its offsets, and its leader epochs, for other records. Nothing of it is passed
// over: after a restart, while running, and where the broker knows no ids that would tell the two apart.
// Seen at twmb/franz-go#1426.
func TestRecreatedTopicIsHandledWhole(t *testing.T) {
	const fewer = 8
	recreate := func(w *world) {
		w.Helper()
		if err := w.cluster.DeleteTopic("t"); err != nil {
			w.Fatal(err)
		}
		if err := w.cluster.CreateTopic("t", 1, nil); err != nil {
			w.Fatal(err)
		}
		fresh := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer fresh.Close()
		for _, v := range numbers(fewer) { // so that the client notices by itself that its position is gone
			if err := fresh.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Value: []byte("new" + v)}).FirstErr(); err != nil {
				w.Fatal(err)
			}
		}
	}
	handled := func(w *world, g *gates) {
		w.Helper()
		w.eventually("all of the new one", func() bool {
			for _, v := range numbers(fewer) {
				if n, _ := g.calls("new" + v); n == 0 {
					return false
				}
			}
			return true
		})
	}
	start := func(w *world) (*member, *gates, Config) {
		g := w.shut("0")
		c := brisk(w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) }))
		w.produce(0, numbers(10)...)
		m := w.start(c)
		w.eventually("quiet", func() bool {
			p := m.part(0)
			return p != nil && p.Frontier == 0 && p.Committed == 0 && p.Position == 10
		})
		time.Sleep(time.Second)
		return m, g, c
	}
	t.Run("restart", func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			m, g, c := start(w)
			m.stop()
			at, s := w.metadata(0)
			recreate(w)
			w.commitWith(at, s) // a broker that kept the commit
			m = w.start(c)
			handled(w, g)
			m.awaitName(EventWindowIgnored)
			w.eventually("to the end", func() bool { return w.committed("t", 0) == fewer })
			m.stop()
		})
	})
	for name, opts := range map[string][]kfake.Opt{
		"running": nil, "running, fetched by name": {kfake.MaxVersions(kversion.V3_0_0())}, "running, no ids": {kfake.MaxVersions(kversion.V2_7_0())},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				m, g, _ := start(w)
				recreate(w)
				handled(w, g)
				m.stop()
			}, opts...)
		})
	}
}

// commitSeen is a commit of partition 0 as it reached the broker.
type commitSeen struct {
	offset   int64
	metadata string
	refused  bool
}

// maxMetadata makes the broker refuse the metadata of commits above a size. It returns what was sent so far.
func (w *world) maxMetadata(limit int) func() []commitSeen {
	var mu sync.Mutex
	var seen []commitSeen
	w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		req := kreq.(*kmsg.OffsetCommitRequest)
		p := req.Topics[0].Partitions[0]
		c := commitSeen{offset: p.Offset}
		if p.Metadata != nil {
			c.metadata = *p.Metadata
		}
		c.refused = limit >= 0 && len(c.metadata) > limit
		mu.Lock()
		seen = append(seen, c)
		mu.Unlock()
		if !c.refused {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.OffsetMetadataTooLarge.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return func() []commitSeen {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// everySecond makes a member get stuck at every second of n records, and finish the others.
func (w *world) everySecond(n int, set func(*Config)) (*member, *gates, Config) {
	w.Helper()
	var even []string
	for i := 0; i < n; i += 2 {
		even = append(even, fmt.Sprint(i))
	}
	g := w.shut(even...)
	c := brisk(w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) }))
	c.Workers = n
	set(&c)
	w.produce(0, numbers(n)...)
	m := w.start(c)
	w.eventually("half of them", func() bool { _, left := g.calls(fmt.Sprint(n - 1)); return left > 0 && m.part(0).InFlight == n/2 })
	time.Sleep(time.Second)
	return m, g, c
}

// C4, C5: a broker that keeps less metadata than is sent, none at all, a setting that is too small, and one that sends none: the
// offset is committed all the same, without an error, what is said is shortened, and what was not done is always handled.
func TestMetadataDoesNotFit(t *testing.T) {
	const n = 120
	for _, tc := range []struct {
		name        string
		set         int // Commit.MetadataBytes
		limit       int // the broker's, -1 = none
		refused     int // commits
		most        int // bytes that are sent once it is known
		said, short bool
	}{
		{name: "it fits", limit: 4096, most: 4096, said: true},
		{name: "the broker keeps less", limit: 100, refused: 1, most: 100, said: true, short: true},
		{name: "the broker keeps none", limit: 0, refused: 1, most: 0, short: true},
		{name: "a small setting", set: 80, limit: 4096, most: 80, said: true, short: true},
		{name: "none is sent", set: -1, limit: -1, most: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				seen := w.maxMetadata(tc.limit)
				m, g, c := w.everySecond(n, func(c *Config) { c.Commit.MetadataBytes = tc.set })
				g.open("0", "2", "4") // the frontier moves, which makes for another commit
				w.eventually("committed", func() bool { return w.committed("t", 0) == 6 })
				refused, longest := 0, 0
				for i, c := range seen() {
					if !c.refused {
						longest = max(longest, len(c.metadata))
						continue
					}
					refused++
					if next := seen()[i+1]; next.offset != c.offset || next.metadata != "" {
						t.Errorf("after the refusal of %+v came %+v", c, next)
					}
				}
				win := w.window(0)
				if refused < tc.refused || refused > 2*tc.refused || longest > tc.most || (win.Highest > win.Frontier) != tc.said {
					t.Errorf("%d refused, longest %d, said %v", refused, longest, &win)
				}
				warned := 0
				for _, ev := range m.all(EventConfigWarning) {
					if ev.Err == kerr.OffsetMetadataTooLarge {
						warned++
					}
				}
				if counts := m.e.Status().Counts; warned != tc.refused || m.count(EventCommitFailed) > 0 || counts.CommitErrors > 0 || (counts.ShortenedWindows > 0) != tc.short {
					t.Errorf("%d warnings, %d failed, counts %+v", warned, m.count(EventCommitFailed), counts)
				}
				other := w.start(c)
				w.kick(m.id())
				w.eventually("moved", func() bool { return len(other.owns()) == 1 })
				g.openAll()
				w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
				again := g.again(n)
				for i := 6; i < n; i += 2 { // those that were not done
					if !slices.Contains(again, fmt.Sprint(i)) {
						t.Errorf("%d was not handled again", i)
					}
				}
				for _, v := range again {
					var i int64
					if _, err := fmt.Sscan(v, &i); err != nil || i > win.Frontier && win.Done(i) || i < 6 {
						t.Errorf("%s was handled again, and the commit said %v", v, &win)
					}
				}
				m.stop()
				other.stop()
			})
		})
	}
}

// C5: a claim carries on what the commit said. The next owner is thrown out before anything was delivered to it, or in the middle
// of the window, and the one after it redoes nothing either; what the second finished is in it, too.
func TestClaimCarriesOn(t *testing.T) {
	for _, from := range []int64{0, 50} {
		t.Run(fmt.Sprint("delivered ", from), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				g := w.shut("0", "30", "70")
				c := brisk(w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) }))
				for _, v := range numbers(101) { // a batch each
					w.produce(0, v)
				}
				c.FetchMaxPartitionBytes = 500
				a := w.start(c)
				w.eventually("quiet", func() bool { win := w.window(0); return win.Highest == 100 && len(win.Undone) == 3 })
				release := w.stall(func(req kmsg.Request) bool {
					for _, t := range req.(*kmsg.FetchRequest).Topics {
						if len(t.Partitions) > 0 && t.Partitions[0].FetchOffset >= from && t.Partitions[0].FetchOffset < 101 {
							return true
						}
					}
					return false
				}, kmsg.Fetch)
				b := w.start(c)
				w.kick(a.id())
				w.eventually("B has it", func() bool { return len(b.owns()) == 1 })
				a.stop()
				if from > 0 {
					w.eventually("B has a part", func() bool { n, _ := g.calls("30"); return n == 2 && b.part(0).Position >= from })
					g.open("30")
				}
				time.Sleep(time.Second)
				if at := b.part(0).Position; from == 0 && at > 0 || at > 70 {
					t.Fatalf("B is at %d", at)
				}
				win := w.window(0)
				if win.Highest != 100 || len(win.Undone) != map[int64]int{0: 3, 50: 2}[from] || win.Unclean != 2 {
					t.Errorf("B's commit says %v", &win)
				}
				x := w.start(c)
				w.kick(b.id())
				w.eventually("C has it", func() bool { return len(x.owns()) == 1 })
				release()
				g.openAll()
				w.eventually("to the end", func() bool { return w.committed("t", 0) == 101 })
				if again := g.again(101); !slices.Equal(again, []string{"0", "30", "70"}) {
					t.Errorf("handled again: %v", again)
				}
				if n, _ := g.calls("30"); from > 0 && n > 2 {
					t.Errorf("B finished 30, and it was handled %d times", n)
				}
				b.stop()
				x.stop()
			})
		})
	}
}

// C4: a commit goes out when what is settled has changed, though the offset has not; and none when nothing has.
func TestQuietCommits(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		g := w.shut("0")
		c := w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) })
		c.Commit.Interval, c.FetchMaxWait, c.HeartbeatInterval, c.StuckAfter = time.Second, 10*time.Second, 10*time.Second, 2*time.Hour
		c.StalledAfter = 2 * time.Hour
		w.produce(1, "x", "y")
		m := w.stuckHead(20, g, c)
		w.produce(0, "20")
		w.eventually("said", func() bool { return w.window(0).Highest == 20 })
		if at := w.committed("t", 0); at != 0 || w.committed("t", 1) != 2 || w.committed("t", 2) != 0 {
			t.Errorf("committed %d, %d, %d", at, w.committed("t", 1), w.committed("t", 2))
		}
		time.Sleep(2 * time.Second)
		tr := w.trace()
		time.Sleep(time.Hour)
		for p := range int32(3) {
			if commits := tr.commitsOf("t", p); len(commits) > 0 {
				t.Errorf("partition %d: nothing changed in an hour, and %d commits", p, len(commits))
			}
		}
		g.openAll()
		w.eventually("to the end", func() bool { return w.committed("t", 0) == 21 })
		m.stop()
	})
}
