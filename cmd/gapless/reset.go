package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const offsetsResetLong = `Reset sets the committed offsets of a group that has no members to another place. Stop the members first: it refuses while there
are any. It shows what will change, and asks; without a terminal it needs --yes. --dry-run shows, and changes nothing.

What lies from the new offset on is handled, whether it was before or not: the resume window is dropped, too. What lies between the
old offset and a new one that is higher is skipped, and never handled. The table counts offsets, so gaps in a log (the markers of
transactions, compacted records) count as records.

--to names earliest, latest, an offset, a time (the first record that is as late), or a time span (that long ago). --by counts from
the committed offset. A place outside of the log becomes its start or end, as with Kafka's own tool, and the table says so. --topic
means all partitions of the topic, --all-topics those of every topic in which the group has a commit; both include partitions that
the group has not committed yet.

A service with a dedupe store passes over records whose business key it knows. --forget-dedupe writes into the commits that what
the group may have handled is handled again whatever the store says, on any host.

` + exitCodesHelp

const offsetsResetExamples = `  # what would it mean to handle the topic again from its beginning?
  gapless offsets reset --brokers localhost:9092 --group billing --topic orders --to earliest --dry-run

  # do it, with the business keys forgotten
  gapless offsets reset --brokers localhost:9092 --group billing --topic orders --to earliest --forget-dedupe

  # the last two hours again, in all topics of the group; a script can't be asked
  gapless offsets reset --brokers localhost:9092 --group billing --all-topics --to 2h --yes

  # from a time on
  gapless offsets reset --brokers localhost:9092 --group billing --topic orders --to 2026-01-31T12:00:00Z

  # back by 100 records in two partitions
  gapless offsets reset --brokers localhost:9092 --group billing --topic orders --partition 3,5 --by -100

  # skip all that is there
  gapless offsets reset --brokers localhost:9092 --group billing --topic orders --to latest

  # what it looks like; no Kafka needed
  gapless offsets reset --embedded --to earliest --yes`

// resetter is "gapless offsets reset".
type resetter struct {
	groupAccess
	allTopics  bool
	partitions []int32
	to, by     place
	forget     bool
	dryRun     bool
	yes        bool
}

func (a *app) offsetsResetCommand() *cobra.Command {
	r := &resetter{groupAccess: groupAccess{app: a}}
	cmd := &cobra.Command{
		Use:     "reset",
		Short:   "Set the committed offsets of a stopped group to another place",
		Long:    offsetsResetLong,
		Example: offsetsResetExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&r.group, "group", "", "`group` to reset")
	flags.StringSliceVar(&r.topics, "topic", nil, "`topic` to reset; repeat it, or separate by commas")
	flags.BoolVar(&r.allTopics, "all-topics", false, "every topic in which the group has a commit")
	flags.Int32SliceVar(&r.partitions, "partition", nil, "only these `partitions` of the topic, such as 0,3")
	flags.Lookup("partition").DefValue = ""
	section(flags, "What", "group", "topic", "all-topics", "partition")
	flags.Var(toFlag{&r.to}, "to", "earliest, latest, an offset, a time such as 2026-01-31T12:00:00Z, or 2h for two hours ago")
	flags.Var(byFlag{&r.by}, "by", "number of records from the committed offset: -100 goes back, +100 skips")
	section(flags, "Where to", "to", "by")
	flags.BoolVar(&r.forget, "forget-dedupe", false, "also handle again what a dedupe store knows by its business key")
	flags.BoolVar(&r.dryRun, "dry-run", false, "show what would change, and change nothing")
	flags.BoolVar(&r.yes, "yes", false, "do not ask")
	section(flags, "How", "forget-dedupe", "dry-run", "yes")
	r.registerConnection(cmd)
	flags.BoolVar(&r.json, "json", false, "print what was done as one JSON object")
	section(flags, secOutput, "json")
	r.embedded.register(flags)
	words(cmd, "to", "earliest", "latest")
	return cmd
}

