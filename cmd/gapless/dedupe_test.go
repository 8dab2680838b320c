package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/admin"
	"github.com/twmb/franz-go/pkg/kgo"
)

// orders produces a record for each id, which is in a header and, as text, in the JSON value. The partitions take turns.
func orders(t *testing.T, cl *kgo.Client, topic string, ids ...string) {
	t.Helper()
	for i, id := range ids {
		r := &kgo.Record{Topic: topic, Partition: int32(i % 3), Value: []byte(`{"order":{"id":"` + id + `"}}`), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// storeAt makes a store in which the orders A, B and C of topic t are marked, and says which flag names it.
func storeAt(t *testing.T, more ...string) (dir string) {
	t.Helper()
	b, cl := broker(t, "t")
	orders(t, cl, "t", "A", "B", "C")
	dir = filepath.Join(t.TempDir(), "store")
	must(t, "", append([]string{"run", b, "--group=g", "--topic=t", "--until-end", "--dedupe-key=header:id", "--dedupe-dir=" + dir}, more...)...)
	return dir
}

// spoilStore takes away what says which files belong to a store.
func spoilStore(t *testing.T, dir string) {
	t.Helper()
	markers, _ := filepath.Glob(filepath.Join(dir, "marker.*"))
	for _, m := range markers {
		if err := os.Remove(m); err != nil {
			t.Fatal(err)
		}
	}
	if len(markers) == 0 {
		t.Fatalf("%s is not a store", dir)
	}
}

// A business key is handled once, at whatever offsets and in whatever partitions it comes, over restarts.
func TestRunDedupeKey(t *testing.T) {
	for _, where := range []string{"header:id", "json:order.id"} {
		b, cl := broker(t, "t")
		base := t.TempDir()
		args := []string{"run", b, "--group=g", "--topic=t", "--until-end", "--dedupe-key=" + where, "--dedupe-base=" + base, "--log-level=warn"}
		orders(t, cl, "t", "A", "A", "B", "A", "C")
		first := command(t, "", nil, args...)
		if n := len(printedLines(t, first.out)); first.code != 0 || n != 3 {
			t.Errorf("%s: exit code %d, %d lines, want 3: %s", where, first.code, n, first.err)
		}
		if !strings.Contains(first.err, "dedupe store "+filepath.Join(base, "g", "0")+": 0 keys") || !strings.Contains(first.err, "opened in") || !strings.Contains(first.err, "duplicates 2") {
			t.Errorf("%s: %s", where, first.err)
		}
		orders(t, cl, "t", "B", "D", "C")
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("no JSON")}, &kgo.Record{Topic: "t", Value: []byte("no JSON")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		again := command(t, "", nil, append(args, "--json")...)
		if n := len(printedLines(t, again.out)); again.code != 0 || n != 3 { // D, and both without a key
			t.Errorf("%s: exit code %d, %d lines, want 3: %s", where, again.code, n, again.out)
		}
		lines := strings.Split(strings.TrimSpace(again.err), "\n")
		if p := decode[progress](t, lines[len(lines)-1]); p.Duplicates != 2 || !strings.Contains(again.err, ": 3 keys") || !strings.Contains(again.err, "dedupe_unkeyed") {
			t.Errorf("%s: %+v\n%s", where, p, again.err)
		}
	}
}

// What is asked of a closed store leaves it as it is: the process that opens it next goes on with its keys.
func TestDedupeClosed(t *testing.T) {
	dir := storeAt(t, "--dedupe-retention=7d")
	at := "--dir=" + dir
	st := decode[admin.StoreStats](t, must(t, "", "dedupe", "stats", at, "--json"))
	if st.Keys != 3 || st.RetentionSeconds != 7*86400 || len(st.Spans) != 1 || st.Spans[0].RetentionSeconds != 7*86400 || st.Process != nil || st.Created.IsZero() {
		t.Errorf("%+v", st)
	}
	text := must(t, "", "dedupe", "stats", at, "--rate=5000")
	for _, want := range []string{st.ID, "3 in 1 span", "MARKED FROM", " 7d", "5,000 new keys a second, remembered for 7d: up to 3,780,000,000 keys"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	k := decode[admin.StoreKey](t, must(t, "", "dedupe", "get", "A", at, "--group=g", "--topic=t", "--json"))
	if in := time.Duration(k.ExpiresIn) * time.Second; !k.Marked || k.Scope != "g\x00t" || in < 167*time.Hour || in > 168*time.Hour {
		t.Errorf("%+v", k)
	}
	for _, same := range [][]string{{"41", "--hex"}, {"QQ==", "--base64"}, {`"A"`, "--json-key"}} {
		if text := must(t, "", append([]string{"dedupe", "get", at, "--group=g", "--topic=t"}, same...)...); !strings.Contains(text, "group g, topic t") || !strings.Contains(text, "in 16") || !strings.Contains(text, k.Fingerprint) {
			t.Errorf("%v: %s", same, text)
		}
	}
	if r := command(t, "", nil, "dedupe", "get", "X", at, "--group=g", "--topic=t"); r.code != exitFailed || !strings.Contains(r.err, "is not marked") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := command(t, "", nil, "dedupe", "get", "A", at, "--scope=other", "--json"); r.code != exitFailed || decode[admin.StoreKey](t, r.out).Marked {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	if text := must(t, "", "dedupe", "forget", "A", "X", at, "--group=g", "--topic=t", "--yes"); !strings.Contains(text, "2 keys of group g, topic t forgotten, of which 1 marked") {
		t.Error(text)
	}
	if v := decode[admin.Verified](t, must(t, "", "dedupe", "verify", at, "--json")); !v.OK || v.Buckets != 1 {
		t.Errorf("%+v", v)
	}
	if text := must(t, "", "dedupe", "verify", at); !strings.HasPrefix(text, "ok: ") {
		t.Error(text)
	}
	if c := decode[admin.Compacted](t, must(t, "", "dedupe", "compact", at, "--json")); c.After <= 0 {
		t.Errorf("%+v", c)
	}
	after := decode[admin.StoreStats](t, must(t, "", "dedupe", "stats", at, "--json"))
	if after.ID != st.ID || len(after.Spans) != 1 || after.Spans[0].Start != st.Spans[0].Start || after.RetentionSeconds != st.RetentionSeconds {
		t.Errorf("before %+v, after %+v", st, after)
	}

	// The next process: A runs again, B does not.
	b, cl := broker(t, "t")
	orders(t, cl, "t", "A", "B")
	run := []string{"run", b, "--group=g", "--topic=t", "--until-end", "--dedupe-key=header:id", "--dedupe-dir=" + dir, "--dedupe-retention=7d"}
	if lines := printedLines(t, must(t, "", run...)); len(lines) != 1 || !strings.Contains(*lines[0].Value, "A") {
		t.Errorf("%v", lines)
	}
	if text := must(t, "", "dedupe", "forget", "--all", at, "--group=g", "--topic=t", "--yes"); !strings.Contains(text, "all keys of group g, topic t are forgotten") {
		t.Error(text)
	}
	orders(t, cl, "t", "A", "B")
	if lines := printedLines(t, must(t, "", run...)); len(lines) != 2 {
		t.Errorf("%v", lines)
	}
}

// The same of a running process, through its admin address.
func TestDedupeLive(t *testing.T) {
	b, cl := broker(t, "t")
	orders(t, cl, "t", "A", "B", "C")
	base := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	errs := &waiter{}
	found := make(chan string, 1)
	address := regexp.MustCompile(`admin address: http://(\S+)/status`)
	errs.for_ = map[string]func(){`"handled":3`: func() {
		select {
		case found <- address.FindStringSubmatch(errs.String())[1]:
		default:
		}
	}}
	ended := make(chan int)
	go func() {
		ended <- execute(ctx, streams{nil, io.Discard, errs, nil}, []string{"run", b, "--group=g", "--topic=t", "--dedupe-key=header:id",
			"--dedupe-base=" + base, "--admin-addr=127.0.0.1:0", "--json", "--progress-every=1ms"})
	}()
	defer func() { interrupt(); <-ended }()
	var at string
	select {
	case at = <-found:
	case code := <-ended:
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	env := []string{"GAPLESS_ADMIN_ADDR=" + at, "GAPLESS_DEDUPE_BASE=" + base, "GAPLESS_GROUP=g"}

	if r := command(t, "", nil, "dedupe", "stats", "--base="+base, "--group=g"); r.code != exitUnreachable || !strings.Contains(r.err, "open in a running process") || !strings.Contains(r.err, "--admin") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := command(t, "", env, "dedupe", "stats", "--slot=0"); r.code != exitUnreachable || !strings.Contains(r.err, "open in a running process") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	st := decode[admin.StoreStats](t, command(t, "", env, "dedupe", "stats", "--json").out)
	if st.Dir != filepath.Join(base, "g", "0") || st.Keys != 3 || st.Process.Misses != 3 {
		t.Errorf("%+v", st)
	}
	if text := must(t, "", "dedupe", "stats", "--admin="+at); !strings.Contains(text, "new keys 3") {
		t.Error(text)
	}
	if text := must(t, "", "dedupe", "get", "A", "--admin=http://"+at+"/status", "--topic=t"); !strings.Contains(text, "group g, topic t") {
		t.Error(text)
	}
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"get X --topic=t":           {exitFailed, "is not marked"},
		"get A":                     {exitUsage, "name the --topic"},
		"get A --topic=t --group=h": {exitUsage, `of group "g", not "h"`},
		"forget A --topic=t":        {exitUsage, "--yes"},
	} {
		if r := command(t, "", nil, append(append([]string{"dedupe"}, strings.Fields(args)...), "--admin="+at)...); r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: exit code %d, want %d: %s", args, r.code, c.code, r.err)
		}
	}
	if f := decode[admin.Forgotten](t, command(t, "", env, "dedupe", "forget", "A", "X", "--topic=t", "--yes", "--json").out); f.Keys != 2 || f.Known != 1 {
		t.Errorf("%+v", f)
	}
	if f := decode[admin.Forgotten](t, command(t, "", env, "dedupe", "forget", "--scope=s", "--yes", "--json").out); !f.All || f.Scope != "s" {
		t.Errorf("%+v", f)
	}
	if v := decode[admin.Verified](t, command(t, "", env, "dedupe", "verify", "--json").out); !v.OK {
		t.Errorf("%+v", v)
	}
	if r := command(t, "", env, "dedupe", "compact"); r.code != 0 || !strings.Contains(r.out, "now, in") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

func TestDedupeRefusals(t *testing.T) {
	base := t.TempDir()
	empty := t.TempDir()
	for _, slot := range []string{"0", "2"} {
		b, cl := broker(t, "t")
		orders(t, cl, "t", "A")
		must(t, "", "run", b, "--group=g", "--topic=t", "--until-end", "--dedupe-key=key", "--dedupe-dir="+filepath.Join(base, "g", slot))
	}
	here := " --base=" + base + " --group=g"
	nobody := freeAddr(t)
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"stats":                                      {exitUsage, "--dir"},
		"stats --dir=" + empty:                       {exitUnreachable, "no dedupe store in"},
		"stats --dir=" + empty + "/missing":          {exitUnreachable, "no dedupe store in"},
		"stats --group=nope --base=" + base:          {exitUnreachable, "others have: g"},
		"stats" + here:                               {exitUsage, "2 stores"},
		"stats" + here + " --slot=1":                 {exitUsage, "has no store 1"},
		"stats" + here + " --slot=-1":                {exitUsage, "is not the number"},
		"stats" + here + " --slot=2":                 {exitOK, ""},
		"stats --dir=x" + here:                       {exitUsage, "--dir: is a store's own"},
		"stats --dir=x --admin=localhost:1":          {exitUsage, "give either"},
		"stats --admin=" + nobody:                    {exitUnreachable, "no answer from"},
		"stats --admin=nonsense":                     {exitUsage, "is not host:port"},
		"stats --rate=-1":                            {exitUsage, "--rate"},
		"stats --retention=1h":                       {exitUsage, "needs --rate"},
		"stats --rate=100 --retention=1h":            {exitOK, ""},
		"get" + here:                                 {exitUsage, "give one key"},
		"get a b" + here:                             {exitUsage, "give one key"},
		"get a --slot=0" + here:                      {exitUsage, "--topic"},
		"get a --slot=0 --topic=t --base=" + base:    {exitUsage, "--group"},
		"get a --topic=t --scope=s" + here:           {exitUsage, "exclude one another"},
		"get zz --hex --topic=t" + here:              {exitUsage, "--hex"},
		"get aa --hex --base64 --topic=t" + here:     {exitUsage, "exclude one another"},
		"get aa --json-key --topic=t" + here:         {exitUsage, "is not JSON"},
		"get null --json-key --topic=t" + here:       {exitUsage, "no business key"},
		"forget a --topic=t --slot=0" + here:         {exitUsage, "--yes"},
		"forget --topic=t --yes --slot=0" + here:     {exitUsage, "--all"},
		"forget a --all --topic=t --yes" + here:      {exitUsage, "leave it out"},
		"verify extra":                               {exitUsage, "unexpected argument"},
		"verfy":                                      {exitUsage, `did you mean "verify"?`},
		"compact --admin=" + nobody:                  {exitUnreachable, "no answer from"},
		"verify --slot=2" + here:                     {exitOK, ""},
		"forget --scope=s --yes --slot=2" + here:     {exitOK, ""},
		"forget a --scope=s --yes --slot=2" + here:   {exitOK, ""},
		"get a --dir=" + base + "/g/2 --scope=other": {exitFailed, "not marked"},
	} {
		if r := command(t, "", nil, append([]string{"dedupe"}, strings.Fields(args)...)...); r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%q ended with %d, want %d; stderr: %s; want in it: %q", args, r.code, c.code, r.err, c.want)
		}
	}
	if names, _ := os.ReadDir(empty); len(names) > 0 {
		t.Errorf("looking made %v", names)
	}
	b, _ := broker(t, "t")
	for args, want := range map[string]string{
		"--dedupe-key=kye":                      `--dedupe-key: "kye" is not key, header:NAME or json:PATH`,
		"--dedupe-key=json:a.#":                 "not allowed in a path",
		"--dedupe-retention=1h":                 "--dedupe-retention: has an effect with a store only",
		"--dedupe-quarantine":                   "--dedupe-quarantine: has an effect with a store only",
		"--dedupe --dedupe-scope=s":             "--dedupe-scope: needs --dedupe-key",
		"--dedupe-dir=a --dedupe-base=b":        "--dedupe-dir: is a store's own directory and --dedupe-base",
		"--dedupe --dedupe-retention=1ms":       "--dedupe-retention: 1ms is not between",
		"--dedupe-key=key --dedupe-on-differ=x": "dedupe-on-differ",
	} {
		r := command(t, "", nil, append([]string{"run", b, "--group=g", "--topic=t", "--until-end"}, strings.Fields(args)...)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("run %s ended with %d: %s; want %q", args, r.code, r.err, want)
		}
	}
}

// A store that can't be read is refused, and moved aside on request only.
func TestDedupeQuarantine(t *testing.T) {
	dir := storeAt(t)
	spoilStore(t, dir)
	b, cl := broker(t, "t")
	orders(t, cl, "t", "A")
	args := []string{"run", b, "--group=g", "--topic=t", "--until-end", "--dedupe-key=header:id", "--dedupe-dir=" + dir}
	if r := command(t, "", nil, args...); r.code != exitUnreachable || !strings.Contains(r.err, "--dedupe-quarantine") || r.out != "" {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := command(t, "", nil, "dedupe", "verify", "--dir="+dir); r.code != exitFailed || !strings.Contains(r.err, "damaged") || !strings.Contains(r.err, "--dedupe-quarantine") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	r := command(t, "", nil, append(args, "--dedupe-quarantine")...)
	if r.code != 0 || len(printedLines(t, r.out)) != 1 || !strings.Contains(r.err, "ERR dedupe_store_quarantined") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if aside, _ := filepath.Glob(dir + ".bad-*"); len(aside) != 1 {
		t.Errorf("%v", aside)
	}
	must(t, "", "dedupe", "get", "A", "--dir="+dir, "--group=g", "--topic=t")
}

// A directory that another process holds is refused, with what to do.
func TestDedupeDirInUse(t *testing.T) {
	b, cl := broker(t, "t")
	orders(t, cl, "t", "A")
	dir := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	opened := make(chan struct{})
	errs := &waiter{for_: map[string]func(){`dedupe_store_opened`: func() { close(opened) }}}
	ended := make(chan int)
	run := []string{"run", b, "--group=g", "--topic=t", "--json", "--dedupe-dir=" + dir}
	go func() { ended <- execute(ctx, streams{nil, io.Discard, errs, nil}, run) }()
	<-opened
	if r := command(t, "", nil, run...); r.code != exitUnreachable || !strings.Contains(r.err, "in use") || !strings.Contains(r.err, "--dedupe-base") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	interrupt()
	<-ended
}

// A store that is broken for good in this process has an exit code of its own, before the engine was ready and after.
func TestStoreExitCode(t *testing.T) {
	e, err := engine.New(engine.Config{Brokers: []string{"h:1"}, Group: "g", Topics: []string{"t"}, Handler: engine.HandlerFunc(nil)})
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{app: &app{}}
	var errs lockedBuffer
	if code := report(&errs, nil, r.outcome(e, fmt.Errorf("%w: no space left on device", engine.ErrStore))); code != exitStore || !strings.Contains(errs.String(), "no space") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if help := must(t, "", "run", "--help"); !strings.Contains(help, "\n  4    the dedupe store") {
		t.Error("the help does not list it")
	}
}
