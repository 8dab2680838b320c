package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/integration/proof"
)

// left is a copy of a store as a process left it when it ended: the next life is to find the store itself as it was.
type left struct {
	host, dir string
	at        time.Time
}

// copyStore copies a store whose process is gone. There is none where the process did not get that far.
func copyStore(host, from, to string) (*left, error) {
	at := time.Now()
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return nil, fmt.Errorf("copy the store of %s: %w", host, err)
	}
	return &left{host, to, at}, nil
}

// marks opens the copy, as the next life opens the store, by recovery from its log, and asks it for business keys.
func (l *left) marks(group, topic string, ids []string) (marks []proof.Mark, err error) {
	s, err := dedupe.Open(l.dir, dedupe.Options{})
	if err != nil {
		return nil, fmt.Errorf("open the store that %s left at %s: %w", l.host, l.at.Format(clockFormat), err)
	}
	defer func() { err = errors.Join(err, s.Close(), os.RemoveAll(l.dir)) }()
	scope := s.Scope(group + "\x00" + topic)
	for _, id := range ids {
		_, found, err := s.Get(scope.Key([]byte(id)))
		if err != nil {
			return marks, fmt.Errorf("ask the store that %s left at %s for %q: %w", l.host, l.at.Format(clockFormat), id, err)
		}
		if found {
			marks = append(marks, proof.Mark{Host: l.host, ID: id, At: l.at})
		}
	}
	return marks, nil
}

// clockFormat is how times are shown.
const clockFormat = "15:04:05.000"
