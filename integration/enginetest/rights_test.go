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
	silent   bool // nothing is said: the broker leaves out what the user may not see
}

// feature is something to do that needs rights. The table in docs/security.md is made of these, and each line of it is tried: with
// exactly its rights it works, and without any one of them it says what stands there.
type feature struct {
	name    string
	variant string
	rights  []right
	set     func(w *world, c *engine.Config)
	emits   bool // the handler writes to the output topic
	fails   bool // the handler fails, so that there is a dead letter
	beside  bool // it comes on top of consuming
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
	{name: "write dead letters to a topic that exists", rights: []right{readTopic, readGroup, writeDead}, fails: true, beside: true,
		set: all(deadLetters, func(w *world, c *engine.Config) {
			c.DeadLetter.NoCreate = true
			w.cluster.CreateTopic(w, w.topic+".dlq", 1, nil)
		})},
	{name: "write dead letters, and create their topic", rights: []right{readTopic, readGroup, writeDead, createDead}, fails: true, beside: true, set: deadLetters},
	{name: "write outputs (Record.Emit)", variant: ", KIP-848", rights: []right{readTopic, readGroup, seeClock, writeOutput}, emits: true, beside: true, set: kip848},
	{name: "write outputs (Record.Emit)", rights: []right{readTopic, readGroup, writeOutput}, emits: true, beside: true, set: all()},
}

// commandFeature is a feature of the command.
type commandFeature struct {
	name   string
	rights []right
	args   func(w *world) []string
}

var (
	seeGroup = right{op: kadm.OpDescribe, on: theGroup, without: `grant DESCRIBE (and READ to change its offsets) on group "{group}" to this user`}
	seeTopic = right{op: kadm.OpDescribe, on: theTopic, optional: true, silent: true, without: `END`}
)

var commands = []commandFeature{
	{"gapless status", []right{seeGroup, seeTopic}, func(w *world) []string { return []string{"status", "--group=" + w.group} }},
	{"gapless offsets show", []right{seeGroup, seeTopic}, func(w *world) []string { return []string{"offsets", "show", "--group=" + w.group} }},
	{"gapless offsets reset", []right{{op: kadm.OpRead, on: theGroup, without: seeGroup.without},
		{op: kadm.OpRead, on: theTopic, without: `grant DESCRIBE and READ on topic "{topic}" to this user`}},
		func(w *world) []string {
			return []string{"offsets", "reset", "--group=" + w.group, "--topic=" + w.topic, "--to=earliest", "--yes"}
		}},
	{"gapless produce", []right{{op: kadm.OpWrite, on: theTopic, without: `grant WRITE and DESCRIBE on topic "{topic}" to this user`}},
		func(w *world) []string { return []string{"produce", "--topic=" + w.topic} }},
	{"gapless produce --create", []right{{op: kadm.OpWrite, on: theOutput, without: `grant WRITE and DESCRIBE on topic "{output topic}" to this user`},
		{op: kadm.OpCreate, on: theOutput, without: `grant CREATE on topic "{output topic}" to this user`}},
		func(w *world) []string { return []string{"produce", "--create", "--topic=" + w.nameOf(theOutput)} }},
	{"gapless run --replay-last", []right{{op: kadm.OpRead, on: theTopic,
		without: `has committed nothing in these topics that this user may see (it needs READ on them): there is nothing to replay`}, seeGroup},
		func(w *world) []string {
			return []string{"run", "--replay-last=1", "--group=" + w.group, "--topic=" + w.topic}
		}},
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

// rightsTable is the table of the documentation. What consuming needs is not repeated where a feature comes on top of it.
func rightsTable() string {
	var b strings.Builder
	b.WriteString("| to | grant | on | without it |\n|---|---|---|---|\n")
	row := func(name string, r right) {
		grant := strings.ToUpper(r.op.String())
		if r.optional {
			grant += " (optional)"
		}
		says := "`" + strings.NewReplacer("{topic}", "T", "{group}", "G", "{dead-letter topic}", "T.dlq", "{output topic}", "O").Replace(r.without) + "`"
		if r.silent {
			says = "its partitions are left out"
		}
		line := fmt.Sprintf("| %s | %s | %s | %s |\n", name, grant, r.on, says)
		if !strings.Contains(b.String(), line) {
			b.WriteString(line)
		}
	}
	for _, f := range features {
		for _, r := range f.rights {
			if !f.beside || r != readTopic && r != readGroup && r != seeClock {
				row(f.name, r)
			}
		}
	}
	for _, f := range commands {
		for _, r := range f.rights {
			row("`"+f.name+"`", r)
		}
	}
	return b.String()
}
