// Package task is what the parent process and an arm's process say to each other: key=value arguments one way, a line of JSON the
// other. Go, Java and Python arms speak it alike.
package task

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Task is one run of one arm.
type Task struct {
	Library   string
	Mode      string
	Bootstrap string
	Topic     string
	Group     string
	Ends      []int64       // the partitions' log ends; they begin at 0
	Workers   int           // handlers at once; 0: as many as the library does by itself
	Latency   int64         // as in ledger.Latency
	Patience  time.Duration // without a record, until an arm gives up
}

// Args are the arguments of the arm's process.
func (t *Task) Args() []string {
	ends := make([]string, len(t.Ends))
	for i, end := range t.Ends {
		ends[i] = strconv.FormatInt(end, 10)
	}
	return []string{
		"library=" + t.Library,
		"mode=" + t.Mode,
		"bootstrap=" + t.Bootstrap,
		"topic=" + t.Topic,
		"group=" + t.Group,
		"ends=" + strings.Join(ends, ","),
		"workers=" + strconv.Itoa(t.Workers),
		"latency=" + strconv.FormatInt(t.Latency, 10),
		"patience=" + strconv.FormatInt(t.Patience.Milliseconds(), 10),
	}
}

// Parse reads what Args wrote.
func Parse(args []string) (t Task, err error) {
	number := func(key, s string) (n int64) {
		n, e := strconv.ParseInt(s, 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("%s=%s: write a number", key, s)
		}
		return n
	}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return t, fmt.Errorf("%q: write key=value", arg)
		}
		switch key {
		case "library":
			t.Library = value
		case "mode":
			t.Mode = value
		case "bootstrap":
			t.Bootstrap = value
		case "topic":
			t.Topic = value
		case "group":
			t.Group = value
		case "ends":
			for _, s := range strings.Split(value, ",") {
				t.Ends = append(t.Ends, number(key, s))
			}
		case "workers":
			t.Workers = int(number(key, value))
		case "latency":
			t.Latency = number(key, value)
		case "patience":
			t.Patience = time.Duration(number(key, value)) * time.Millisecond
		default:
			return t, fmt.Errorf("an arm has no setting %q", key)
		}
	}
	return t, err
}

// Records is how many records the topic has.
func (t *Task) Records() (n int64) {
	for _, end := range t.Ends {
		n += end
	}
	return n
}

// An Outcome is what an arm saw itself: the last line of its standard output.
type Outcome struct {
	Distinct int64 `json:"distinct"` // records handled at least once
	Again    int64 `json:"again"`    // calls beyond the first of a record
	Strange  int64 `json:"strange"`  // calls for records that the topic does not have
	// CountedOnly says that the arm could count its records but not tell them apart.
	CountedOnly bool `json:"counted_only,omitempty"`

	Seconds   float64 `json:"seconds"`    // from the first handler's begin to the last one's end
	CPU       int64   `json:"cpu_ns"`     // of the arm's process meanwhile; 0: unknown
	HandlerNS int64   `json:"handler_ns"` // what the handlers took, all together; 0: not measured
	Peak      int64   `json:"peak"`       // handlers at once, at most; 0: not measured
	RSS       int64   `json:"rss"`        // the most memory the process had, in bytes; 0: unknown
	Error     string  `json:"error,omitempty"`
}
