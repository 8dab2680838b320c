package engine

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connect checks what a consumer would be silent about (wrong credentials, a missing topic, ...), and then starts consuming.
func (e *Engine) connect(ctx context.Context) error {
	opts, err := e.cfg.sideOpts()
	if err != nil {
		return err
	}
	if e.side, err = newClient(opts...); err != nil {
		return fmt.Errorf("gapless: %w", err)
	}
	e.adm = kadm.NewClient(e.side)
	check, cancel := context.WithTimeout(ctx, e.cfg.StartTimeout)
	defer cancel()
	go func() { // Stop during the checks
		select {
		case <-e.stopC:
			cancel()
		case <-check.Done():
		}
	}()
	err = e.checkPatiently(check)
	if err == nil {
		err = e.openStore()
	}
	if err == nil {
		if opts, err = e.cfg.consumerOpts(e); err == nil {
			e.emit(Event{Name: EventStarted, Partition: -1, Hint: e.cfg.memoryHint()}) // before the first assignment
			var cl *kgo.Client
			var life context.Context
			life, e.abort = context.WithCancel(context.Background())
			if cl, err = newClient(append(opts, kgo.WithContext(life))...); err != nil {
				err = fmt.Errorf("gapless: %w", err)
			} else {
				e.lender = lender(cl, e.records)
			}
			e.mu.Lock() // its callbacks may run already
			e.cl = cl
			e.mu.Unlock()
			close(e.connected)
		}
	}
	if err != nil {
		e.closeStore()
		e.side.Close()
		if ctx.Err() != nil || e.isStopping() {
			return e.result() // asked to stop before it had begun
		}
		return err
	}
	return nil
}

func (e *Engine) isStopping() bool {
	select {
	case <-e.stopC:
		return true
	default:
		return false
	}
}

// memoryHint says at start what the process may need for records.
func (c *Config) memoryHint() string {
	return fmt.Sprintf("records may take up to %d MiB (MaxBytes %d MiB, and %d MiB of fetches per broker), and a compressed batch up to %d MiB beyond",
		(c.MaxBytes+2*int64(c.FetchMaxBytes))>>20, c.MaxBytes>>20, c.FetchMaxBytes>>20, c.FetchMaxBatchBytes>>20)
}

// checkRights checks the topics and the group.
func (e *Engine) checkRights(ctx context.Context) error {
	topics, err := e.checkSources(ctx)
	if err != nil {
		return err
	}
	if err := e.checkGroup(ctx); err != nil {
		return err
	}
	for _, t := range topics {
		if err := e.ensureDeadLetterTopic(ctx, t); err != nil {
			return err
		}
	}
	e.warnOfConfig()
	return nil
}

// checkBrokers reaches a broker.
func (e *Engine) checkBrokers(ctx context.Context) error {
	err := e.side.Ping(ctx)
	if err == nil {
		return nil
	}
	return explainConnect(e.cfg.Brokers, err)
}

// checkSources checks the topics and notes their ids.
func (e *Engine) checkSources(ctx context.Context) (kadm.TopicDetails, error) {
	details, err := e.adm.ListTopics(kadm.WithAuthorizedOps(ctx), e.cfg.Topics...) // all of them where a pattern is given
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return nil, e.forbidden(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("gapless: list the topics: %w", err)
	}
	if e.cfg.TopicPattern != "" {
		return e.matching(details), nil
	}
	for _, name := range e.cfg.Topics {
		t, ok := details[name]
		switch {
		case !ok || errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("gapless: topic %q does not exist; create it, or check Config.Topics: %w", name, kerr.UnknownTopicOrPartition)
		case lacks(t, kadm.OpRead):
			return nil, fmt.Errorf("gapless: grant READ and DESCRIBE on topic %q to this user: %w", name, kerr.TopicAuthorizationFailed)
		case t.Err != nil:
			return nil, fmt.Errorf("gapless: topic %q: %w", name, t.Err)
		}
		e.noteTopic(t)
	}
	return details, nil
}

