package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Case is what one run measures: a log, a handler and the engine's settings. Make one with DefaultCase, and change it or Set its
// parameters by name.
type Case struct {
	// RecordBytes is the size of a value.
	RecordBytes int
	// Partitions of the topic.
	Partitions int
	// Keys says how many keys there are, and how often each comes.
	Keys Keys
	// Nulls is the share of records without a value (tombstones).
	Nulls float64
	// Compression is the codec of the log: none, gzip, snappy, lz4 or zstd.
	Compression string
	// Rate is how many records a second are produced while they are consumed; latency is then measured from when each
	// should have been sent. 0 = the log is there already, and it is consumed as fast as possible.
	Rate float64
	// Records is how many there are in the log; a run then ends when all are committed (lag 0). 0 = the log has no end, and a run
	// takes as long as Config.Duration says.
	Records int64

	// Handler is what is done with a record, or with a batch.
	Handler Handler
	// Fail is the share of records whose first attempt fails. They are tried again after 100 ms.
	Fail float64
	// Stuck is how many partitions have a record at their head whose handler returns only at the end of the run.
	Stuck int
	// Batch is the most records of a batch. 0 = the handler gets single records.
	Batch int

	// Workers is how many handlers run at once.
	Workers int
	// Order is the order within a partition.
	Order engine.Order
	// Commit says when offsets are committed.
	Commit Commit
	// Dedupe is which layers against redelivery and duplicates are on.
	Dedupe Dedupe
	// Members is how many engines share the group, and with it the partitions.
	Members int
}

// Dedupe names the layers that are on.
type Dedupe string

// The layers.
const (
	DedupeNone       Dedupe = "none"       // commits carry offsets only
	DedupeWindows    Dedupe = "windows"    // the engine's default: what is settled beyond the offset goes with the commit
	DedupeStore      Dedupe = "store"      // a store on disk that keeps the windows as well
	DedupeKeys       Dedupe = "keys"       // and business keys, all of them new
	DedupeDuplicates Dedupe = "duplicates" // and business keys, half of which came before
)

// Commit says when offsets are committed. The zero value is the engine's default, once a second.
type Commit struct {
	Every   time.Duration // 0 = not by time
	Records int           // after so many settled records; 0 = not by count
	Each    bool          // after every settled record, one request at a time
}

// String is the form that Case.Set takes: 1s, records:1000 or each.
func (c Commit) String() string {
	switch {
	case c.Each:
		return "each"
	case c.Records > 0:
		return "records:" + strconv.Itoa(c.Records)
	case c.Every == 0:
		return time.Second.String()
	}
	return c.Every.String()
}

// interval is the time between two commits of a loop that knows no other policy.
func (c Commit) interval() time.Duration {
	if c.Each || c.Records > 0 {
		return 0
	}
	return cmp.Or(c.Every, time.Second)
}

// DefaultCase is a log without end of 100 byte records with 10,000 keys in 12 partitions, a handler that does nothing, and the engine's
// defaults.
func DefaultCase() Case {
	return Case{RecordBytes: 100, Partitions: 12, Keys: Keys{Kind: KeysUniform, N: 10_000}, Compression: "none",
		Handler: Handler{Kind: HandlerNone}, Workers: 64, Order: engine.OrderKey, Commit: Commit{Every: time.Second}, Dedupe: DedupeWindows, Members: 1}
}

// Param is a parameter of a Case: it can be set by name, and a sweep can go through several values of it.
type Param struct {
	Name    string
	Usage   string
	Section string
	set     func(c *Case, value string) error
	show    func(c *Case) string
}

// The sections of Params.
const (
	SectionLog     = "The log"
	SectionHandler = "The handler"
	SectionEngine  = "The engine"
)

