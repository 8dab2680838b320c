// Package metrics exports an engine's state to Prometheus. It is a package of its own, so that a service that does not use it
// does not get the Prometheus client.
package metrics

import (
	"strconv"

	"github.com/gaplesshq/gapless/engine"
	"github.com/prometheus/client_golang/prometheus"
)

// Collector reads an engine's snapshot at each scrape. Nothing is counted for it on the hot path, and the series of a partition
// vanish with its assignment.
type Collector struct{ e *engine.Engine }

// New makes a Collector for e; register it with a prometheus.Registry.
func New(e *engine.Engine) *Collector { return &Collector{e} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gapless_"+name, help, labels, nil)
}

var partitionLabels = []string{"group", "topic", "partition"}

type gauge struct {
	desc *prometheus.Desc
	of   func(*engine.PartitionStatus) float64
}

var partitionGauges = []gauge{
	{desc("partition_lag_records", "Log end less committed offset.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.Lag) }},
	{desc("partition_lag_seconds", "Age of the record at the frontier; -1 = not fetched yet.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return p.LagSeconds }},
	{desc("partition_frontier", "Offset up to which everything delivered is settled.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.Frontier) }},
	{desc("partition_frontier_age_seconds", "How long the oldest unfinished record has been here; 0 = none.", partitionLabels...), func(p *engine.PartitionStatus) float64 {
		if p.Oldest == nil {
			return 0
		}
		return p.Oldest.Age.Seconds()
	}},
	{desc("partition_committed", "Committed offset, acknowledged by the broker.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.Committed) }},
	{desc("partition_log_end", "High watermark.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.LogEnd) }},
	{desc("partition_log_end_age_seconds", "How long ago the high watermark was heard of; the lag is as old.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return p.LogEndAge }},
	{desc("partition_in_flight", "Records in handlers.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.InFlight) }},
	{desc("partition_waiting", "Records that have not started.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.Waiting) }},
	{desc("partition_parked", "Records that wait for a retry, outputs or a dead letter.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.Parked) }},
	{desc("partition_bytes", "Memory that held records pin.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.Bytes) }},
	{desc("partition_paused", "1 = fetching is paused.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return b2f(len(p.Paused) > 0) }},
	{desc("partition_paused_seconds", "How long fetching was paused since the assignment.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return p.PausedSeconds }},
	{desc("partition_lost_records", "Records that retention deleted before they were read.", partitionLabels...), func(p *engine.PartitionStatus) float64 { return float64(p.Lost) }},
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

type counter struct {
	desc *prometheus.Desc
	of   func(*engine.Counts) float64
}

var groupLabel = []string{"group"}

var counters = []counter{
	{desc("records_handled_total", "Attempts that succeeded.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Handled) }},
	{desc("attempts_failed_total", "Attempts that failed.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Failures) }},
	{desc("retries_total", "Attempts that were scheduled anew.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Retries) }},
	{desc("records_dead_lettered_total", "Records whose dead letter was acknowledged.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.DeadLettered) }},
	{desc("dead_letter_failures_total", "Dead-letter writes that failed.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.DeadLetterFailures) }},
	{desc("records_skipped_total", "Records settled without their work, by policy.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Skipped) }},
	{desc("records_redelivered_total", "Records that came again and had been settled by an earlier owner.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Redelivered) }},
	{desc("windows_shortened_total", "Commits whose metadata could not hold all that is settled beyond the offset.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.ShortenedWindows) }},
	{desc("stale_completions_total", "Completions of epochs that had ended.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.StaleCompletions) }},
	{desc("records_lost_total", "Records that retention deleted before they were read.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Lost) }},
	{desc("commits_total", "Commit requests.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Commits) }},
	{desc("commit_errors_total", "Commit requests that failed, as a whole or for a partition.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.CommitErrors) }},
	{desc("commit_seconds_total", "Time spent waiting for commits.", groupLabel...), func(c *engine.Counts) float64 { return c.CommitSeconds }},
	{desc("partitions_lost_total", "Assignments that ended without a hand-over.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.LostEpochs) }},
	{desc("suspensions_total", "Times that the coordinator was silent for a session timeout.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Suspensions) }},
	{desc("rebalances_total", "Changes of the assignment.", groupLabel...), func(c *engine.Counts) float64 { return float64(c.Events[engine.EventRebalanced]) }},
}

type dedupeMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*engine.DedupeStatus) float64
}

var dedupeMetrics = []dedupeMetric{
	{desc("dedupe_keys", "Business keys in the store.", groupLabel...), prometheus.GaugeValue, func(d *engine.DedupeStatus) float64 { return float64(d.Keys) }},
	{desc("dedupe_disk_bytes", "Size of the store on disk.", groupLabel...), prometheus.GaugeValue, func(d *engine.DedupeStatus) float64 { return float64(d.DiskBytes) }},
	{desc("dedupe_memory_bytes", "Memory of the store's filters and unsealed keys.", groupLabel...), prometheus.GaugeValue, func(d *engine.DedupeStatus) float64 { return float64(d.Memory) }},
	{desc("dedupe_pending", "Finished records that are not durable yet.", groupLabel...), prometheus.GaugeValue, func(d *engine.DedupeStatus) float64 { return float64(d.Pending) }},
	{desc("dedupe_slowest_group_seconds", "The longest that a group commit took.", groupLabel...), prometheus.GaugeValue, func(d *engine.DedupeStatus) float64 { return d.Slowest.Seconds() }},
	{desc("dedupe_writable", "1 = the store can write.", groupLabel...), prometheus.GaugeValue, func(d *engine.DedupeStatus) float64 { return b2f(d.WriteError == "") }},
	{desc("dedupe_hits_total", "Records settled without their handler: their business key was handled before.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return float64(d.Hits) }},
	{desc("dedupe_misses_total", "Business keys that were new.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return float64(d.Misses) }},
	{desc("dedupe_differing_total", "Records whose business key was handled before with another payload.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return float64(d.Differing) }},
	{desc("dedupe_waits_total", "Records that waited for another one with their business key.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return float64(d.Waits) }},
	{desc("dedupe_unkeyed_total", "Records without a business key, handled without looking.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return float64(d.Unkeyed) }},
	{desc("dedupe_marks_total", "Business keys made durable.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return float64(d.Marks) }},
	{desc("dedupe_group_seconds_total", "Time that group commits took; by dedupe_groups_total, their mean latency.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return d.GroupTime.Seconds() }},
	{desc("dedupe_groups_total", "Group commits.", groupLabel...), prometheus.CounterValue, func(d *engine.DedupeStatus) float64 { return float64(d.Groups) }},
}

var (
	up             = desc("healthy", "1 = nothing speaks against the engine being well.", groupLabel...)
	workersLimit   = desc("workers_limit", "Most handlers that run at once.", groupLabel...)
	workersSettled = desc("workers_settled", "The limit apart from a trial under way, where the engine finds it by itself.", groupLabel...)
	workersChanges = desc("workers_changes_total", "Times that the engine has changed the limit, trials aside.", groupLabel...)
	workersAuto    = desc("workers_auto", "1 = the engine finds the limit by itself.", groupLabel...)
	workersRunning = desc("workers_running", "Handlers that run.", groupLabel...)
	assigned       = desc("partitions_assigned", "Partitions assigned to this member.", groupLabel...)
	events         = desc("events_total", "Events by name.", "group", "event")
	handlerSeconds = desc("handler_seconds", "Time in the handler a record. Short handlers are measured a chunk of records at a time.", groupLabel...)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range partitionGauges {
		ch <- g.desc
	}
	for _, g := range counters {
		ch <- g.desc
	}
	for _, d := range dedupeMetrics {
		ch <- d.desc
	}
	for _, d := range []*prometheus.Desc{up, workersLimit, workersSettled, workersChanges, workersAuto, workersRunning, assigned, events, handlerSeconds} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.e.Status()
	for i := range s.Partitions {
		p := &s.Partitions[i]
		for _, g := range partitionGauges {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(p), s.Group, p.Topic, strconv.Itoa(int(p.Partition)))
		}
	}
	for _, k := range counters {
		ch <- prometheus.MustNewConstMetric(k.desc, prometheus.CounterValue, k.of(&s.Counts), s.Group)
	}
	for _, d := range dedupeMetrics {
		if s.Dedupe != nil {
			ch <- prometheus.MustNewConstMetric(d.desc, d.kind, d.of(s.Dedupe), s.Group)
		}
	}
	for name, n := range s.Counts.Events {
		ch <- prometheus.MustNewConstMetric(events, prometheus.CounterValue, float64(n), s.Group, string(name))
	}
	ch <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, b2f(s.Healthy), s.Group)
	ch <- prometheus.MustNewConstMetric(workersLimit, prometheus.GaugeValue, float64(s.Workers.Limit), s.Group)
	if a := s.Workers.Auto; a != nil {
		ch <- prometheus.MustNewConstMetric(workersSettled, prometheus.GaugeValue, float64(a.Settled), s.Group)
		ch <- prometheus.MustNewConstMetric(workersChanges, prometheus.CounterValue, float64(a.Changes), s.Group)
	}
	ch <- prometheus.MustNewConstMetric(workersAuto, prometheus.GaugeValue, b2f(s.Workers.Auto != nil), s.Group)
	ch <- prometheus.MustNewConstMetric(workersRunning, prometheus.GaugeValue, float64(s.Workers.Running), s.Group)
	ch <- prometheus.MustNewConstMetric(assigned, prometheus.GaugeValue, float64(len(s.Partitions)), s.Group)

	buckets, sum := c.e.Latency()
	cumulative := map[float64]uint64{}
	var n uint64
	for i, b := range engine.LatencyBounds {
		n += uint64(buckets[i])
		cumulative[b] = n
	}
	n += uint64(buckets[len(buckets)-1])
	ch <- prometheus.MustNewConstHistogram(handlerSeconds, n, sum.Seconds(), cumulative, s.Group)
}