// check refuses what contradicts itself. A flag on the command line wins over its opposite from elsewhere.
func (r *resetter) check() error {
	if r.embedded.on && len(r.topics) == 0 && !r.allTopics {
		r.topics = []string{embeddedName}
	}
	typed := func(flag string) bool { return r.origins[flag] == "--"+flag }
	if r.allTopics && len(r.topics) > 0 {
		switch {
		case typed("topic") && !typed("all-topics"):
			r.allTopics = false
		case typed("all-topics") && !typed("topic"):
			r.topics = nil
		default:
			return usageError("%s and %s exclude one another", r.origins.Of("topic"), r.origins.Of("all-topics"))
		}
	}
	if r.to.kind != placeNone && r.by.kind != placeNone {
		switch {
		case typed("to") && !typed("by"):
			r.by = place{}
		case typed("by") && !typed("to"):
			r.to = place{}
		default:
			return usageError("%s and %s exclude one another", r.origins.Of("to"), r.origins.Of("by"))
		}
	}
	switch {
	case !r.allTopics && len(r.topics) == 0:
		return usageError("--topic: name the topics, or take --all-topics")
	case len(r.partitions) > 0 && len(r.topics) != 1:
		return usageError("%s: needs exactly one --topic", r.origins.Of("partition"))
	case r.to.kind == placeNone && r.by.kind == placeNone:
		return usageError("--to: say where to, or by how much with --by")
	case !r.dryRun && !r.yes && !r.canAsk():
		return usageError("--yes: is needed where there is no terminal to ask at; --dry-run shows what would change")
	}
	return nil
}

// canAsk says whether somebody sits at a terminal.
func (a *app) canAsk() bool { return isTerminalReader(a.in) && isTerminal(a.err) }

func (r *resetter) run(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	cl, end, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer end()
	plan, err := r.plan(ctx, cl)
	if err != nil {
		return err
	}
	asked := !r.dryRun && !r.yes
	if asked {
		plan.print(r.err)
	}
	plan.sayNotes(r.err)
	if asked {
		if err := confirm(ctx, r.in, r.err, fmt.Sprintf("Reset %s of group %s?", plural(int64(len(plan.Moves)), "partition"), printable(r.group))); err != nil {
			return err
		}
	}
	if !r.dryRun {
		if err := r.write(ctx, cl, plan); err != nil {
			return err
		}
	}
	switch {
	case r.json:
		writeJSON(r.out, plan)
		return nil
	case !asked:
		plan.print(r.out)
	}
	form := "%s of group %s were reset, and read back as written. %s will be handled again, %s skipped.\n"
	if r.dryRun {
		form = "%s of group %s would be reset; nothing was changed. %s would be handled again, %s skipped.\n"
	}
	_, err = fmt.Fprintf(r.out, form, plural(int64(len(plan.Moves)), "partition"), printable(r.group), plural(plan.Redone, "record"), count(plan.Skipped))
	return err
}

var errNotConfirmed = errors.New("nothing was changed")

// confirm asks until there is an answer. Anything but yes is a no, and so are an interrupt and the end of the input.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	_, _ = fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
	case <-ctx.Done():
		_, _ = fmt.Fprintln(out)
	}
	return errNotConfirmed
}

// plan asks the brokers what the reset means.
func (r *resetter) plan(ctx context.Context, cl *kgo.Client) (*resetPlan, error) {
	ctx, cancel := r.limited(ctx)
	defer cancel()
	adm := kadm.NewClient(cl)
	g, rs, err := groupRows(ctx, cl, adm, r.group)
	if err != nil {
		return nil, err
	}
	if err := g.mayReset(); err != nil {
		return nil, err
	}
	plan := &resetPlan{Group: r.group, Protocol: g.Protocol, State: g.State, DryRun: r.dryRun, Notes: []string{}, Moves: []move{}}
	if len(rs) == 0 {
		plan.Notes = append(plan.Notes, fmt.Sprintf("group %s does not exist yet: this makes it", printable(r.group)))
	}
	topics, err := r.chosenTopics(ctx, adm, rs, plan)
	if err != nil {
		return nil, err
	}
	if err := g.fill(ctx, adm, rs); err != nil {
		return nil, err
	}
	where := r.to
	if r.by.kind != placeNone {
		where = r.by
	}
	at, err := where.resolve(ctx, adm, time.Now(), topics)
	if err != nil {
		return nil, err
	}
	if where.kind == placeAgo {
		plan.Notes = append(plan.Notes, fmt.Sprintf("%s ago is %s", where.text, at.at.Format(time.RFC3339)))
	}
	if err := r.addMoves(plan, g, topics, at); err != nil {
		return nil, err
	}
	plan.Notes = append(plan.Notes, r.notesOnStores(plan, g)...)
	return plan, nil
}

