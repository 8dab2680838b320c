package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gaplesshq/gapless/engine"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

const offsetsLong = `Offsets shows what a consumer group has committed, and sets it to another place.

` + exitCodesHelp

const offsetsExamples = `  # what has the group committed, and what does Gapless say beside the offsets?
  gapless offsets show --brokers localhost:9092 --group billing

  # what would it mean to handle everything since yesterday noon again?
  gapless offsets reset --brokers localhost:9092 --group billing --topic orders --to 2026-01-31T12:00:00Z --dry-run`

func (a *app) offsetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "offsets",
		Short:   "Show and reset the committed offsets of a consumer group",
		Long:    offsetsLong,
		Example: offsetsExamples,
		Args:    a.noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(a.offsetsShowCommand(), a.offsetsResetCommand())
	return cmd
}

// groupAccess is what the commands that look at one group have in common.
type groupAccess struct {
	*app
	cfg      engine.Config
	secrets  secrets
	embedded embedded
	group    string
	topics   []string
	json     bool
}

func (o *groupAccess) registerConnection(cmd *cobra.Command) {
	register(cmd.Flags(), &o.cfg, secConnection)
	o.secrets.register(cmd.Flags())
	words(cmd, "sasl-mechanism", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
}

// open connects to the brokers. An embedded one gets a group that is half way through a topic.
func (o *groupAccess) open(ctx context.Context) (cl *kgo.Client, end func(), err error) {
	if o.embedded.on && o.group == "" {
		o.group = embeddedName
	}
	if o.group == "" {
		return nil, nil, usageError("%s: name the consumer group", o.origins.Of("group"))
	}
	if err := o.secrets.fill(&o.cfg, o.app); err != nil {
		return nil, nil, err
	}
	say := notes{o.err, false}
	if err := o.embedded.start(o.app, &o.cfg, say); err != nil {
		return nil, nil, err
	}
	if o.embedded.on {
		if err = o.embedded.seed(ctx, &o.cfg, []string{embeddedName}, 1000, say); err != nil {
			o.embedded.close()
			return nil, nil, err
		}
	}
	cl, err = connect(ctx, o.cfg)
	if err == nil && o.embedded.on {
		if err = commitWindows(ctx, cl, o.group, embeddedName); err != nil {
			cl.Close()
		}
	}
	if err != nil {
		o.embedded.close()
		return nil, nil, o.refusal(err)
	}
	return cl, func() { cl.Close(); o.embedded.close() }, nil
}

// limited bounds a conversation with the brokers.
func (o *groupAccess) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(o.cfg.StartTimeout, defaultStartTimeout))
}

const offsetsShowLong = `Show tells for each partition what the group has committed, where the log begins and ends, and what stands beside the offset. The
group may be anybody's, with the classic protocol or KIP-848, with members or without.

Gapless writes a resume window there: what is settled beyond the committed offset, and which records there are still open. Whoever
takes the partition over handles only those, and what lies above. Metadata of another program, damaged, or of a newer version
counts as none: then all from the commit on is handled. While members run, this is as old as their last commit.

With --json, nothing is shortened: every open offset is listed.

` + exitCodesHelp

const offsetsShowExamples = `  # all partitions that the group has committed or has members on
  gapless offsets show --brokers localhost:9092 --group billing

  # one topic
  gapless offsets show --brokers localhost:9092 --group billing --topic orders

  # for scripts: which records are open behind the ones that are done?
  gapless offsets show --brokers localhost:9092 --group billing --json | jq '.partitions[] | {partition, open: .window.undone}'

  # what it looks like; no Kafka needed
  gapless offsets show --embedded`

