package main

import (
	"github.com/spf13/cobra"
)

// completeRun tells the shell what the flags of "gapless run" may be followed by.
func completeRun(cmd *cobra.Command) {
	for _, s := range settingTable {
		if s.choices != nil {
			words(cmd, s.flag, s.choices...)
		}
	}
	words(cmd, "start", "earliest", "latest")
	words(cmd, "sink", sinkNames...)
	words(cmd, "log-level", "debug", "info", "warn", "error", "off")
	words(cmd, "log-format", "auto", "text", "json")
}

// words completes a flag from a list. It does nothing for a flag that the command does not have.
func words(cmd *cobra.Command, flag string, list ...string) {
	if cmd.Flags().Lookup(flag) != nil {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
	}
}
