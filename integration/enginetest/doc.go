// Package enginetest tests the engine against a real Kafka: what an embedded broker can't be trusted to show.
//
// The tests share one broker that they start themselves, or use those in GAPLESS_TEST_BROKERS; see package kafkatest. The basic
// ones are repeated with the last Kafka before 4.0 (older_test.go). Java's and kcat's clients stand beside the engine in
// java_group_test.go and otherclients_test.go; what Java does there it does by tools that Kafka brings along. Each test
// names the clause of the delivery contract that it checks (C1 to C9, in the engine's package comment). None sleeps to be
// lucky: they wait for the engine's events, for gates that handlers stand at, or, where the broker tells nothing by itself,
// ask it until a deadline.
//
// The tests in guide_test.go and crash_test.go are those that the guides tell users to make of their own services.
//
// # Seen to fail
//
// Each of these breakages of the engine was made once, and seen by the tests that are named:
//
//	C1  the offset of what was delivered is committed, not of what is settled   TestKeyOrder..., TestUnordered..., TestKilledInMidBatch
//	C1  the resolved start is not committed at the first assignment             TestStartLatestSurvivesARestart
//	C1  a revoke does not commit                                                TestMembersJoinAndLeave, TestSharesAGroupWithJava
//	C1  a key that is nil is empty in the dead letter                           TestOtherClientsReadDeadLetters
//	C1  the store's row counts where the commit does not name the store         TestKafkasOwnCommandSeesAndResetsTheGroup
//	C2  aborted records are read                                                TestReadsJavasTransactions
//	C1  dead letters go to any partition; patterns consume them                 TestDeadLetter..., TestPatternLeavesItsDeadLettersAlone
//	C2  transaction markers are not tracked                                     TestReadsCommittedTransactions
//	C2  an added partition begins as in a new group, or is not looked for       TestAddedPartitionIsConsumedFromItsBeginning
//	C3  a static member's KIP-848 good-bye is not sent                          TestStaticMemberRestartsWithoutRebalance
//	C3  the session clock does not suspend                                      TestSilentCoordinatorSuspends, TestMemberCutOffFromItsGroup
//	C6  lanes are unordered                                                     TestKeyOrder..., TestMembersJoinAndLeave
//	C6  the keys of outputs are hashed otherwise than in Java                   TestOutputsGoWhereJavasProducerPutsThem
//	C7  the rack is not passed on                                               TestRackAndFetchLimitsAreInTheRequests
//	C8  a drain does not wait for running handlers                              TestMembersJoinAndLeave, TestRevokeTakesNoLongerThanItsHandlers
//	C9  going on behind records that retention deleted                          TestRetentionOvertookTheGroup
//	C9  a recreated topic is not consumed afresh; a deleted one is not noticed  TestRecreatedTopic..., TestDeletedTopicIsReported
//	C9  an open transaction is called a stall                                   TestOpenTransactionIsReported
package enginetest
