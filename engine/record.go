package engine

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is a Kafka record on its way through a handler. It and all that it points to are valid until the handler returns; Clone
// to keep it longer. Its fields are the handler's own and may be changed (middleware may cut a prefix off Value); a retry and a
// dead letter begin from the record as it was. The bytes of key, value and headers must not be written to.
type Record struct {
	*kgo.Record
	// Attempt counts from 1.
	Attempt int

	ep   *epoch
	outs []*kgo.Record
}

// Owner identifies the assignment under which a record is handled. Sequence rises with every assignment in this process, and
// Generation with every rebalance of the group: an external system can use the pair (Generation, Sequence) as a fencing value
// against an earlier owner that was paused and still writes.
type Owner struct {
	MemberID   string `json:"member_id"`
	Generation int32  `json:"generation"`
	Sequence   uint64 `json:"sequence"`
}

// Owner says under which assignment this record is handled.
func (r *Record) Owner() Owner {
	if r.ep == nil {
		return Owner{}
	}
	return r.ep.owner
}

// Emit adds an output: once the handler has returned nil, it is produced, and the record is settled only when it is
// acknowledged. The outputs of an attempt that fails are dropped. An output that can't ever be written (too large) is
// a failure of the attempt; while its topic is down, missing or forbidden to this user, the record waits and the outputs are tried
// again. The engine owns out from then on.
//
// The outputs of one record with the same topic and key are written in the order of Emit, and so are those without a key to one topic,
// which may go to several partitions, though. Where one of them has to be written again,
// those behind it are, too: a reader may see outputs twice, but the last copies stand in order. A handler that runs again emits anew,
// so outputs may come twice then as well. Between records, OrderKey and OrderPartition carry over to their outputs, because the next one
// starts when the outputs of the one before are acknowledged.
func (r *Record) Emit(out *kgo.Record) {
	if out == r.Record { // the record itself, perhaps with another topic: it is not ours to give away
		out = cloneRecord(out)
	}
	r.outs = append(r.outs, out)
}

// Clone is a copy that stays valid after the handler has returned, and that pins nothing of the fetch it came in. Outputs can
// not be emitted through it.
func (r *Record) Clone() *Record {
	return &Record{Record: cloneRecord(r.Record), Attempt: r.Attempt, ep: r.ep}
}

// cloneRecord copies what a record holds into memory of its own. One kept record would otherwise pin its whole fetch.
func cloneRecord(r *kgo.Record) *kgo.Record {
	c := *r
	c.Context = nil // it ties the original to its pool
	buf := make([]byte, 0, len(r.Key)+len(r.Value))
	c.Key, buf = own(r.Key, buf)
	c.Value, _ = own(r.Value, buf)
	c.Headers = nil
	if len(r.Headers) > 0 {
		c.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			c.Headers[i] = kgo.RecordHeader{Key: strings.Clone(h.Key), Value: slices.Clone(h.Value)}
		}
	}
	return &c
}

// lend is *to = *from, the copy of the struct that a handler gets. While the collector marks, it is told of each pointer that is
// written, and for whole structs at length, which made this the dearest part of a record's way. So what is as it was is left alone:
// from one record to the next the topic and the context are the same, often the millisecond, and mostly there are no headers.
func lend(to, from *kgo.Record) {
	if !knownFields {
		*to = *from
		return
	}
	if unsafe.StringData(to.Topic) != unsafe.StringData(from.Topic) || len(to.Topic) != len(from.Topic) {
		to.Topic = from.Topic
	}
	if *words(&to.Context) != *words(&from.Context) {
		to.Context = from.Context
	}
	if to.Headers != nil || from.Headers != nil {
		to.Headers = from.Headers
	}
	if to.Timestamp != from.Timestamp {
		to.Timestamp = from.Timestamp
	}
	to.Key, to.Value = from.Key, from.Value
	to.Partition, to.Offset, to.LeaderEpoch = from.Partition, from.Offset, from.LeaderEpoch
	to.Attrs, to.ProducerEpoch, to.ProducerID = from.Attrs, from.ProducerEpoch, from.ProducerID
}

// words are the two words of an interface: the same ones are the same value, and to compare them takes no call.
func words(c *context.Context) *[2]uintptr { return (*[2]uintptr)(unsafe.Pointer(c)) }

// knownFields says that the client's records have the fields that lend copies, and no others: a later client may add some.
var knownFields = reflect.TypeFor[kgo.Record]().NumField() == 12

// own copies b to the end of buf; nil stays nil, and empty stays empty.
func own(b, buf []byte) (copied, rest []byte) {
	if b == nil {
		return nil, buf
	}
	n := len(buf)
	buf = append(buf, b...)
	return buf[n:len(buf):len(buf)], buf
}
