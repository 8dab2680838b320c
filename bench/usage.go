package bench

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"time"
)

// usage is what a process has used so far.
type usage struct {
	at     time.Time
	cpu    time.Duration
	allocs uint64
}

func usageNow() usage {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}}
	metrics.Read(s)
	return usage{at: time.Now(), cpu: cpuTime(), allocs: s[0].Value.Uint64() + s[1].Value.Uint64()}
}

// residentBytes is the memory that this process has; 0 where the system does not say.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}
