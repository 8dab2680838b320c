package kafkatest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Network is a way to every broker of a cluster that can be damaged. What a client that begins at its
// addresses says to the brokers, all of it, passes through this network: each broker has a listener for
// it, advertised at the address of a proxy. Other networks, the cluster's own traffic and
// [Cluster.Admin] do not notice.
//
// Faults stay until [Network.Heal], can be combined, and hold for connections that are open as well as
// for those to come. Each method takes the numbers of the brokers to which the way is damaged; without
// any it means all of them. Methods may be called concurrently, and wait for no one.
type Network struct {
	proxies []*proxy // by node
}

// Networks opens so many networks, numbered from 1: one for each client that is to be cut off by itself.
func Networks(n int) Option {
	return func(cfg *config) {
		cfg.demand("Networks(%d)", n)
		cfg.networks = n
		if n < 0 {
			cfg.err = fmt.Errorf("kafkatest: %d networks", n)
		}
	}
}

// Network returns one of the networks, numbered from 1. It panics if the cluster was started without it.
func (c *Cluster) Network(number int) *Network {
	if number < 1 || number > len(c.networks) {
		panic(fmt.Sprintf("kafkatest: this cluster has no network %d: start it with Networks(%d)", number, number))
	}
	return c.networks[number-1]
}

// Addresses returns every broker's address in this network, for a client to begin at.
func (n *Network) Addresses() []string {
	var addresses []string
	for _, p := range n.proxies {
		addresses = append(addresses, p.listen)
	}
	return addresses
}

// Bootstrap returns the addresses as Kafka's own clients and tools want them, in one string separated
// by commas.
func (n *Network) Bootstrap() string { return strings.Join(n.Addresses(), ",") }

// Cut ends all connections with a reset and has new ones refused.
func (n *Network) Cut(nodes ...int) error {
	return n.each(nodes, func(p *proxy) error { p.cut(); return nil })
}

// Blackhole lets nothing through in either direction, and says so to nobody: connections stay open, new
// ones are accepted, and who sends hears nothing. What was sent meanwhile, ends of connections included,
// arrives after [Network.Heal], as it does after a real outage that was shorter than TCP's patience.
// [Network.Reset] before that loses it.
func (n *Network) Blackhole(nodes ...int) error {
	return n.set(nodes, func(f *faults) { f.hold = [2]bool{true, true} })
}

// HoldAnswers is half a [Network.Blackhole]: requests arrive and are carried out, and the client does
// not hear of it.
func (n *Network) HoldAnswers(nodes ...int) error {
	return n.set(nodes, func(f *faults) { f.hold = [2]bool{answers: true} })
}

// Delay makes everything take longer on its way, in each direction, by the given time plus a random part
// of the jitter. Order is kept, and bandwidth nearly so.
func (n *Network) Delay(delay, jitter time.Duration, nodes ...int) error {
	return n.set(nodes, func(f *faults) { f.delay, f.jitter = delay, jitter })
}

// Limit lets so many more bytes of answers through in each connection, then ends it with a reset: as a
// rule in the middle of an answer.
func (n *Network) Limit(bytes int64, nodes ...int) error {
	if bytes < 1 {
		return fmt.Errorf("kafkatest: a limit of %d bytes: the least is 1, and Cut lets nothing through", bytes)
	}
	return n.set(nodes, func(f *faults) { f.limit = &limit{bytes} })
}

// Reset ends the connections that are open now with a reset. New ones are none the worse for it, and
// one that is just being made, on which nothing was answered yet, may count as new.
func (n *Network) Reset(nodes ...int) error {
	return n.each(nodes, func(p *proxy) error { p.resetAll(); return nil })
}

// Heal ends all faults. It fails where another process has taken a proxy's port during a cut.
func (n *Network) Heal(nodes ...int) error {
	return n.each(nodes, func(p *proxy) error {
		p.set(func(f *faults) { *f = faults{} })
		return p.open()
	})
}

func (n *Network) set(nodes []int, change func(*faults)) error {
	return n.each(nodes, func(p *proxy) error { p.set(change); return nil })
}

func (n *Network) each(nodes []int, act func(*proxy) error) error {
	for _, node := range nodes {
		if node < 1 || node > len(n.proxies) {
			return fmt.Errorf("kafkatest: no broker %d in a cluster of %d", node, len(n.proxies))
		}
	}
	for i, p := range n.proxies {
		if len(nodes) > 0 && !slices.Contains(nodes, i+1) {
			continue
		}
		if err := act(p); err != nil {
			return err
		}
	}
	return nil
}

// openNetworks starts the proxies, which need no broker to be there yet.
func (c *Cluster) openNetworks() error {
	for _, network := range c.networks {
		for _, p := range network.proxies {
			if err := p.open(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) closeNetworks() {
	for _, network := range c.networks {
		for _, p := range network.proxies {
			p.close()
		}
	}
}
