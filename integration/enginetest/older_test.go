package enginetest

import (
	"strings"
	"testing"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// older is the cluster of TestOlderKafka while that runs.
var older *kafkatest.Cluster

// onOlder says whether a test is one of those that TestOlderKafka repeats.
func onOlder(t *testing.T) bool { return strings.HasPrefix(t.Name(), "TestOlderKafka/") }

// TestOlderKafka repeats the basic tests, each with its clauses, with the last line of Kafka before 4.0.
func TestOlderKafka(t *testing.T) {
	ownBroker(t, "it is of an older version")
	older = kafkatest.Start(t, kafkatest.Version(kafkatest.OlderKafkaVersion))
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Unordered", TestUnorderedHandlesEachOnce},                     // C1, C2, C6
		{"KeyOrder", TestKeyOrderHandlesEachOnceAndKeepsKeys},           // C1, C2, C6
		{"PartitionOrder", TestPartitionOrderHandlesOneAfterTheOther},   // C1, C2, C6
		{"Batches", TestBatchesHandleEachOnce},                          // C6
		{"Retry", TestRetriedUntilItSucceeds},                           // C1, C6
		{"DeadLetter", TestDeadLetterHasTheRecordAndItsFailure},         // C1
		{"DeadLetterTopic", TestDeadLetterTopicIsMadeAtStart},           // C1
		{"ReadCommitted", TestReadsCommittedTransactions},               // C2
		{"ReadUncommitted", TestReadsUncommittedWhenAsked},              // C2
		{"Rebalance", TestMembersJoinAndLeave},                          // C3, C6, C8
		{"StaticMember", TestStaticMemberRestartsWithoutRebalance},      // C3
		{"Restart", TestRestartContinuesWhereCommitted},                 // C1, C2
		{"KilledMember", TestTenHandledButNotCommittedAreRedelivered},   // C1
		{"RestartedBroker", TestBrokerKilledAndRestarted},               // C1, C4, C8
		{"Consumer protocol", testOlderKafkaRefusesTheConsumerProtocol}, // C9
	} {
		t.Run(test.name, test.run)
	}
}

// C9: what the brokers are too old for is said at start, and what to use instead.
func testOlderKafkaRefusesTheConsumerProtocol(t *testing.T) {
	w := newWorld(t, 1)
	c := w.config(w.ledger().keep(nil))
	c.Protocol = engine.ProtocolConsumer
	saysWhatToDo(w, w.launch(c), "KIP-848", "needs Kafka 4.0 or newer", `use "classic"`)
}