// addMoves plans the partitions one by one.
func (r *resetter) addMoves(plan *resetPlan, g *groupStatus, topics []string, at resolved) error {
	claimed := g.claimedPartitions()
	for i := range g.Partitions {
		p := &g.Partitions[i]
		if !slices.Contains(topics, p.Topic) || len(r.partitions) > 0 && !slices.Contains(r.partitions, p.Partition) {
			continue
		}
		if p.Error != "" || p.Start == nil {
			return fmt.Errorf("%s[%d]: %s; nothing was changed", p.Topic, p.Partition, p.Error)
		}
		if r.forget && p.topicID == (kadm.TopicID{}) {
			return fmt.Errorf("--forget-dedupe: the broker does not tell topic ids (Kafka before 2.8), and without them no owner trusts what a commit says; nothing was changed")
		}
		to, remark, err := at.in(p)
		if err != nil {
			return err
		}
		m := moveTo(p, to, claimed, r.forget)
		if remark != "" {
			m.Remarks = slices.Insert(m.Remarks, 0, remark)
		}
		plan.add(m)
	}
	return nil
}

// notesOnStores are for groups whose members have a dedupe store.
func (r *resetter) notesOnStores(plan *resetPlan, g *groupStatus) (notes []string) {
	hasStore := slices.ContainsFunc(g.Partitions, func(p partitionStatus) bool { return p.Window != nil && p.Window.Store != "" })
	bypassed := slices.ContainsFunc(plan.Moves, func(m move) bool { return m.BypassBelow > 0 })
	switch {
	case r.forget && !bypassed:
		notes = append(notes, "--forget-dedupe: nothing from there on may have been handled, so there is nothing to forget")
	case !r.forget && hasStore && plan.Redone > 0:
		notes = append(notes, "the group has a dedupe store: records whose business key it knows are passed over; --forget-dedupe has them handled, too")
	}
	return notes
}

// chosenTopics are the topics to reset. All of their partitions are added to the rows.
func (r *resetter) chosenTopics(ctx context.Context, adm *kadm.Client, rs rows, plan *resetPlan) ([]string, error) {
	committed := map[string]bool{}
	for p := range rs {
		committed[p.topic] = true
	}
	wanted := slices.Clone(r.topics)
	if r.allTopics {
		for t := range committed {
			wanted = append(wanted, t)
		}
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	if len(wanted) == 0 {
		return nil, fmt.Errorf("group %q has committed nothing, so --all-topics means none; name them with --topic", r.group)
	}
	details, err := listTopics(ctx, adm, wanted)
	if err != nil {
		return nil, fmt.Errorf("describe the topics: %w", err)
	}
	var topics []string
	for _, t := range wanted {
		d := details[t]
		switch {
		case r.allTopics && (errors.Is(d.Err, kerr.UnknownTopicOrPartition) || len(d.Partitions) == 0 && d.Err == nil):
			plan.Notes = append(plan.Notes, fmt.Sprintf("topic %s does not exist any more, and is left as it is", t))
			continue
		case errors.Is(d.Err, kerr.TopicAuthorizationFailed):
			return nil, fmt.Errorf("grant DESCRIBE and READ on topic %q to this user: %w", t, d.Err)
		case d.Err != nil || len(d.Partitions) == 0:
			return nil, unreachable(fmt.Errorf("topic %q does not exist; check --topic", t))
		}
		for _, n := range r.partitions {
			if _, ok := d.Partitions[n]; !ok {
				return nil, unreachable(fmt.Errorf("topic %q has no partition %d; it has %d, from 0 on", t, n, len(d.Partitions)))
			}
		}
		for n := range d.Partitions {
			rs.of(part{t, n})
		}
		topics = append(topics, t)
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("no topic in which group %q has a commit exists any more", r.group)
	}
	return topics, nil
}
