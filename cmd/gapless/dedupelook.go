package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine/admin"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// on opens the store, works on it, and closes it.
func (c *storeCommand) on(ctx context.Context, work func(s dedupeStore) error) (err error) {
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return work(s)
}

// statsCommand is "gapless dedupe stats".
type statsCommand struct {
	storeCommand
	rate      float64
	retention time.Duration
}

const dedupeStatsLong = `Stats prints how many keys a store has, what they take on disk and in memory, and the spans of time that they were marked in: the
space of a span comes back when all of it has expired. Keys counts marks, with those that were replaced, forgotten, or have expired
in a span that lives.

With --rate it also says what a store needs for so many new keys a second; with --rate and no store, only that.

` + exitCodesHelp

const dedupeStatsExamples = `  gapless dedupe stats --dir /data/gapless
  gapless dedupe stats --group billing --slot 1
  gapless dedupe stats --admin localhost:8080 --json

  # what would a store need?
  gapless dedupe stats --rate 5000 --retention 7d`

func (a *app) dedupeStatsCommand() *cobra.Command {
	c := &statsCommand{storeCommand: storeCommand{app: a}}
	cmd := &cobra.Command{
		Use: "stats", Short: "Print what is in a store, and what it needs", Long: dedupeStatsLong, Example: dedupeStatsExamples, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return stoppedOr(cmd.Context(), c.run(cmd.Context())) },
	}
	flags := cmd.Flags()
	flags.Float64Var(&c.rate, "rate", 0, "new `keys` a second to estimate the size for")
	durationFlag(flags, &c.retention, "retention", "with that retention; default the store's, or 24h")
	section(flags, "Estimate", "rate", "retention")
	c.register(cmd)
	return cmd
}

// needs is what a store takes at a rate.
type needs struct {
	Rate             float64 `json:"rate"`
	RetentionSeconds float64 `json:"retention_seconds"`
	Keys             int64   `json:"keys"`
	DiskBytes        int64   `json:"disk_bytes"`
	MemoryBytes      int64   `json:"memory_bytes"`
}

func (c *statsCommand) estimate(retention time.Duration) *needs {
	if c.rate == 0 {
		return nil
	}
	if c.retention != 0 {
		retention = c.retention
	}
	e := dedupe.Estimate(c.rate, retention)
	return &needs{c.rate, retention.Seconds(), e.Keys, e.DiskBytes, e.MemoryBytes}
}

func (n *needs) String() string {
	return fmt.Sprintf("%s new keys a second, remembered for %s: up to %s keys, %s of disk (some 120 MiB of it after a crash only), %s of memory (150 MiB of it always)",
		count(int64(n.Rate)), shownSpan(n.RetentionSeconds), count(n.Keys), shownBytes(n.DiskBytes), shownBytes(n.MemoryBytes))
}

func (c *statsCommand) run(ctx context.Context) error {
	if c.rate < 0 || math.IsNaN(c.rate) || math.IsInf(c.rate, 0) {
		return usageError("%s: %v is not a rate", c.origins.Of("rate"), c.rate)
	}
	if c.retention != 0 && c.rate == 0 {
		return usageError("%s: is for the estimate, which needs --rate", c.origins.Of("retention"))
	}
	if err := c.settle(); err != nil {
		return err
	}
	if c.rate > 0 && !c.named() {
		n := c.estimate(dedupe.DefaultRetention)
		if c.json {
			writeJSON(c.out, map[string]any{"estimate": n})
			return nil
		}
		_, err := fmt.Fprintln(c.out, n)
		return err
	}
	return c.on(ctx, func(s dedupeStore) error {
		st, err := s.stats(ctx)
		if err != nil {
			return err
		}
		n := c.estimate(time.Duration(st.RetentionSeconds * float64(time.Second)))
		if c.json {
			writeJSON(c.out, struct {
				admin.StoreStats
				Estimate *needs `json:"estimate,omitempty"`
			}{st, n})
			return nil
		}
		printStats(c.out, st, n)
		return nil
	})
}

