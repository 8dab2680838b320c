package engine

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A handler gets every field of its record, and nothing of the one before, whatever that one's handler wrote into it.
func TestLend(t *testing.T) {
	if !knownFields {
		t.Error("the client's records have other fields than lend knows: whole records are copied, which is dearer")
	}
	full := kgo.Record{
		Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h"}}, Timestamp: time.Unix(1, 2), Topic: "t",
		Partition: 3, ProducerEpoch: 4, ProducerID: 5, LeaderEpoch: 6, Offset: 7, Context: context.Background(),
	}
	other := kgo.Record{
		Key: []byte("other"), Value: []byte{}, Headers: []kgo.RecordHeader{}, Timestamp: time.Unix(2, 1).UTC(), Topic: "other",
		Partition: 30, ProducerEpoch: 40, ProducerID: 50, LeaderEpoch: 60, Offset: 70, Context: context.TODO(),
	}
	for i := range reflect.TypeFor[kgo.Record]().NumField() {
		field := reflect.TypeFor[kgo.Record]().Field(i).Name
		if field != "Attrs" && reflect.ValueOf(full).Field(i).IsZero() { // no attribute can be set from outside
			t.Errorf("the test does not know the field %s", field)
		}
	}
	for _, from := range []kgo.Record{full, other, {}} {
		for _, before := range []kgo.Record{full, other, {}} {
			if lend(&before, &from); !reflect.DeepEqual(before, from) {
				t.Errorf("%+v arrives as %+v", from, before)
			}
		}
	}
}
