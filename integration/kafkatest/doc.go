// Package kafkatest starts a real Apache Kafka for tests.
//
// A broker here is a Java process on this machine, in KRaft mode, made from the jars that Maven
// downloads once into a cache folder; nothing else has to be installed or running beforehand. From
// a warm cache one broker is ready in about two seconds, three in about five.
//
//	func TestSomething(t *testing.T) {
//		cluster := kafkatest.Start(t, kafkatest.Nodes(3))
//		cluster.CreateTopic(t, "orders", 6, nil)
//		client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers()...))
//		...
//		err = cluster.Kill(2)
//	}
//
// A package whose tests only need some broker shares one among them, see [Main] and [Shared].
//
// Brokers can be killed, stopped, paused and restarted, see [Cluster.Kill] and its neighbours; the way
// to them can be cut, delayed and more, for one client at a time, see [Networks].
//
// # What it needs
//
// A Java runtime, 17 or newer, and, until the cache is filled, Maven 3. Two environment variables
// change where the broker comes from:
//
//   - GAPLESS_TEST_BROKERS, a comma-separated list of host:port, makes tests use brokers that are
//     already running. They cannot be configured or killed from here, so whatever needs that fails
//     and says so.
//   - GAPLESS_KAFKA_CACHE moves the cache folder, by default gapless/kafka-4.4.0 in the user's
//     cache folder, or what the version is that a test asks for. Processes may use one cache at the
//     same time.
//
// # What is left behind
//
// Data and logs live in a temporary folder that goes with the cluster, unless the test failed: then
// the folder stays, and the end of every broker's log is in the test's output. On Linux brokers die
// with the test process, however it ends. Elsewhere a test process that is killed outright leaves
// its brokers running.
package kafkatest
