package main

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
)

// vitals are what a process says of itself. What can't be known here is -1: the open files and the resident memory are read from
// /proc, which Linux has.
type vitals struct {
	RSS        int64 `json:"rss_bytes"`
	Heap       int64 `json:"heap_bytes"` // live at the end of the last collection
	Runtime    int64 `json:"go_bytes"`   // all that the Go runtime holds of the system's memory
	Goroutines int64 `json:"goroutines"`
	Files      int64 `json:"open_files"`
	CPU        int64 `json:"cpu_ms"` // used since the start
}

func takeVitals() vitals {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/sched/goroutines:goroutines"},
	}
	metrics.Read(s)
	n := func(i int) int64 { return int64(s[i].Value.Uint64()) }
	return vitals{RSS: residentBytes(), Heap: n(0), Runtime: n(1) - n(2), Goroutines: n(3), Files: openFiles(), CPU: usedCPU()}
}

func openFiles() int64 {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return int64(len(names)) - 1 // the one that reads the directory
}

// residentBytes is the second number of statm, in pages.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return -1
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return -1
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return -1
	}
	return pages * int64(os.Getpagesize())
}

// usedCPU is the fourteenth and the fifteenth number of stat, in hundredths of a second; the second may have spaces in it.
func usedCPU() int64 {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return -1
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return -1
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	if err1 != nil || err2 != nil {
		return -1
	}
	return 10 * (user + system)
}
