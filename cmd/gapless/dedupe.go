package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/settings"
	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tidwall/gjson"
)

const dedupeLong = `Dedupe looks into a dedupe store, and takes marks back.

Which store? That of a stopped process by its directory: --dir, or --base and --group (and --slot, where the group has several on
this host). That of a running one through its admin address: --admin localhost:8080, as it was started with (--admin-addr). What
"gapless run" takes from the environment or a configuration file (GAPLESS_DEDUPE_DIR, GAPLESS_DEDUPE_BASE, GAPLESS_GROUP,
GAPLESS_ADMIN_ADDR) counts here, too: an admin address before a directory, the command line before all.

While this command has a store open, a process that starts would take another slot, or be refused: do not keep it waiting.
Nothing here changes how long keys are remembered.

` + exitCodesHelp

const dedupeExamples = `  # how large is it, and what would 5,000 new keys a second need?
  gapless dedupe stats --group billing --rate 5000

  # was order A-17 handled? ask the running process
  gapless dedupe get A-17 --admin localhost:8080 --topic orders

  # have it handled once more, when it comes again
  gapless dedupe forget A-17 --group billing --topic orders`

func (a *app) dedupeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dedupe",
		Short:   "Look into a dedupe store, and forget business keys",
		Long:    dedupeLong,
		Example: dedupeExamples,
		Args:    a.noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(a.dedupeStatsCommand(), a.dedupeGetCommand(), a.dedupeForgetCommand(), a.dedupeVerifyCommand(), a.dedupeCompactCommand())
	return cmd
}

// storeCommand is what the commands on a store have in common.
type storeCommand struct {
	*app
	dir, base, admin string
	runDir, runBase  string // as "gapless run" calls them
	runAdmin         string
	group            string
	slot             int
	json             bool
}

const secStore = "Which store"

func (c *storeCommand) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.dir, "dir", "", "`directory` of the store (--dedupe-dir of gapless run)")
	flags.StringVar(&c.base, "base", "", "`directory` with those of groups (--dedupe-base); default $XDG_STATE_HOME/gapless/dedupe, or ~/.local/state/...")
	flags.StringVar(&c.group, "group", "", "consumer `group` whose store in --base it is")
	flags.IntVar(&c.slot, "slot", -1, "`number` of the store, where the group has several")
	flags.Lookup("slot").DefValue = "0" // not shown
	flags.StringVar(&c.admin, "admin", "", "`address` of the running process that has it open, such as localhost:8080 (its --admin-addr)")
	section(flags, secStore, "dir", "base", "group", "slot", "admin")
	flags.StringVar(&c.runDir, "dedupe-dir", "", "")
	flags.StringVar(&c.runBase, "dedupe-base", "", "")
	flags.StringVar(&c.runAdmin, "admin-addr", "", "")
	for _, n := range []string{"dedupe-dir", "dedupe-base", "admin-addr"} {
		_ = flags.MarkHidden(n)
	}
	flags.BoolVar(&c.json, "json", false, "print one JSON object")
	section(flags, secOutput, "json")
}

// settle decides which store is meant. What was typed wins over what was found, and an admin address over a directory.
func (c *storeCommand) settle() error {
	typed := func(names ...string) bool {
		for _, n := range names {
			if c.origins[n] == "--"+n {
				return true
			}
		}
		return false
	}
	closed, live := typed("dir", "base", "slot", "dedupe-dir", "dedupe-base"), typed("admin", "admin-addr")
	if closed && live {
		return usageError("--admin: is a running process's store, and --dir, --base and --slot name that of a stopped one; give either")
	}
	c.admin = first(c.admin, c.runAdmin)
	if closed {
		c.admin = ""
	}
	if typed("dir", "dedupe-dir") && typed("base", "dedupe-base", "slot") {
		return usageError("--dir: is a store's own directory, and --base and --slot choose one of several; give either")
	}
	switch dir, base := first(c.dir, c.runDir), first(c.base, c.runBase); {
	case typed("base", "dedupe-base", "slot"):
		c.dir, c.base = "", base
	default:
		c.dir, c.base = dir, base
	}
	if c.slot < 0 && c.origins["slot"] != "" {
		return usageError("%s: %d is not the number of a store", c.origins.Of("slot"), c.slot)
	}
	return nil
}

