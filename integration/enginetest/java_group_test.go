package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// tool runs one of Kafka's own tools and returns what it answers.
func (w *world) tool(class string, args ...string) string {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	answer, err := w.cluster.Tool(ctx, "org.apache.kafka.tools."+class, w.bootstrapped(args)...)
	if err != nil {
		w.Fatal(err)
	}
	return answer
}

func (w *world) bootstrapped(args []string) []string {
	return append([]string{"--bootstrap-server", strings.Join(w.cluster.Brokers(), ",")}, args...)
}

// javaMember is Java's console consumer in the world's group. What it prints is entered in a ledger.
type javaMember struct {
	w    *world
	tool *kafkatest.RunningTool
	read sync.WaitGroup
}

// startJava starts a console consumer with these settings of Java's client.
func (w *world) startJava(l *ledger, settings []string) *javaMember {
	w.Helper()
	args := w.bootstrapped([]string{
		"--topic", w.topic, "--group", w.group,
		"--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true", "--formatter-property", "print.value=false",
		"--command-property", "auto.offset.reset=earliest",
	})
	for _, s := range settings {
		args = append(args, "--command-property", s)
	}
	j := &javaMember{w: w, tool: w.cluster.StartTool(w, "org.apache.kafka.tools.consumer.ConsoleConsumer", args...)}
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(func() { cancel(); j.read.Wait() })
	j.read.Go(func() {
		for {
			lines, err := j.tool.Lines(ctx)
			if err != nil || len(lines) == 0 {
				return
			}
			for _, line := range lines {
				l.enter(w, line)
			}
		}
	})
	return j
}

// enter takes down a record that Java's consumer has printed.
func (l *ledger) enter(w *world, line string) {
	var p place
	if n, _ := fmt.Sscanf(line, "Partition:%d\tOffset:%d", &p.partition, &p.offset); n != 2 {
		w.Logf("Java says: %s", strings.TrimSpace(line))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[p]++
	l.turn()
}

// stop ends the consumer cleanly: it commits and leaves. All that it printed is in its ledger then.
func (j *javaMember) stop() {
	j.w.Helper()
	if err := j.tool.Stop(); err != nil {
		j.w.Fatal(err)
	}
	j.read.Wait()
}

// javaProtocols are settings of Java's client that go with those of a member.
var javaProtocols = map[string][]string{
	"cooperative-sticky": {"partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "heartbeat.interval.ms=200", "session.timeout.ms=6000"},
	"range":              {"partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor", "heartbeat.interval.ms=200", "session.timeout.ms=6000"},
	"KIP-848":            {"group.protocol=consumer"},
}

// C1, C3: a member and Java's console consumer share a group's partitions, whichever of them leads the group. Each record goes to
// exactly one of them, through all that moves when one joins or leaves.
func TestSharesAGroupWithJava(t *testing.T) {
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		t.Parallel() // most of it is waiting for JVMs
		w := newWorld(t, 4)
		const n = 20 // records a partition in each of five stages
		mine, javas := w.ledger(), w.ledger()
		c := w.config(mine.inOrder(byKey, nil))
		c.Commit.Interval = time.Hour // only what is committed when partitions move keeps records from coming twice
		set(&c)
		a := w.start(c)
		a.owns(4)
		w.produceAll(n, 5)
		mine.reaches(4 * n)

		java := w.startJava(javas, javaProtocols[t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]])
		w.stable(2)
		a.owns(2)
		w.produceAll(n, 5)
		mine.reaches((4 + 2) * n)
		javas.reaches(2 * n)

		a.stop() // now Java's client leads the group
		w.produceAll(n, 5)
		javas.reaches((2 + 4) * n)
		b := w.start(c)
		b.owns(2)
		w.produceAll(n, 5)
		mine.reaches((4 + 2 + 2) * n)
		javas.reaches((2 + 4 + 2) * n)

		java.stop()
		b.owns(4)
		w.produceAll(n, 5)
		mine.reaches((4 + 2 + 2 + 4) * n)
		b.stop()
		w.noLagLeft()
		onOneSide(w, mine, javas, 5*n)
		mine.orderly()
		for _, m := range []*member{a, b} {
			m.quiet(engine.EventLost, engine.EventSuspended, engine.EventSessionEnded, engine.EventCommitFailed)
		}
	})
}