// forbidden names the topic that this user may not see: the listing fails as a whole.
func (e *Engine) forbidden(ctx context.Context, err error) error {
	for _, name := range e.cfg.Topics {
		if _, one := e.adm.ListTopics(ctx, name); errors.Is(one, kerr.TopicAuthorizationFailed) {
			return fmt.Errorf("gapless: grant READ and DESCRIBE on topic %q to this user: %w", name, one)
		}
	}
	return fmt.Errorf("gapless: list the topics: %w", err)
}

// lacks says that the broker told what this user may do with the topic, and that op is not among it.
func lacks(t kadm.TopicDetail, op kadm.ACLOperation) bool {
	return len(t.AuthorizedOperations) > 0 && !slices.Contains(t.AuthorizedOperations, op)
}

// matching are the topics that the pattern consumes.
func (e *Engine) matching(all kadm.TopicDetails) kadm.TopicDetails {
	pattern := regexp.MustCompile(e.cfg.TopicPattern) // compiled by validate
	own := regexp.MustCompile(e.cfg.deadLetterPattern())
	found := kadm.TopicDetails{}
	for name, t := range all {
		if t.Err == nil && pattern.MatchString(name) && (!e.cfg.writesDeadLetters() || !own.MatchString(name)) {
			found[name] = t
			e.noteTopic(t)
		}
	}
	if len(found) == 0 {
		e.once("no match", Event{Name: EventConfigWarning, Partition: -1, Hint: fmt.Sprintf("no topic that this user may see (it needs READ) matches TopicPattern %q yet; waiting for one", e.cfg.TopicPattern)})
	}
	return found
}

func (e *Engine) noteTopic(t kadm.TopicDetail) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.topics[t.Topic] = topicState{id: t.ID, partitions: len(t.Partitions)}
}

// checkGroup checks that the group may be used, and learns its session timeout where the broker sets it.
func (e *Engine) checkGroup(ctx context.Context) error {
	_, err := e.adm.FetchOffsets(ctx, e.cfg.Group) // of a new cluster's first group it may fail: the broker makes its offsets topic only now
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("gapless: grant READ on group %q to this user: %w", e.cfg.Group, err)
	case err != nil && !errors.Is(err, kerr.GroupIDNotFound): // it is made by its first member
		return fmt.Errorf("gapless: group %q: %w", e.cfg.Group, err)
	}
	if e.cfg.Protocol == ProtocolConsumer {
		if err := e.checkProtocol(ctx); err != nil {
			return err
		}
		if d, err := e.groupSessionTimeout(ctx); err == nil && d > 0 {
			e.clock.setLimit(d)
		} else if err != nil {
			e.emit(Event{Name: EventConfigWarning, Partition: -1, Err: err,
				Hint: fmt.Sprintf("the group's consumer.session.timeout.ms can't be read (it needs DESCRIBE_CONFIGS on the group); SessionTimeout %v is used for suspending", e.cfg.SessionTimeout)})
		}
	}
	return nil
}

func (e *Engine) groupSessionTimeout(ctx context.Context) (time.Duration, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, e.cfg.Group
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, e.side)
	if err != nil {
		return 0, err
	}
	for _, res := range resp.Resources {
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			return 0, err
		}
		for _, c := range res.Configs {
			if c.Name == "consumer.session.timeout.ms" && c.Value != nil {
				ms, err := strconv.Atoi(*c.Value)
				return time.Duration(ms) * time.Millisecond, err
			}
		}
	}
	return 0, nil
}

// ensureDeadLetterTopic checks the dead-letter topic of a source, and creates it where that is allowed.
func (e *Engine) ensureDeadLetterTopic(ctx context.Context, source kadm.TopicDetail) error {
	if !e.cfg.writesDeadLetters() {
		return nil
	}
	name := e.cfg.deadLetterTopic(source.Topic)
	details, err := e.adm.ListTopics(kadm.WithAuthorizedOps(ctx), name)
	if err == nil {
		err = details[name].Err
	}
	if err == nil && lacks(details[name], kadm.OpWrite) {
		err = kerr.TopicAuthorizationFailed
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		if e.cfg.DeadLetter.NoCreate {
			return fmt.Errorf("gapless: dead-letter topic %q does not exist and DeadLetter.NoCreate is set; create it: %w", name, err)
		}
		return e.createDeadLetterTopic(ctx, name, len(source.Partitions))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("gapless: grant WRITE and DESCRIBE on dead-letter topic %q to this user: %w", name, err)
	case err != nil:
		return fmt.Errorf("gapless: dead-letter topic %q: %w", name, err)
	}
	configs, err := e.adm.DescribeTopicConfigs(ctx, name)
	if err != nil { // not allowed to look: the retention is the operator's business
		configs = nil
	}
	for _, c := range topicConfigs(configs) {
		if c.Key != "retention.ms" || c.Value == nil {
			continue
		}
		if ms, err := strconv.ParseInt(*c.Value, 10, 64); err == nil && ms >= 0 && ms < shortRetention.Milliseconds() {
			e.once("retention:"+name, Event{Name: EventConfigWarning, Topic: name, Partition: -1,
				Hint: fmt.Sprintf("the dead-letter topic keeps records for %v only; raise its retention.ms so that somebody can look at them", time.Duration(ms)*time.Millisecond)})
		}
	}
	return nil
}

