package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine is where something was measured, and with what.
type Machine struct {
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"` // that Go uses
	Memory int64   `json:"memory_bytes,omitempty"`
	System string  `json:"system"`
	Go     string  `json:"go"`
	Commit string  `json:"commit,omitempty"`
	Load   float64 `json:"load"` // the average of the minute before: above 0.5, others were at work as well
}

// ThisMachine describes the machine at this moment. What the system does not tell is left empty.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	m.CPU = valueOf("/proc/cpuinfo", "model name")
	if kb, _, ok := strings.Cut(valueOf("/proc/meminfo", "MemTotal"), " "); ok {
		n, _ := strconv.ParseInt(kb, 10, 64)
		m.Memory = n << 10
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + string(bytes.TrimSpace(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _ = strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				m.Commit = s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				m.Commit += "+"
			}
		}
	}
	return m
}

// valueOf is what stands behind the first "key:" of a file of such lines.
func valueOf(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	for s.Scan() {
		k, v, _ := strings.Cut(s.Text(), ":")
		if strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// String is a line for people.
func (m Machine) String() string {
	s := fmt.Sprintf("%d cores", m.Cores)
	if m.CPU != "" {
		s += " of " + m.CPU
	}
	if m.Memory > 0 {
		s += fmt.Sprintf(", %.0f GiB", float64(m.Memory)/(1<<30))
	}
	s += ", " + m.System + ", " + m.Go
	if m.Load > 0 {
		s += fmt.Sprintf(", load %.1f before", m.Load)
	}
	return s
}
