//go:build !unix

package engine

import "time"

var benchBegan = time.Now()

// cpuTime is wall time where the system does not tell.
func cpuTime() time.Duration { return time.Since(benchBegan) }
