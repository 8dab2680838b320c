// Package java runs the arms that are Java: Kafka's own clients and tools, and Confluent's Parallel Consumer.
package java

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/gaplesshq/gapless/bench/peers/internal/cache"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

//go:embed src
var sources embed.FS

//go:embed kafka-pom.xml
var kafkaPOM []byte

//go:embed parallel-pom.xml
var parallelPOM []byte

// A Kit is one set of jars with our classes compiled against it: Parallel Consumer brings an older client along than Kafka's tools.
type Kit struct {
	name  string // of the folder of its sources
	pom   []byte
	class string
	flags []string

	java, dir string
}

// Kafka is the kit of Kafka's own clients and tools. Its flags are those of Kafka's start scripts.
func Kafka() *Kit {
	return &Kit{name: "kafka", pom: kafkaPOM, class: "KafkaArm", flags: append([]string{"-Xmx512m"}, scriptFlags...)}
}

// Parallel is the kit of Parallel Consumer. It holds more in memory: it gets twice the heap of the tools.
func Parallel() *Kit {
	return &Kit{name: "parallel", pom: parallelPOM, class: "ParallelArm", flags: append([]string{"-Xmx1g"}, scriptFlags...)}
}

var scriptFlags = []string{
	"-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
}

// Prepare downloads and compiles what is not in the cache yet.
func (k *Kit) Prepare(ctx context.Context) (err error) {
	if k.java, err = find("java", "a Java development kit, version 17 or newer (Debian: openjdk-17-jdk-headless)"); err != nil {
		return err
	}
	id := [][]byte{k.pom}
	files, err := k.sources()
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		id = append(id, []byte(name), text)
	}
	k.dir, err = cache.Make(k.name+"-"+cache.Hash(id...), func(dir string) error { return k.build(ctx, dir, files) })
	return err
}

// sources are the names of the kit's source files.
func (k *Kit) sources() (names []string, err error) {
	for _, folder := range []string{"common", k.name} {
		found, err := fs.Glob(sources, "src/"+folder+"/*.java")
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return names, nil
}

func (k *Kit) build(ctx context.Context, dir string, files []string) error {
	mvn, err := find("mvn", "Apache Maven 3 (Debian: maven), which fetches the jars once")
	if err != nil {
		return err
	}
	javac, err := find("javac", "a Java development kit (Debian: openjdk-17-jdk-headless): a runtime alone has no compiler")
	if err != nil {
		return err
	}
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, k.pom, 0o644); err != nil {
		return err
	}
	lib := filepath.Join(dir, "lib")
	if err := cache.Command(ctx, mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory="+lib); err != nil {
		return err
	}
	line := []string{"-d", filepath.Join(dir, "classes"), "-cp", filepath.Join(lib, "*")}
	for _, name := range files {
		text, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil {
			return err
		}
		line = append(line, file)
	}
	return cache.Command(ctx, javac, line...)
}

// find prefers JAVA_HOME, as Maven does.
func find(command, remedy string) (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" && command != "mvn" {
		if path, err := exec.LookPath(filepath.Join(home, "bin", command)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(command)
	if err != nil {
		return "", fmt.Errorf("there is no %s command: install %s", command, remedy)
	}
	return path, nil
}

// Command is the process of an arm.
func (k *Kit) Command(ctx context.Context, t task.Task) *exec.Cmd {
	line := append([]string{}, k.flags...)
	// The processors that Go sees, not those that a container's quota would have Java round down to.
	line = append(line, fmt.Sprintf("-XX:ActiveProcessorCount=%d", runtime.NumCPU()))
	line = append(line, "-cp", filepath.Join(k.dir, "classes")+string(os.PathListSeparator)+filepath.Join(k.dir, "lib", "*"), k.class)
	return exec.CommandContext(ctx, k.java, append(line, t.Args()...)...)
}
