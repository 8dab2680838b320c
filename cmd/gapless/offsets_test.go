package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// windowed is a resume window of a topic at an offset; set says more.
func windowed(t *testing.T, cl *kgo.Client, topic string, at int64, set func(w *window.Window)) string {
	t.Helper()
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	w := window.Window{TopicID: topics[topic].ID, Partitions: 3, Frontier: at, Highest: at - 1, Trying: -1}
	if set != nil {
		set(&w)
	}
	return string(w.Append(nil, 0))
}

// settledTo is a window in which all up to highest is settled but for some offsets.
func settledTo(highest int64, undone ...int64) func(w *window.Window) {
	return func(w *window.Window) {
		w.Highest, w.Undone, w.Epochs = highest, undone, []window.Epoch{{First: 0, LeaderEpoch: 0}}
	}
}

func commitWith(t *testing.T, cl *kgo.Client, group, topic string, partition int32, at int64, metadata string) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: metadata})
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
}

// said is the window of a group's commit.
func said(t *testing.T, cl *kgo.Client, group, topic string, partition int32) window.Window {
	t.Helper()
	offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := offsets.Lookup(topic, partition)
	w, err := window.Decode(o.Metadata)
	if err != nil {
		t.Errorf("%s[%d]: %q: %v", topic, partition, o.Metadata, err)
	}
	return w
}

