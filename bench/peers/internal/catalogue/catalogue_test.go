package catalogue

import (
	"os"
	"strings"
	"testing"
	"time"
)

var sizes = Sizes{Records: 4_000_000, SleepRecords: 100_000, Partitions: 12, Size: 100, Mean: 2 * time.Millisecond}

func TestReadmeHasTheSettings(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), Markdown()) {
		t.Errorf("README.md does not have the table of settings as it is: go run ./bench/peers --list prints it")
	}
}

func TestEveryArmRunsSomewhere(t *testing.T) {
	names := make(map[string]bool)
	known := make(map[string]bool)
	for _, w := range Workloads(sizes) {
		known[w.Name] = true
	}
	for _, a := range Arms() {
		if names[a.Name()] {
			t.Errorf("%s is there twice", a.Name())
		}
		names[a.Name()] = true
		if len(a.Part) == 0 || a.Settings == "" || a.Source == "" {
			t.Errorf("%s runs nowhere, or says nothing of its settings", a.Name())
		}
		for name := range a.Part {
			if !known[name] {
				t.Errorf("%s runs in %q, which there is not", a.Name(), name)
			}
		}
		if !names["gapless/"+a.Order()] {
			t.Errorf("%s is compared with gapless/%s, which there is not", a.Name(), a.Order())
		}
	}
}

func TestChooseArms(t *testing.T) {
	all, err := Choose(nil)
	if err != nil || len(all) != len(Arms()) {
		t.Errorf("no choice gives %d, %v", len(all), err)
	}
	some, err := Choose([]string{"sarama", "gapless", "gapless/key"})
	var names []string
	for _, a := range some {
		names = append(names, a.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != "gapless/unordered gapless/key gapless/partition sarama/group" {
		t.Errorf("chose %s, %v", got, err)
	}
	if _, err := Choose([]string{"sarama", "samara"}); err == nil || !strings.Contains(err.Error(), `"samara"`) || !strings.Contains(err.Error(), "kafka-go") {
		t.Errorf("a wrong name: %v", err)
	}
}

func TestChooseWorkloads(t *testing.T) {
	some, err := ChooseWorkloads(sizes, []string{"pareto-1000", "noop"})
	if err != nil || len(some) != 2 || some[0].Name != "noop" || some[1].Records != 400_000 || some[1].Latency() != -1 || some[1].InFlight != 1000 {
		t.Errorf("chose %+v, %v", some, err)
	}
	if _, err := ChooseWorkloads(sizes, []string{"no-op"}); err == nil || !strings.Contains(err.Error(), "fixed-100") {
		t.Errorf("a wrong name: %v", err)
	}
}

func TestSlowArmsReadLess(t *testing.T) {
	w := Workload{Name: noop, Records: 4_000_000}
	if n := w.RecordsOf(&Arm{Part: parts(8, 0, 0)}); n != 500_000 {
		t.Errorf("an eighth is %d", n)
	}
	w.Records = 20_000
	if n := w.RecordsOf(&Arm{Part: parts(500, 0, 0)}); n != least {
		t.Errorf("the least is %d", n)
	}
	w.Records = 10
	if n := w.RecordsOf(&Arm{Part: parts(500, 0, 0)}); n != 10 {
		t.Errorf("of 10 records they read %d", n)
	}
}
