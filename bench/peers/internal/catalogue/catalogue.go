// Package catalogue lists what is measured: the workloads, and the libraries' arms with their settings.
package catalogue

import (
	"fmt"
	"slices"
	"strings"
)

// A Runner is what an arm is a process of.
type Runner int

// The runners.
const (
	Go Runner = iota
	JavaKafka
	JavaParallel
	Python
)

// An Arm is a library with settings. What it reads is a topic of the workload's shape; where it is so slow that it would take minutes,
// one with fewer records.
type Arm struct {
	Library string
	Mode    string
	Runner  Runner
	Share   bool   // it is a share group
	Against string // the mode of Gapless that does the same; empty: unordered

	// Part says of each workload that the arm runs which part of its records it reads: 2 is every second, as it were.
	Part map[string]int

	// Settings are those that are not the library's defaults, and Source is who recommends them.
	Settings, Source string
}

// Name is how an arm is called on the command line.
func (a *Arm) Name() string { return a.Library + "/" + a.Mode }

// Order is the mode of Gapless to compare with.
func (a *Arm) Order() string {
	if a.Against == "" {
		return "unordered"
	}
	return a.Against
}

// noop and the others are the workloads' names.
const (
	noop       = "noop"
	fixed100   = "fixed-100"
	fixed1000  = "fixed-1000"
	pareto100  = "pareto-100"
	pareto1000 = "pareto-1000"
)

// parts is short for a Part: of the no-op workload, of those with 100 at once, and of those with 1,000. 0: not run.
func parts(ofNoop, of100, of1000 int) map[string]int {
	return heavyTailed(ofNoop, of100, of1000, of100, of1000)
}

// heavyTailed is parts for a library that the Pareto latencies slow down much, because it waits for the slowest of some records before
// it goes on to the next ones.
func heavyTailed(ofNoop, of100, of1000, pareto100s, pareto1000s int) map[string]int {
	p := map[string]int{}
	for name, part := range map[string]int{noop: ofNoop, fixed100: of100, fixed1000: of1000, pareto100: pareto100s, pareto1000: pareto1000s} {
		if part > 0 {
			p[name] = part
		}
	}
	return p
}

