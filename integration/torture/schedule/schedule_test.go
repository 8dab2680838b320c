package schedule

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// A seed repeats: the same round, the same records, whatever was drawn before.
func TestGenerateIsDeterministic(t *testing.T) {
	can := func(Action) bool { return true }
	different := map[string]bool{}
	for seed := uint64(1); seed <= 200; seed++ {
		a, b := Generate(seed, 3, All(), can), Generate(seed, 3, All(), can)
		if !reflect.DeepEqual(a, b) || a.String() != b.String() {
			t.Fatalf("seed %d gives two rounds:\n%v\n%v", seed, a, b)
		}
		if x, y := a.Messages().Next(100, a.Partitions, false), b.Messages().Next(100, b.Partitions, false); !reflect.DeepEqual(x, y) {
			t.Fatalf("seed %d gives two sets of records", seed)
		}
		different[a.String()] = true
	}
	if len(different) != 200 {
		t.Errorf("200 seeds give %d rounds", len(different))
	}
}

// Steps come in order, and only those that the faults and the world allow.
func TestGenerateKeepsToItsFaults(t *testing.T) {
	f, err := ParseFaults("kill, network")
	if err != nil {
		t.Fatal(err)
	}
	for seed := uint64(1); seed <= 200; seed++ {
		r := Generate(seed, 1, f, func(a Action) bool { return a != HalfOpen })
		last := time.Duration(0)
		for _, s := range r.Steps {
			switch s.Action {
			case Start, Produce, Kill, Delay, Cut:
			default:
				t.Fatalf("seed %d: %v", seed, s)
			}
			if s.At < last {
				t.Fatalf("seed %d: %v after %v", seed, s, last)
			}
			last = s.At
		}
		if m := r.Mix; m.Slow+m.Stuck+m.Fail+m.Poison+m.Crash > 0 {
			t.Fatalf("seed %d: records misbehave: %+v", seed, m)
		}
	}
}

// What can't be read is refused, with what there is.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "none": "", "kill": "kill", "kill , pause": "kill,pause", "all": All().String(), "kill,-kill": "",
		"all,-kill": strings.Replace(All().String(), "kill,", "", 1),
	} {
		if f, err := ParseFaults(text); err != nil || f.String() != want {
			t.Errorf("ParseFaults(%q) = %v, %v; want %q", text, f, err, want)
		}
	}
	for _, text := range []string{"kil", "all,-kil", "kill;pause"} {
		f, err := ParseFaults(text)
		if err == nil {
			t.Fatalf("ParseFaults(%q) = %v", text, f)
		}
		for _, name := range append(FaultNames(), "all", "none") {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("ParseFaults(%q): %v; it does not say that there is %s", text, err, name)
			}
		}
	}
	for _, w := range []Work{{}, {Wait: time.Second}, {Stuck: time.Minute, Fails: -1}, {Wait: 5 * time.Millisecond, Fails: 2, Crash: true}} {
		if got, err := ParseWork(w.String()); err != nil || got != w {
			t.Errorf("ParseWork(%q) = %+v, %v", w, got, err)
		}
	}
	for _, text := range []string{"wait", "wait=x", "fails=many", "burn", "wait=1s burn=2"} {
		if w, err := ParseWork(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("ParseWork(%q) = %+v, %v", text, w, err)
		}
	}
	_, err := ParseWork("burn")
	for _, name := range []string{"wait", "stuck", "fails", "crash"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("ParseWork: %v; it does not say that there is %s", err, name)
		}
	}
}

// What a world can't do is left out, and said.
func TestWithout(t *testing.T) {
	can, left := All().Without(supports(func(a Action) bool { return a != KillBroker && a != RollBrokers && a != PauseBroker && a != Cut }))
	if !reflect.DeepEqual(left, []string{"broker"}) || can["broker"] || !can["network"] || !can["slow"] {
		t.Errorf("can %v, left %v", can, left)
	}
}

type supports func(Action) bool

func (s supports) Supports(a Action) bool { return s(a) }
