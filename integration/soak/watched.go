package main

import (
	"strings"
	"time"
)

// What is watched, and how much of a rise is tolerated: of times more than of amounts, since they have the machine's moods in them.
const (
	ofMemory  = 0.05
	ofLatency = 0.20
)

const (
	resident   = "resident memory"
	liveHeap   = "live heap"
	runtimeMem = "Go runtime memory"
	goroutines = "goroutines"
	files      = "open files"
	store      = "dedupe store"
	storeLog   = "the store's log"
	p50        = "latency p50"
	p99        = "latency p99"
	ownP50     = "after the ack p50"
	ownP99     = "after the ack p99"
	cpu        = "CPU"
	ackP50     = "control: broker ack p50"
	ackP99     = "control: broker ack p99"
	timer      = "control: timer late p99"
)

// watched are the series of the run, without what is left out: the warm-up and what comes after the load; of member A's own numbers the
// restarts of the broker; of the latency every event but a change of the workers, since a partition without an owner, or an owner
// without a broker, has to wait by design.
func (r *result) watched() []series {
	var all []series
	own := func(name, unit string, floor float64, of func(*memberSample) float64) {
		s := series{name: name, unit: unit, tolerance: ofMemory, floor: floor}
		for _, x := range r.samples {
			m := x.eldest()
			if m == nil || of(m) < 0 {
				continue
			}
			s.add(x.At, of(m), r.leftOut(x.At, kindBroker))
		}
		all = append(all, s)
	}
	mib := func(of func(*memberSample) int64) func(*memberSample) float64 {
		return func(m *memberSample) float64 { return mebibytes(of(m)) }
	}
	own(resident, "MiB", 2, mib(func(m *memberSample) int64 { return m.RSS }))
	own(liveHeap, "MiB", 1, mib(func(m *memberSample) int64 { return m.Heap }))
	own(runtimeMem, "MiB", 2, mib(func(m *memberSample) int64 { return m.Runtime }))
	own(goroutines, "", 2, func(m *memberSample) float64 { return float64(m.Goroutines) })
	own(files, "", 2, func(m *memberSample) float64 { return float64(m.Files) })
	if r.options.dedupe {
		own(store, "MiB", 1, mib(func(m *memberSample) int64 { return m.Store }))
		// A log is at most as large as a memory table of the store, 8 MiB. What it holds follows the number of group commits, of which a calm
		// machine makes more.
		own(storeLog, "MiB", 8, mib(func(m *memberSample) int64 { return m.Log }))
	}
	all = append(all, r.cpuTime())
	late := func(name, control string, of func(*latency) float64) {
		s := series{name: name, unit: "ms", tolerance: ofLatency, floor: 1, control: control}
		for i := range r.latencies {
			x := &r.latencies[i]
			s.add(x.At, of(x), r.leftOut(x.At, kindBroker, kindKill, kindLeave, kindPartitions))
		}
		all = append(all, s)
	}
	late(p50, ackP50, func(l *latency) float64 { return l.P50 })
	late(p99, ackP99, func(l *latency) float64 { return l.P99 })
	late(ownP50, timer, func(l *latency) float64 { return l.OwnP50 })
	late(ownP99, timer, func(l *latency) float64 { return l.OwnP99 })
	late(ackP50, itself, func(l *latency) float64 { return l.AckP50 })
	late(ackP99, itself, func(l *latency) float64 { return l.AckP99 })
	late(timer, itself, func(l *latency) float64 { return l.Timer })
	return all
}

// itself marks a series that is a control.
const itself = "itself"

// cpuTime is what member A used in each interval, in per cent of one core.
func (r *result) cpuTime() series {
	s := series{name: cpu, unit: "%", tolerance: ofLatency, floor: 2}
	for i := 1; i < len(r.samples); i++ {
		x, before := &r.samples[i], &r.samples[i-1]
		m, was := x.eldest(), before.eldest()
		if m == nil || was == nil || m.CPU < 0 || x.At-before.At < r.options.every.Seconds()/2 {
			continue
		}
		s.add(x.At, float64(m.CPU-was.CPU)/10/(x.At-before.At), r.leftOut(x.At, kindBroker))
	}
	return s
}

// trends are the verdicts on all that is watched.
func (r *result) trends() (all []trend) {
	controls := map[string]verdict{}
	for _, s := range r.watched() {
		t := s.trend()
		controls[t.Name] = t.Verdict
		all = append(all, t)
	}
	for i := range all {
		if t := &all[i]; t.Verdict == grows && controls[t.Control] == grows {
			t.Verdict = growsWith
		}
	}
	return all
}

func (s *series) add(at, value float64, leftOut bool) {
	if leftOut {
		s.excluded++
		return
	}
	s.points = append(s.points, point{at / time.Hour.Seconds(), value})
}

// leftOut says whether the interval that ends then is in the warm-up, after the load, or touched by churn of these kinds.
func (r *result) leftOut(at float64, by ...kind) bool {
	o := r.options
	to := time.Duration(at * float64(time.Second))
	from := to - o.every
	if from < warmUp(o.duration) || to > o.duration+o.every/2 {
		return true
	}
	for _, e := range r.Events {
		for _, k := range by {
			if e.Kind == k && e.covers(from, to, o.every) {
				return true
			}
		}
	}
	return false
}

// eldest is the sample of the first process of member A, which lives through the run.
func (x *sample) eldest() *memberSample {
	for i := range x.Members {
		if strings.HasPrefix(x.Members[i].Life, memberName(0)) {
			return &x.Members[i]
		}
	}
	return nil
}
