package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gaplesshq/gapless/engine"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const statusLong = `Status shows a consumer group as its broker sees it: members, partitions, committed offsets and lag. The group may be anybody's,
with the classic protocol or KIP-848. Without --group it lists the groups.

LAG is the end of the log less the committed offset, as Kafka's own tools count; without a commit (-), all that is in the log.
WINDOW is what Gapless wrote with the commit: how many records beyond it are settled already, and how many there are open; the
next owner handles only those, and what lies above. "gapless offsets show" tells more of it.
A service that embeds Gapless tells more about itself at its admin address: GET /status.

` + exitCodesHelp

const statusExamples = `  # which groups are there?
  gapless status --brokers localhost:9092

  # one group, again every 2 seconds
  gapless status --brokers localhost:9092 --group orders --watch

  # for scripts: alert on lag
  gapless status --brokers localhost:9092 --group orders --json | jq .lag

  # what it looks like; no Kafka needed
  gapless status --embedded`

// inspector is "gapless status".
type inspector struct {
	*app
	cfg      engine.Config
	secrets  secrets
	embedded embedded

	group string
	watch bool
	every time.Duration
	json  bool
}

func (a *app) statusCommand() *cobra.Command {
	s := &inspector{app: a}
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the members, offsets and lag of any consumer group",
		Long:    statusLong,
		Example: statusExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.group, "group", "", "group to show; none = list them")
	flags.BoolVar(&s.watch, "watch", false, "show it again and again, until interrupted")
	flags.DurationVar(&s.every, "every", 2*time.Second, "time between two looks with --watch")
	section(flags, "Group", "group", "watch", "every")
	register(flags, &s.cfg, secConnection)
	s.secrets.register(flags)
	flags.BoolVar(&s.json, "json", false, "print one JSON object, with --watch one a line for each look")
	section(flags, secOutput, "json")
	s.embedded.register(flags)
	words(cmd, "sasl-mechanism", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
	return cmd
}

func (s *inspector) run(ctx context.Context) error {
	if s.every <= 0 {
		return usageError("%s: %v is not a positive time", s.origins.Of("every"), s.every)
	}
	if err := s.secrets.fill(&s.cfg, s.app); err != nil {
		return err
	}
	if err := s.embedded.start(s.app, &s.cfg, notes{s.err, false}); err != nil {
		return err
	}
	defer s.embedded.close()
	if s.embedded.on {
		stop, err := s.seedEmbedded(ctx)
		if err != nil {
			return stoppedOr(ctx, err)
		}
		defer stop()
	}
	cl, err := connect(ctx, s.cfg)
	if err != nil {
		return stoppedOr(ctx, s.refusal(err))
	}
	defer cl.Close()
	return stoppedOr(ctx, s.show(ctx, cl))
}

// seedEmbedded makes a group with a member that is half way through a topic.
func (s *inspector) seedEmbedded(ctx context.Context) (stop func(), err error) {
	if s.group == "" {
		s.group = embeddedName
	}
	if err := s.embedded.seed(ctx, &s.cfg, []string{embeddedName}, 1000, notes{s.err, false}); err != nil {
		return nil, err
	}
	cl, err := connect(ctx, s.cfg)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := commitWindows(ctx, cl, s.group, embeddedName); err != nil {
		return nil, err
	}
	member, err := joinForShow(ctx, &s.cfg, s.group, embeddedName)
	if err != nil {
		return nil, err
	}
	return member.CloseAllowingRebalance, nil
}

func (s *inspector) show(ctx context.Context, cl *kgo.Client) error {
	for {
		if err := s.look(ctx, cl); err != nil || !s.watch {
			return err
		}
		t := time.NewTimer(s.every)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// look shows the group, or the groups, once. It is printed in one write, so that a watched terminal does not flicker.
func (s *inspector) look(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.cfg.StartTimeout, defaultStartTimeout))
	defer cancel()
	var b bytes.Buffer
	v := view{}
	if s.watch && !s.json && isTerminal(s.out) {
		v.width, v.height = sizeOf(int(s.out.(*os.File).Fd()))
	} else if s.watch && !s.json {
		_, _ = fmt.Fprintln(&b, time.Now().Format(time.RFC3339))
	}
	var err error
	if s.group == "" {
		err = s.list(ctx, kadm.NewClient(cl), &b)
	} else {
		err = s.describe(ctx, cl, &b, v)
	}
	if err != nil {
		return err
	}
	text := b.String()
	if v.width > 0 {
		text = "\x1b[H\x1b[2J" + v.clip(text)
	}
	_, err = io.WriteString(s.out, text)
	return err
}

func (s *inspector) describe(ctx context.Context, cl *kgo.Client, w io.Writer, v view) error {
	g, err := describeGroup(ctx, cl, s.group)
	var none *noGroupError
	switch {
	case s.watch && errors.As(err, &none): // it may come yet
		if !s.json {
			_, _ = fmt.Fprintf(w, "%s\nlooking again every %v\n", strings.Replace(err.Error(), "; ", "\n", 1), s.every)
			return nil
		}
		g = &groupStatus{Group: s.group, State: stateDead}
	case err != nil:
		return err
	}
	if s.json {
		writeJSON(w, g)
	} else {
		g.print(w, v)
	}
	return nil
}

// view is the terminal that a look has to fit into; zero = none, and nothing is left out.
type view struct{ width, height int }

// clip cuts a look to the terminal.
func (v view) clip(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if most := max(v.height-1, 2); len(lines) > most { // the cursor needs the last line
		more := len(lines) - most + 1
		lines = append(lines[:most-1], fmt.Sprintf("and %d more", more))
	}
	for i, l := range lines {
		if r := []rune(l); len(r) > v.width {
			lines[i] = string(r[:v.width])
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// list shows which groups there are.
func (s *inspector) list(ctx context.Context, adm *kadm.Client, w io.Writer) error {
	groups, err := adm.ListGroups(ctx)
	if err != nil {
		return fmt.Errorf("list the groups: %w", err)
	}
	type listed struct {
		Group    string `json:"group"`
		Protocol string `json:"protocol"`
		State    string `json:"state"`
	}
	list := []listed{}
	for _, g := range groups.Sorted() {
		list = append(list, listed{g.Group, g.GroupType, g.State})
	}
	if s.json {
		writeJSON(w, map[string]any{"groups": list})
		return nil
	}
	if len(list) == 0 {
		to := s.err
		if s.watch {
			to = w
		}
		_, _ = fmt.Fprintln(to, "there is no group that this user may see")
		return nil
	}
	t := newTable()
	t.AppendHeader(table.Row{"GROUP", "PROTOCOL", "STATE"})
	for _, g := range list {
		t.AppendRow(table.Row{printable(g.Group), g.Protocol, g.State})
	}
	_, _ = fmt.Fprintln(w, t.Render())
	return nil
}

// print shows the group to people.
func (g *groupStatus) print(w io.Writer, v view) {
	_, _ = fmt.Fprintf(w, "group %s  %s", printable(g.Group), g.Protocol)
	if g.Assignor != "" {
		_, _ = fmt.Fprintf(w, " (%s)", g.Assignor)
	}
	_, _ = fmt.Fprintf(w, "  %s  members %d  lag %s\n\n", g.State, len(g.Members), count(g.Lag))
	rows := g.table(v, true)
	if v.width > 0 && widest(rows) > v.width {
		rows = g.table(v, false)
	}
	_, _ = fmt.Fprintln(w, rows)
	for _, m := range g.Members {
		if m.Partitions == 0 {
			_, _ = fmt.Fprintf(w, "member %s on %s has no partitions\n", m.shown(v), m.Host)
		}
	}
}

func (g *groupStatus) table(v view, hosts bool) string {
	t := newTable()
	windows := g.hasWindows()
	row := func(window any, cells ...any) table.Row {
		if !hosts {
			cells = cells[:len(cells)-1]
		}
		if windows {
			cells = slices.Insert(cells, 5, window)
		}
		return cells
	}
	t.AppendHeader(row("WINDOW", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST"))
	for _, p := range g.Partitions {
		owner := "-"
		if p.Member != "" {
			owner = p.owner.shown(v)
		}
		if p.Error != "" {
			owner = p.Error
		}
		t.AppendRow(row(p.beyond(), p.Topic, p.Partition, known(p.Committed), known(p.End), known(p.Lag), owner, p.owner.Host))
	}
	t.SetColumnConfigs(rightAligned(2, 3, 4, 5))
	return t.Render()
}

func widest(text string) (width int) {
	for line := range strings.Lines(text) {
		width = max(width, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return width
}

// shown is the member's name; on a terminal that is the client's and as much of the member id as tells two apart.
func (m memberStatus) shown(v view) string {
	if v.width == 0 || m.Instance != "" {
		return m.name()
	}
	id := strings.TrimPrefix(m.Member, m.Client+"-")
	return m.Client + "-" + id[:min(8, len(id))]
}

func (m memberStatus) name() string {
	if m.Instance != "" {
		return m.Instance
	}
	return m.Member
}

func known(n *int64) string {
	if n == nil {
		return "-"
	}
	return count(*n)
}
