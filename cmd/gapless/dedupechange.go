package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/engine/admin"
	"github.com/spf13/cobra"
)

const dedupeForgetLong = `Forget takes the marks of business keys back: the next record with such a key is handled, whatever was before. It shows what is
known of the keys, and asks; without a terminal it needs --yes. --scope without keys forgets all keys of that scope at once, and
so does --all for those of a topic. It does not fetch records again: see "gapless offsets reset" for that.

` + exitCodesHelp

const dedupeForgetExamples = `  gapless dedupe forget A-17 A-18 --group billing --topic orders
  gapless dedupe forget A-17 --admin localhost:8080 --topic orders --yes

  # all keys
  gapless dedupe forget --scope orders --dir /data/gapless
  gapless dedupe forget --all --group billing --topic orders`

// forgetCommand is "gapless dedupe forget".
type forgetCommand struct {
	keyCommand
	all, yes bool
}

func (a *app) dedupeForgetCommand() *cobra.Command {
	f := &forgetCommand{keyCommand: keyCommand{storeCommand: storeCommand{app: a}}}
	cmd := &cobra.Command{
		Use: "forget [KEY...]", Short: "Have business keys handled again", Long: dedupeForgetLong, Example: dedupeForgetExamples, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "all keys of the scope")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	section(flags, "What", "all", "yes")
	f.register(cmd)
	return cmd
}

func (f *forgetCommand) run(ctx context.Context, args []string) error {
	keys, err := f.keys(args)
	if err != nil {
		return err
	}
	if err := f.settle(); err != nil {
		return err
	}
	scope, err := f.where()
	switch {
	case err != nil:
		return err
	case f.all && len(keys) > 0:
		return usageError("--all: forgets all keys of the scope; leave it out to forget those that are named")
	case len(keys) == 0 && !f.all && f.scope == "":
		return usageError("name the keys to forget, or take --all (or --scope alone) to forget all keys of a scope")
	case !f.yes && !f.canAsk():
		return usageError("--yes: is needed where there is no terminal to ask at")
	}
	return f.on(ctx, func(s dedupeStore) error {
		if !f.yes {
			if err := f.ask(ctx, s, scope, keys, args); err != nil {
				return err
			}
		}
		done, err := s.forget(ctx, scope, keys)
		if err != nil {
			return fmt.Errorf("whether it was forgotten is not known, try again: %w", err)
		}
		switch {
		case f.json:
			writeJSON(f.out, done)
		case done.All:
			_, _ = fmt.Fprintf(f.out, "all keys of %s are forgotten; the space of their marks comes back when these expire\n", shownScope(done.Scope))
		default:
			_, _ = fmt.Fprintf(f.out, "%s of %s forgotten, of which %s marked\n", plural(int64(done.Keys), "key"), shownScope(done.Scope), count(int64(done.Known)))
		}
		return nil
	})
}

// ask shows what is going to be forgotten.
func (f *forgetCommand) ask(ctx context.Context, s dedupeStore, scope scopeOf, keys [][]byte, args []string) error {
	shown := ""
	for i, key := range keys {
		m, err := s.get(ctx, scope, key)
		if err != nil {
			return err
		}
		shown = shownScope(m.Scope)
		what := "not marked"
		if m.Marked {
			what = "marked " + m.At.Format(time.RFC3339) + ", expires " + m.Expires.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(f.err, "%s: %s\n", printable(args[i]), what)
	}
	if len(keys) > 0 {
		return confirm(ctx, f.in, f.err, fmt.Sprintf("Forget %s of %s?", plural(int64(len(keys)), "key"), shown))
	}
	m, err := s.get(ctx, scope, []byte("-")) // for the name of the scope
	if err != nil {
		return err
	}
	st, err := s.stats(ctx)
	if err != nil {
		return err
	}
	return confirm(ctx, f.in, f.err, fmt.Sprintf("Forget all keys of %s? (The store has %s, of all scopes.)", shownScope(m.Scope), count(st.Keys)))
}

const dedupeVerifyLong = `Verify reads every key of a store as it is on the disk, and checks sums, order, completeness, and that each would be found. The
process that has it open goes on meanwhile (--admin). It exits with 1 if anything is wrong.

` + exitCodesHelp

func (a *app) dedupeVerifyCommand() *cobra.Command {
	c := &storeCommand{app: a}
	cmd := &cobra.Command{
		Use: "verify", Short: "Read all of a store, and check it", Long: dedupeVerifyLong, Args: noArgs,
		Example: "  gapless dedupe verify --dir /data/gapless\n  gapless dedupe verify --admin localhost:8080",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.verify(cmd.Context()) },
	}
	c.register(cmd)
	return cmd
}

// progressEvery is the time between two lines of progress where there is no terminal.
const progressEvery = 5 * time.Second

func (c *storeCommand) verify(ctx context.Context) error {
	return c.on(ctx, func(s dedupeStore) error {
		con := newConsole(c.err)
		began, said := time.Now(), time.Now()
		v, err := s.verify(ctx, func(p admin.VerifyProgress) {
			line := fmt.Sprintf("%s of %s rows read (%s)", count(p.Done), count(p.Total), percent(float64(p.Done)/float64(max(p.Total, 1))))
			now := time.Now()
			switch {
			case con.live && now.Sub(said) >= watchEvery:
				con.setLine(line)
				said = now
			case !con.live && now.Sub(said) >= progressEvery:
				_, _ = fmt.Fprintln(c.err, line)
				said = now
			}
		})
		if con.live {
			con.setLine("")
		}
		if err != nil {
			return fmt.Errorf("not all was read: %w", err)
		}
		switch {
		case c.json:
			writeJSON(c.out, v)
		case v.OK:
			_, _ = fmt.Fprintf(c.out, "ok: %s in %s, %s and %s, read in %.1f s\n", plural(v.Keys, "key"), plural(v.Rows, "row"), plural(int64(v.Parts), "part"), plural(int64(v.Buckets), "span"), time.Since(began).Seconds())
		}
		if v.OK {
			return nil
		}
		if !c.json {
			for _, p := range v.Problems {
				_, _ = fmt.Fprintln(c.out, trimPrefix(p))
			}
		}
		return fmt.Errorf("the store is damaged: %s in %s. What can't be read holds the partitions that ask for it; stop the process, and start it with --dedupe-quarantine to begin with an empty store, which costs duplicates",
			plural(int64(len(v.Problems)), "problem"), plural(v.Rows, "row"))
	})
}

const dedupeCompactLong = `Compact brings a store to its smallest size. It need not be done: the space of keys that have expired comes back by itself. It
helps before the directory is copied.

` + exitCodesHelp

func (a *app) dedupeCompactCommand() *cobra.Command {
	c := &storeCommand{app: a}
	cmd := &cobra.Command{
		Use: "compact", Short: "Bring a store to its smallest size", Long: dedupeCompactLong, Args: noArgs,
		Example: "  gapless dedupe compact --dir /data/gapless\n  gapless dedupe compact --admin localhost:8080",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return c.on(ctx, func(s dedupeStore) error {
				r, err := s.compact(ctx)
				switch {
				case err != nil:
					return err
				case c.json:
					writeJSON(c.out, r)
				default:
					_, _ = fmt.Fprintf(c.out, "%s before, %s now, in %.1f s\n", shownBytes(r.Before), shownBytes(r.After), r.Seconds)
				}
				return nil
			})
		},
	}
	c.register(cmd)
	return cmd
}
