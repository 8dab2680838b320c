package main

import (
	"github.com/gaplesshq/gapless/cmd/gapless/internal/demo"
	"github.com/spf13/cobra"
)

func (a *app) demoCommand() *cobra.Command {
	cmd := demo.Command()
	cmd.Args = noArgs
	return cmd
}
