package tracker

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts replays testdata. Each command prints its result and then the
// state of the tracker; go test -run Transcripts -rewrite writes the files anew.
//
//	new offset=<n> epoch=<n> span=<n>     add [epoch=<n>] <offset or first..last> ...
//	done <seq or first..last> ...         each is one Done, or one DoneRange
//	snapshot [limit=<n>]                  pass offset=<n>
//	rebase offset=<n> epoch=<n>           close
//	stats
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		tr := New(0, -1, Options{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			offset, epoch, span := int64(0), int32(-1), 0
			d.MaybeScanArgs(t, "offset", &offset)
			d.MaybeScanArgs(t, "epoch", &epoch)
			d.MaybeScanArgs(t, "span", &span)
			switch d.Cmd {
			case "new":
				tr = New(offset, epoch, Options{MaxSpan: span})
			case "add":
				var offsets []int64
				for _, r := range ranges(t, d) {
					for o := r[0]; o <= r[1]; o++ {
						offsets = append(offsets, o)
					}
				}
				s, err := tr.Add(offsets, epoch)
				if err != nil {
					fmt.Fprintln(&out, err)
				} else {
					fmt.Fprintf(&out, "%d records from seq %d on\n", len(offsets), s)
				}
			case "done":
				for _, r := range ranges(t, d) {
					if r[0] == r[1] {
						fmt.Fprintf(&out, "seq %d: %v\n", r[0], tr.Done(Seq(r[0])))
						continue
					}
					n := int(r[1] - r[0] + 1)
					fmt.Fprintf(&out, "seq %d..%d: %d of %d\n", r[0], r[1], tr.DoneRange(Seq(r[0]), n), n)
				}
			case "pass":
				tr.Pass(offset)
			case "rebase":
				tr.Rebase(offset, epoch)
			case "close":
				tr.Close()
			case "snapshot":
				var w Window
				d.MaybeScanArgs(t, "limit", &w.Limit)
				tr.Snapshot(&w)
				fmt.Fprintf(&out, "window: frontier %d, highest %d, undone %d, epochs %v, cut %v\n",
					w.Frontier, w.Highest, w.Undone, w.Epochs, w.Cut)
			case "stats":
				return fmt.Sprintf("%+v\n", tr.Stats())
			default:
				d.Fatalf(t, "unknown command")
			}
			f, e := tr.Frontier()
			s, next := tr.Next()
			fmt.Fprintf(&out, "frontier %d (leader epoch %d), next seq %d at %d, span %d, pending %d, runs %d\n",
				f, e, s, next, tr.Span(), tr.Pending(), len(tr.runs.list)-tr.runs.head)
			return out.String()
		})
	})
}

// ranges returns the arguments without a key, each a number or first..last.
func ranges(t *testing.T, d *datadriven.TestData) (all [][2]int64) {
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) > 0 {
			continue
		}
		first, last, found := strings.Cut(arg.Key, "..")
		if !found {
			last = first
		}
		a, err := strconv.ParseInt(first, 10, 64)
		b, err2 := strconv.ParseInt(last, 10, 64)
		if err != nil || err2 != nil {
			d.Fatalf(t, "not a number or range: %s", arg.Key)
		}
		all = append(all, [2]int64{a, b})
	}
	return all
}
