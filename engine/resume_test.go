package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadata is what the group has committed for a partition of "t", and what it says.
func (w *world) metadata(partition int32) (offset int64, metadata string) {
	w.Helper()
	resp, err := w.adm.FetchOffsets(context.Background(), testGroup)
	if err != nil {
		w.Fatal(err)
	}
	o, ok := resp.Lookup("t", partition)
	if !ok {
		return -1, ""
	}
	return o.At, o.Metadata
}

// window is the window in it; it claims nothing where there is none.
func (w *world) window(partition int32) window.Window {
	w.Helper()
	_, s := w.metadata(partition)
	win, _ := window.Decode(s)
	return win
}

// commitWith commits as another program does while the group has no members.
func (w *world) commitWith(offset int64, metadata string) {
	w.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: "t", At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := w.adm.CommitAllOffsets(context.Background(), testGroup, os); err != nil {
		w.Fatal(err)
	}
}

// numbers are the values 0 to n-1, each that of the record at this offset.
func numbers(n int) []string { return numbered("", n) }

// again are the values below n that handlers have begun more often than once.
func (g *gates) again(n int) (values []string) {
	for _, v := range numbers(n) {
		if came, _ := g.calls(v); came > 1 {
			values = append(values, v)
		}
	}
	return values
}

// stuckHead starts a member with n records, where the first does not get done but the others do and are in the commit's metadata.
func (w *world) stuckHead(n int, g *gates, c Config) *member {
	w.Helper()
	w.produce(0, numbers(n)...)
	m := w.start(c)
	w.eventually("a quiet commit interval", func() bool {
		win := w.window(0)
		return win.Frontier == 0 && win.Highest == int64(n-1) && len(win.Undone) == 1
	})
	return m
}

// C5: what was finished behind a stuck record is not handled again, here or elsewhere, although the member is thrown out and its
// handlers end without a last commit. Only the stuck one is.
func TestFinishedIsNotRedone(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprint("elsewhere ", elsewhere), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				g := w.shut("0")
				c := brisk(w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) }))
				a := w.stuckHead(101, g, c)
				next := a
				if elsewhere {
					next = w.start(c)
				}
				w.kick(a.id())
				w.eventually("taken over", func() bool {
					came, _ := g.calls("0")
					return came == 2 && next.part(0) != nil && next.part(0).Position == 101
				})
				if p := next.part(0); p.Redelivered != 100 || next.e.Status().Counts.Redelivered != 100 || next.e.Status().Counts.Handled > 100 {
					t.Errorf("redelivered %d, counts %+v", p.Redelivered, next.e.Status().Counts)
				}
				if n := next.await("assigned", func(ev Event) bool { return ev.Name == EventAssigned && ev.Count > 0 }).Count; n != 100 {
					t.Errorf("assigned with %d settled beyond the commit", n)
				}
				g.openAll()
				w.eventually("to the end", func() bool { return w.committed("t", 0) == 101 })
				if again := g.again(101); !slices.Equal(again, []string{"0"}) {
					t.Errorf("handled again: %v", again)
				}
				for _, m := range w.members {
					m.stop()
				}
			})
		})
	}
}

