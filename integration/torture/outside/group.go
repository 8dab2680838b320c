package outside

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Describe gives the state of the (classic) group and its members.
func (c *Client) Describe(ctx context.Context) (kadm.DescribedGroup, error) {
	groups, err := c.adm.DescribeGroups(ctx, c.Group)
	if err != nil {
		return kadm.DescribedGroup{}, fmt.Errorf("describe the group: %w", err)
	}
	return groups[c.Group], nil
}

// Heartbeat sends one for a member of the (classic) group.
func (c *Client) Heartbeat(ctx context.Context, member string, instance *string, generation int32) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = c.Group, member, instance, generation
	_, err := req.RequestWith(ctx, c.cl)
	return err
}

// Expel takes members out of the (classic) group.
func (c *Client) Expel(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = c.Group
	for _, id := range ids {
		leave := kmsg.NewLeaveGroupRequestMember()
		leave.MemberID = id
		req.Members = append(req.Members, leave)
	}
	if _, err := req.RequestWith(ctx, c.cl); err != nil {
		return fmt.Errorf("expel %v from the group: %w", ids, err)
	}
	return nil
}
