package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/settings"
	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/pflag"
)

// secrets are the files that secrets are read from.
type secrets struct{ passwordFile, tokenFile string }

func (s *secrets) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.passwordFile, "sasl-password-file", "", "`file` with the password; or set "+passwordEnv)
	flags.StringVar(&s.tokenFile, "sasl-token-file", "", "`file` with the token for OAUTHBEARER, read again at each authentication")
	section(flags, secConnection, "sasl-password-file", "sasl-token-file")
}

var passwordEnv = settings.EnvName("sasl-password")

// fill puts the secrets into cfg.
func (s *secrets) fill(cfg *engine.Config, a *app) error {
	cfg.SASL.Password = lookupEnv(a.environ, passwordEnv)
	if s.passwordFile != "" {
		if cfg.SASL.Password != "" {
			return usageError("%s and %s are both set; remove one", a.origins.Of("sasl-password-file"), passwordEnv)
		}
		b, err := os.ReadFile(s.passwordFile)
		if err != nil {
			return usageError("%s: %w", a.origins.Of("sasl-password-file"), err)
		}
		cfg.SASL.Password = strings.TrimRight(string(b), "\r\n")
	}
	if s.tokenFile == "" {
		return nil
	}
	read := func(context.Context) (string, error) {
		b, err := os.ReadFile(s.tokenFile)
		return strings.TrimSpace(string(b)), err
	}
	if _, err := read(context.Background()); err != nil {
		return usageError("%s: %w", a.origins.Of("sasl-token-file"), err)
	}
	cfg.SASL.Token = read
	return nil
}

// refusal turns what the engine says about a field of its Config into words about the flag, or wherever it was set.
func (a *app) refusal(err error) error {
	var c *engine.ConfigError
	if !errors.As(err, &c) {
		return err
	}
	return usageError("%s: %s", a.whereSet(c.Field), inFlags(c.Field, c.Problem))
}

// whereSet names the place where a field was set, or its flag. A field that holds others (TLS) stands for those that are set.
func (a *app) whereSet(field string) string {
	var set, all []string
	for _, s := range settingTable {
		if s.field != field && !strings.HasPrefix(s.field, field+".") {
			continue
		}
		all = append(all, "--"+s.flag)
		if at, ok := a.origins[s.flag]; ok {
			set = append(set, at)
		}
	}
	switch {
	case len(set) > 0:
		return strings.Join(set, ", ")
	case len(all) > 0:
		return all[0]
	case field == "SASL.Token":
		return "--sasl-token-file"
	case field == "Dedupe.Key":
		return a.origins.Of("dedupe-key")
	}
	return field
}

var fieldWord = regexp.MustCompile(`\b(?:Config\.)?[A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)*\b`)

// inFlags replaces the names of Config's fields by those of their flags. A short name counts within the struct of field.
func inFlags(field, text string) string {
	return fieldWord.ReplaceAllStringFunc(text, func(word string) string {
		name := strings.TrimPrefix(word, "Config.")
		parent := field
		if i := strings.LastIndexByte(field, '.'); i >= 0 {
			parent = field[:i]
		}
		for _, candidate := range []string{name, parent + "." + name} {
			switch candidate {
			case "SASL.Password":
				return "--sasl-password-file"
			case "SASL.Token":
				return "--sasl-token-file"
			case "Dedupe.Key":
				return "--dedupe-key"
			}
			if i := slices.IndexFunc(settingTable, func(s setting) bool { return s.field == candidate }); i >= 0 {
				return "--" + settingTable[i].flag
			}
		}
		return word
	})
}

// qualifiedWord is a field's name that can't be anything else.
var qualifiedWord = regexp.MustCompile(`\b(?:Config\.[A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)?|(?:TLS|SASL|DeadLetter|Retry|Commit|Dedupe)\.[A-Z][A-Za-z]+)\b`)

// explained puts an error of the running engine into the command's words.
func explained(err error) error {
	text := explainedText(err.Error())
	if text == err.Error() {
		return err
	}
	return fmt.Errorf("%s", text)
}

func explainedText(text string) string {
	text = qualifiedWord.ReplaceAllStringFunc(text, func(w string) string { return inFlags("", w) })
	return inErrors.Replace(text)
}

var (
	inErrors = strings.NewReplacer("topic: give topic=T, or scope=S", "name the --topic, or the --scope that the keys were given", "check Brokers,", "check --brokers,", "that Brokers has", "that --brokers has", ", User and Password", ", --sasl-user and the password")
	inHints  = strings.NewReplacer("Engine.ReleaseKey", "POST /key/release at --admin-addr", "Engine.ResetBreaker", "POST /breaker/reset at --admin-addr",
		"Engine.Unhold", "POST /partition/unhold at --admin-addr")
)

var (
	// logField is a field of a line of the log, in JSON, that speaks of settings.
	logField = regexp.MustCompile(`"(?:hint|error)":"(?:[^"\\]|\\.)*"`)
	// hintWord is a field's name, or something in quotes (a group, a pattern), which is not one.
	hintWord = regexp.MustCompile(`\\"(?:[^"\\]|\\\\(?:\\.|[^\\])|\\[^"\\])*\\"|` + fieldWord.String())
)

// explainedLog puts the engine's log into the command's words. It gets one line of JSON a Write.
type explainedLog struct{ to io.Writer }

func (l explainedLog) Write(line []byte) (int, error) {
	text := logField.ReplaceAllFunc(line, func(field []byte) []byte {
		key, value, _ := strings.Cut(string(field), ":")
		value = explainedText(value)
		if key == `"hint"` {
			value = hintWord.ReplaceAllStringFunc(inHints.Replace(value), func(w string) string {
				if w[0] == '\\' {
					return w
				}
				return inFlags("", w)
			})
		}
		return []byte(key + ":" + value)
	})
	if _, err := l.to.Write(text); err != nil {
		return 0, err
	}
	return len(line), nil
}

func trimPrefix(s string) string { return strings.TrimPrefix(s, "gapless: ") }