// Arms are all arms, in the order of the table.
func Arms() []Arm {
	return []Arm{
		{Library: "gapless", Mode: "unordered", Part: parts(1, 1, 1), Settings: "`Order: unordered`, `Workers` 64 (the default) / 100 / 1,000, no dead-letter topic", Source: "its README"},
		{Library: "gapless", Mode: "key", Part: parts(1, 1, 1), Against: "key", Settings: "as above, `Order: key` (the default)", Source: "its README"},
		{Library: "gapless", Mode: "partition", Part: parts(1, 0, 0), Against: "partition", Settings: "as above, `Order: partition`", Source: "its README"},

		{Library: "franz-go", Mode: "pooled", Part: parts(1, 0, 0), Settings: "`WithPools`, `Recycle`, `BlockRebalanceOnPoll`, the fetch options of Gapless, `CommitOffsets` each second", Source: "the doc comments of these options"},
		{Library: "franz-go", Mode: "defaults", Part: parts(1, 0, 0), Settings: "`AutoCommitInterval(1s)`, one last commit", Source: "docs/producing-and-consuming.md, `ConsumerGroup`"},
		{Library: "franz-go", Mode: "errgroup", Part: parts(16, 1, 1), Settings: "whole polls, `errgroup.SetLimit` 64 / 100 / 1,000, a commit after a poll, at most each second", Source: "what people write by hand"},
		{Library: "sarama", Mode: "group", Part: parts(1, 0, 0), Settings: "`Version` newest, `Offsets.Initial` oldest, auto-commit 1 s (the default)", Source: "examples/consumergroup"},
		{Library: "kafka-go", Mode: "reader", Part: parts(8, 0, 0), Settings: "`MaxBytes` 10e6, `CommitInterval` 1 s, `FetchMessage` and `CommitMessages`", Source: "its README"},
		{Library: "confluent-kafka-go", Mode: "backoff10", Part: parts(8, 0, 0), Settings: "`Poll` loop, auto-commit 1 s, `fetch.queue.backoff.ms` 10", Source: "its README; librdkafka's CONFIGURATION.md for the backoff"},
		{Library: "confluent-kafka-go", Mode: "defaults", Part: parts(32, 0, 0), Settings: "`Poll` loop, auto-commit 1 s", Source: "its README"},

		{Library: "kafka-java", Mode: "perf-tool", Runner: JavaKafka, Part: parts(2, 0, 0), Settings: "`ConsumerPerformance` as it is (it skips checksums), auto-commit 1 s", Source: "kafka-consumer-perf-test.sh"},
		{Library: "kafka-java", Mode: "poll-loop", Runner: JavaKafka, Part: parts(2, 0, 0), Settings: "auto-commit 1 s", Source: "the javadoc of KafkaConsumer"},
		{Library: "share-group", Mode: "java-perf-tool", Runner: JavaKafka, Share: true, Part: parts(16, 0, 0), Settings: "`ShareConsumerPerformance` as it is", Source: "kafka-share-consumer-perf-test.sh"},
		{Library: "share-group", Mode: "java-executor", Runner: JavaKafka, Share: true, Part: heavyTailed(0, 2, 4, 4, 8), Settings: "implicit acknowledgement, a fixed thread pool, `max.poll.records` at least the threads", Source: "the javadoc of KafkaShareConsumer"},
		{Library: "share-group", Mode: "franz-go", Share: true, Part: heavyTailed(16, 2, 4, 4, 8), Settings: "`MarkAcks` after a poll, `ShareMaxRecords` at least the handlers at once", Source: "the doc comments of these"},
		{Library: "parallel-consumer", Mode: "unordered", Runner: JavaParallel, Part: parts(32, 1, 4), Settings: "0.5.3.3, `maxConcurrency` 16 (the default) / 100 / 1,000, commits asynchronous, each second", Source: "its README"},
		{Library: "parallel-consumer", Mode: "key", Runner: JavaParallel, Part: parts(64, 2, 8), Against: "key", Settings: "as above, `ordering` KEY", Source: "its README"},
		{Library: "parallel-consumer", Mode: "partition", Runner: JavaParallel, Part: parts(2000, 0, 0), Against: "partition", Settings: "as above, `ordering` PARTITION", Source: "its README"},
		{Library: "aiokafka", Mode: "getmany", Runner: Python, Part: parts(16, 0, 0), Settings: "`getmany`, auto-commit 1 s", Source: "docs/consumer.rst"},
		{Library: "aiokafka", Mode: "gather", Runner: Python, Part: heavyTailed(0, 2, 0, 4, 0), Settings: "`getmany(max_records=100)`, `asyncio.gather`, auto-commit 1 s", Source: "what people write by hand"},
	}
}

// Choose picks arms by library or by library/mode. None chooses all.
func Choose(names []string) ([]Arm, error) {
	all := Arms()
	if len(names) == 0 {
		return all, nil
	}
	found := make(map[string]bool)
	var some []Arm
	for _, a := range all {
		for _, name := range names {
			if name == a.Library || name == a.Name() {
				found[name] = true
				if len(some) == 0 || some[len(some)-1].Name() != a.Name() {
					some = append(some, a)
				}
			}
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("there is no library %q: write one of %s, or one of their arms as in %s", name, strings.Join(libraries(all), ", "), all[0].Name())
		}
	}
	return some, nil
}

func libraries(arms []Arm) (names []string) {
	for _, a := range arms {
		if !slices.Contains(names, a.Library) {
			names = append(names, a.Library)
		}
	}
	return names
}

// Markdown is the table of the settings that stands in the README.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| library | arm | settings besides the defaults | recommended by |\n|---|---|---|---|\n")
	for _, a := range Arms() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.Library, a.Mode, a.Settings, a.Source)
	}
	return b.String()
}
