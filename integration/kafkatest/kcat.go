package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNoKcat is in the error of [Kcat] where the command cannot be had on this machine.
var ErrNoKcat = errors.New("kafkatest: there is no kcat")

// kcatPackages are Debian's packages of kcat and of what it needs that few systems have already.
var kcatPackages = []string{"kcat", "librdkafka1", "libyajl2"}

// Kcat runs kcat, a client that shares no code with Java's or with this repository's, and returns its
// standard output. Where it is not installed, Debian's packages are unpacked into the cache folder, which
// needs no rights.
func Kcat(ctx context.Context, args ...string) (string, error) {
	path, libraries, err := findKcat(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoKcat, err)
	}
	return output(kcatCommand(ctx, path, libraries, args...))
}

func kcatCommand(ctx context.Context, path, libraries string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	if libraries != "" {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
	}
	return cmd
}

func findKcat(ctx context.Context) (path, libraries string, err error) {
	for _, name := range []string{"kcat", "kafkacat"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, "", nil
		}
	}
	cache, err := cacheFolder(KafkaVersion)
	if err != nil {
		return "", "", err
	}
	root, err := makeOnce(cache, "kcat", func(dir string) error { return unpackKcat(ctx, dir) })
	if err != nil {
		return "", "", err
	}
	return unpackedKcat(root)
}

func unpackedKcat(root string) (path, libraries string, err error) {
	found, err := filepath.Glob(filepath.Join(root, "usr", "lib", "*", "librdkafka.so.1"))
	if err != nil || len(found) == 0 {
		return "", "", errors.Join(err, fmt.Errorf("no librdkafka in %s", root))
	}
	return filepath.Join(root, "usr", "bin", "kcat"), filepath.Dir(found[0]), nil
}

// unpackKcat fetches the packages with apt, by its own list of packages if the system's is none or old.
func unpackKcat(ctx context.Context, root string) error {
	work, err := os.MkdirTemp("", "gapless-kcat-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.MkdirAll(filepath.Join(work, "cache", "archives", "partial"), 0o755); err != nil {
		return err
	}
	apt := func(args ...string) error {
		options := []string{"-qq", "-o", "Dir::Cache=" + filepath.Join(work, "cache"), "-o", "APT::Sandbox::User=root"}
		cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
		cmd.Dir = work
		_, err := output(cmd)
		return err
	}
	download := append([]string{"download"}, kcatPackages...)
	if apt(download...) != nil {
		lists := filepath.Join(work, "lists")
		if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
			return err
		}
		own := []string{"-o", "Dir::State::Lists=" + lists, "-o", "Debug::NoLocking=1"}
		if err := errors.Join(apt(append(own, "update")...), apt(append(own, download...)...)); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if _, err := output(exec.CommandContext(ctx, "dpkg-deb", "-x", p, root)); err != nil {
			return err
		}
	}
	path, libraries, err := unpackedKcat(root)
	if err != nil {
		return err
	}
	// A library that the system lacks shows now.
	_, err = output(kcatCommand(ctx, path, libraries, "-V"))
	return err
}
