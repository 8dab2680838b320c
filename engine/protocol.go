package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkProtocol makes sure that the brokers speak KIP-848 where it was asked for: the client would silently fall back to the classic
// protocol, with other timeouts, another balancer, and in a group that then has to be of that type.
func (e *Engine) checkProtocol(ctx context.Context) error {
	versions, err := e.adm.ApiVersions(ctx)
	if err != nil {
		return nil //nolint:nilerr // the checks before this one have reached the brokers; what they did not find does not matter here
	}
	for _, b := range versions {
		if b.Err != nil {
			continue
		}
		if version, ok := b.KeyMaxVersion(int16(kmsg.ConsumerGroupHeartbeat)); !ok || version < 1 {
			return fmt.Errorf("gapless: Protocol %q (KIP-848) needs Kafka 4.0 or newer, and broker %d is older (about %s); use %q", ProtocolConsumer, b.NodeID, b.VersionGuess(), ProtocolClassic)
		}
	}
	// A broker may know the request and have the protocol switched off. The good-bye of a member that nobody knows changes nothing.
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = e.cfg.Group, "gapless-asks-for-the-protocol", -1
	resp, err := req.RequestWith(ctx, e.side)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.UnsupportedVersion) {
		return fmt.Errorf("gapless: Protocol %q (KIP-848) is switched off in the brokers: finalize the feature group.version 1 (kafka-features.sh), and have \"consumer\" in group.coordinator.rebalance.protocols; or use %q: %w", ProtocolConsumer, ProtocolClassic, err)
	}
	return nil
}

// protocol is the group protocol in use.
func (e *Engine) protocol() Protocol {
	if e.clock.fellBack.Load() {
		return ProtocolClassic
	}
	return e.cfg.Protocol
}

// noteFallBack says, once, that the client joins by the classic protocol although the other one was asked for and the check at start
// found it: an option of the embedder's (MaxVersions), or a broker that was downgraded.
func (e *Engine) noteFallBack() {
	if e.clock.fellBack.Load() {
		e.once("protocol", Event{Name: EventProtocolFellBack, Partition: -1,
			Hint: fmt.Sprintf("Protocol %q (KIP-848) was asked for, and the client joined by %q: the broker or an option in KgoOpts does not allow the former. SessionTimeout, HeartbeatInterval and Balancer count now, and the other members must use %q, too", ProtocolConsumer, ProtocolClassic, ProtocolClassic)})
	}
}
