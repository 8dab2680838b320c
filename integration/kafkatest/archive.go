package kafkatest

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// useArchive gives the distribution a class data archive (AppCDS): the classes of a broker that has
// run a little, ready to be mapped into the next one, which starts in half the time. Making one
// takes some ten seconds, once for every cache and Java runtime.
//
// An archive is a comfort: if it cannot be made, brokers start without.
func (d *distribution) useArchive(ctx context.Context) {
	name := "classes-" + shortHash([]byte(d.classPath), javaIdentity(d.java)) + ".jsa"
	archive, err := makeOnce(d.cache, name, func(path string) error {
		err := d.train(ctx, path)
		if ctx.Err() != nil {
			return err
		}
		if err != nil || !exists(path) {
			// An empty file says that it was tried, and saves the next start from trying again.
			return os.WriteFile(path, nil, 0o644)
		}
		return nil
	})
	if err != nil {
		return
	}
	if info, err := os.Stat(archive); err == nil && info.Size() > 0 {
		d.archive = archive
	}
}

// javaIdentity tells one Java runtime from another without starting it: an archive serves only the
// one that made it.
func javaIdentity(java string) []byte {
	resolved, err := filepath.EvalSymlinks(java)
	if err != nil {
		resolved = java
	}
	release, _ := os.ReadFile(filepath.Join(filepath.Dir(resolved), "..", "release"))
	return append(release, resolved...)
}

// train runs a broker with every listener, uses it, and has the JVM write its archive as it exits.
func (d *distribution) train(ctx context.Context, path string) error {
	cfg, err := newConfig([]Option{Version(d.version), Listeners(AllListeners...)})
	if err != nil {
		return err
	}
	cfg.jvmFlags = []string{"-XX:ArchiveClassesAtExit=" + path}
	c, err := boot(ctx, d, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.exercise(ctx); err != nil {
		return err
	}
	return c.Stop(1)
}

// exercise touches the classes that most tests will need: topics, producing, a group.
func (c *Cluster) exercise(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	const topic = "exercise"
	if err := c.createTopic(ctx, topic, 1, nil); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	record := &kgo.Record{Topic: topic, Value: []byte("v")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	if err := client.PollRecords(ctx, 1).Err0(); err != nil {
		return err
	}
	return client.CommitUncommittedOffsets(ctx)
}