func printStats(w io.Writer, st admin.StoreStats, n *needs) {
	line := func(name, form string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(form, args...))
	}
	line("store", "%s", st.Dir)
	created := ""
	if !st.Created.IsZero() {
		created = ", made " + st.Created.UTC().Format(time.RFC3339)
	}
	line("id", "%s%s, at group commit %s", st.ID, created, count(int64(st.Seq)))
	perKey := ""
	if st.Keys > 100_000 {
		perKey = fmt.Sprintf(", %.1f bytes a key", float64(st.DiskBytes)/float64(st.Keys))
	}
	line("keys", "%s in %s and %s, of which %d in memory", count(st.Keys), plural(int64(st.Buckets), "span"), plural(int64(st.Parts), "part"), st.Unsealed)
	line("disk", "%s%s", shownBytes(st.DiskBytes), perKey)
	line("memory", "%s of filters and keys; some 60 MiB of caches come on top", shownBytes(st.MemoryBytes))
	line("retention", "%s; the time by which keys expire is %s", shownSpan(st.RetentionSeconds), st.Time.UTC().Format(time.RFC3339))
	if p := st.Process; p != nil {
		line("process", "duplicates %s, new keys %s, with another value %s, waited %s, without a key %s", count(p.Hits), count(int64(p.Misses)), count(p.Differing), count(p.Waits), count(p.Unkeyed))
		line("", "made durable %s in %s, the slowest %v; %s wait", count(int64(p.Marks)), plural(int64(p.Groups), "group"), p.Slowest.Round(10*time.Microsecond), count(p.Pending))
		if p.WriteError != "" {
			line("", "CAN'T WRITE: %s", p.WriteError)
		}
	}
	if n != nil {
		line("estimate", "%s", n)
	}
	if len(st.Spans) == 0 {
		return
	}
	t := newTable()
	t.AppendHeader(table.Row{"MARKED FROM", "TO", "SPACE FREE AFTER", "RETENTION", "PARTS", "DISK"})
	for _, s := range st.Spans {
		t.AppendRow(table.Row{s.Start.UTC().Format(time.RFC3339), s.End.UTC().Format(time.RFC3339), s.Expired.UTC().Format(time.RFC3339), shownSpan(s.RetentionSeconds), s.Parts, shownBytes(s.Bytes)})
	}
	t.SetColumnConfigs(rightAligned(5, 6))
	_, _ = fmt.Fprintf(w, "\n%s\n", t.Render())
}

// shownSpan is a time span for people.
func shownSpan(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if day := 24 * time.Hour; d > day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.Round(time.Millisecond).String()
}

const dedupeGetLong = `Get tells whether a business key is marked as handled: when it first was, when that expires, and the fingerprint of the value that
it came with. A key that is not marked is told apart by the exit code 1: its next record is handled.

KEY is the key as it is in the record: its text, or with --hex or --base64 its bytes; a number or another JSON value that is not a
string with --json-key.

` + exitCodesHelp

const dedupeGetExamples = `  gapless dedupe get A-17 --group billing --topic orders
  gapless dedupe get A-17 --dir /data/gapless --scope orders
  gapless dedupe get A-17 --admin localhost:8080 --topic orders

  # of --dedupe-key json:order.id, where that is a number
  gapless dedupe get 4711 --json-key --group billing --topic orders`

// errNotMarked is the verdict of get.
var errNotMarked = errors.New("not marked: the next record with that key is handled")

func (a *app) dedupeGetCommand() *cobra.Command {
	k := &keyCommand{storeCommand: storeCommand{app: a}}
	cmd := &cobra.Command{
		Use: "get KEY", Short: "Tell whether a business key was handled", Long: dedupeGetLong, Example: dedupeGetExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("give one key; gapless dedupe get KEY (one that begins with a dash after --)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return stoppedOr(cmd.Context(), k.get(cmd.Context(), args))
		},
	}
	k.register(cmd)
	return cmd
}

func (k *keyCommand) get(ctx context.Context, args []string) error {
	keys, err := k.keys(args)
	if err != nil {
		return err
	}
	if err := k.settle(); err != nil {
		return err
	}
	scope, err := k.where()
	if err != nil {
		return err
	}
	return k.on(ctx, func(s dedupeStore) error {
		m, err := s.get(ctx, scope, keys[0])
		switch {
		case err != nil:
			return err
		case k.json:
			writeJSON(k.out, m)
		case m.Marked:
			_, _ = fmt.Fprintf(k.out, "key          %s\nscope        %s\nmarked       %s\nexpires      %s, in %s\nfingerprint  %s\n", printable(args[0]), shownScope(m.Scope),
				m.At.Format(time.RFC3339), m.Expires.Format(time.RFC3339), time.Duration(m.ExpiresIn*float64(time.Second)).Round(time.Second), m.Fingerprint)
		}
		if !m.Marked {
			return fmt.Errorf("key %s of %s is %w", printable(args[0]), shownScope(m.Scope), errNotMarked)
		}
		return nil
	})
}
