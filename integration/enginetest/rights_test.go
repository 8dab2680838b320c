package enginetest

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/gaplesshq/gapless/engine"
)

// resource is what a right is for, in the words of the documentation.
type resource string

const (
	theTopic      resource = "topic"
	theGroup      resource = "group"
	theDeadLetter resource = "dead-letter topic"
	theOutput     resource = "output topic"
)

// right is an operation on a resource that a feature needs, and what is said without it. In without, {topic} and the like stand
// for the names.
type right struct {
	op       kadm.ACLOperation
	on       resource
	without  string
	optional bool // the feature works without it, and says what is lost
}

// feature is something to do that needs rights. The table in docs/security.md is made of these, and each line of it is tried: with
// exactly its rights it works, and without any one of them it says what stands there.
type feature struct {
	name   string
	rights []right
	set    func(w *world, c *engine.Config)
	emits  bool // the handler writes to the output topic
	fails  bool // the handler fails, so that there is a dead letter
}

var (
	readTopic = right{op: kadm.OpRead, on: theTopic, without: `grant READ and DESCRIBE on topic "{topic}" to this user`}
	readGroup = right{op: kadm.OpRead, on: theGroup, without: `grant READ on group "{group}" to this user`}
	seeClock  = right{op: kadm.OpDescribeConfigs, on: theGroup, optional: true,
		without: `the group's consumer.session.timeout.ms can't be read (it needs DESCRIBE_CONFIGS on the group)`}
	readMatching = right{op: kadm.OpRead, on: theTopic, without: `no topic that this user may see (it needs READ) matches TopicPattern`}
	writeDead    = right{op: kadm.OpWrite, on: theDeadLetter, without: `grant WRITE and DESCRIBE on dead-letter topic "{dead-letter topic}" to this user`}
	createDead   = right{op: kadm.OpCreate, on: theDeadLetter, without: `dead-letter topic "{dead-letter topic}" does not exist and this user may not create it: create it, grant CREATE`}
	writeOutput  = right{op: kadm.OpWrite, on: theOutput, without: `grant WRITE and DESCRIBE on output topic "{output topic}" to this user`}
)

func deadLetters(w *world, c *engine.Config) { c.DeadLetter = engine.DeadLetter{BreakerRatio: 1} }

func byPattern(w *world, c *engine.Config) { c.Topics, c.TopicPattern = nil, "^"+w.topic+"$" }

func kip848(_ *world, c *engine.Config) { c.Protocol = engine.ProtocolConsumer }

func all(sets ...func(*world, *engine.Config)) func(*world, *engine.Config) {
	return func(w *world, c *engine.Config) {
		for _, set := range sets {
			set(w, c)
		}
	}
}

var features = []feature{
	{name: "consume topics by name, classic protocol", rights: []right{readTopic, readGroup}, set: all()},
	{name: "consume topics by name, KIP-848", rights: []right{readTopic, readGroup, seeClock}, set: kip848},
	{name: "consume by TopicPattern, classic protocol", rights: []right{readMatching, readGroup}, set: byPattern},
	{name: "consume by TopicPattern, KIP-848", rights: []right{readMatching, readGroup, seeClock}, set: all(kip848, byPattern)},
	{name: "write dead letters to a topic that exists", rights: []right{readTopic, readGroup, writeDead}, fails: true,
		set: all(deadLetters, func(w *world, c *engine.Config) {
			c.DeadLetter.NoCreate = true
			w.cluster.CreateTopic(w, w.topic+".dlq", 1, nil)
		})},
	{name: "write dead letters, and create their topic", rights: []right{readTopic, readGroup, writeDead, createDead}, fails: true, set: deadLetters},
	{name: "write outputs (Record.Emit), KIP-848", rights: []right{readTopic, readGroup, seeClock, writeOutput}, emits: true, set: kip848},
	{name: "write outputs (Record.Emit), classic protocol", rights: []right{readTopic, readGroup, writeOutput}, emits: true, set: all()},
}

func (w *world) nameOf(on resource) string {
	return map[resource]string{theTopic: w.topic, theGroup: w.group, theDeadLetter: w.topic + ".dlq", theOutput: w.topic + ".out"}[on]
}

// saying is what is said without the right, with this world's names.
func (w *world) saying(r right) string {
	text := r.without
	for _, on := range []resource{theTopic, theGroup, theDeadLetter, theOutput} {
		text = strings.ReplaceAll(text, "{"+string(on)+"}", w.nameOf(on))
	}
	return text
}

// acl is the right as the broker knows it.
func (w *world) acl(user string, r right) *kadm.ACLBuilder {
	b := kadm.NewACLs()
	if r.on == theGroup {
		b = b.Groups(w.nameOf(r.on))
	} else {
		b = b.Topics(w.nameOf(r.on))
	}
	return b.Allow("User:" + user).AllowHosts().Operations(r.op).ResourcePatternType(kadm.ACLPatternLiteral)
}

// grant gives a right, and returns when the broker goes by it.
func (w *world) grant(user string, r right) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	results, err := w.adm.CreateACLs(ctx, w.acl(user, r))
	if err != nil || results[0].Err != nil {
		w.Fatalf("grant %v: %v, %v", r, err, results)
	}
	w.eventually("the right is there", func() bool { return w.granted(user, r) })
}

// revoke takes a right away, and returns when the broker goes by that.
func (w *world) revoke(user string, r right) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	if _, err := w.adm.DeleteACLs(ctx, w.acl(user, r)); err != nil {
		w.Fatal(err)
	}
	w.eventually("the right is gone", func() bool { return !w.granted(user, r) })
}

func (w *world) granted(user string, r right) bool {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	results, err := w.adm.DescribeACLs(ctx, w.acl(user, r))
	if err != nil {
		w.Fatal(err)
	}
	return len(results) > 0 && len(results[0].Described) > 0
}

// rightsTable is the table of the documentation.
func rightsTable() string {
	var b strings.Builder
	b.WriteString("| to | grant | on | without it |\n|---|---|---|---|\n")
	for _, f := range features {
		for _, r := range f.rights {
			grant := fmt.Sprint(r.op)
			if r.optional {
				grant += " (optional)"
			}
			said := strings.NewReplacer("{topic}", "T", "{group}", "G", "{dead-letter topic}", "T.dlq", "{output topic}", "O").Replace(r.without)
			fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", f.name, grant, r.on, said)
		}
	}
	return b.String()
}
