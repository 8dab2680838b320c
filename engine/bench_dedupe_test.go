package engine

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// uniqueKey is a business key that no other record of the benchmark's endless log has.
func uniqueKey(dst []byte, r *kgo.Record) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Partition))
	return binary.BigEndian.AppendUint64(dst, uint64(r.Offset))
}

// repeatedKey gives every second record the key of one that came a while before.
func repeatedKey(dst []byte, r *kgo.Record) []byte {
	const behind = 200_001
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Partition))
	if r.Offset%2 == 1 && r.Offset > behind {
		return binary.BigEndian.AppendUint64(dst, uint64(r.Offset-behind))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(r.Offset))
}

// BenchmarkDedupe runs a no-op handler with commits of offsets only, with resume windows in them, which is the default, with a
// store that keeps them as well, and with business keys, in turn, on a disk: records a second, CPU a record, and, as the median of the
// rounds, the rate over that of the default. (goals: the default is 0.95 of no windows, and the store 0.9 of the default; 1,000,000
// a second with business keys that are all new, 200,000 with half of them duplicates)
func BenchmarkDedupe(b *testing.B) {
	addr := startBenchBroker(b)
	arms := []struct {
		name string
		set  func(*Config)
	}{
		{"no-windows", func(c *Config) { c.Commit.MetadataBytes = -1 }},
		{"off", func(*Config) {}},
		{"windows", func(c *Config) { c.Dedupe.Enable = true }},
		{"new-keys", func(c *Config) { c.Dedupe.Key = uniqueKey }},
		{"half-duplicates", func(c *Config) { c.Dedupe.Key = repeatedKey }},
	}
	rates, cpus := map[string][]float64{}, map[string][]float64{}
	for range benchRounds() {
		for _, arm := range arms {
			if only := os.Getenv("GAPLESS_BENCH_ARM"); only != "" && !slices.Contains(strings.Split(only, ","), arm.name) { // to profile one, or compare two
				continue
			}
			s := engineArm(b, addr, OrderKey, func(c *Config) {
				arm.set(c)
				if c.Dedupe.enabled() {
					c.Dedupe.Dir = b.TempDir()
				}
			})
			rates[arm.name] = append(rates[arm.name], s.rate())
			cpus[arm.name] = append(cpus[arm.name], s.cpuPerRecord())
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, arm := range arms {
		if rates[arm.name] == nil {
			continue
		}
		b.ReportMetric(median(rates[arm.name]), arm.name+"-records/s")
		b.ReportMetric(median(cpus[arm.name]), arm.name+"-cpu-ns/record")
		if arm.name == "no-windows" { // by the CPU as well, which others on the machine disturb less
			b.ReportMetric(median(over(rates["off"], rates[arm.name])), "default-over-no-windows")
			b.ReportMetric(median(over(cpus[arm.name], cpus["off"])), "no-windows-cpu-over-default")
		}
		b.Logf("%-16s %s records/s, %s ns CPU a record, rate x %s", arm.name, spread(rates[arm.name]), spread(cpus[arm.name]), spread(over(rates[arm.name], rates["off"])))
	}
}

// over is the ratios of two arms, round by round.
func over(xs, base []float64) (ratios []float64) {
	for i := range min(len(xs), len(base)) {
		ratios = append(ratios, xs[i]/base[i])
	}
	if ratios == nil {
		ratios = []float64{0}
	}
	return ratios
}
