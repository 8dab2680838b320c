package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A group that has members is left alone, whatever its protocol; who is in it is said.
func TestResetRefusesAnActiveGroup(t *testing.T) {
	for protocol, opts := range map[string][]kgo.Opt{"classic": nil, "consumer": {kgo.ServerSideBalancer()}} {
		b, cl := broker(t, "t")
		fill(t, cl, "t", 10)
		commit(t, cl, "g", "t", 4)
		join(t, b, "g", append(opts, kgo.InstanceID("one"))...)
		for _, more := range [][]string{{"--yes"}, {"--dry-run"}} {
			r := command(t, "", nil, resetArgs(b, append(more, "--topic=t", "--to=latest")...)...)
			if r.code != 3 || r.out != "" || committed(t, cl, "g", "t") != [3]int64{4, 4, 4} {
				t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
			}
			for _, want := range []string{"is active (" + protocol + ", Stable), so nothing was changed", "member one on 127.0.0.1", "has 3 partitions", "stop all members", "--leave-on-stop"} {
				if !strings.Contains(r.err, want) {
					t.Errorf("it does not say %q: %s", want, r.err)
				}
			}
		}
	}
}

// A member that joins, and a commit that comes, while the operator thinks about the answer.
func TestResetMeetsOthers(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 10)
	commit(t, cl, "g", "t", 4)
	planned := func() (*resetter, *resetPlan) {
		r := &resetter{groupAccess: groupAccess{app: &app{}, group: "g", topics: []string{"t"}}}
		if err := (toFlag{&r.to}).Set("earliest"); err != nil {
			t.Fatal(err)
		}
		plan, err := r.plan(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		return r, plan
	}
	r, plan := planned()
	commitWith(t, cl, "g", "t", 2, 5, "")
	if err := r.write(t.Context(), cl, plan); err == nil || !strings.Contains(err.Error(), "t[2]: the group has committed meanwhile (5, not 4), so nothing was changed") {
		t.Errorf("got %v", err)
	}
	r, plan = planned()
	commitWith(t, cl, "g", "t", 2, 5, "the same offset, and more to say")
	if err := r.write(t.Context(), cl, plan); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v", err)
	}
	r, plan = planned()
	join(t, b, "g")
	if err := r.write(t.Context(), cl, plan); err == nil || !strings.Contains(err.Error(), "is active") || plan.Done {
		t.Errorf("got %v", err)
	}
	if at := committed(t, cl, "g", "t"); at != [3]int64{4, 4, 5} {
		t.Errorf("committed %v", at)
	}
	// The last instant: the broker refuses the commit of a group that has members.
	answer, err := kadm.NewClient(cl).CommitOffsets(t.Context(), "g", plan.offsets())
	if err != nil {
		t.Fatal(err)
	}
	if err := refusedCommits(answer, 3); err == nil || !strings.Contains(err.Error(), "3 partitions (t[0] t[1] t[2]); nothing was changed: a member has joined the group meanwhile: stop it") {
		t.Errorf("got %v", err)
	}
}

// What brokers refuse is explained, and a commit that did not stay as it was written is told.
func TestResetThatFails(t *testing.T) {
	for code, want := range map[int16]string{
		kerr.UnknownMemberID.Code:          "a member has joined the group meanwhile",
		kerr.TopicAuthorizationFailed.Code: "grant READ on the group and on the topics",
		kerr.OffsetMetadataTooLarge.Code:   "offset.metadata.max.bytes",
		0:                                  "it reads back as 4",
	} {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
		cl := client(t, cluster.ListenAddrs()[0])
		commit(t, cl, "g", "t", 4)
		cluster.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			resp := kreq.ResponseKind().(*kmsg.OffsetCommitResponse)
			for _, t := range kreq.(*kmsg.OffsetCommitRequest).Topics {
				rt := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
				for _, p := range t.Partitions {
					rt.Partitions = append(rt.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		for _, more := range [][]string{nil, {"--json"}} {
			r := command(t, "", nil, resetArgs("--brokers="+cluster.ListenAddrs()[0], append(more, "--topic=t", "--to=earliest", "--yes")...)...)
			if r.code != 1 || r.out != "" || !strings.Contains(r.err, want) {
				t.Errorf("answer %d: exit code %d: %s%s", code, r.code, r.out, r.err)
			}
		}
	}
}