func (a *app) offsetsShowCommand() *cobra.Command {
	o := &groupAccess{app: a}
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show what a group has committed, and what is settled beyond it",
		Long:    offsetsShowLong,
		Example: offsetsShowExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return stoppedOr(cmd.Context(), o.show(cmd.Context())) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.group, "group", "", "`group` to show")
	flags.StringSliceVar(&o.topics, "topic", nil, "only this `topic`; repeat it, or separate by commas")
	section(flags, secGroup, "group", "topic")
	o.registerConnection(cmd)
	flags.BoolVar(&o.json, "json", false, "print one JSON object with everything")
	section(flags, secOutput, "json")
	o.embedded.register(flags)
	return cmd
}

func (o *groupAccess) show(ctx context.Context) error {
	cl, end, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := o.limited(ctx)
	defer cancel()
	g, err := describeGroup(ctx, cl, o.group)
	if err != nil {
		return err
	}
	if err := g.keep(o.topics); err != nil {
		return err
	}
	if o.json {
		writeJSON(o.out, g)
		return nil
	}
	g.printOffsets(o.out)
	return nil
}

// keep leaves the partitions of these topics; none = all.
func (g *groupStatus) keep(topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	has := g.topics()
	for _, t := range topics {
		if !slices.Contains(has, t) {
			return fmt.Errorf("group %q has neither a commit nor a member in topic %q; it has in: %s", g.Group, t, strings.Join(has, ", "))
		}
	}
	g.Partitions = slices.DeleteFunc(g.Partitions, func(p partitionStatus) bool { return !slices.Contains(topics, p.Topic) })
	g.sumLag()
	return nil
}

func (g *groupStatus) topics() (names []string) {
	for _, p := range g.Partitions {
		if !slices.Contains(names, p.Topic) {
			names = append(names, p.Topic)
		}
	}
	return names
}

// printOffsets shows the group's offsets to people: a table, and below it what does not fit into one.
func (g *groupStatus) printOffsets(w io.Writer) {
	_, _ = fmt.Fprintf(w, "group %s  %s  %s  members %d  lag %s\n\n", printable(g.Group), g.Protocol, g.State, len(g.Members), count(g.Lag))
	t := newTable()
	t.AppendHeader(table.Row{"TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "BEYOND", "OPEN", "METADATA"})
	var said remarks
	for i := range g.Partitions {
		p := &g.Partitions[i]
		beyond, open := "-", "-"
		if p.Window != nil && p.Window.Ignored == "" && p.Window.Settled > 0 {
			beyond, open = "+"+count(p.Window.Settled), count(int64(len(p.Window.Undone)))
		}
		of := metadataWords[p.MetadataOf]
		if p.Committed == nil {
			of = "no commit"
		}
		if p.Error != "" {
			of = p.Error
		}
		t.AppendRow(table.Row{p.Topic, p.Partition, known(p.Committed), known(p.Start), known(p.End), known(p.Lag), beyond, open, of})
		for _, line := range p.words() {
			said.add(p, line)
		}
	}
	t.SetColumnConfigs(rightAligned(2, 3, 4, 5, 6, 7, 8))
	_, _ = fmt.Fprintln(w, t.Render())
	if len(said) > 0 {
		_, _ = fmt.Fprintf(w, "\n%s", said)
	}
}

// remarks are lines on partitions. What is the same of several partitions of a topic is said once.
type remarks []remark

type remark struct {
	topic      string
	text       string
	partitions []int32
}

func (rs *remarks) add(p *partitionStatus, text string) {
	i := slices.IndexFunc(*rs, func(r remark) bool { return r.topic == p.Topic && r.text == text })
	if i < 0 {
		i = len(*rs)
		*rs = append(*rs, remark{topic: p.Topic, text: text})
	}
	(*rs)[i].partitions = append((*rs)[i].partitions, p.Partition)
}

func (rs remarks) String() string {
	var b strings.Builder
	for _, r := range rs {
		more := ""
		if n := len(r.partitions); n > shownOffsets {
			r.partitions, more = r.partitions[:shownOffsets], fmt.Sprintf(" and %d more", n-shownOffsets)
		}
		_, _ = fmt.Fprintf(&b, "%s%v%s: %s\n", r.topic, r.partitions, more, r.text)
	}
	return b.String()
}
