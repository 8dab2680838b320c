package schedule

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Log is what happened in a round, a line each. It is safe for use by several goroutines.
type Log struct {
	mu    sync.Mutex
	from  time.Time
	lines []string
	tell  func(string)
}

// NewLog begins a log now. tell, if not nil, hears of each line as well.
func NewLog(tell func(line string)) *Log { return &Log{from: time.Now(), tell: tell} }

// Printf adds a line, with the time since the log began.
func (l *Log) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Sprintf("%8.3fs ", time.Since(l.from).Seconds()) + fmt.Sprintf(format, args...)
	l.lines = append(l.lines, line)
	if l.tell != nil {
		l.tell(line)
	}
}

// String is all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n") + "\n"
}