// params is the one place that ties names to the fields of a Case: flags, lists of a sweep, columns and labels come from it.
var params = []Param{
	{"workers", "handlers that run at once", SectionEngine,
		func(c *Case, s string) error { return whole(s, &c.Workers, 1, 1_000_000) }, func(c *Case) string { return strconv.Itoa(c.Workers) }},
	{"order", "order within a partition: key, unordered, partition", SectionEngine,
		func(c *Case, s string) error {
			return choice(s, &c.Order, engine.OrderKey, engine.OrderUnordered, engine.OrderPartition)
		}, func(c *Case) string { return string(c.Order) }},
	{"handler", "none, sleep:2ms, exp:2ms (exponential, mean), pareto:2ms or pareto:2ms:1.5 (mean, shape), bykey:2ms (each key its own time), cpu:10us, json, http:2ms (a local server)", SectionHandler,
		func(c *Case, s string) (err error) { c.Handler, err = ParseHandler(s); return err }, func(c *Case) string { return c.Handler.String() }},
	{"batch", "records of a batch; 0 = single records", SectionHandler,
		func(c *Case, s string) error { return whole(s, &c.Batch, 0, 100_000) }, func(c *Case) string { return strconv.Itoa(c.Batch) }},
	{"fail", "share of records whose first attempt fails", SectionHandler,
		func(c *Case, s string) error { return share(s, &c.Fail) }, func(c *Case) string { return trim(c.Fail) }},
	{"stuck", "partitions whose first record is stuck until the end", SectionHandler,
		func(c *Case, s string) error { return whole(s, &c.Stuck, 0, 100_000) }, func(c *Case) string { return strconv.Itoa(c.Stuck) }},
	{"record-bytes", "size of a value", SectionLog,
		func(c *Case, s string) error { return whole(s, &c.RecordBytes, 1, 900_000) }, func(c *Case) string { return strconv.Itoa(c.RecordBytes) }},
	{"partitions", "partitions of the topic", SectionLog,
		func(c *Case, s string) error { return whole(s, &c.Partitions, 1, 100_000) }, func(c *Case) string { return strconv.Itoa(c.Partitions) }},
	{"keys", "uniform:10000, zipf:10000:1.1 (exponent), hot:10000:0.5 (one key has this share), none", SectionLog,
		func(c *Case, s string) (err error) { c.Keys, err = ParseKeys(s); return err }, func(c *Case) string { return c.Keys.String() }},
	{"nulls", "share of records without a value", SectionLog,
		func(c *Case, s string) error { return share(s, &c.Nulls) }, func(c *Case) string { return trim(c.Nulls) }},
	{"compression", "of the log: none, gzip, snappy, lz4, zstd", SectionLog,
		func(c *Case, s string) error {
			return choice(s, &c.Compression, "none", "gzip", "snappy", "lz4", "zstd")
		}, func(c *Case) string { return c.Compression }},
	{"rate", "records produced a second, for latency; 0 = they are there, to be consumed as fast as possible", SectionLog,
		func(c *Case, s string) error { return number(s, &c.Rate, 0, 1e8) }, func(c *Case) string { return trim(c.Rate) }},
	{"records", "records in the log, so that a run ends at lag 0; 0 = a log without end", SectionLog,
		func(c *Case, s string) error { return whole(s, &c.Records, 0, 10_000_000_000) }, func(c *Case) string { return strconv.FormatInt(c.Records, 10) }},
	{"commit", "when to commit: 1s (each second), records:1000, each", SectionEngine,
		func(c *Case, s string) (err error) { c.Commit, err = ParseCommit(s); return err }, func(c *Case) string { return c.Commit.String() }},
	{"dedupe", "none (plain commits), windows, store, keys (all new), duplicates (half of the keys came before)", SectionEngine,
		func(c *Case, s string) error {
			return choice(s, &c.Dedupe, DedupeNone, DedupeWindows, DedupeStore, DedupeKeys, DedupeDuplicates)
		}, func(c *Case) string { return string(c.Dedupe) }},
	{"members", "engines that share the group", SectionEngine,
		func(c *Case, s string) error { return whole(s, &c.Members, 1, 64) }, func(c *Case) string { return strconv.Itoa(c.Members) }},
}

// Params are the parameters of a Case, in the order of their importance.
func Params() []Param { return slices.Clone(params) }

// Default is the value that DefaultCase has.
func (p Param) Default() string {
	c := DefaultCase()
	return p.show(&c)
}

func paramOf(name string) (Param, error) {
	i := slices.IndexFunc(params, func(p Param) bool { return p.Name == name })
	if i < 0 {
		return Param{}, fmt.Errorf("there is no parameter %q", name)
	}
	return params[i], nil
}

// Set sets a parameter by its name. The error says what to write instead.
func (c *Case) Set(name, value string) error {
	p, err := paramOf(name)
	if err != nil {
		return err
	}
	if err := p.set(c, strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("%s %q: %w", name, value, err)
	}
	return nil
}

