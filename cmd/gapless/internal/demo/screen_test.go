package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// busySnapshot has wide numbers, and more partitions than a small screen has lines.
func busySnapshot(partitions int) snapshot {
	s := snapshot{at: 83 * time.Second, total: 200_000, produced: 199_999, handled: 190_000, rate: 123_456, lag: 999_999, inFlight: 128, retrying: 77}
	for _, name := range []string{"A", "B"} {
		s.members = append(s.members, memberRow{name: name, limit: 1000, running: 999, partitions: partitions / 2, healthy: true, present: true})
	}
	for range partitions {
		s.partitions = append(s.partitions, partitionRow{owner: "A", lag: 999_999, inFlight: 64, retrying: 12, frontier: 19_999_999, committed: 19_999_999, rate: 123_456})
	}
	for i := range 9 {
		s.story = append(s.story, event{time.Duration(i) * time.Second, "all is handled and committed; now the records are counted"})
	}
	return s
}

func TestFrameFitsTheScreen(t *testing.T) {
	v := &tableView{o: options{partitions: 100, workers: 256, order: "partition"}}
	for _, partitions := range []int{1, 8, 40, 1000} {
		frame := v.frame(busySnapshot(partitions), 24)
		if len(frame) > 23 {
			t.Errorf("%d partitions: %d lines", partitions, len(frame))
		}
		for _, r := range frame {
			if n := len([]rune(r.text)); n > 80 {
				t.Errorf("%d columns: %s", n, r.text)
			}
		}
		more := fmt.Sprintf("and %s more", number(partitions-8))
		if shown := strings.Contains(fmt.Sprint(frame), more); shown != (partitions > 9) {
			t.Errorf("%d partitions: %q shown: %v\n%v", partitions, more, shown, frame)
		}
	}
}

// A frame goes over the last one, line by line; only a change of the width clears the screen.
func TestDraw(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "tty"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &screen{f: f}
	drawn := func(width int, lines ...string) string {
		before, _ := os.ReadFile(f.Name())
		var frame []row
		for _, l := range lines {
			frame = append(frame, row{text: l})
		}
		s.draw(frame, width, 4)
		after, _ := os.ReadFile(f.Name())
		got := strings.TrimPrefix(string(after), string(before))
		got = strings.TrimSuffix(strings.TrimPrefix(got, syncBegin+hideCursor), clearBelow+syncEnd)
		return got
	}
	for _, c := range []struct{ got, want string }{
		{drawn(8, "one", "twelve chars"), "one" + clearLine + "\r\ntwelve c\r\n"},
		{drawn(8, "1"), "\x1b[2A\r1" + clearLine + "\r\n"},
		{drawn(8, "1", "2", "3", "4"), "\x1b[1A\r1" + clearLine + "\r\n2" + clearLine + "\r\n3" + clearLine + "\r\n"},
		{drawn(9, "1"), clearAll + "1" + clearLine + "\r\n"},
	} {
		if c.got != c.want {
			t.Errorf("%q, not %q", c.got, c.want)
		}
	}
}
