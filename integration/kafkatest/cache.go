package kafkatest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CacheEnv names the environment variable that says where jars and what is made from them are kept.
const CacheEnv = "GAPLESS_KAFKA_CACHE"

func cacheFolder(version string) (string, error) {
	dir := os.Getenv(CacheEnv)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("kafkatest: no cache folder, set %s: %w", CacheEnv, err)
		}
		dir = filepath.Join(user, "gapless", "kafka-"+version)
	}
	// Absolute, because the class path, which the class data archive remembers, is made from it.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("kafkatest: %w", err)
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// makeOnce returns the path of an entry of the cache folder, made by the given function if it is
// not there yet. Make works on a path of its own that is renamed when all is well, so that an entry
// is either whole or absent, and of many processes that want it at once one makes it while the
// others wait.
func makeOnce(cache, name string, make func(path string) error) (string, error) {
	entry := filepath.Join(cache, name)
	if exists(entry) {
		return entry, nil
	}
	lock, err := os.OpenFile(entry+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := lockFile(lock); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if exists(entry) {
		return entry, nil
	}
	// With the lock in hand, whatever lies at the unfinished path was left by someone who died.
	unfinished := entry + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := make(unfinished); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return entry, os.Rename(unfinished, entry)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
