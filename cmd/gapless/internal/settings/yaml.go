package settings

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// strictYAML is a koanf parser that keeps every value as it was written, and the line it was written on. A plain decoder
// would have turned 007 into 7, yes into true and a date into a time before the flag could see it.
//
// Keys are flag names. A prefix that several share may be written once:
//
//	retry:
//	  attempts: 5     # retry-attempts
//	  max: 30s        # retry-max
type strictYAML struct {
	path  string
	lines map[string]int
}

func (p *strictYAML) Unmarshal(b []byte) (map[string]any, error) {
	p.lines = map[string]int{}
	out := map[string]any{}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return out, nil
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("is not a list of `name: value` lines")
	}
	return out, p.walk(doc.Content[0], "", out, 1)
}

func (p *strictYAML) Marshal(map[string]any) ([]byte, error) {
	return nil, errors.New("settings are read only")
}

// deepest is how deep names may be nested; no flag has so many words. An alias can stand within what it stands for, and a few
// lines of them for millions.
const (
	deepest  = 10
	mostKeys = 10_000
)

func (p *strictYAML) walk(m *yaml.Node, prefix string, out map[string]any, level int) error {
	switch {
	case level > deepest:
		return fmt.Errorf("line %d: names are nested more than %d deep", m.Line, deepest)
	case len(p.lines) > mostKeys:
		return fmt.Errorf("line %d: there are more than %d names", m.Line, mostKeys)
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, v := prefix+m.Content[i].Value, m.Content[i+1]
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		if v.Kind == yaml.MappingNode {
			if err := p.walk(v, key+"-", out, level+1); err != nil {
				return err
			}
			continue
		}
		line := m.Content[i].Line
		if first, twice := p.lines[key]; twice {
			return fmt.Errorf("line %d: %s is given twice, first on line %d", line, key, first)
		}
		p.lines[key] = line
		switch {
		case v.Kind == yaml.SequenceNode:
			list := make([]string, len(v.Content))
			for j, item := range v.Content {
				if item.Kind != yaml.ScalarNode {
					return fmt.Errorf("line %d: %s is not a list of plain values", item.Line, key)
				}
				list[j] = item.Value
			}
			out[key] = list
		case v.ShortTag() == "!!null":
			return fmt.Errorf("line %d: %s has no value; remove the line for the default", line, key)
		default:
			out[key] = v.Value
		}
	}
	return nil
}