// named says whether any store is named.
func (c *storeCommand) named() bool { return c.dir != "" || c.admin != "" || c.group != "" }

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// keyCommand is what the commands on keys have in common.
type keyCommand struct {
	storeCommand
	scope, runScope     string
	topic               string
	hex, base64, asJSON bool
}

func (k *keyCommand) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&k.scope, "scope", "", "`name` of what the keys are unique in (--dedupe-scope of gapless run)")
	flags.StringVar(&k.topic, "topic", "", "where no scope was named: the `topic`, with --group or --admin")
	flags.StringVar(&k.runScope, "dedupe-scope", "", "")
	_ = flags.MarkHidden("dedupe-scope")
	flags.BoolVar(&k.hex, "hex", false, "KEY is in hexadecimal digits")
	flags.BoolVar(&k.base64, "base64", false, "KEY is in base64")
	flags.BoolVar(&k.asJSON, "json-key", false, `KEY is a JSON value as it is at the path of --dedupe-key json:PATH: 17, true, "17"`)
	section(flags, "Which keys", "scope", "topic", "hex", "base64", "json-key")
	k.storeCommand.register(cmd)
}

// scopeOf is a scope by name, or by group and topic.
type scopeOf struct{ name, group, topic string }

func (k *keyCommand) where() (scopeOf, error) {
	s := scopeOf{first(k.scope, k.runScope), k.group, k.topic}
	switch {
	case k.scope != "" && k.topic != "":
		return s, usageError("--scope and --topic exclude one another: topics of a named scope share their keys")
	case s.name != "":
		s.topic = ""
		return s, nil
	case k.admin != "": // the process knows the rest, and says what is missing
		return s, nil
	case k.topic == "":
		return s, usageError("--topic: name the topic, or the --scope that the keys were given")
	case k.group == "":
		return s, usageError("--group: the keys of a topic are those of a group, so name it, or the --scope that they were given")
	}
	return s, nil
}

func (s scopeOf) id() string {
	if s.name != "" {
		return s.name
	}
	return engine.DedupeScope(s.group, s.topic)
}

// keys reads the arguments.
func (k *keyCommand) keys(args []string) (keys [][]byte, err error) {
	decode, how, ways := func(s string) ([]byte, error) { return []byte(s), nil }, "", 0
	if k.hex {
		decode, how, ways = hex.DecodeString, "--hex", ways+1
	}
	if k.base64 {
		decode, how, ways = base64.StdEncoding.DecodeString, "--base64", ways+1
	}
	if k.asJSON {
		decode, how, ways = parseJSONKey, "--json-key", ways+1
	}
	if ways > 1 {
		return nil, usageError("--hex, --base64 and --json-key exclude one another")
	}
	for _, arg := range args {
		key, err := decode(arg)
		if err != nil {
			return nil, usageError("%s: %q: %w", how, arg, err)
		}
		if len(key) == 0 {
			return nil, usageError("the key is empty; an empty key is never marked")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func parseJSONKey(text string) ([]byte, error) {
	if !gjson.Valid(text) {
		return nil, fmt.Errorf("is not JSON (a string needs its quotes)")
	}
	key, ok := appendCanonical(nil, gjson.Parse(text))
	if !ok {
		return nil, fmt.Errorf("is no business key")
	}
	return key, nil
}

// shownScope names a scope to people.
func shownScope(scope string) string {
	if group, topic, ok := strings.Cut(scope, "\x00"); ok {
		return fmt.Sprintf("group %s, topic %s", printable(group), printable(topic))
	}
	return "scope " + printable(scope)
}

// shownBytes is a size for people.
func shownBytes(n int64) string {
	x, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, unit)
}

// durationFlag is a flag that knows days.
func durationFlag(flags *pflag.FlagSet, p *time.Duration, name, usage string) {
	flags.Var((*settings.Duration)(p), name, usage)
	flags.Lookup(name).DefValue = "0" // not shown
}