// C5: in the middle of full speed at most what was in flight and what had finished since the last acknowledged commit is redone.
func TestRedoneAtFullSpeed(t *testing.T) {
	rnd := seeded(t)
	for range 3 {
		interval := time.Duration(50+rnd.IntN(200)) * time.Millisecond
		after := time.Second + time.Duration(rnd.IntN(int(interval)))
		inWorld(t, 1, func(w *world) {
			const n = 1500
			g := w.shut("0")
			type span struct{ begun, done time.Time }
			var mu sync.Mutex
			calls := map[string][]span{}
			c := brisk(w.config(func(ctx context.Context, r *Record) error {
				v := string(r.Value)
				begun := time.Now()
				time.Sleep(time.Duration(1+(r.Offset*7919)%50) * time.Millisecond)
				err := g.pass(ctx, r)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					calls[v] = append(calls[v], span{begun, time.Now()})
				}
				return err
			}))
			c.Commit.Interval = interval
			w.produce(0, numbers(n)...)
			a := w.start(c)
			w.eventually("A has it", func() bool { return len(a.owns()) == 1 })
			tr := w.trace()
			b := w.start(c)
			time.Sleep(after)
			commits := tr.of(kmsg.OffsetCommit, a.id())
			acked := commits[len(commits)-1].at
			w.kick(a.id())
			a.awaitName(EventLost)
			ended := time.Now() // until then it went on
			w.eventually("B does the rest", func() bool { return w.window(0).Highest == n-1 && len(w.window(0).Undone) == 1 })
			g.openAll()
			w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
			mu.Lock()
			defer mu.Unlock()
			redone, allowed, finished := 0, 0, 0
			for _, v := range numbers(n) {
				if len(calls[v]) == 0 {
					t.Errorf("%s was not handled", v)
				}
				if first := calls[v][0]; !first.done.After(ended) {
					finished++
				}
				if len(calls[v]) > 1 {
					redone++
				}
				if first := calls[v][0]; !first.begun.After(ended) && !first.done.Before(acked) {
					allowed++ // in flight, or finished since
				}
			}
			if redone > allowed || finished < 200 || allowed > finished/2 {
				t.Errorf("%d were redone, %d allowed, %d had finished", redone, allowed, finished)
			}
			a.stop()
			b.stop()
		})
	}
}

