package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// formatted returns a folder as Kafka's StorageTool formats it, knowing the given users. The tool
// is a JVM to wait for, so each set of users is formatted once and copied for every broker.
func (d *distribution) formatted(ctx context.Context, users []credential) (string, error) {
	args := []string{"format", "--cluster-id", randomID()}
	for _, u := range users {
		for _, mechanism := range scramMechanisms {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, u.user, u.password))
		}
	}
	name := "storage-" + shortHash([]byte(filepath.Base(d.home)), fmt.Append(nil, users))
	return makeOnce(d.cache, name, func(path string) error {
		dir, err := os.MkdirTemp("", "gapless-kafka-format-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		template := &node{id: 1, dir: dir, controllerPort: 1, ports: map[Listener]int{Plaintext: 2}}
		plain := config{nodes: 1, listeners: []Listener{Plaintext}}
		if err := serverProperties(plain, template, "1@127.0.0.1:1", nil).write(template.propertiesPath()); err != nil {
			return err
		}
		args = append(args, "--config", template.propertiesPath())
		if _, err := output(d.command(ctx, "tool", nil, "kafka.tools.StorageTool", args...)); err != nil {
			return fmt.Errorf("format storage: %w", err)
		}
		return copyFolder(template.dataDir(), path)
	})
}

// adoptStorage copies a formatted folder and makes it this broker's own: the same records, another
// identity.
func (n *node) adoptStorage(formatted, clusterID string) error {
	if err := copyFolder(formatted, n.dataDir()); err != nil {
		return err
	}
	identity := new(propertiesFile)
	identity.set("version", "1")
	identity.set("cluster.id", clusterID)
	identity.set("node.id", fmt.Sprint(n.id))
	identity.set("directory.id", randomID())
	return identity.write(filepath.Join(n.dataDir(), "meta.properties"))
}

// randomID returns a Kafka UUID. Kafka keeps the first few for itself, and command lines take one
// that begins with a dash for an option.
func randomID() string {
	for {
		var id [16]byte
		_, _ = rand.Read(id[:])
		text := base64.RawURLEncoding.EncodeToString(id[:])
		if !strings.HasPrefix(text, "-") {
			return text
		}
	}
}

// copyFolder copies files and folders, and lets the owner write what was read-only.
func copyFolder(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
}
