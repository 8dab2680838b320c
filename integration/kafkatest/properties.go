package kafkatest

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
)

//go:embed assets/base.properties
var baseProperties string

//go:embed assets/speed.properties
var speedProperties string

// A propertiesFile collects lines for a Java properties file, where the last word on a key counts.
type propertiesFile struct{ strings.Builder }

func (f *propertiesFile) set(key, value string) {
	_, _ = fmt.Fprintf(f, "%s=%s\n", key, escapeProperty(value))
}

// escapeProperty keeps a value as it is through Java's reading: a backslash, as in a Windows path,
// would otherwise swallow the letter after it.
func escapeProperty(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(value)
}

func (f *propertiesFile) write(path string) error {
	return os.WriteFile(path, []byte(f.String()), 0o600)
}

// serverProperties writes down one broker: the settings all tests share, its place among the
// others, its listeners, and last, so that they win, the settings the test asked for.
func serverProperties(cfg config, n *node, voters string, certs *certificates) *propertiesFile {
	f := new(propertiesFile)
	f.WriteString(baseProperties)
	f.WriteString(speedProperties)
	f.set("node.id", fmt.Sprint(n.id))
	f.set("log.dirs", n.dataDir())
	// A static quorum leaves no address in the formatted storage, which is why one formatted
	// folder can be copied for every cluster whatever its ports.
	f.set("controller.quorum.voters", voters)
	f.setReplication(cfg.nodes)
	f.setListeners(cfg, n)
	f.setSecurity(cfg, certs)
	for _, p := range cfg.properties {
		f.set(p.key, p.value)
	}
	return f
}

func (f *propertiesFile) setReplication(nodes int) {
	factor, inSync := 1, 1
	if nodes >= 3 {
		factor, inSync = 3, 2
	}
	for _, key := range []string{
		"default.replication.factor",
		"offsets.topic.replication.factor",
		"transaction.state.log.replication.factor",
		"share.coordinator.state.topic.replication.factor",
	} {
		f.set(key, fmt.Sprint(factor))
	}
	for _, key := range []string{
		"min.insync.replicas",
		"transaction.state.log.min.isr",
		"share.coordinator.state.topic.min.isr",
	} {
		f.set(key, fmt.Sprint(inSync))
	}
}

func (f *propertiesFile) setListeners(cfg config, n *node) {
	var listeners, advertised, protocolMap []string
	add := func(name, listen, advertise, protocol string) {
		listeners = append(listeners, fmt.Sprintf("%s://%s", name, listen))
		advertised = append(advertised, fmt.Sprintf("%s://%s", name, advertise))
		protocolMap = append(protocolMap, fmt.Sprintf("%s:%s", name, protocol))
	}
	for _, l := range cfg.listeners {
		add(string(l), n.address(l), n.address(l), protocols[l])
	}
	for i, p := range n.proxies {
		add(fmt.Sprintf("NETWORK%d", i+1), p.upstream, p.listen, protocols[Plaintext])
	}
	f.set("advertised.listeners", strings.Join(advertised, ","))
	controller := fmt.Sprintf("CONTROLLER://%s", n.controllerAddress())
	f.set("listeners", strings.Join(append(listeners, controller), ","))
	f.set("listener.security.protocol.map", strings.Join(append(protocolMap, "CONTROLLER:PLAINTEXT"), ","))
}
