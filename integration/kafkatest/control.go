package kafkatest

import (
	"context"
	"fmt"
)

// Kill ends a broker as kill -9 does, and returns when it is gone. Killing a broker that does not
// run is no error.
func (c *Cluster) Kill(node int) error {
	n, err := c.node(node)
	if err != nil {
		return err
	}
	n.kill()
	return nil
}

// Stop asks a broker to hand over what it leads and to exit, and returns when it is gone. In a
// cluster do not stop all brokers one after another: the last ones wait for a quorum that no longer
// exists. [Cluster.Close] kills instead.
func (c *Cluster) Stop(node int) error {
	n, err := c.runningNode(node)
	if err != nil {
		return err
	}
	return n.stop()
}

// Pause freezes a broker (SIGSTOP): its connections stay open and nothing answers, which is worse
// for its clients than a broker that died.
func (c *Cluster) Pause(node int) error {
	n, err := c.runningNode(node)
	if err != nil {
		return err
	}
	return n.pause(true)
}

// Continue lets a paused broker run on.
func (c *Cluster) Continue(node int) error {
	n, err := c.runningNode(node)
	if err != nil {
		return err
	}
	return n.pause(false)
}

// Restart starts a broker again on its old data and ports, and returns when it serves requests. A
// broker that still runs is stopped first, as in a rolling restart. One that was killed a moment ago
// takes some 1.5 s longer: until its old session has expired, the controller takes the new process
// for an impostor.
func (c *Cluster) Restart(ctx context.Context, node int) error {
	n, err := c.node(node)
	if err != nil {
		return err
	}
	if n.running() {
		if err := n.stop(); err != nil {
			return err
		}
	}
	if err := n.launch(c.dist, c.cfg.jvmFlags); err != nil {
		return err
	}
	return n.awaitService(ctx)
}

// Nodes returns the numbers of the cluster's brokers; none for brokers that were running already.
func (c *Cluster) Nodes() []int {
	var ids []int
	for _, n := range c.nodes {
		ids = append(ids, n.id)
	}
	return ids
}

// LogFile returns the path of a broker's log.
func (c *Cluster) LogFile(node int) (string, error) {
	n, err := c.node(node)
	if err != nil {
		return "", err
	}
	return n.logPath(), nil
}

func (c *Cluster) node(id int) (*node, error) {
	if c.external() {
		return nil, fmt.Errorf("kafkatest: brokers named in %s are not ours to control", BrokersEnv)
	}
	if id < 1 || id > len(c.nodes) {
		return nil, fmt.Errorf("kafkatest: no broker %d in a cluster of %d", id, len(c.nodes))
	}
	return c.nodes[id-1], nil
}

func (c *Cluster) runningNode(id int) (*node, error) {
	n, err := c.node(id)
	if err != nil {
		return nil, err
	}
	if !n.running() {
		return nil, fmt.Errorf("kafkatest: broker %d does not run", id)
	}
	return n, nil
}
