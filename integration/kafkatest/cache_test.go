package kafkatest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCacheEntryIsMadeOnce(t *testing.T) {
	cache := t.TempDir()
	var made atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			path, err := makeOnce(cache, "entry", func(path string) error {
				made.Add(1)
				return os.WriteFile(path, []byte("whole"), 0o600)
			})
			if err != nil {
				t.Error(err)
			}
			if content, err := os.ReadFile(path); err != nil || string(content) != "whole" {
				t.Errorf("the entry holds %q: %v", content, err)
			}
		})
	}
	group.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
}

func TestBrokenCacheEntryIsNotKept(t *testing.T) {
	cache := t.TempDir()
	broken := errors.New("connection lost")
	_, err := makeOnce(cache, "entry", func(path string) error {
		return errors.Join(os.WriteFile(path, []byte("half"), 0o600), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("the failure became %v", err)
	}
	// What a process leaves behind that dies in the middle.
	leftover := filepath.Join(cache, "entry.unfinished")
	if err := os.WriteFile(leftover, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := makeOnce(cache, "entry", func(path string) error {
		if exists(path) {
			t.Error("the leftover is in the way")
		}
		return os.WriteFile(path, []byte("whole"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if content, _ := os.ReadFile(path); string(content) != "whole" {
		t.Errorf("the entry holds %q", content)
	}
}

func TestPomAndConstantAgreeOnTheVersion(t *testing.T) {
	if !strings.Contains(string(pom), "<kafka.version>"+KafkaVersion+"</kafka.version>") {
		t.Errorf("pom.xml is not for Kafka %s", KafkaVersion)
	}
}

func TestDownloadThatFailsIsNotTakenForKafka(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\necho 'could not resolve host'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "mvn"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(CacheEnv, cache)
	_, err := install(t.Context(), KafkaVersion)
	if err == nil || !strings.Contains(err.Error(), "could not resolve host") {
		t.Errorf("the failure became %v", err)
	}
	if jars, _ := filepath.Glob(filepath.Join(cache, "dist-*", "*")); len(jars) > 0 {
		t.Errorf("the cache holds %v", jars)
	}
}

func TestEmptyCacheNeedsMaven(t *testing.T) {
	java, err := findJava()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("JAVA_HOME", filepath.Dir(filepath.Dir(java)))
	t.Setenv("PATH", t.TempDir())
	t.Setenv(CacheEnv, t.TempDir())
	_, err = install(t.Context(), KafkaVersion)
	if err == nil || !strings.Contains(err.Error(), "no mvn command") || !strings.Contains(err.Error(), BrokersEnv) {
		t.Errorf("without mvn: %v", err)
	}
}
