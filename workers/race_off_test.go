//go:build !race

package workers

const raceDetector = false
