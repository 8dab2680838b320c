package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/settings"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootLong = `Gapless consumes Kafka with many handlers at once inside every partition, and commits an offset only when
nothing before it is unfinished.

  gapless demo                                              see it work, no Kafka needed
  gapless run --embedded --until-end                        the same engine, printing records of an embedded broker
  gapless run --brokers localhost:9092 --group g --topic t  the engine in front of your Kafka
  gapless produce --brokers localhost:9092 --topic t --generate 10000
  gapless status --brokers localhost:9092 --group g --watch
  gapless offsets reset --brokers localhost:9092 --group g --topic t --to earliest --dry-run
  gapless dedupe stats --group g                            what a --dedupe-key store holds

Every setting can be given in three ways. The first one that is set counts:
  --workers 200            on the command line
  GAPLESS_WORKERS=200      in the environment: upper case, with underscores
  workers: 200             in a YAML file named by --config; retry-attempts: 5 may also be written retry: {attempts: 5}
Secrets are never flags: see --sasl-password-file, GAPLESS_SASL_PASSWORD and --sasl-token-file in "gapless run --help".

` + exitCodesHelp

// app is one invocation.
type app struct {
	streams
	origins settings.Origins // where each flag of the command was set
}

// execute runs the command line args, and returns the exit code.
func execute(ctx context.Context, s streams, args []string) int {
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return report(s.err, cmd, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "gapless",
		Short:             "Consume Kafka with many handlers a partition, and no gaps",
		Long:              rootLong,
		Args:              a.noSuchCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:           versionLine(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.applySettings,

		SuggestionsMinimumDistance: 2,
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError("%s", secretHint(err)) })
	root.PersistentFlags().String("config", "", "YAML `file` with settings (GAPLESS_CONFIG)")
	root.AddCommand(a.runCommand(), a.produceCommand(), a.statusCommand(), a.offsetsCommand(), a.dedupeCommand(), a.demoCommand(), a.benchCommand(), a.versionCommand())
	root.SetHelpCommand(a.helpCommand())
	root.SetVersionTemplate("{{.Version}}\n")
	useSections(root)
	return root
}

// applySettings gives the flags that were not on the command line their values from the environment and the file.
func (a *app) applySettings(cmd *cobra.Command, _ []string) error {
	for c := cmd; c != nil; c = c.Parent() {
		if c.Name() == "completion" || c.Name() == "help" || strings.HasPrefix(c.Name(), "__") {
			return nil
		}
	}
	path := cmd.Flag("config").Value.String()
	if path == "" {
		path = lookupEnv(a.environ, settings.EnvName("config"))
	}
	origins, err := settings.Apply(cmd.Flags(), a.environ, path, func(key string) bool { return knownTo(cmd.Root(), key) })
	if err != nil {
		return usageError("%s", err)
	}
	a.origins = origins
	a.warnOfVariables(cmd)
	return nil
}

// warnOfVariables points to variables that look like a setting that was mistyped. They are not refused: whoever runs this may
// have variables of that prefix of their own, as Kubernetes has for a service named gapless.
func (a *app) warnOfVariables(cmd *cobra.Command) {
	for _, e := range a.environ {
		name, _, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, settings.Prefix)
		flag := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		if !ours || flag == "config" || name == passwordEnv || cmd.Flags().Lookup(flag) != nil || knownTo(cmd.Root(), flag) {
			continue
		}
		if near := settings.Nearest(cmd.Flags(), flag); near != "" {
			_, _ = fmt.Fprintf(a.err, "warning: %s is not a setting; did you mean %s?\n", name, settings.EnvName(near))
		}
	}
}

// knownTo says whether any command has such a flag.
func knownTo(root *cobra.Command, flag string) bool {
	return slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Flags().Lookup(flag) != nil || knownTo(c, flag) })
}

func (a *app) noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", near[0])
	}
	return usageError("there is no command %q%s", args[0], hint)
}

// helpCommand is cobra's own, but for a command that does not exist: that is an error.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			if cmd, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			cmd, rest, err := c.Root().Find(args)
			if err != nil {
				return usageError("%s", err)
			}
			if len(rest) > 0 {
				return a.noSuchCommand(cmd, rest)
			}
			cmd.InitDefaultHelpFlag()
			cmd.InitDefaultVersionFlag()
			return cmd.Help()
		},
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("unexpected argument %q: settings are flags, such as --topic %s", args[0], args[0])
	}
	return nil
}

// secretHint answers who tries to pass a secret as a flag, which every user of the machine could read.
func secretHint(err error) string {
	s := err.Error()
	if strings.HasSuffix(s, "--sasl-password") || strings.HasSuffix(s, "--sasl-token") {
		return s + ": secrets are never flags; use --sasl-password-file, " + settings.Prefix + "SASL_PASSWORD or --sasl-token-file"
	}
	return s
}

func lookupEnv(environ []string, name string) string {
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

const sectionKey = "gapless_section"

// section puts flags under a heading of the help.
func section(flags *pflag.FlagSet, name string, names ...string) {
	for _, n := range names {
		_ = flags.SetAnnotation(n, sectionKey, []string{name})
	}
}

// useSections prints the flags of every command under their headings, in the order in which these appear first.
func useSections(root *cobra.Command) {
	cobra.AddTemplateFunc("flagSections", flagSections)
	t := root.UsageTemplate()
	t = strings.Replace(t, `Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}`, `{{flagSections .LocalFlags}}`, 1)
	root.SetUsageTemplate(t)
	keepOrder(root)
}

// keepOrder lists the flags of all commands in the order in which they were made.
func keepOrder(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		c.Flags().SortFlags = false
		keepOrder(c)
	}
}

// shown is a bool flag's value for the help, where "--tls[=true|false]" would only be noise.
type shown struct{ pflag.Value }

func (shown) Type() string { return "" }

func flagSections(flags *pflag.FlagSet) string {
	var order []string
	sets := map[string]*pflag.FlagSet{}
	flags.VisitAll(func(f *pflag.Flag) {
		name := "Flags"
		if s := f.Annotations[sectionKey]; len(s) > 0 {
			name = s[0]
		}
		if sets[name] == nil {
			sets[name] = pflag.NewFlagSet(name, pflag.ContinueOnError)
			sets[name].SortFlags = false
			order = append(order, name)
		}
		if f.Value.Type() == "bool" {
			plain := *f
			plain.Value, plain.NoOptDefVal = shown{f.Value}, ""
			f = &plain
		}
		sets[name].AddFlag(f)
	})
	var b strings.Builder
	for i, name := range order {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(name + ":\n" + strings.TrimRight(sets[name].FlagUsagesWrapped(132), "\n "))
	}
	return b.String()
}
