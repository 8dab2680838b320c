package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// world is what the runs of a sweep need around them: brokers, topics, a server, a directory.
type world struct {
	cfg      *Config
	id       string // keeps this sweep's topics and groups apart from others' on a shared cluster
	n        int    // of topics and groups so far
	dir      string
	children []*child
	endless  map[Case]string // brokers by the log that they serve
	produced map[Case]string // topics by their log
	live     string          // the embedded broker that keeps what is produced
	servers  map[time.Duration]string
}

func newWorld(cfg *Config) (*world, error) {
	dir, err := os.MkdirTemp("", "gapless-bench")
	if err != nil {
		return nil, err
	}
	return &world{cfg: cfg, id: fmt.Sprintf("%08x", rand.Uint32()), dir: dir, endless: map[Case]string{}, produced: map[Case]string{}, servers: map[time.Duration]string{}}, nil
}

// close removes what was made: on a cluster of somebody's the topics and groups, too.
func (w *world) close() error {
	var errs []error
	for _, topic := range w.produced {
		if len(w.cfg.Brokers) > 0 && w.cfg.Topic == "" {
			errs = append(errs, w.drop(topic))
		}
	}
	for _, c := range w.children {
		errs = append(errs, c.end())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// reach sees to it that somebody's brokers answer: a consumer would wait for them for ever.
func (w *world) reach(ctx context.Context) error {
	if len(w.cfg.Brokers) == 0 {
		return nil
	}
	cl, err := w.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("brokers %s: %w", strings.Join(w.cfg.Brokers, ","), err)
	}
	return nil
}

func (w *world) name(what string) string {
	w.n++
	return fmt.Sprintf("gapless-bench-%s-%s-%d", w.id, what, w.n)
}

// logOf is what a log depends on.
func logOf(c Case) Case {
	l := Case{RecordBytes: c.RecordBytes, Partitions: c.Partitions, Keys: c.Keys, Nulls: c.Nulls, Compression: c.Compression, Rate: c.Rate, Records: c.Records}
	return l
}

// job prepares a run: its log is there when job returns, unless it is produced while it runs (feed). cleanup removes what it has
// for itself.
func (w *world) job(ctx context.Context, arm Arm, c Case) (j *job, cleanup func() error, err error) {
	j = &job{Arm: arm, Case: c, Group: w.name("group"), Warm: w.cfg.Warm, Duration: w.cfg.Duration, Limit: w.cfg.Limit, Until: w.cfg.until, Idle: w.cfg.idle, Window: w.cfg.window,
		TLS: w.cfg.TLS, Mechanism: w.cfg.SASL.Mechanism, User: w.cfg.SASL.User, Password: w.cfg.SASL.Password,
		user: w.cfg.Handler, users: w.cfg.BatchHandler}
	cleanup = func() error { return nil }
	if w.cfg.Record != nil && !arm.consumes() {
		b, err := newCanned(c, w.cfg.Record)
		if err != nil {
			return nil, cleanup, err
		}
		j.Batch = b.raw
	}
	if c.Handler.Kind == HandlerHTTP && arm != ArmBare && arm != ArmDecode {
		if j.URL, err = w.server(c.Handler.Mean); err != nil {
			return nil, cleanup, err
		}
	}
	if !arm.consumes() {
		return j, cleanup, nil
	}
	j.Dir = filepath.Join(w.dir, j.Group)
	cleanup = func() error { return os.RemoveAll(j.Dir) }
	switch {
	case w.cfg.Topic != "":
		j.Brokers, j.Topic = w.cfg.Brokers, w.cfg.Topic
	case c.Rate == 0 && c.Records == 0 && !w.cfg.idle:
		j.Topic = endlessTopic
		var addr string
		addr, err = w.serveEndless(c)
		j.Brokers = []string{addr}
	default:
		if j.Brokers, err = w.brokers(); err != nil {
			return nil, cleanup, err
		}
		j.Topic, err = w.topic(ctx, c)
		if c.Rate > 0 && err == nil {
			cleanup = func() error { return errors.Join(os.RemoveAll(j.Dir), w.drop(j.Topic)) }
		}
	}
	if err == nil && len(w.cfg.Brokers) > 0 {
		remove := cleanup
		cleanup = func() error { return errors.Join(remove(), w.forget(j.Group)) }
	}
	return j, cleanup, err
}

func (w *world) server(after time.Duration) (string, error) {
	if url, ok := w.servers[after]; ok {
		return url, nil
	}
	c, url, err := startAddress("server", serverJob{After: after}, nil)
	if err != nil {
		return "", err
	}
	w.children = append(w.children, c)
	w.servers[after] = url
	return url, nil
}

// serveEndless is the address of a broker that serves the case's log for ever.
func (w *world) serveEndless(c Case) (string, error) {
	key := logOf(c)
	if addr, ok := w.endless[key]; ok {
		return addr, nil
	}
	b, err := newCanned(c, w.cfg.Record)
	if err != nil {
		return "", err
	}
	p, addr, err := startAddress("broker", brokerJob{Partitions: c.Partitions, Bytes: len(b.raw)}, b.raw)
	if err != nil {
		return "", err
	}
	w.children = append(w.children, p)
	w.endless[key] = addr
	return addr, nil
}

// brokers are those that keep what is produced: somebody's, or an embedded one.
func (w *world) brokers() ([]string, error) {
	if len(w.cfg.Brokers) > 0 {
		return w.cfg.Brokers, nil
	}
	if w.live == "" {
		c, addr, err := startAddress("broker", brokerJob{}, nil)
		if err != nil {
			return nil, err
		}
		w.children = append(w.children, c)
		w.live = addr
	}
	return []string{w.live}, nil
}

// topic is one with the case's log, or an empty one where that is produced at a rate.
func (w *world) topic(ctx context.Context, c Case) (string, error) {
	key := logOf(c)
	if topic, ok := w.produced[key]; ok {
		return topic, nil
	}
	topic := w.name("log")
	cl, err := w.client()
	if err != nil {
		return "", err
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, int32(c.Partitions), -1, nil, topic); err != nil {
		return "", fmt.Errorf("create topic %s: %w", topic, err)
	}
	if c.Rate > 0 {
		return topic, nil
	}
	w.produced[key] = topic
	if c.Records == 0 {
		return topic, nil
	}
	w.cfg.say("produce %s records to topic %s", count(c.Records), topic)
	return topic, w.fill(ctx, c, topic)
}

func (w *world) client(opts ...kgo.Opt) (*kgo.Client, error) {
	brokers, err := w.brokers()
	if err != nil {
		return nil, err
	}
	j := job{Brokers: brokers, TLS: w.cfg.TLS, Mechanism: w.cfg.SASL.Mechanism, User: w.cfg.SASL.User, Password: w.cfg.SASL.Password}
	connect, err := j.connect()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(connect, opts...)...)
}

// cleanWithin bounds what is tidied up behind a run: the broker may have gone.
const cleanWithin = 10 * time.Second

func (w *world) drop(topic string) error {
	return w.tidy(func(ctx context.Context, adm *kadm.Client) error {
		_, err := adm.DeleteTopic(ctx, topic)
		return err
	})
}

func (w *world) forget(group string) error {
	return w.tidy(func(ctx context.Context, adm *kadm.Client) error {
		_, err := adm.DeleteGroup(ctx, group)
		return err
	})
}

func (w *world) tidy(do func(context.Context, *kadm.Client) error) error {
	cl, err := w.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
	defer cancel()
	return do(ctx, kadm.NewClient(cl))
}
