package kafkatest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	// KafkaVersion is the version of Kafka that this package starts unless [Version] says otherwise.
	KafkaVersion = "4.4.0"
	// OlderKafkaVersion is of the last line before 4.0, which many still run.
	OlderKafkaVersion = "3.9.1"
)

//go:embed assets/pom.xml
var pom []byte

//go:embed assets/log4j2-broker.properties
var brokerLogging []byte

//go:embed assets/log4j2-tool.properties
var toolLogging []byte

// jvmFlags suit a process that lives for seconds: one garbage collector thread, no optimizing
// compiler. Do not measure throughput with them: see [JVM].
var jvmFlags = []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// A distribution is a Kafka that can be run.
type distribution struct {
	version   string
	cache     string
	home      string
	java      string
	classPath string
	// archive is the path of the class data archive, or empty to do without.
	archive string
}

// install finds a version of Kafka in the cache, or brings it there.
func install(ctx context.Context, version string) (*distribution, error) {
	java, err := findJava()
	if err != nil {
		return nil, err
	}
	cache, err := cacheFolder(version)
	if err != nil {
		return nil, err
	}
	// A new list of jars makes a new entry, rather than a mixture with the old one.
	name := "dist-" + shortHash([]byte(version), pom, brokerLogging, toolLogging)
	home, err := makeOnce(cache, name, func(path string) error { return download(ctx, version, path) })
	if err != nil {
		return nil, fmt.Errorf("kafkatest: install Kafka %s: %w", version, err)
	}
	dist := &distribution{version: version, cache: cache, home: home, java: java}
	if dist.classPath, err = classPath(filepath.Join(home, "lib")); err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	return dist, nil
}

// findJava prefers JAVA_HOME, as Maven does.
func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if java, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", missing("java", "a Java runtime, version 17 or newer (Debian: openjdk-17-jre-headless, Homebrew: openjdk)", err)
	}
	return java, nil
}

func missing(command, remedy string, err error) error {
	return fmt.Errorf("kafkatest: there is no %s command: install %s, or set %s to the host:port of a broker that is running already: %w",
		command, remedy, BrokersEnv, err)
}

// download makes a folder with Kafka's jars, as Maven resolves them, and the logging settings.
func download(ctx context.Context, version, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return missing("mvn", "Apache Maven 3 (Debian: maven, Homebrew: maven), which fetches Kafka once", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pomFile := filepath.Join(dir, "pom.xml")
	err = errors.Join(
		os.WriteFile(pomFile, pom, 0o644),
		os.WriteFile(filepath.Join(dir, "log4j2-broker.properties"), brokerLogging, 0o644),
		os.WriteFile(filepath.Join(dir, "log4j2-tool.properties"), toolLogging, 0o644),
	)
	if err != nil {
		return err
	}
	lib := filepath.Join(dir, "lib")
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pomFile, "-Dkafka.version="+version, "dependency:copy-dependencies",
		// Before 4.0 the tools bring a logging of their own along, which would take our binding's place.
		"-DexcludeArtifactIds=slf4j-reload4j",
		"-DoutputDirectory="+lib)
	if _, err := output(cmd); err != nil {
		return err
	}
	if !exists(filepath.Join(lib, "kafka_2.13-"+version+".jar")) {
		return fmt.Errorf("mvn reported success, but there is no Kafka %s in %s", version, lib)
	}
	return nil
}

// classPath lists the jars one by one, because the class data archive wants them in one order always
// and that of lib/* is the file system's.
func classPath(lib string) (string, error) {
	jars, err := filepath.Glob(filepath.Join(lib, "*.jar"))
	if err != nil {
		return "", err
	}
	slices.Sort(jars)
	return strings.Join(jars, string(os.PathListSeparator)), nil
}

// command prepares a Java process; its logging is that of a "broker" or of a "tool".
func (d *distribution) command(ctx context.Context, logging string, flags []string, class string, args ...string) *exec.Cmd {
	line := slices.Clone(jvmFlags)
	if d.archive != "" {
		// A JVM that cannot use the archive carries on without; its warning would be in the way
		// of a tool's answer.
		line = append(line, "-XX:SharedArchiveFile="+d.archive, "-Xshare:auto", "-Xlog:disable")
	}
	line = append(line, flags...)
	line = append(line,
		"-Dlog4j2.configurationFile="+filepath.Join(d.home, "log4j2-"+logging+".properties"),
		"-cp", d.classPath, class)
	return exec.CommandContext(ctx, d.java, append(line, args...)...)
}

// output runs a command to its end and returns what it wrote to its standard output. The error of a
// command that failed holds the end of everything it wrote.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	dieWithParent(cmd)
	// The kernel takes the thread that started a process for its parent: it must live on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		words := lastLines(stdout.String()+stderr.String(), 30)
		return stdout.String(), fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, words)
	}
	return stdout.String(), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func shortHash(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6])
}