// Get is a parameter in the form that Set takes; "" if there is none of that name.
func (c *Case) Get(name string) string {
	p, err := paramOf(name)
	if err != nil {
		return ""
	}
	return p.show(c)
}

// Values are all parameters by name, in the form that Set takes.
func (c *Case) Values() map[string]string {
	m := make(map[string]string, len(params))
	for _, p := range params {
		m[p.Name] = p.show(c)
	}
	return m
}

// jsonBytes is the least size of a value that is JSON whatever its number.
const jsonBytes = 64

// validate looks at what single parameters can't know.
func (c *Case) validate() error {
	switch {
	case c.Rate > 0 && c.Records > 0:
		return fmt.Errorf("rate and records exclude one another: with a rate, records are produced as long as the run takes")
	case c.Stuck > c.Partitions:
		return fmt.Errorf("stuck %d: there are %d partitions; write at most as many", c.Stuck, c.Partitions)
	case c.Batch > 0 && c.Handler.Kind == HandlerByKey:
		return fmt.Errorf("handler %s goes by the key of a single record; with batch write sleep, exp or pareto", c.Handler)
	case c.RecordBytes < jsonBytes && c.Handler.Kind == HandlerJSON:
		return fmt.Errorf("record-bytes %d: handler json needs values of %d bytes and more", c.RecordBytes, jsonBytes)
	case c.Nulls > 0 && c.Handler.Kind == HandlerJSON:
		return fmt.Errorf("handler json can't decode records without a value; leave nulls at 0")
	}
	return nil
}

// grid is every combination of the lists, on top of a case.
func grid(base Case, lists map[string][]string) ([]Case, error) {
	cases := []Case{base}
	for name := range lists {
		if _, err := paramOf(name); err != nil {
			return nil, err
		}
	}
	for i := len(params) - 1; i >= 0; i-- { // so that the first parameter varies fastest
		values, ok := lists[params[i].Name]
		if !ok {
			continue
		}
		var next []Case
		for _, c := range cases {
			for _, v := range values {
				one := c
				if err := one.Set(params[i].Name, v); err != nil {
					return nil, err
				}
				next = append(next, one)
			}
		}
		cases = next
	}
	for i := range cases {
		if err := cases[i].validate(); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// Grid is every combination of lists of parameter values, separated by commas, such as {"workers": "1,16,256", "order": "key,unordered"}.
// What is not named has the value of base. Workers vary fastest.
func Grid(base Case, lists map[string]string) ([]Case, error) {
	split := map[string][]string{}
	for name, list := range lists {
		split[name] = strings.Split(list, ",")
	}
	return grid(base, split)
}

// varied are the names of the parameters in which cases differ.
func varied(cases []Case) (names []string) {
	for _, p := range params {
		if slices.ContainsFunc(cases, func(c Case) bool { return p.show(&c) != p.show(&cases[0]) }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// ParseCommit reads 1s, records:1000 or each.
func ParseCommit(s string) (Commit, error) {
	if s == "each" {
		return Commit{Each: true}, nil
	}
	if n, ok := strings.CutPrefix(s, "records:"); ok {
		var c Commit
		err := whole(n, &c.Records, 1, 1_000_000_000)
		return c, err
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Millisecond {
		return Commit{}, fmt.Errorf("write a time such as 1s (at least 1ms), records:1000 or each")
	}
	return Commit{Every: d}, nil
}

func whole[T int | int64](s string, to *T, least, most T) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || T(n) < least || T(n) > most {
		return fmt.Errorf("write a whole number from %d to %d", least, most)
	}
	*to = T(n)
	return nil
}

func number(s string, to *float64, least, most float64) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= least && x <= most) {
		return fmt.Errorf("write a number from %s to %s", trim(least), trim(most))
	}
	*to = x
	return nil
}

func share(s string, to *float64) error {
	if err := number(s, to, 0, 1); err != nil {
		return fmt.Errorf("write a share from 0 to 1, such as 0.01")
	}
	return nil
}

func choice[T ~string](s string, to *T, allowed ...T) error {
	if !slices.Contains(allowed, T(s)) {
		names := make([]string, len(allowed))
		for i, a := range allowed {
			names[i] = string(a)
		}
		return fmt.Errorf("write one of %s", strings.Join(names, ", "))
	}
	*to = T(s)
	return nil
}

// trim is a number with no more digits than it needs.
func trim(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// codec is the client's codec of a name that has been checked.
func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}
