package window

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	topicA = [16]byte{0x3f, 0x1c, 0x9a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	storeA = [16]byte{0x5f, 0x3a, 0xee, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
)

func full() Window {
	return Window{
		TopicID: topicA, Partitions: 12, Frontier: 1200, Highest: 1900, Undone: []int64{1200, 1311, 1500},
		Epochs: []Epoch{{1100, 7}, {1400, 8}}, Store: storeA, StoreSeq: 8812,
		Unclean: 2, Trying: 1200, Tries: 1, BypassBelow: 1250,
	}
}

func mustDecode(t testing.TB, text []byte) Window {
	t.Helper()
	w, err := Decode(string(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return w
}

func TestRoundTrip(t *testing.T) {
	for name, w := range map[string]Window{
		"full":      full(),
		"nothing":   {Highest: -1, Trying: -1},
		"idle":      {TopicID: topicA, Partitions: 1, Frontier: 5, Highest: 4, Trying: -1},
		"cut":       {Frontier: 5, Highest: 4, Trying: -1, Cut: true},
		"below":     {Frontier: 500, Highest: 499, Epochs: []Epoch{{100, -1}, {200, 0}, {300, math.MaxInt32}}, Trying: -1},
		"extreme":   {Frontier: 0, Highest: math.MaxInt64 - 1, Undone: []int64{0, math.MaxInt64 - 2}, Trying: math.MaxInt64, Tries: math.MaxUint32, Epochs: []Epoch{{0, math.MaxInt32}, {math.MaxInt64 - 1, -1}}, BypassBelow: math.MaxInt64, Unclean: math.MaxUint32, Partitions: math.MaxInt32, Store: storeA, StoreSeq: math.MaxUint64},
		"frontier":  {Frontier: math.MaxInt64, Highest: math.MaxInt64 - 1, Trying: -1},
		"new store": {Store: storeA, Highest: -1, Trying: 0, Tries: 1},
	} {
		if got := mustDecode(t, w.Append(nil, 0)); !reflect.DeepEqual(got, w) {
			t.Errorf("%s: got %+v, want %+v", name, got, w)
		}
		raw := w.AppendBinary([]byte("before"))[6:]
		if got, err := DecodeBinary(raw); err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, w)
		}
	}
}

// What is not worth a field, or contradicts itself, is written as what a reader may rely on.
func TestWrittenForm(t *testing.T) {
	claimsNothing := Window{Frontier: 10, Highest: 9, Trying: -1, Cut: true}
	for name, c := range map[string]struct{ in, want Window }{
		"zero value":        {Window{}, Window{Highest: -1, Trying: -1}},
		"nothing beyond":    {Window{Frontier: 10, Highest: 10, Undone: []int64{10, 11}}, Window{Frontier: 10, Highest: 9, Trying: -1}},
		"never tried":       {Window{Frontier: 10, Trying: 10}, Window{Frontier: 10, Highest: 9, Trying: -1}},
		"seq without store": {Window{Frontier: 10, StoreSeq: 7}, Window{Frontier: 10, Highest: 9, Trying: -1}},
		"runs beyond":       {Window{Frontier: 10, Highest: 9, Epochs: []Epoch{{9, 1}, {10, 2}}}, Window{Frontier: 10, Highest: 9, Epochs: []Epoch{{9, 1}}, Trying: -1}},

		"frontier not listed": {Window{Frontier: 10, Highest: 20, Undone: []int64{11}}, claimsNothing},
		"none listed":         {Window{Frontier: 10, Highest: 20}, claimsNothing},
		"not ascending":       {Window{Frontier: 10, Highest: 20, Undone: []int64{10, 15, 12}}, claimsNothing},
		"twice":               {Window{Frontier: 10, Highest: 20, Undone: []int64{10, 15, 15}}, claimsNothing},
		"highest undone":      {Window{Frontier: 10, Highest: 20, Undone: []int64{10, 20}, Epochs: []Epoch{{1, 1}}}, claimsNothing},
		"no next offset":      {Window{Frontier: 10, Highest: math.MaxInt64, Undone: []int64{10}}, claimsNothing},
		"runs not ascending":  {Window{Frontier: 10, Highest: 20, Undone: []int64{10}, Epochs: []Epoch{{5, 1}, {5, 2}}}, claimsNothing},
		"negative run":        {Window{Frontier: 10, Highest: 20, Undone: []int64{10}, Epochs: []Epoch{{-5, 1}}}, claimsNothing},
		"no leader epoch":     {Window{Frontier: 10, Highest: 20, Undone: []int64{10}, Epochs: []Epoch{{5, -2}}}, claimsNothing},
	} {
		if got := mustDecode(t, c.in.Append(nil, 0)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	negative := Window{Frontier: -1, Highest: -2}
	if got := negative.Append(nil, 0); got != nil {
		t.Errorf("a negative frontier: wrote %q", got)
	}
	if got := negative.AppendBinary(nil); got != nil {
		t.Errorf("a negative frontier: wrote %q", got)
	}
}

func TestSettled(t *testing.T) {
	w := full()
	for _, c := range []struct {
		offset      int64
		leaderEpoch int32
		want        bool
	}{
		{1099, 7, false}, // below all runs
		{1100, 7, true}, {1199, 7, true}, {1199, 8, false},
		{1200, 7, false}, // the frontier
		{1201, 7, true}, {1201, -1, false}, {1201, 6, false},
		{1311, 7, false}, // listed
		{1399, 7, true}, {1400, 7, false}, {1400, 8, true},
		{1900, 8, true}, {1901, 8, false},
	} {
		if got := w.Settled(c.offset, c.leaderEpoch); got != c.want {
			t.Errorf("%d at %d: %v", c.offset, c.leaderEpoch, got)
		}
	}
	unknown := Window{Frontier: 10, Highest: 9, Epochs: []Epoch{{0, -1}}}
	if !unknown.Settled(5, -1) {
		t.Error("a log without leader epochs has no window")
	}
	if unknown.Settled(5, 0) {
		t.Error("an epoch that became known is taken as the same")
	}
	if zero := (Window{}); zero.Settled(0, 0) || zero.Settled(-1, 0) || zero.Done(0) {
		t.Error("the zero value claims something")
	}
}

func TestSame(t *testing.T) {
	known, unknown := Window{TopicID: topicA}, Window{}
	if !known.Same(topicA) || known.Same(storeA) || known.Same([16]byte{}) || unknown.Same(topicA) || unknown.Same([16]byte{}) {
		t.Error("a topic is the same only if both ids are known and equal")
	}
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		w               Window
		settled, undone int64
	}{
		{full(), 698, 3},
		{Window{}, 0, 0},
		{Window{Frontier: 10, Highest: 9}, 0, 0},
		{Window{Frontier: 10, Highest: 11, Undone: []int64{10}}, 1, 1},
	} {
		if settled, undone := c.w.Counts(); settled != c.settled || undone != c.undone {
			t.Errorf("%v: %d settled, %d undone", &c.w, settled, undone)
		}
	}
}

func TestString(t *testing.T) {
	w := full()
	want := "next 1,200; settled beyond up to 1,900 except 3 (1,200 1,311 1,500); leader epoch 7 from 1,100, 8 from 1,400; topic 3f1c…; " +
		"claimed when it had 12 partitions; store 5f3a… at 8,812; 2 unclean ends; 1 announced start at 1,200; business marks bypassed below 1,250"
	if got := w.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	long := Window{Frontier: 0, Highest: 100, Cut: true}
	for i := range int64(10) {
		long.Undone = append(long.Undone, 2*i)
		long.Epochs = append(long.Epochs, Epoch{i, int32(i)})
	}
	want = "next 0; settled beyond up to 100 except 10 (0 2 4 6 8 10 12 14 …); shortened; leader epoch 0 from 0, 1 from 1, 2 from 2, 3 from 3, 4 from 4, 5 from 5, 6 from 6, 7 from 7, …"
	if got := long.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := (&Window{Frontier: -1, Highest: -2}).String(); got != "next -1" {
		t.Errorf("got %s", got)
	}
}

// C5: what is damaged, or of another program, claims nothing.
// Seen at confluentinc/parallel-consumer#62.
func TestForeignAndDamaged(t *testing.T) {
	w := full()
	good := string(w.Append(nil, 0))
	for metadata, want := range map[string]error{
		"":                                 ErrNone,
		"consumer-7f3":                     ErrNone,
		"{\"gapless\":1}":                  ErrNone,
		"gapless":                          ErrNone,
		"Gapless:1:":                       ErrNone,
		"gapless:":                         ErrDamaged,
		"gapless:1":                        ErrDamaged,
		"gapless:1:":                       ErrDamaged,
		"gapless::":                        ErrDamaged,
		"gapless:0:":                       ErrDamaged,
		"gapless:+1:":                      ErrDamaged,
		"gapless:-1:":                      ErrDamaged,
		"gapless:x:":                       ErrDamaged,
		"gapless:99999999999999999999:AAA": ErrDamaged,
		"gapless:2:":                       ErrVersion,
		"gapless:12:~~~":                   ErrVersion,
		good + "=":                         ErrDamaged,
		good + "\n":                        ErrDamaged,
		good + "A":                         ErrDamaged,
		strings.ToUpper(good[10:]):         ErrNone,
		good[:30] + "\x00" + good[31:]:     ErrDamaged,
		"gapless:01:" + good[len(prefix):]: ErrDamaged,
	} {
		got, err := Decode(metadata)
		if !errors.Is(err, want) || !reflect.DeepEqual(got, nothing) {
			t.Errorf("%q: %+v, %v, want %v", metadata, got, err, want)
		}
	}
	for n := len(prefix); n < len(good); n++ {
		if _, err := Decode(good[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut off at %d: %v", n, err)
		}
	}
	raw := w.AppendBinary(nil)
	for i := range raw {
		for bit := range 8 {
			bad := slices.Clone(raw)
			bad[i] ^= 1 << bit
			if _, err := DecodeBinary(bad); !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
	if _, err := DecodeBinary(nil); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// Forms with a good checksum that no writer of this version writes.
func TestWellSummedNonsense(t *testing.T) {
	id := string(topicA[:])
	huge := strings.Repeat("\xff", 8) + "\x7f" // the highest int64
	for name, c := range map[string]struct {
		body string
		want error
	}{
		"version 0":              {"\x00\x00\x05", ErrDamaged},
		"version 2":              {"\x02anything", ErrVersion},
		"no flags":               {"\x01", ErrDamaged},
		"no frontier":            {"\x01\x00", ErrDamaged},
		"new flag":               {"\x01\x80\x04\x05", ErrVersion},
		"highest flag":           {"\x01" + strings.Repeat("\xff", 9) + "\x01\x05", ErrVersion},
		"left over":              {"\x01\x00\x05\x00", ErrDamaged},
		"long number":            {"\x01\x00\x85\x00", ErrDamaged},
		"number over 64 bits":    {"\x01\x00" + strings.Repeat("\xff", 10) + "\x01", ErrDamaged},
		"negative frontier":      {"\x01\x00" + strings.Repeat("\xff", 9) + "\x01", ErrDamaged},
		"topic of zeros":         {"\x01\x01\x05" + strings.Repeat("\x00", 16), ErrDamaged},
		"half a topic":           {"\x01\x01\x05" + id[:8], ErrDamaged},
		"no partitions":          {"\x01\x02\x05\x00", ErrDamaged},
		"too many partitions":    {"\x01\x02\x05\x80\x80\x80\x80\x08", ErrDamaged},
		"no store":               {"\x01\x04\x05" + strings.Repeat("\x00", 16) + "\x01", ErrDamaged},
		"no runs":                {"\x01\x08\x05\x00", ErrDamaged},
		"a run at the frontier":  {"\x01\x08\x05\x01\x00\x02", ErrDamaged},
		"a run below zero":       {"\x01\x08\x05\x01\x0b\x02", ErrDamaged},
		"leader epoch -2":        {"\x01\x08\x05\x01\x09\x03", ErrDamaged},
		"leader epoch falls":     {"\x01\x08\x05\x02\x09\x00\x00\x03", ErrDamaged},
		"leader epoch over":      {"\x01\x08\x05\x01\x09\x80\x80\x80\x80\x10", ErrDamaged},
		"leader epoch far over":  {"\x01\x08\x05\x02\x09\x02\x00" + strings.Repeat("\xff", 9) + "\x01", ErrDamaged},
		"more runs than bytes":   {"\x01\x08\x05" + huge + "\x09\x02", ErrDamaged},
		"no undone":              {"\x01\x10\x05\x00\x01", ErrDamaged},
		"more undone than bytes": {"\x01\x10\x05" + huge + "\x01\x01\x01", ErrDamaged},
		"undone missing":         {"\x01\x10\x05\x03\x01\x01", ErrDamaged},
		"undone over":            {"\x01\x10\x05\x02\x01" + huge, ErrDamaged},
		"highest over":           {"\x01\x10\x05\x01" + huge, ErrDamaged},
		"no unclean":             {"\x01\x40\x05\x00", ErrDamaged},
		"no tries":               {"\x01\x80\x01\x05\x05\x00", ErrDamaged},
		"no bypass":              {"\x01\x80\x02\x05\x00", ErrDamaged},
	} {
		got, err := DecodeBinary(sum([]byte(c.body)))
		if !errors.Is(err, c.want) || !reflect.DeepEqual(got, nothing) {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
		}
	}
	// The text names the version as well, so that it can be read without decoding; the two must agree.
	text := string(armour.AppendEncode([]byte(prefix), sum([]byte("\x02anything"))))
	if _, err := Decode(text); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	text = string(armour.AppendEncode([]byte(prefix), sum([]byte("\x01\x80\x04\x05"))))
	if _, err := Decode(text); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
}

// A length that lies must not be allocated.
func TestDecodeAllocates(t *testing.T) {
	body := []byte("\x01\x10\x05\xff\xff\xff\x7f\x01\x01\x01")
	if n := testing.AllocsPerRun(100, func() { DecodeBinary(sum(slices.Clone(body))) }); n > 6 {
		t.Errorf("%v allocations", n)
	}
}

// model is a log as a list, with nothing clever: what was delivered, under which leader epoch, and what is settled.
type model struct {
	offset      []int64
	leaderEpoch []int32
	settled     []bool
}

func randomModel(r *rand.Rand) (m model) {
	offset, leaderEpoch := r.Int64N(1<<uint(r.IntN(40))), int32(r.IntN(5))-1
	density, change, jump := r.Float64(), r.Float64()*r.Float64(), r.IntN(12)
	for range r.IntN(60) {
		offset += 1 + r.Int64N(1<<uint(r.IntN(jump+1)))
		if r.Float64() < change {
			leaderEpoch += 1 + int32(r.IntN(100))
		}
		m.offset = append(m.offset, offset)
		m.leaderEpoch = append(m.leaderEpoch, leaderEpoch)
		m.settled = append(m.settled, r.Float64() < density)
	}
	return m
}

// window is what a writer says of the model; runs begin a little below the frontier.
func (m *model) window(r *rand.Rand) Window {
	w := Window{Trying: -1}
	first := 0
	for first < len(m.offset) && m.settled[first] {
		first++
	}
	if first < len(m.offset) {
		w.Frontier = m.offset[first]
	} else if first > 0 {
		w.Frontier = m.offset[first-1] + 1
	}
	w.Highest = w.Frontier - 1
	for i := first; i < len(m.offset); i++ {
		if m.settled[i] {
			w.Highest = m.offset[i]
		}
	}
	for i := range m.offset {
		if i >= first && m.offset[i] < w.Highest && !m.settled[i] {
			w.Undone = append(w.Undone, m.offset[i])
		}
	}
	for i := max(0, first-r.IntN(8)); i < len(m.offset) && m.offset[i] <= w.Highest; i++ {
		if n := len(w.Epochs); n == 0 || w.Epochs[n-1].LeaderEpoch != m.leaderEpoch[i] {
			w.Epochs = append(w.Epochs, Epoch{m.offset[i], m.leaderEpoch[i]})
		}
	}
	if r.IntN(2) == 0 {
		w.TopicID = topicA
	}
	if r.IntN(2) == 0 {
		w.Store, w.StoreSeq = storeA, r.Uint64N(1<<uint(r.IntN(64)))
	}
	if r.IntN(3) == 0 {
		w.Unclean = r.Uint32()>>uint(r.IntN(31)) | 1
		w.Trying, w.Tries = w.Frontier, 1+uint32(r.IntN(9))
	}
	if r.IntN(5) == 0 {
		w.BypassBelow = 1 + r.Int64N(1<<40)
	}
	w.Partitions = int32(r.IntN(300))
	w.Cut = r.IntN(10) == 0
	return w
}

// lowered is the window as a reader who lists only the first n undone offsets would have it, by trying every offset.
func lowered(w Window, n int) Window {
	if n == len(w.Undone) {
		return w
	}
	next := w.Undone[n]
	w.Cut, w.Undone = true, slices.Clone(w.Undone[:n])
	w.Highest = next - 1
	for len(w.Undone) > 0 && w.Undone[len(w.Undone)-1] == w.Highest {
		w.Highest--
		w.Undone = w.Undone[:len(w.Undone)-1]
	}
	if w.Highest < w.Frontier {
		w.Highest, w.Undone = w.Frontier-1, nil
	}
	var runs []Epoch
	for _, e := range w.Epochs {
		if e.First <= w.Highest {
			runs = append(runs, e)
		}
	}
	w.Epochs = runs
	return w
}

// Whatever the limit: it is kept, nothing that is not settled is claimed, as much as fits is claimed, and the base is whole.
func TestShortenedWindowsClaimNothingUndone(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	rounds, shortened, runsLost := 10_000, 0, 0
	for range rounds {
		m := randomModel(r)
		w := m.window(r)
		before := fmt.Sprintf("%+v", w)
		limit := 1 + r.IntN(200)
		text := w.Append(nil, limit)
		if fmt.Sprintf("%+v", w) != before {
			t.Fatalf("Append changed the window %s", before)
		}
		base := w
		base.Highest, base.Undone, base.Epochs = w.Frontier-1, nil, nil
		if len(text) == 0 {
			if n := len(base.Append(nil, 0)); n <= limit {
				t.Fatalf("nothing written for %+v, of which the base takes %d of %d", w, n, limit)
			}
			continue
		}
		if len(text) > limit {
			t.Fatalf("%d bytes for a limit of %d", len(text), limit)
		}
		got := mustDecode(t, text)

		for i, o := range m.offset {
			for _, leaderEpoch := range []int32{m.leaderEpoch[i], m.leaderEpoch[i] - 1, m.leaderEpoch[i] + 1, -1} {
				claimed := got.Settled(o, leaderEpoch)
				if claimed && (!m.settled[i] || leaderEpoch != m.leaderEpoch[i]) {
					t.Fatalf("%d at leader epoch %d is claimed by %v,\nwhich was %v, limit %d", o, leaderEpoch, &got, &w, limit)
				}
				if claimed && !w.Settled(o, leaderEpoch) {
					t.Fatalf("%d is claimed by the shortened one only", o)
				}
			}
		}

		best := lowered(w, 0)
		if len(w.Undone) == 0 {
			best = w
		}
		fits := len(best.Append(nil, 0)) <= limit
		for n := range len(w.Undone) + 1 {
			if c := lowered(w, n); len(c.Append(nil, 0)) <= limit {
				best, fits = c, true
			}
		}
		if !fits { // not even the runs below the frontier
			runsLost++
			best.Cut = true
			for len(best.Append(nil, 0)) > limit {
				best.Epochs = best.Epochs[1:]
			}
		}
		if len(best.Epochs) == 0 {
			best.Epochs = nil
		}
		if !reflect.DeepEqual(got, best) {
			t.Fatalf("limit %d:\n got %+v\nbest %+v\nfrom %+v", limit, got, best, w)
		}
		if got.Cut && !w.Cut {
			shortened++
		}
	}
	if shortened < rounds/20 || runsLost < 10 {
		t.Errorf("only %d of %d were shortened, %d of them lost runs: the test has no teeth", shortened, rounds, runsLost)
	}
}

// The page that describes the form for other readers has an example; this is the window that it says it is.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/resume-window.md")
	if err != nil {
		t.Fatal(err)
	}
	w := full()
	text := regexp.MustCompile(`gapless:1:[A-Za-z0-9_-]{20,}`).FindString(string(page))
	if got := string(w.Append(nil, 0)); got != text {
		t.Errorf("the page has %q, want %q", text, got)
	}
	var hex strings.Builder
	for _, row := range regexp.MustCompile("(?m)^\\| `([0-9a-f ]+)` \\|").FindAllSubmatch(page, -1) {
		hex.WriteString(strings.ReplaceAll(string(row[1]), " ", ""))
	}
	if got := fmt.Sprintf("%x", w.AppendBinary(nil)); got != hex.String() {
		t.Errorf("the page's rows are\n%s, want\n%s", hex.String(), got)
	}
	if words := w.String(); !strings.Contains(string(page), words) {
		t.Errorf("the page lacks %q", words)
	}
}
