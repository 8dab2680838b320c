package ground

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestParetoHasItsMeanAndItsBounds(t *testing.T) {
	p := newPareto(2 * time.Millisecond)
	const n = 100_000
	var sum, least, most time.Duration
	least = time.Hour
	for i := range n { // every quantile once: no chance in it
		d := p.draw((float64(i) + 0.5) / n)
		sum += d
		least, most = min(least, d), max(most, d)
	}
	if mean := float64(sum) / n; math.Abs(mean/2e6-1) > 0.005 {
		t.Errorf("the mean is %.0f ns", mean)
	}
	if float64(most)/float64(least) > paretoRange || float64(most)/float64(least) < 0.9*paretoRange {
		t.Errorf("from %v to %v", least, most)
	}
	if d := p.draw(rand.New(rand.NewPCG(1, 2)).Float64()); d < least || d > most {
		t.Errorf("drew %v", d)
	}
}

func TestShareLagCountsWhatIsNotAccepted(t *testing.T) {
	f := &Filled{Ends: []int64{10, 10, 10, 10}}
	type partition = kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition
	resp := &kmsg.DescribeShareGroupOffsetsResponse{Version: 1, Groups: []kmsg.DescribeShareGroupOffsetsResponseGroup{{
		Topics: []kmsg.DescribeShareGroupOffsetsResponseGroupTopic{{Partitions: []partition{
			{Partition: 0, StartOffset: 2, Lag: 0},   // all accepted, though the start has not been written
			{Partition: 1, StartOffset: 2, Lag: 3},   // 3 are open
			{Partition: 2, StartOffset: -1, Lag: -1}, // nothing is known: 10 are open
			{Partition: 3, StartOffset: 4, Lag: -1},  // a lag that is not known: 6 are open
		}}},
	}}}
	if open, err := shareLag(resp, f); err != nil || open != 19 {
		t.Errorf("%d are open, %v", open, err)
	}
	resp.Groups[0].Topics[0].Partitions[1].ErrorCode = 3
	if _, err := shareLag(resp, f); err == nil {
		t.Error("a partition's error was not seen")
	}
}
