package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// machine says in a line where the figures come from.
func machine() string {
	parts := []string{
		runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		fmt.Sprint(runtime.NumCPU(), " processors"),
		"Kafka " + kafkatest.KafkaVersion,
	}
	if brokers := os.Getenv(kafkatest.BrokersEnv); brokers != "" {
		parts[2] = "Kafka at " + brokers
	}
	for _, command := range []string{"java", "python3"} {
		// The words of a command that is not there are in the rows that need it.
		if text, err := exec.Command(command, "--version").Output(); err == nil {
			first, _, _ := strings.Cut(string(text), "\n")
			parts = append(parts, strings.TrimSpace(first))
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		if averages := strings.Fields(string(load)); len(averages) > 2 {
			parts = append(parts, "load average at the start "+strings.Join(averages[:3], " "))
		}
	}
	return strings.Join(parts, ", ")
}
