package main

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
)

const secOutput = "Output"

// logFlags are the log's: one line an event on stderr.
type logFlags struct{ level, format string }

func (l *logFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "debug, info, warn, error or off; records are logged at debug only, keys and values never")
	flags.StringVar(&l.format, "log-format", "auto", "text, json, or auto: json with --json, else text")
	section(flags, secOutput, "log-level", "log-format")
}

// logger makes the logger. machine asks for JSON where the format is left open.
func (l *logFlags) logger(a *app, out *console, machine bool) (zerolog.Logger, error) {
	levels := map[string]zerolog.Level{"debug": zerolog.DebugLevel, "info": zerolog.InfoLevel, "warn": zerolog.WarnLevel,
		"error": zerolog.ErrorLevel, "off": zerolog.Disabled}
	level, ok := levels[l.level]
	if !ok {
		return zerolog.Nop(), usageError("%s: %q is not one of debug, info, warn, error, off", a.origins.Of("log-level"), l.level)
	}
	var w io.Writer = out
	switch {
	case l.format == "json", l.format == "auto" && machine:
	case l.format == "text", l.format == "auto":
		w = zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly, NoColor: !out.live || os.Getenv("NO_COLOR") != ""}
	default:
		return zerolog.Nop(), usageError("%s: %q is not one of %s", a.origins.Of("log-format"), l.format, strings.Join([]string{"auto", "text", "json"}, ", "))
	}
	return zerolog.New(explainedLog{w}).Level(level).With().Timestamp().Logger(), nil
}
