package catalogue

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Workload is what the arms have to do.
type Workload struct {
	Name       string
	Partitions int
	Records    int
	Size       int
	Sleep      Sleep
	Mean       time.Duration // of a sleep
	InFlight   int           // handlers at once; 0: as each library likes
}

// Sleep says how long a handler sleeps.
type Sleep string

// The sleeps.
const (
	NoSleep Sleep = "none"
	Fixed   Sleep = "fixed"
	Pareto  Sleep = "pareto"
)

// noopWorkers are those of libraries that have workers, in the no-op workload: the default of Gapless, and that of Parallel Consumer.
const (
	noopWorkers         = 64
	noopParallelWorkers = 16
)

// Workers is how many handlers an arm runs at once.
func (w *Workload) Workers(a *Arm) int {
	switch {
	case w.InFlight > 0:
		return w.InFlight
	case a.Library == "parallel-consumer":
		return noopParallelWorkers
	case a.Library == "gapless" || a.Mode == "errgroup":
		return noopWorkers
	}
	return 0
}

// least is the smallest topic that says anything.
const least = 1000

// RecordsOf is how many records an arm reads.
func (w *Workload) RecordsOf(a *Arm) int {
	return max(w.Records/a.Part[w.Name], min(least, w.Records))
}

// Latency is the handler's latency as an arm is told it: nanoseconds, or -1 for what each record says.
func (w *Workload) Latency() int64 {
	switch w.Sleep {
	case Fixed:
		return int64(w.Mean)
	case Pareto:
		return -1
	}
	return 0
}

// Title is a workload in words.
func (w *Workload) Title() string {
	partitions := "1 partition"
	if w.Partitions != 1 {
		partitions = fmt.Sprint(w.Partitions, " partitions")
	}
	switch w.Sleep {
	case Fixed:
		return fmt.Sprintf("%s: a handler of %v, %s, %d in flight", w.Name, w.Mean, partitions, w.InFlight)
	case Pareto:
		return fmt.Sprintf("%s: a handler of %v in the mean, Pareto distributed, %s, %d in flight", w.Name, w.Mean, partitions, w.InFlight)
	}
	return fmt.Sprintf("%s: a handler that does nothing, %s of %d B records", w.Name, partitions, w.Size)
}

// Sizes are the flags that shape the workloads.
type Sizes struct {
	Records      int // of the no-op workload
	SleepRecords int // of the workloads with 100 in flight; those with 1,000 have four times as many
	Partitions   int // of the no-op workload
	Size         int
	Mean         time.Duration
}

// Workloads are all workloads.
func Workloads(s Sizes) []Workload {
	sleeping := func(name string, sleep Sleep, inFlight, records int) Workload {
		return Workload{Name: name, Partitions: 1, Records: records, Size: s.Size, Sleep: sleep, Mean: s.Mean, InFlight: inFlight}
	}
	return []Workload{
		{Name: noop, Partitions: s.Partitions, Records: s.Records, Size: s.Size, Sleep: NoSleep, Mean: s.Mean},
		sleeping(fixed100, Fixed, 100, s.SleepRecords),
		sleeping(fixed1000, Fixed, 1000, 4*s.SleepRecords),
		sleeping(pareto100, Pareto, 100, s.SleepRecords),
		sleeping(pareto1000, Pareto, 1000, 4*s.SleepRecords),
	}
}

// ChooseWorkloads picks workloads by name. None chooses all.
func ChooseWorkloads(s Sizes, names []string) ([]Workload, error) {
	all := Workloads(s)
	if len(names) == 0 {
		return all, nil
	}
	var some []Workload
	var known []string
	for _, w := range all {
		known = append(known, w.Name)
		if slices.Contains(names, w.Name) {
			some = append(some, w)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no workload %q: write one of %s", name, strings.Join(known, ", "))
		}
	}
	return some, nil
}
