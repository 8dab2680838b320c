// Package store kills a consumer again and again, with SIGKILL, at random instants, and looks from outside at what that did.
//
// A child process, which is this test binary once more, runs an engine with a dedupe store on this host's disk. Its handler
// writes a line when it begins a record and another when it has ended it, to a file outside the store. The parent holds the
// broker, knows every record that it produced, kills the child, and then judges by four things only, none of which is the
// engine's word: the journal, a copy of the store that it opens itself, the group's offsets and their metadata as another client
// reads them, and its own list of records. It starts the child again with its store, and so on.
//
//	make test-torture                            200 kills
//	GAPLESS_KILLS=20 go test -v ./torture/store   so many, with a line each
//	GAPLESS_SEED=7 ...                           the same plan as the run that named this seed: records, settings, kill points
//	GAPLESS_TORTURE_BROKER=real ...              on a real Kafka in place of the embedded broker
//
// What a seed repeats is the plan; what the clocks of a busy machine make of it differs a little from run to run.
package store
