package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// The line of a narrow terminal has what is wrong, and no half numbers.
func TestProgressLine(t *testing.T) {
	p := progress{Seconds: 61, Handled: 1_234_567, Rate: 4321, Failures: 12, DeadLettered: 3, Lag: 10_000_000, InFlight: 64, Waiting: 16_000, Partitions: 12}
	p.Problems = map[string]string{"t/0": "held"}
	want := "   61 s  UNHEALTHY (1)  failed attempts 12  dead-lettered 3  handled 1,234,567 (4,321/s)  lag 10,000,000  in flight 64  waiting 16,000  partitions 12"
	most, _, _ := strings.Cut(want, "  partitions")
	worst, _, _ := strings.Cut(want, "  handled")
	if p.String() != want {
		t.Errorf("got\n%s, want\n%s", p, want)
	}
	if got := p.within(80); got != worst {
		t.Errorf("80 columns: %q", got)
	}
	if got := p.within(len(want)); got != most {
		t.Errorf("one column too few: %q", got)
	}
	if got := p.within(len(want) + 1); got != want {
		t.Errorf("wide enough: %q", got)
	}
}

func TestStatusFitsTheTerminal(t *testing.T) {
	m := memberStatus{Member: "gapless-0f8fad5b-d9cb-469f-a165-70867728950e", Client: "gapless", Host: "/" + strings.Repeat("1", 40), Partitions: 30}
	g := groupStatus{Group: "g", Protocol: "classic", State: "Stable", Members: []memberStatus{m}}
	for p := range int32(30) {
		g.Partitions = append(g.Partitions, partitionStatus{Topic: "orders", Partition: p, Member: m.Member, owner: m})
	}
	v := view{80, 24}
	var b bytes.Buffer
	g.print(&b, v)
	lines := strings.Split(strings.TrimSuffix(v.clip(b.String()), "\n"), "\n")
	if len(lines) != 23 || lines[22] != "and 11 more" || !strings.Contains(lines[3], "gapless-0f8fad5b") || strings.Contains(b.String(), "HOST") || widest(b.String()) > 80 {
		t.Errorf("got %d lines\n%s", len(lines), strings.Join(lines, "\n"))
	}
	b.Reset()
	g.print(&b, view{120, 60})
	if !strings.Contains(b.String(), "HOST") {
		t.Errorf("a wide terminal has no hosts:\n%s", b.String())
	}
	b.Reset()
	g.print(&b, view{})
	if strings.Count(b.String(), m.Member) != 30 {
		t.Errorf("the member is not named in full where there is no terminal:\n%s", b.String())
	}
	if got := (view{10, 24}).clip(strings.Repeat("ä", 12) + "\n"); got != strings.Repeat("ä", 10)+"\n" {
		t.Errorf("got %q", got)
	}
}

func TestLogSpeaksOfFlags(t *testing.T) {
	var b bytes.Buffer
	log := zerolog.New(explainedLog{&b})
	log.Warn().Str("topic", "Workers").Err(errors.New(`Workers of the handler: check Brokers, and set TLS.CAFile`)).
		Str("hint", `group id "Workers \" Group" waits for StartTimeout (1s); fewer members with more Workers; waits for Engine.Unhold`).Msg("x")
	want := `{"level":"warn","topic":"Workers","error":"Workers of the handler: check --brokers, and set --tls-ca-file",` +
		`"hint":"group id \"Workers \\\" Group\" waits for --start-timeout (1s); fewer members with more --workers; waits for POST /partition/unhold at --admin-addr","message":"x"}` + "\n"
	if b.String() != want {
		t.Errorf("got\n%s, want\n%s", b.String(), want)
	}
}
