package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupStatus is a group as its broker sees it.
type groupStatus struct {
	Group      string            `json:"group"`
	Protocol   string            `json:"protocol"` // classic or consumer (KIP-848)
	State      string            `json:"state"`
	Assignor   string            `json:"assignor"`
	Lag        int64             `json:"lag"`
	Members    []memberStatus    `json:"members"`
	Partitions []partitionStatus `json:"partitions"`
}

type memberStatus struct {
	Member     string `json:"member"`
	Instance   string `json:"instance,omitempty"`
	Client     string `json:"client"`
	Host       string `json:"host"`
	Partitions int    `json:"partitions"`
}

// partitionStatus is a partition that the group has committed or a member has. Offsets that are not known are null.
type partitionStatus struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`
	Start     *int64 `json:"log_start"`
	End       *int64 `json:"log_end"`
	// Lag is End - Committed, as Kafka's own tools count; without a commit, all that is in the log.
	Lag *int64 `json:"lag"`
	// Metadata is what was committed with the offset, MetadataOf whose that is, and Window what it says where it is ours.
	Metadata   *string       `json:"metadata"`
	MetadataOf string        `json:"metadata_of,omitempty"`
	Window     *windowStatus `json:"window"`
	Member     string        `json:"member,omitempty"`
	Error      string        `json:"error,omitempty"`

	owner      memberStatus
	topicID    kadm.TopicID
	partitions int32 // that the topic has
}

// noGroupError is a group that the brokers do not know.
type noGroupError struct {
	group string
	known []string
}

func (e *noGroupError) Error() string {
	s := fmt.Sprintf("group %q does not exist: it has neither members nor commits", e.group)
	switch n := len(e.known); {
	case n == 0:
		return s + "; there is no group that this user may see"
	case n > 10:
		return s + fmt.Sprintf("; there are %d others, such as %s", n, strings.Join(e.known[:10], ", "))
	}
	return s + "; there are: " + strings.Join(e.known, ", ")
}

// stateDead is what brokers call a group that they do not know.
const stateDead = "Dead"

// owners are the members that partitions are assigned to.
type owners map[part]memberStatus

// describeGroup asks the brokers for a group, of either protocol.
func describeGroup(ctx context.Context, cl *kgo.Client, group string) (*groupStatus, error) {
	adm := kadm.NewClient(cl)
	g, rows, err := groupRows(ctx, cl, adm, group)
	if err != nil {
		return nil, err
	}
	if g.State == stateDead && len(rows) == 0 {
		listed, _ := adm.ListGroups(ctx) // only to help with a name that was mistyped
		return nil, &noGroupError{group, listed.Groups()}
	}
	return g, g.fill(ctx, adm, rows)
}

// rows are partitions, by their names.
type rows map[part]*partitionStatus

func (rs rows) of(p part) *partitionStatus {
	if rs[p] == nil {
		rs[p] = &partitionStatus{Topic: p.topic, Partition: p.partition}
	}
	return rs[p]
}

// groupRows asks for a group's members, and for the partitions that they have or that the group has committed.
func groupRows(ctx context.Context, cl *kgo.Client, adm *kadm.Client, group string) (*groupStatus, rows, error) {
	g, owned, err := describeMembers(ctx, cl, adm, group)
	if err != nil {
		return nil, nil, err
	}
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil, offsetsRefused(group, err)
	}
	rs := rows{}
	committed.Each(func(o kadm.OffsetResponse) {
		r := rs.of(part{o.Topic, o.Partition})
		if o.Err != nil {
			r.Error = o.Err.Error()
		} else if o.At >= 0 {
			r.Committed, r.Metadata = &o.At, &o.Metadata
		}
	})
	for p, m := range owned {
		r := rs.of(p)
		r.Member, r.owner = m.Member, m
	}
	return g, rs, nil
}

func groupForbidden(group string, err error) error {
	return fmt.Errorf("grant DESCRIBE (and READ to change its offsets) on group %q to this user: %w", group, err)
}

// offsetsRefused is why a group's offsets could not be had.
func offsetsRefused(group string, err error) error {
	if errors.Is(err, kerr.GroupAuthorizationFailed) {
		return groupForbidden(group, err)
	}
	return fmt.Errorf("fetch the offsets of group %q: %w", group, err)
}

// listTopics asks for topics, one by one where a single forbidden one fails the listing of all.
func listTopics(ctx context.Context, adm *kadm.Client, names []string) (kadm.TopicDetails, error) {
	details, err := adm.ListTopics(ctx, names...)
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return details, err
	}
	details = kadm.TopicDetails{}
	for _, name := range names {
		one, err := adm.ListTopics(ctx, name)
		if err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) {
			return nil, err
		}
		details[name] = kadm.TopicDetail{Topic: name, Err: err}
		if err == nil {
			details[name] = one[name]
		}
	}
	return details, nil
}

// fill adds partitions to the group, with what the brokers say of their logs and what the commits say beside their offsets.
func (g *groupStatus) fill(ctx context.Context, adm *kadm.Client, rs rows) error {
	if err := addLogEnds(ctx, adm, rs); err != nil {
		return err
	}
	for _, r := range rs {
		r.measure()
		if r.Committed != nil {
			r.MetadataOf, r.Window = readMetadata(*r.Metadata, *r.Committed, r.topicID)
		}
		g.Partitions = append(g.Partitions, *r)
	}
	sort.Slice(g.Partitions, func(i, j int) bool {
		a, b := g.Partitions[i], g.Partitions[j]
		return a.Topic < b.Topic || a.Topic == b.Topic && a.Partition < b.Partition
	})
	g.sumLag()
	return nil
}

func (g *groupStatus) sumLag() {
	g.Lag = 0
	for _, p := range g.Partitions {
		if p.Lag != nil {
			g.Lag += *p.Lag
		}
	}
}

// describeMembers asks for the members. A KIP-848 group is not known to the request for classic ones, and the other way
// round; a broker before 4.0 does not know the first request at all.
func describeMembers(ctx context.Context, cl *kgo.Client, adm *kadm.Client, group string) (*groupStatus, owners, error) {
	g, owned, err := describeConsumerGroup(ctx, cl, adm, group)
	switch {
	case err == nil:
		return g, owned, nil
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return nil, nil, groupForbidden(group, err)
	}
	classic, err := adm.DescribeGroups(ctx, group)
	if err != nil {
		return nil, nil, fmt.Errorf("describe group %q: %w", group, err)
	}
	c := classic[group]
	switch {
	case errors.Is(c.Err, kerr.GroupIDNotFound):
		c.State = stateDead
	case errors.Is(c.Err, kerr.GroupAuthorizationFailed):
		return nil, nil, groupForbidden(group, c.Err)
	case c.Err != nil:
		return nil, nil, fmt.Errorf("describe group %q: %w", group, c.Err)
	}
	c.Group = group
	g, owned = fromClassicGroup(c)
	return g, owned, nil
}

// describeConsumerGroup describes a KIP-848 group. The request is sent by hand: assignments name their topics by id (the
// embedded broker by nothing else), and kadm passes on the names only.
func describeConsumerGroup(ctx context.Context, cl *kgo.Client, adm *kadm.Client, group string) (*groupStatus, owners, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, nil, err
	}
	if len(resp.Groups) != 1 {
		return nil, nil, kerr.GroupIDNotFound
	}
	d := resp.Groups[0]
	if err := kerr.ErrorForCode(d.ErrorCode); err != nil {
		return nil, nil, err
	}
	names := map[kadm.TopicID]string{}
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, nil, err
	}
	for name, t := range topics {
		names[t.ID] = name
	}
	g := &groupStatus{Group: group, Protocol: "consumer", State: d.State, Assignor: d.AssignorName}
	owned := owners{}
	for _, m := range d.Members {
		s := newMember(m.MemberID, m.InstanceID, m.ClientID, m.ClientHost)
		for _, t := range m.Assignment.TopicPartitions {
			s.Partitions += len(t.Partitions)
		}
		for _, t := range m.Assignment.TopicPartitions {
			name := t.Topic
			if name == "" {
				name = names[kadm.TopicID(t.TopicID)]
			}
			for _, p := range t.Partitions {
				owned[part{name, p}] = s
			}
		}
		g.Members = append(g.Members, s)
	}
	return g, owned, nil
}

func newMember(id string, instance *string, client, host string) memberStatus {
	m := memberStatus{Member: id, Client: client, Host: host}
	if instance != nil {
		m.Instance = *instance
	}
	return m
}

func fromClassicGroup(d kadm.DescribedGroup) (*groupStatus, owners) {
	g := &groupStatus{Group: d.Group, Protocol: "classic", State: d.State, Assignor: d.Protocol}
	owned := owners{}
	for _, m := range d.Members {
		s := newMember(m.MemberID, m.InstanceID, m.ClientID, m.ClientHost)
		if c, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range c.Topics {
				s.Partitions += len(t.Partitions)
			}
			for _, t := range c.Topics {
				for _, p := range t.Partitions {
					owned[part{t.Topic, p}] = s
				}
			}
		}
		g.Members = append(g.Members, s)
	}
	return g, owned
}

// addLogEnds asks for the ends of the logs, and for what the topics are. A topic that is gone is told in its rows.
func addLogEnds(ctx context.Context, adm *kadm.Client, rs rows) error {
	seen := map[string]bool{}
	var topics []string
	for p := range rs {
		if !seen[p.topic] {
			seen[p.topic] = true
			topics = append(topics, p.topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	details, err := adm.ListTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("describe the topics: %w", err)
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list the first offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list the last offsets: %w", err)
	}
	for p, r := range rs {
		topic := details[p.topic]
		r.topicID, r.partitions = topic.ID, int32(len(topic.Partitions))
		first, _ := starts.Lookup(p.topic, p.partition)
		last, ok := ends.Lookup(p.topic, p.partition)
		switch {
		case errors.Is(topic.Err, kerr.UnknownTopicOrPartition):
			r.Error = "the topic does not exist"
		case !ok:
			r.Error = "the partition does not exist"
		case last.Err != nil:
			r.Error = last.Err.Error()
		case first.Err != nil:
			r.Error = first.Err.Error()
		default:
			r.Start, r.End = &first.Offset, &last.Offset
		}
	}
	return nil
}

func (r *partitionStatus) measure() {
	if r.End == nil {
		return
	}
	from := r.Start
	if r.Committed != nil {
		from = r.Committed
	}
	lag := *r.End - *from // negative for a commit beyond the end, as Kafka's tools have it
	r.Lag = &lag
}