// onOneSide checks that n records of every partition were handled once, by one of the two.
func onOneSide(w *world, mine, javas *ledger, n int64) {
	w.Helper()
	var wrong []string
	for p := range w.parts {
		for o := range n {
			at := place{p, o}
			if mine.done[at]+javas.done[at] != 1 {
				wrong = append(wrong, fmt.Sprintf("partition %d offset %d: here %d times, in Java %d times", p, o, mine.done[at], javas.done[at]))
			}
		}
	}
	for _, s := range wrong[:min(10, len(wrong))] {
		w.Error(s)
	}
	if len(wrong) > 0 {
		w.Errorf("%d records in all", len(wrong))
	}
}

// C1, C4: Kafka's own command shows the members and the lag of a group, counted from what is committed, and can reset its
// offsets: the group then begins where it was told to, in spite of what was settled beyond, in its commits and in its store.
func TestKafkasOwnCommandSeesAndResetsTheGroup(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
		t.Parallel()
		w := newWorld(t, 2)
		l := w.ledger()
		g := w.newGate()
		c := w.config(l.keep(func(ctx context.Context, r *engine.Record) error {
			if r.Partition == 0 && r.Offset == 4 {
				g.arrived <- place{r.Partition, r.Offset}
				select {
				case <-g.open:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}))
		set(&c)
		c.Order, c.ClientID, c.DrainTimeout = engine.OrderUnordered, "mine", 100*time.Millisecond
		c.Dedupe.Dir = t.TempDir()
		m := w.start(c)
		w.produce(0, keyed(10, 10)...)
		w.produce(1, keyed(6, 6)...)
		g.reached(w, 1)
		l.reaches(15)
		w.eventually("committed", func() bool { return w.committed(0) == 4 && w.committed(1) == 6 })

		rows := table(w.tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", w.group))
		for p, want := range []map[string]string{
			{"CURRENT-OFFSET": "4", "LOG-END-OFFSET": "10", "LAG": "6"},
			{"CURRENT-OFFSET": "6", "LOG-END-OFFSET": "6", "LAG": "0"},
		} {
			want["GROUP"], want["TOPIC"], want["CLIENT-ID"] = w.group, w.topic, "mine"
			var row map[string]string
			if i := slices.IndexFunc(rows, func(r map[string]string) bool { return r["PARTITION"] == fmt.Sprint(p) }); i >= 0 {
				row = rows[i]
			}
			for column, value := range want {
				if row[column] != value {
					t.Errorf("partition %d: %s is %q, not %q, in %v", p, column, row[column], value, row)
				}
			}
		}
		members := table(w.tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", w.group, "--members"))
		if len(members) != 1 || members[0]["CONSUMER-ID"] != m.e.Status().MemberID || members[0]["#PARTITIONS"] != "2" {
			t.Errorf("members %v", members)
		}
		m.stop()
		if at := w.committed(0); at != 4 {
			t.Fatalf("committed %d on stop", at)
		}

		w.produce(1, keyed(4, 4)...)
		w.tool("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", w.group, "--topic", w.topic+":0", "--to-offset", "2", "--execute")
		w.tool("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", w.group, "--topic", w.topic+":1", "--to-latest", "--execute")
		g.lift()
		again := w.ledger()
		c.Handler = again.keep(nil)
		m = w.start(c)
		m.owns(2)
		again.reaches(8)
		w.noLagLeft()
		w.produce(1, "k=last")
		again.reaches(9)
		w.noLagLeft()
		m.stop()
		if got := fmt.Sprint(again.offsets(0), again.offsets(1)); got != "[2 3 4 5 6 7 8 9] [10]" {
			t.Errorf("after the reset to 2 and to the end, handled %s", got)
		}
	})
}

// table reads the columns of a tool's answer. Lines before the headings are warnings.
func table(answer string) (rows []map[string]string) {
	var headings []string
	for line := range strings.Lines(answer) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 0 && fields[0] == "GROUP":
			headings = fields
		case headings != nil && len(fields) >= len(headings):
			row := map[string]string{}
			for i, h := range headings {
				row[h] = fields[i]
			}
			rows = append(rows, row)
		}
	}
	return rows
}
