//go:build !unix

package workers

import "time"

var benchBegan = time.Now()

// cpu is wall time where the system does not tell.
func cpu() time.Duration {
	return time.Since(benchBegan)
}
