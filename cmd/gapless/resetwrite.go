package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stateEmpty is a group without members.
const stateEmpty = "Empty"

// mayReset refuses while the group is active: members do not notice that their commits were moved, and overwrite them with
// their own.
func (g *groupStatus) mayReset() error {
	if len(g.Members) == 0 && (g.State == stateEmpty || g.State == stateDead) {
		return nil
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "group %q is active (%s, %s), so nothing was changed: members would not notice a reset, and commit over it", g.Group, g.Protocol, g.State)
	static := false
	for i, m := range g.Members {
		if i == shownOffsets {
			_, _ = fmt.Fprintf(&b, "\n  and %s more", count(int64(len(g.Members)-i)))
			break
		}
		_, _ = fmt.Fprintf(&b, "\n  member %s on %s has %s", m.name(), m.Host, plural(int64(m.Partitions), "partition"))
		static = static || m.Instance != ""
	}
	b.WriteString("\nstop all members, and try again")
	if static {
		b.WriteString("; a static member keeps its place until its session ends, unless it is stopped with --leave-on-stop")
	} else if len(g.Members) > 0 {
		b.WriteString("; one that was killed is counted until its session ends")
	}
	return unreachable(errors.New(b.String()))
}

// write commits the plan, and reads it back.
func (r *resetter) write(ctx context.Context, cl *kgo.Client, plan *resetPlan) error {
	ctx, cancel := r.limited(ctx)
	defer cancel()
	adm := kadm.NewClient(cl)
	// The answer to the question may have taken long. What comes between here and the commit, the broker refuses by itself.
	g, rs, err := groupRows(ctx, cl, adm, r.group)
	if err != nil {
		return fmt.Errorf("look at the group once more; nothing was changed: %w", err)
	}
	if err := g.mayReset(); err != nil {
		return err
	}
	for _, m := range plan.Moves {
		now := rs.of(part{m.Topic, m.Partition})
		if known(now.Committed) != known(m.From) || now.text() != m.before {
			return fmt.Errorf("%s[%d]: the group has committed meanwhile (%s, not %s), so nothing was changed; look again",
				m.Topic, m.Partition, known(now.Committed), known(m.From))
		}
	}
	answer, err := adm.CommitOffsets(ctx, r.group, plan.offsets())
	if err != nil {
		return fmt.Errorf("commit; whether anything was changed is not known, see gapless offsets show: %w", err)
	}
	if err := refusedCommits(answer, len(plan.Moves)); err != nil {
		return err
	}
	if err := readBack(ctx, adm, plan); err != nil {
		return err
	}
	plan.Done = true
	return nil
}

// refusedCommits explains what the broker refused.
func refusedCommits(answer kadm.OffsetResponses, sent int) error {
	var names []string
	var first error
	answer.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil {
			return
		}
		names = append(names, fmt.Sprintf("%s[%d]", o.Topic, o.Partition))
		if first == nil {
			first = o.Err
		}
	})
	if first == nil {
		return nil
	}
	slices.Sort(names)
	changed := "nothing was changed"
	if len(names) < sent {
		changed = fmt.Sprintf("the other %s were reset, see gapless offsets show", plural(int64(sent-len(names)), "partition"))
	}
	what := fmt.Sprintf("the broker refused the commit of %s (%s); %s", plural(int64(len(names)), "partition"), strings.Join(names[:min(len(names), shownOffsets)], " "), changed)
	hint := ""
	switch {
	case slices.ContainsFunc([]error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch, kerr.RebalanceInProgress, kerr.NonEmptyGroup},
		func(e error) bool { return errors.Is(first, e) }):
		hint = "a member has joined the group meanwhile: stop it, and try again: "
	case errors.Is(first, kerr.GroupAuthorizationFailed), errors.Is(first, kerr.TopicAuthorizationFailed):
		hint = "grant READ on the group and on the topics to this user: "
	case errors.Is(first, kerr.UnknownTopicOrPartition), errors.Is(first, kerr.UnknownTopicID):
		hint = "the topic was deleted meanwhile: "
	case errors.Is(first, kerr.OffsetMetadataTooLarge):
		hint = "its offset.metadata.max.bytes leaves no room for what a reset says beside the offset: "
	}
	return fmt.Errorf("%s: %s%w", what, hint, first)
}

// readBack checks that the group's commits are those of the plan.
func readBack(ctx context.Context, adm *kadm.Client, plan *resetPlan) error {
	now, err := adm.FetchOffsets(ctx, plan.Group)
	if err != nil {
		return fmt.Errorf("the broker has taken the commit, but reading it back failed: %w", err)
	}
	for _, m := range plan.Moves {
		o, ok := now.Lookup(m.Topic, m.Partition)
		if !ok || o.Err != nil || o.At != m.To || o.Metadata != m.metadata {
			return fmt.Errorf("%s[%d]: written as %s, it reads back as %s: something else commits for this group", m.Topic, m.Partition, count(m.To), count(o.At))
		}
	}
	return nil
}
