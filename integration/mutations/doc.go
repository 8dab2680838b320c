// Command mutations says what the tests are worth: it puts one deliberate fault after the other into the engine, runs the tests
// that should catch it, and says which did.
//
//	go run ./integration/mutations                    all of them
//	go run ./integration/mutations -run '^tracker/'   those whose names match
//	go run ./integration/mutations -list              what there is
//	go run ./integration/mutations -check             only whether each still applies and compiles: seconds
//	go run ./integration/mutations -all               each named test, rather than up to the first that catches
//	go run ./integration/mutations -seeds 40 -run X   the torture in process, in the place of the tests: which oracles catch X
//	go run ./integration/mutations -rounds 3 -run X   the same on a real broker
//	go run ./integration/mutations -write             docs/proof-mutations.md from the lists
//
// The faults are text in lists/, read as patches are: see parse.go for the form. A fault reaches the compiler by way of
// go's -overlay: no file of the tree is changed or copied, and what the fault does not touch comes from the build cache.
//
// It exits with 1 if a fault survives, no longer applies, or does not compile, and with 2 if it could not find out.
package main