// Whatever stands beside an offset is told: whose it is, and what it says.
func TestOffsetsShow(t *testing.T) {
	b, cl := broker(t, "t", "u", "gone")
	fill(t, cl, "t", 300)
	fill(t, cl, "u", 10)
	fill(t, cl, "gone", 10)
	var open []int64
	for o := int64(100); o < 200; o += 2 {
		open = append(open, o)
	}
	commitWith(t, cl, "g", "t", 0, 100, windowed(t, cl, "t", 100, settledTo(250, open...)))
	commitWith(t, cl, "g", "t", 1, 20, windowed(t, cl, "t", 20, func(w *window.Window) {
		w.Store, w.StoreSeq, w.Unclean, w.Trying, w.Tries, w.BypassBelow, w.Cut = [16]byte{0xab, 1}, 7, 2, 20, 1, 50, true
	}))
	commitWith(t, cl, "g", "t", 2, 30, windowed(t, cl, "t", 20, settledTo(25, 20)))
	commitWith(t, cl, "g", "u", 0, 1, "sarama was here")
	commitWith(t, cl, "g", "u", 1, 2, "gapless:1:AAAA")
	commitWith(t, cl, "g", "u", 2, 3, "gapless:2:AAAA")
	commitWith(t, cl, "g", "gone", 0, 4, "")
	if _, err := kadm.NewClient(cl).DeleteTopics(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}

	g := decode[groupStatus](t, must(t, "", "offsets", "show", b, "--group=g", "--json"))
	if g.State != "Empty" || len(g.Members) != 0 {
		t.Errorf("got %+v", g)
	}
	of := map[string]*partitionStatus{}
	for i, p := range g.Partitions {
		of[fmt.Sprintf("%s%d", p.Topic, p.Partition)] = &g.Partitions[i]
	}
	if p := of["gone0"]; p != nil && p.Error != "the topic does not exist" { // brokers may drop the commits with the topic
		t.Errorf("gone[0]: %+v", p)
	}
	if w := of["t0"].Window; !slices.Equal(w.Undone, open) || w.Settled != 101 || w.Highest != 250 || w.Ignored != "" || w.Partitions != 3 || len(w.TopicID) != 22 || w.Epochs[0].LeaderEpoch != 0 {
		t.Errorf("t[0]: %+v", w)
	}
	if w := of["t1"].Window; w.Store != "ab010000000000000000000000000000" || w.StoreSeq != 7 || w.Unclean != 2 || *w.Trying != 20 || w.Tries != 1 || w.BypassBelow != 50 || !w.Shortened || w.Undone == nil {
		t.Errorf("t[1]: %+v", w)
	}
	if w := of["t2"].Window; !strings.Contains(w.Ignored, "it belongs to offset 20") {
		t.Errorf("t[2]: %+v", w)
	}
	for name, want := range map[string]string{"t0": metadataGapless, "u0": metadataOther, "u1": metadataDamaged, "u2": metadataNewer} {
		if of[name].MetadataOf != want {
			t.Errorf("%s: the metadata is %q, want %q", name, of[name].MetadataOf, want)
		}
	}
	if p := of["u0"]; *p.Metadata != "sarama was here" || *p.Committed != 1 || *p.Start != 0 || *p.End != 10 || *p.Lag != 9 {
		t.Errorf("u[0]: %+v", p)
	}

	text := must(t, "", "offsets", "show", b, "--group=g")
	for _, want := range []string{
		"+101    50  resume window",
		"t[0]: 101 settled beyond the commit, up to 250; 50 open there: 100 102 104 106 108 110 112 114 and 42 more\n",
		"t[1]: more was settled than the window says",
		"t[1]: dedupe store ab010000…, which must have reached sequence 7\n",
		"t[1]: 2 unclean ends at this offset\n",
		"t[1]: record 20 was announced once before",
		"t[1]: business marks are bypassed below 50,",
		"t[2]: the resume window is ignored: it belongs to offset 20: ",
		"u[0]: the metadata is another program's: sarama was here; all from the commit on is handled\n",
		"u[1]: the resume window is damaged",
		"u[2]: the resume window is of a newer version",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if text := must(t, "", "offsets", "show", b, "--group=g", "--topic=u"); strings.Contains(text, "t[0]") || !strings.Contains(text, "lag 24") {
		t.Errorf("one topic:\n%s", text)
	}
	if r := command(t, "", nil, "offsets", "show", b, "--group=g", "--topic=x"); r.code != 1 || !strings.Contains(r.err, `in topic "x"; it has in: `) {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// Where the broker still has the commits of a topic that is gone, they are shown; and those of one that was made again are told.
func TestOffsetsShowOfATopicThatIsGone(t *testing.T) {
	b, cl := broker(t, "t", "u")
	fill(t, cl, "t", 5)
	window := windowed(t, cl, "t", 2, settledTo(4, 2))
	adm := kadm.NewClient(cl)
	if _, err := adm.DeleteTopics(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopics(t.Context(), 3, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	fresh := client(t, strings.TrimPrefix(b, "--brokers=")) // one that has not heard of the topic before
	commitWith(t, fresh, "g", "t", 0, 2, window)
	text := must(t, "", "offsets", "show", b, "--group=g")
	if !strings.Contains(text, "t[0]: the resume window is ignored: it is of another topic of this name") || !strings.Contains(text, "t[0]: the commit lies 2 offsets beyond the end") {
		t.Errorf("got\n%s", text)
	}
	join(t, b, "h")
	if _, err := adm.DeleteTopics(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if text := must(t, "", "offsets", "show", b, "--group=h"); !strings.Contains(text, "the topic does not exist") || strings.Count(text, "  -  ") < 3 {
		t.Errorf("got\n%s", text)
	}
}

// The groups that run, of both protocols. A running owner has counted itself among the unclean ends; that is not one yet.
func TestOffsetsShowOfRunningGroups(t *testing.T) {
	for protocol, opts := range map[string][]kgo.Opt{"classic": nil, "consumer": {kgo.ServerSideBalancer()}} {
		b, cl := broker(t, "t")
		fill(t, cl, "t", 10)
		for p := range int32(3) {
			commitWith(t, cl, "g", "t", p, 4, windowed(t, cl, "t", 4, func(w *window.Window) { settledTo(8, 4, 6)(w); w.Unclean = 1 }))
		}
		join(t, b, "g", opts...)
		text := must(t, "", "offsets", "show", b, "--group=g")
		if !strings.Contains(text, "group g  "+protocol+"  Stable  members 1  lag 18") || !strings.Contains(text, "\nt[0 1 2]: 3 settled beyond the commit, up to 8; 2 open there: 4 6\n") || strings.Contains(text, "unclean") {
			t.Errorf("got\n%s", text)
		}
		if status := must(t, "", "status", b, "--group=g"); strings.Count(status, "+3 beyond, 2 open") != 3 || !strings.Contains(status, "WINDOW") {
			t.Errorf("status:\n%s", status)
		}
		g := decode[groupStatus](t, must(t, "", "status", b, "--group=g", "--json"))
		if w := g.Partitions[0].Window; w == nil || w.Unclean != 1 || !slices.Equal(w.Undone, []int64{4, 6}) || w.Settled != 3 {
			t.Errorf("status: %+v", w)
		}
	}
}

// The groups of other programs have no such column.
func TestStatusOfOthersHasNoWindows(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 10)
	commit(t, cl, "g", "t", 5)
	if text := must(t, "", "status", b, "--group=g"); strings.Contains(text, "WINDOW") {
		t.Errorf("got\n%s", text)
	}
	commitWith(t, cl, "g", "t", 0, 1, "gapless:9:AAAA")
	if text := must(t, "", "status", b, "--group=g"); !strings.Contains(text, "newer version") {
		t.Errorf("got\n%s", text)
	}
}

// What Gapless itself commits reads as its own.
func TestOffsetsShowAfterARun(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 5)
	must(t, "", "run", b, "--group=g", "--topic=t", "--until-end")
	g := decode[groupStatus](t, must(t, "", "offsets", "show", b, "--group=g", "--json"))
	for _, p := range g.Partitions {
		if p.MetadataOf != metadataGapless || p.Window.Ignored != "" || p.Window.Settled != 0 || p.Window.Unclean != 0 || *p.Committed != 5 {
			t.Errorf("%+v, %+v", p, p.Window)
		}
	}
}

func TestOffsetsShowEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, _ := broker(t, "t")
	var out, errs lockedBuffer
	if code := execute(ctx, streams{nil, &out, &errs, nil}, []string{"offsets", "show", b, "--group=g"}); code != 0 {
		t.Errorf("interrupted: exit code %d: %s", code, errs.String())
	}
}
