// Package cache keeps what is downloaded or compiled once: jars, classes, a Python environment.
package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Dir names the environment variable that says where it is kept, by default gapless/peers in the user's cache folder.
const Dir = "GAPLESS_PEERS_CACHE"

// Make returns the folder of an entry, which the function fills if it is not there yet. The name should change with what goes in:
// see Hash. It must not depend on the folder that it is filled in, which is renamed when it is complete: an entry is whole or absent,
// and if two processes make one at once, the first one's stays.
func Make(name string, fill func(dir string) error) (string, error) {
	root := os.Getenv(Dir)
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder, set %s: %w", Dir, err)
		}
		root = filepath.Join(user, "gapless", "peers")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	entry := filepath.Join(root, name)
	if exists(entry) {
		return entry, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	unfinished, err := os.MkdirTemp(root, name+".unfinished-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(unfinished) }() // nothing is left of it if all went well
	if err := fill(unfinished); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, entry); err != nil && !exists(entry) {
		return "", err
	}
	return entry, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Hash is a short name for what it is given.
func Hash(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6])
}

// Command runs a command to its end. Its error holds the end of what the command wrote.
func Command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, Tail(out.String(), 5))
	}
	return nil
}

// Tail is the last lines of a text that are not empty, as one line.
func Tail(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
