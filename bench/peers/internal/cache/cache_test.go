package cache

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestEntryIsMadeOnceAndWhole(t *testing.T) {
	root := t.TempDir()
	t.Setenv(Dir, root)
	broken := errors.New("no network")
	if _, err := Make("jars", func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a broken one: %v", err)
	}
	if left, _ := os.ReadDir(root); len(left) != 0 {
		t.Errorf("a broken one left %v", left)
	}
	made := 0
	for range 2 {
		dir, err := Make("jars", func(dir string) error {
			made++
			return os.WriteFile(filepath.Join(dir, "a.jar"), nil, 0o644)
		})
		if err != nil || !exists(filepath.Join(dir, "a.jar")) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if left, _ := os.ReadDir(root); made != 1 || len(left) != 1 {
		t.Errorf("made %d times, and left %v", made, left)
	}
}

func TestSecondMakerTakesWhatTheFirstMade(t *testing.T) {
	t.Setenv(Dir, t.TempDir())
	dir, err := Make("jars", func(string) error {
		// Somebody else is quicker.
		_, err := Make("jars", func(dir string) error { return os.WriteFile(filepath.Join(dir, "theirs.jar"), nil, 0o644) })
		return err
	})
	if err != nil || !exists(filepath.Join(dir, "theirs.jar")) {
		t.Errorf("%s: %v", dir, err)
	}
}

func TestTailIsOneLine(t *testing.T) {
	if got := Tail("a\n\nb\n  c\n", 2); got != "b | c" {
		t.Errorf("%q", got)
	}
	if got := Tail("", 2); got != "" {
		t.Errorf("%q", got)
	}
}
