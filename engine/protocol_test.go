package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// C9: brokers that are too old for KIP-848, or have it switched off, are an error at start: the client would fall back in silence.
func TestProtocolIsChecked(t *testing.T) {
	refused := func(w *world, want ...string) {
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Protocol = ProtocolConsumer
		var err error
		select {
		case err = <-w.launch(c).done:
		case <-time.After(time.Minute):
		}
		for _, s := range want {
			if err == nil || !strings.Contains(err.Error(), s) {
				w.Errorf("%q is not in: %v", s, err)
			}
		}
	}
	t.Run("too old", func(t *testing.T) {
		inWorld(t, 1, func(w *world) { refused(w, `Protocol "consumer"`, "Kafka 4.0", "broker 0", `use "classic"`) }, kfake.MaxVersions(kversion.V3_8_0()))
	})
	t.Run("switched off", func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: kerr.UnsupportedVersion, TopLevel: true, Count: -1})
			refused(w, `Protocol "consumer"`, "switched off", "group.version")
		})
	})
}

// C9: where the client falls back nevertheless, that is said once, and the status tells the protocol in use.
func TestProtocolFallsBack(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var seen atomic.Int64
		w.cluster.ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			if req.(*kmsg.ConsumerGroupHeartbeatRequest).MemberEpoch == -1 {
				resp.ErrorCode = kerr.GroupIDNotFound.Code // as Kafka answers the question at start
			} else {
				seen.Add(1)
			}
			return resp, nil, true
		})
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Protocol = ProtocolConsumer
		w.produce(0, "a")
		m := w.start(c)
		m.awaitName(EventProtocolFellBack)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		if p := m.e.Status().Protocol; p != ProtocolClassic || seen.Load() != 1 {
			t.Errorf("protocol %q after %d refusals", p, seen.Load())
		}
		m.e.clock.wake()
		m.stop()
		if n := m.count(EventProtocolFellBack); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Protocol = ProtocolConsumer
		w.produce(0, "a")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		if p := m.e.Status().Protocol; p != ProtocolConsumer || m.count(EventProtocolFellBack) != 0 {
			t.Errorf("protocol %q: %v", p, m.names())
		}
		m.stop()
	})
}