// C1, C5: what the metadata of a commit is worth. An operator's rewind is honoured and another library's commit believed; what can't
// be read, or is not about these records, says nothing. Then everything from the commit on is handled.
func TestWhatACommitSays(t *testing.T) {
	const n, stuck = 10, 3
	for _, tc := range []struct {
		name    string
		tamper  func(at int64, metadata string, win window.Window) (int64, string)
		from    int64 // the first that is handled again
		kept    bool  // and what was settled beyond the commit is not
		ignored error // the event's
	}{
		{name: "nobody touched it", from: stuck, kept: true},
		{name: "rewound by a tool", from: 0, tamper: func(int64, string, window.Window) (int64, string) { return 0, "" }},
		{name: "the same offset, by a tool", from: stuck, tamper: func(at int64, _ string, _ window.Window) (int64, string) { return at, "" }},
		{name: "another library", from: stuck, tamper: func(at int64, _ string, _ window.Window) (int64, string) { return at, "host-7" }},
		{name: "another library went on", from: 6, tamper: func(int64, string, window.Window) (int64, string) { return 6, "AQ==" }},
		{name: "damaged", from: stuck, ignored: window.ErrDamaged, tamper: func(at int64, s string, _ window.Window) (int64, string) {
			return at, s[:20] + strings.Map(func(r rune) rune { return map[bool]rune{true: 'B', false: 'A'}[r == 'A'] }, s[20:21]) + s[21:]
		}},
		{name: "cut off", from: stuck, ignored: window.ErrDamaged, tamper: func(at int64, s string, _ window.Window) (int64, string) { return at, s[:len(s)-4] }},
		{name: "too new", from: stuck, ignored: window.ErrVersion, tamper: func(at int64, s string, _ window.Window) (int64, string) {
			return at, strings.Replace(s, "gapless:1:", "gapless:2:", 1)
		}},
		{name: "another topic", from: stuck, ignored: errOtherTopic, tamper: func(at int64, _ string, win window.Window) (int64, string) {
			win.TopicID[0]++
			return at, string(win.Append(nil, 0))
		}},
		{name: "no topic", from: stuck, ignored: errOtherTopic, tamper: func(at int64, _ string, win window.Window) (int64, string) {
			win.TopicID = [16]byte{}
			return at, string(win.Append(nil, 0))
		}},
		{name: "the offset moved, the metadata stayed", from: 2, ignored: errOtherOffset, tamper: func(_ int64, s string, _ window.Window) (int64, string) { return 2, s }},
		{name: "moved on, the metadata stayed", from: 5, ignored: errOtherOffset, tamper: func(_ int64, s string, _ window.Window) (int64, string) { return 5, s }},
		{name: "another leader epoch", from: stuck, tamper: func(at int64, _ string, win window.Window) (int64, string) {
			win.Epochs = []window.Epoch{{First: 0, LeaderEpoch: 7}}
			return at, string(win.Append(nil, 0))
		}},
		{name: "an unknown leader epoch", from: stuck, tamper: func(at int64, _ string, win window.Window) (int64, string) {
			win.Epochs = []window.Epoch{{First: 0, LeaderEpoch: -1}}
			return at, string(win.Append(nil, 0))
		}},
		{name: "no leader epoch", from: stuck, tamper: func(at int64, _ string, win window.Window) (int64, string) {
			win.Epochs = nil
			return at, string(win.Append(nil, 0))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				g := w.shut(fmt.Sprint(stuck))
				c := brisk(w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) }))
				w.produce(0, numbers(n)...)
				m := w.start(c)
				w.eventually("quiet", func() bool { win := w.window(0); return win.Frontier == stuck && win.Highest == n-1 })
				m.stop()
				at, s := w.metadata(0)
				if tc.tamper != nil {
					w.commitWith(tc.tamper(at, s, w.window(0)))
				}
				g.openAll()
				m = w.start(c)
				w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
				var want []string
				for i := tc.from; i < n; i++ {
					if !tc.kept || i == stuck {
						want = append(want, fmt.Sprint(i))
					}
				}
				if again := g.again(n); !slices.Equal(again, want) {
					t.Errorf("handled again: %v, not %v", again, want)
				}
				evs := m.all(EventWindowIgnored)
				if (tc.ignored != nil) != (len(evs) == 1) || len(evs) == 1 && !errors.Is(evs[0].Err, tc.ignored) {
					t.Errorf("events %v, not %v", evs, tc.ignored)
				}
				if win := w.window(0); win.Frontier != n || win.TopicID == [16]byte{} {
					t.Errorf("the last commit says %v", &win)
				}
				m.stop()
			})
		})
	}
}

// C2: what a window lists as unfinished and compaction has removed since, here at a batch's edge, is waited for by nobody.
// Seen at confluentinc/parallel-consumer#329.
func TestCompactedUndoneHoldsNothing(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		g := w.shut("k3=3", "k5=5", "k7=7")
		var log callLog
		h := func(ctx context.Context, r *Record) error {
			err := g.pass(ctx, r)
			if err == nil {
				log.add(r)
			}
			return err
		}
		for i := range 10 { // a batch each
			w.produce(0, fmt.Sprintf("k%d=%d", i, i))
		}
		m := w.start(brisk(w.config(h)))
		w.eventually("the commit names what is unfinished", func() bool {
			win := w.window(0)
			return win.Frontier == 3 && win.Highest == 9 && slices.Equal(win.Undone, []int64{3, 5, 7})
		})
		w.die(m)
		w.produce(0, "k5=10", "k7=11")
		w.produce(0, "end=12") // the last batch is never compacted
		w.compact()
		g.openAll()
		m = w.start(brisk(w.config(h)))
		w.eventually("to the end", func() bool { return w.committed("t", 0) == 13 })
		all := log.all()
		slices.Sort(all)
		if want := []string{"end=12", "k0=0", "k1=1", "k2=2", "k3=3", "k4=4", "k5=10", "k6=6", "k7=11", "k8=8", "k9=9"}; !slices.Equal(all, want) {
			t.Errorf("handled %v, want %v", all, want)
		}
		w.settled(m)
		m.stop()
	})
}