func topicConfigs(rs kadm.ResourceConfigs) []kadm.Config {
	if len(rs) == 0 || rs[0].Err != nil {
		return nil
	}
	return rs[0].Configs
}

// shortRetention is what a dead letter should be kept for at least: a long weekend.
const shortRetention = 72 * time.Hour

func (e *Engine) createDeadLetterTopic(ctx context.Context, name string, partitions int) error {
	ms := e.cfg.DeadLetter.Retention.Milliseconds()
	if ms < 0 {
		ms = -1
	}
	retention := strconv.FormatInt(ms, 10)
	_, err := e.adm.CreateTopic(ctx, int32(max(partitions, 1)), e.cfg.DeadLetter.Replication, map[string]*string{"retention.ms": &retention}, name)
	switch {
	case err == nil:
		e.log.Info().Str("topic", name).Int("partitions", partitions).Str("retention_ms", retention).Msg("dead_letter_topic_created")
		return nil
	case errors.Is(err, kerr.TopicAlreadyExists):
		return nil // another member was faster
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("gapless: dead-letter topic %q does not exist and this user may not create it: create it, grant CREATE, or choose another DeadLetter.GiveUp: %w", name, err)
	}
	return fmt.Errorf("gapless: create dead-letter topic %q: %w", name, err)
}

var (
	uuidLike = regexp.MustCompile(`[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}`)
	timeLike = regexp.MustCompile(`(^|\D)(1[6-9]\d{8}|1[6-9]\d{11}|1[6-9]\d{17}|20\d{6}[T_-]?\d{4,6})(\D|$)`)
	pidLike  = regexp.MustCompile(`(?i)(pid|proc)[._-]?\d+$`)
)

// warnOfConfig says what is legal, but most likely not meant.
func (e *Engine) warnOfConfig() {
	warn := func(format string, args ...any) {
		e.emit(Event{Name: EventConfigWarning, Partition: -1, Hint: fmt.Sprintf(format, args...)})
	}
	if g := e.cfg.Group; uuidLike.MatchString(g) || timeLike.MatchString(g) || pidLike.MatchString(g) {
		warn("group id %q looks random (a uuid, a time or a process id): a new group begins anew at each start, and its old offsets are left behind; use a fixed id", g)
	}
	if e.cfg.HandlerTimeout > e.cfg.DrainTimeout {
		warn("HandlerTimeout %v is above DrainTimeout %v: a rebalance ends handlers that may still run; their records are handled again", e.cfg.HandlerTimeout, e.cfg.DrainTimeout)
	}
}

// leaveStatic says the static member's good-bye. Classic: nothing, unless it is to leave for good. KIP-848: epoch -2 keeps its
// place (the client's own good-bye forgets the instance id, and the broker refuses it), -1 leaves for good.
func (e *Engine) leaveStatic(ctx context.Context, member string) error {
	instance := e.cfg.InstanceID
	if e.protocol() == ProtocolConsumer {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = e.cfg.Group, member, &instance, -2
		if e.cfg.LeaveOnStop {
			req.MemberEpoch = -1
		}
		resp, err := req.RequestWith(ctx, e.side)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if errors.Is(err, kerr.UnknownMemberID) { // gone already
			err = nil
		}
		return err
	}
	if !e.cfg.LeaveOnStop {
		return nil
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = e.cfg.Group
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID = member, &instance
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, e.side)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return err
}
