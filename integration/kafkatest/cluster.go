package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// BrokersEnv names the environment variable that lists brokers, host:port separated by commas, to
// use instead of starting some.
const BrokersEnv = "GAPLESS_TEST_BROKERS"

// A Cluster is one or more brokers on this machine. Its methods may be called concurrently.
type Cluster struct {
	cfg   config
	dist  *distribution
	dir   string
	certs *certificates
	nodes []*node
	// networks lead to the nodes through proxies.
	networks []*Network
	// others are the addresses of brokers that were running already; then there are no nodes.
	others []string

	client *kgo.Client
	admin  *kadm.Client
	keep   atomic.Bool // whether the folder outlives the cluster
}

// Start starts a cluster for a test and ends it with the test. If the test fails, the brokers' logs
// are kept and their ends shown.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	c, err := New(tb.Context(), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.reportFailure(tb)
		if err := c.Close(); err != nil {
			tb.Errorf("close the cluster: %v", err)
		}
	})
	return c
}

// New starts a cluster and returns when all its brokers serve requests. The context bounds the
// start only; the cluster runs until it is closed.
func New(ctx context.Context, opts ...Option) (*Cluster, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if brokers := os.Getenv(BrokersEnv); brokers != "" {
		return join(cfg, strings.Fields(strings.ReplaceAll(brokers, ",", " ")))
	}
	dist, err := install(ctx, cfg.version)
	if err != nil {
		return nil, err
	}
	dist.useArchive(ctx)
	return boot(ctx, dist, cfg)
}

// join makes a cluster of brokers that are running already.
func join(cfg config, brokers []string) (*Cluster, error) {
	if len(cfg.demands) > 0 {
		return nil, fmt.Errorf("kafkatest: this test asks for %s, which the brokers in %s=%s cannot be given: unset it to run this test",
			strings.Join(cfg.demands, ", "), BrokersEnv, strings.Join(brokers, ","))
	}
	c := &Cluster{cfg: cfg, others: brokers, certs: new(certificates)}
	return c, c.openAdmin()
}

// boot starts brokers of our own, again with other ports if someone was quicker.
func boot(ctx context.Context, dist *distribution, cfg config) (*Cluster, error) {
	var err error
	for range 5 {
		var c *Cluster
		if c, err = prepare(ctx, dist, cfg); err != nil {
			return nil, err
		}
		if err = c.launchAll(ctx); err == nil {
			return c, nil
		}
		// The log of a start that failed is all there is to learn from.
		portTaken := errors.Is(err, errPortTaken)
		c.keep.Store(!portTaken)
		err = errors.Join(err, c.Close())
		if !portTaken {
			break
		}
	}
	return nil, err
}

// prepare makes a cluster's folder, with everything in it that its brokers need.
func prepare(ctx context.Context, dist *distribution, cfg config) (*Cluster, error) {
	formatted, err := dist.formatted(ctx, cfg.users)
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	dir, err := os.MkdirTemp("", "gapless-kafka-")
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	c := &Cluster{cfg: cfg, dist: dist, dir: dir}
	if err := c.furnish(formatted); err != nil {
		return nil, errors.Join(fmt.Errorf("kafkatest: %w", err), os.RemoveAll(dir))
	}
	return c, nil
}

func (c *Cluster) furnish(formatted string) (err error) {
	if c.certs, err = writeCertificates(filepath.Join(c.dir, "certs")); err != nil {
		return err
	}
	if err := c.addNodes(); err != nil {
		return err
	}
	var voters []string
	for _, n := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", n.id, n.controllerAddress()))
	}
	clusterID := randomID()
	for _, n := range c.nodes {
		if err := n.adoptStorage(formatted, clusterID); err != nil {
			return err
		}
		properties := serverProperties(c.cfg, n, strings.Join(voters, ","), c.certs)
		if err := properties.write(n.propertiesPath()); err != nil {
			return err
		}
	}
	return c.openAdmin()
}

// addNodes gives every broker its number, folder and ports.
func (c *Cluster) addNodes() error {
	perNode := 1 + len(c.cfg.listeners) + 2*c.cfg.networks
	free, err := freePorts(c.cfg.nodes * perNode)
	if err != nil {
		return err
	}
	take := func() int {
		port := free[0]
		free = free[1:]
		return port
	}
	for range c.cfg.networks {
		c.networks = append(c.networks, new(Network))
	}
	for i := range c.cfg.nodes {
		n := &node{
			id:             i + 1,
			dir:            filepath.Join(c.dir, fmt.Sprintf("broker-%d", i+1)),
			ports:          make(map[Listener]int),
			controllerPort: take(),
		}
		for _, l := range c.cfg.listeners {
			n.ports[l] = take()
		}
		for _, network := range c.networks {
			p := newProxy(address(take()), address(take()))
			n.proxies = append(n.proxies, p)
			network.proxies = append(network.proxies, p)
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

func (c *Cluster) openAdmin() error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.ClientID("kafkatest"))
	if err != nil {
		return fmt.Errorf("kafkatest: %w", err)
	}
	c.client, c.admin = client, kadm.NewClient(client)
	return nil
}

// launchAll starts all brokers at once, for none is ready before there is a quorum.
func (c *Cluster) launchAll(ctx context.Context) error {
	if err := c.openNetworks(); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := n.launch(c.dist, c.cfg.jvmFlags); err != nil {
			return err
		}
	}
	// One broker that fails ends the wait for the others.
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		group.Go(func() error { return n.awaitService(ctx) })
	}
	return group.Wait()
}

// Close kills the brokers and removes their data. Brokers that were running already stay as they
// are.
func (c *Cluster) Close() error {
	if c.client != nil {
		c.client.Close()
	}
	for _, n := range c.nodes {
		n.kill()
	}
	c.closeNetworks()
	if c.dir == "" || c.keep.Load() {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// reportFailure shows a failed test how the brokers' logs end, and keeps them.
func (c *Cluster) reportFailure(tb testing.TB) {
	tb.Helper()
	if !tb.Failed() {
		return
	}
	c.keep.Store(true)
	for _, n := range c.nodes {
		tb.Log(n.report())
	}
}

func (c *Cluster) external() bool { return len(c.others) > 0 }

// Brokers returns the addresses of all brokers' [Plaintext] listeners, or those in
// GAPLESS_TEST_BROKERS.
func (c *Cluster) Brokers() []string { return c.Addresses(Plaintext) }

// Addresses returns every broker's address at a listener. It panics if the cluster was started
// without that listener.
func (c *Cluster) Addresses(l Listener) []string {
	if !c.cfg.has(l) {
		panic(fmt.Sprintf("kafkatest: this cluster has no listener %s: start it with Listeners(%s)", l, l))
	}
	if c.external() {
		return c.others
	}
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.address(l))
	}
	return addresses
}

// Bootstrap returns the addresses of a listener as Kafka's own clients and tools want them, in one
// string separated by commas.
func (c *Cluster) Bootstrap(l Listener) string { return strings.Join(c.Addresses(l), ",") }
