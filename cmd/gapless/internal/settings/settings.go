// Package settings gives every flag of a command three more ways to be set: an environment variable, a key of a YAML file,
// and its default. A flag on the command line wins over the environment, that over the file, and that over the default.
//
// All of them go through the flag's own Set, so that a value means the same wherever it is written and a wrong one is refused
// with the same words, preceded by the place it was found in.
package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// Prefix begins the name of every environment variable.
const Prefix = "GAPLESS_"

// onlyFlags can't come from elsewhere: help is not a setting, and the file is what is being looked for.
var onlyFlags = []string{"help", "version", "config"}

// Error is a value that was refused, or a name that is not known. It says where it was written.
type Error struct {
	Origin string // --workers, GAPLESS_WORKERS, or gapless.yaml:3: workers
	Err    error
}

func (e *Error) Error() string { return e.Origin + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Origins says where the value of each flag was written, by the flag's name. What stands at its default is not in it.
type Origins map[string]string

// Of names the place where the flag was set; for one that was not, the flag itself.
func (o Origins) Of(flag string) string {
	if s, ok := o[flag]; ok {
		return s
	}
	return "--" + flag
}

// EnvName is the environment variable of a flag.
func EnvName(flag string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Apply sets the flags that were not given on the command line from the environment and from the file at path ("" = none).
// A key of the file that is not a flag is refused, unless foreign knows it: one file may serve several commands.
func Apply(flags *pflag.FlagSet, environ []string, path string, foreign func(key string) bool) (Origins, error) {
	origins := Origins{}
	values := koanf.New(".")
	if path != "" {
		doc := &strictYAML{path: path}
		if err := values.Load(file.Provider(path), doc); err != nil {
			return nil, &Error{Origin: path, Err: err}
		}
		for key, at := range doc.lines {
			f := flags.Lookup(key)
			switch {
			case slices.Contains(onlyFlags, key), f == nil && !foreign(key):
				return nil, &Error{Origin: fmt.Sprintf("%s:%d", path, at), Err: unknownKey(flags, key)}
			case f == nil:
				values.Delete(key)
			}
			origins[key] = fmt.Sprintf("%s:%d: %s", path, at, key)
		}
	}
	if err := loadEnv(values, flags, environ, origins); err != nil {
		return nil, err
	}
	for key, v := range values.All() {
		f := flags.Lookup(key)
		if f.Changed {
			origins[key] = "--" + key
			continue
		}
		if err := set(f, v); err != nil {
			return nil, &Error{Origin: origins[key], Err: err}
		}
	}
	flags.Visit(func(f *pflag.Flag) {
		if _, elsewhere := values.All()[f.Name]; !elsewhere {
			origins[f.Name] = "--" + f.Name
		}
	})
	return origins, nil
}

// loadEnv lays the environment over the file. An empty variable counts as unset, as a shell's ${X:-} does.
func loadEnv(values *koanf.Koanf, flags *pflag.FlagSet, environ []string, origins Origins) error {
	byEnv := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(onlyFlags, f.Name) {
			byEnv[EnvName(f.Name)] = f.Name
		}
	})
	layer := koanf.New(".")
	err := layer.Load(env.Provider(".", env.Opt{
		Prefix:      Prefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(k, v string) (string, any) {
			if v == "" {
				return "", nil
			}
			return byEnv[k], v
		},
	}), nil)
	if err != nil {
		return err
	}
	for key := range layer.All() {
		origins[key] = EnvName(key)
	}
	return values.Load(confmap.Provider(layer.All(), ""), nil)
}

// set gives a flag its value. A list of the file replaces a list flag's content; elsewhere lists are separated by commas.
func set(f *pflag.Flag, v any) error {
	switch v := v.(type) {
	case string:
		if err := f.Value.Set(v); err != nil {
			return fmt.Errorf("%q: %w", v, err)
		}
	case []string:
		list, ok := f.Value.(pflag.SliceValue)
		if !ok {
			return fmt.Errorf("takes one value, not a list")
		}
		if err := list.Replace(v); err != nil {
			return err
		}
	}
	f.Changed = true
	return nil
}

func unknownKey(flags *pflag.FlagSet, key string) error {
	if strings.HasPrefix(key, "sasl-password") || strings.HasPrefix(key, "sasl-token") {
		return fmt.Errorf("unknown key %q: secrets have no place among settings; use sasl-password-file, sasl-token-file or %sSASL_PASSWORD", key, Prefix)
	}
	if near := Nearest(flags, key); near != "" {
		return fmt.Errorf("unknown key %q; did you mean %q?", key, near)
	}
	return fmt.Errorf("unknown key %q; keys are the names of the flags, without the dashes in front", key)
}

// Nearest is the flag that differs from name by the fewest letters, where they are few.
func Nearest(flags *pflag.FlagSet, name string) string {
	best, found := 3, ""
	flags.VisitAll(func(f *pflag.Flag) {
		if d := distance(f.Name, name); d < best && !slices.Contains(onlyFlags, f.Name) {
			best, found = d, f.Name
		}
	})
	return found
}

// distance is how many letters have to be added, removed or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
