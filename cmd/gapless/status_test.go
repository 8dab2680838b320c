package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// join makes a member of a group, and returns once it has its partitions.
func join(t *testing.T, b, group string, opts ...kgo.Opt) {
	t.Helper()
	assigned := make(chan struct{}, 10)
	client(t, strings.TrimPrefix(b, "--brokers="), append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, a map[string][]int32) {
			if len(a) > 0 {
				assigned <- struct{}{}
			}
		}))...)
	select {
	case <-assigned:
	case <-t.Context().Done():
	}
}

func TestStatus(t *testing.T) {
	for protocol, opts := range map[string][]kgo.Opt{
		"classic":  nil,
		"consumer": {kgo.ServerSideBalancer()},
	} {
		t.Run(protocol, func(t *testing.T) {
			b, cl := broker(t, "t")
			fill(t, cl, "t", 10)
			commit(t, cl, "g", "t", 4)
			join(t, b, "g", append(opts, kgo.InstanceID("one"))...)
			g := decode[groupStatus](t, must(t, "", "status", b, "--group=g", "--json"))
			if g.Protocol != protocol || g.State != "Stable" || g.Lag != 18 || len(g.Members) != 1 || g.Members[0].Partitions != 3 || g.Members[0].Instance != "one" {
				t.Errorf("got %+v", g)
			}
			for i, p := range g.Partitions {
				if p.Partition != int32(i) || *p.Committed != 4 || *p.End != 10 || *p.Lag != 6 || p.Member == "" {
					t.Errorf("partition %d: %+v", i, p)
				}
			}
			table := must(t, "", "status", b, "--group=g")
			if !strings.Contains(table, "group g  "+protocol) || strings.Count(table, "  one  ") != 3 {
				t.Errorf("got\n%s", table)
			}
			if list := must(t, "", "status", b); !strings.Contains(list, "g") || !strings.Contains(list, protocol) {
				t.Errorf("the list: %s", list)
			}
		})
	}
}

// A member that has committed nothing: everything in the log is lag.
func TestStatusWithoutCommits(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 10)
	join(t, b, "g")
	g := decode[groupStatus](t, must(t, "", "status", b, "--group=g", "--json"))
	if g.Lag != 30 || len(g.Partitions) != 3 || g.Partitions[0].Committed != nil {
		t.Errorf("got %+v", g)
	}
	if table := must(t, "", "status", b, "--group=g"); strings.Count(table, "  -  ") != 3 {
		t.Errorf("got\n%s", table)
	}
}

// A group without members has its commits, and a topic that is gone is told.
func TestStatusEmptyGroup(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 10)
	commit(t, cl, "g", "t", 10)
	g := decode[groupStatus](t, must(t, "", "status", b, "--group=g", "--json"))
	if g.State != "Empty" || g.Lag != 0 || len(g.Members) != 0 || len(g.Partitions) != 3 {
		t.Errorf("got %+v", g)
	}
	if r := command(t, "", nil, "status", b, "--group=x"); !strings.Contains(r.err, "there are: g") {
		t.Errorf("the groups that exist are not named: %s", r.err)
	}
}

func TestStatusWatch(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 10)
	commit(t, cl, "g", "t", 5)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &recorder{}
	out.before = func() {
		if strings.Count(out.String(), "\n") >= 2 {
			interrupt()
		}
	}
	var errs lockedBuffer
	if code := execute(ctx, streams{nil, out, &errs, nil}, []string{"status", b, "--group=g", "--watch", "--every=1ms", "--json"}); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	lines := bytes.Split(bytes.TrimSpace([]byte(out.String())), []byte("\n"))
	if len(lines) < 3 {
		t.Errorf("%d lines, want one for each look", len(lines))
	}
	for _, l := range lines {
		if !json.Valid(l) {
			t.Errorf("not JSON: %s", l)
		}
	}
}

// Who watches a group that is yet to come sees it when it is there.
func TestStatusWatchesForAGroup(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 10)
	for _, more := range [][]string{nil, {"--json"}} {
		group := "g" + strings.Join(more, "")
		ctx, interrupt := context.WithCancel(t.Context())
		out := &recorder{}
		committed := false
		out.before = func() {
			switch text := out.String(); {
			case !committed && (strings.Contains(text, "does not exist") || strings.Contains(text, `"state":"Dead"`)):
				committed = true
				commit(t, cl, group, "t", 5)
			case strings.Contains(text, "members 0") || strings.Contains(text, `"state":"Empty"`):
				interrupt()
			}
		}
		var errs lockedBuffer
		args := append([]string{"status", b, "--group=" + group, "--watch", "--every=1ms"}, more...)
		if code := execute(ctx, streams{nil, out, &errs, nil}, args); code != 0 || !committed {
			t.Errorf("%q: exit code %d: %s %s", args, code, out.String(), errs.String())
		}
	}
}

func TestEmbeddedStatus(t *testing.T) {
	if out := must(t, "", "status", "--embedded"); !strings.Contains(out, "group gapless-embedded") || !strings.Contains(out, "members 1") {
		t.Errorf("got\n%s", out)
	}
}
