package enginetest

import "github.com/twmb/franz-go/pkg/kadm"

// rewind sets the group, which has no members, back to the beginning of these partitions.
func (w *world) rewind(partitions ...int32) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	var to kadm.Offsets
	for _, p := range partitions {
		to.Add(kadm.Offset{Topic: w.topic, Partition: p, At: 0, LeaderEpoch: -1})
	}
	if err := w.adm.CommitAllOffsets(ctx, w.group, to); err != nil {
		w.Fatal(err)
	}
}

// stable waits until the broker has done with all rebalances of the group, and so many members are in it.
func (w *world) stable(members int) {
	w.Helper()
	w.eventually("the group is stable", func() bool {
		ctx, cancel := patient()
		defer cancel()
		if groups, err := w.adm.DescribeConsumerGroups(ctx, w.group); err == nil && groups[w.group].Err == nil {
			g := groups[w.group]
			return g.State == "Stable" && len(g.Members) == members
		}
		groups, err := w.adm.DescribeGroups(ctx, w.group)
		return err == nil && groups[w.group].State == "Stable" && len(groups[w.group].Members) == members
	})
}
