// Package python runs aiokafka, in an environment of its own.
package python

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/gaplesshq/gapless/bench/peers/internal/cache"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

//go:embed arm.py
var program []byte

//go:embed requirements.txt
var requirements []byte

// A Kit is the environment.
type Kit struct{ python, script string }

// Prepare makes the environment, unless the cache has it.
func (k *Kit) Prepare(ctx context.Context) error {
	python, err := find()
	if err != nil {
		return err
	}
	dir, err := cache.Make("aiokafka-"+cache.Hash([]byte(python), requirements, program), func(dir string) error {
		wanted := filepath.Join(dir, "requirements.txt")
		err := errors.Join(
			os.WriteFile(wanted, requirements, 0o644),
			os.WriteFile(filepath.Join(dir, "arm.py"), program, 0o644),
			cache.Command(ctx, python, "-m", "venv", filepath.Join(dir, "venv")),
		)
		if err != nil {
			return err
		}
		return cache.Command(ctx, interpreter(dir), "-m", "pip", "install", "--disable-pip-version-check", "-q", "-r", wanted)
	})
	if err != nil {
		return err
	}
	k.python, k.script = interpreter(dir), filepath.Join(dir, "arm.py")
	return nil
}

func find() (string, error) {
	for _, name := range []string{"python3", "python"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no python3 command: install Python 3.10 or newer with venv (Debian: python3-venv)")
}

func interpreter(dir string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(dir, "venv", "Scripts", "python.exe")
	}
	return filepath.Join(dir, "venv", "bin", "python")
}

// Command is the process of an arm.
func (k *Kit) Command(ctx context.Context, t task.Task) *exec.Cmd {
	return exec.CommandContext(ctx, k.python, append([]string{k.script}, t.Args()...)...)
}
