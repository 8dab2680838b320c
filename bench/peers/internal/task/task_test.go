package task

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestArgumentsArriveAsTheyWere(t *testing.T) {
	want := Task{Library: "gapless", Mode: "key", Bootstrap: "127.0.0.1:9092,[::1]:9093", Topic: "a-b", Group: "g=1", Ends: []int64{3, 0, 12_000_000},
		Workers: 100, Latency: -1, Patience: 30 * time.Second}
	got, err := Parse(want.Args())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v became %+v, %v", want, got, err)
	}
	if n := got.Records(); n != 12_000_003 {
		t.Errorf("%d records", n)
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for arg, word := range map[string]string{
		"workers":    `"workers": write key=value`,
		"ends=1,two": "ends=two",
		"colour=red": `"colour"`,
		"latency=":   "latency=",
	} {
		if _, err := Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
