// Package workers decides which record runs next, and how many run at once.
//
// A [Pool] is one set of goroutines that serves any number of lanes. A [Lane] is one partition as long as it is
// assigned: a bounded queue into which the fetch loop pushes slices and out of which the pool runs a handler, in the
// order that the lane was opened with. The package knows no Kafka and does no I/O; items are whatever T is, and the
// clock is an argument.
//
// # Order
//
// [Unordered] promises nothing. [ByKey] starts the items of one key in the order in which they were pushed and never
// runs two of them at once, and a slow key holds up no other key: keys are compared byte by byte, so sharing a bucket
// or even a hash does not tie two keys together. An item without a key (nil) is unordered. [ByPartition] runs one item
// strictly after the other.
//
// The promise outlives the lane. A lane has the identity of its partition, and when it is closed while handlers run,
// those handlers keep their keys: a lane that is opened later with the same identity starts no item of such a key
// before the old one is through.
//
// # Holding
//
// A handler that cannot finish an item now (a retry is due later) holds it: [Task.Hold]. A held item keeps its key, or
// under ByPartition the whole lane, but no goroutine. [Pool.Resume] lets it run again, [Pool.Finish] declares it
// complete.
//
// # How it works
//
// Every partition has one lock, one queue of items that nobody has claimed, and a slab of slots for the items that are
// in flight, held, or known to wait for a key. A worker takes a chunk of up to 64 items in one turn of the lock, runs
// them, and in its next turn completes them and claims the next chunk: so the costs of the lock, the clock and the
// wake-up are paid once a chunk. Quick items are handled where they were pushed: a chunk of them is a stretch of the queue, under ByKey
// one in which no item waits for another worker's key, and an item gets a slot only when it is held, waits, or must give way to
// one that does. Keys are registered at the claim, by the worker, which keeps the hash off the
// goroutine that fetches; and since completed items leave nothing behind but their places in a push that is not used up yet, memory
// follows what is unfinished and not how far the work has come.
//
// Slow handlers get one item at a time, and with thousands of them the lock is what they meet at. A worker that comes for
// its next item and finds it taken tries for a microsecond before the runtime may put it to sleep, and what a turn needs
// of a worker stands together, for after such a handler all of it has left the processor's cache.
//
// Chunks would be a trap if the first record of one got stuck: the others would wait behind it. So a chunk can be
// recalled at any moment: whoever holds the lock takes back what has not been started. One atomic addition a record
// buys that, and it serves everything that must stop a chunk half way: a monitor that looks after slow chunks each
// millisecond, a hold, a pause, a lower limit and the closing of the lane.
//
// Goroutines are started when there is work and leave when there is none; nothing polls, and an idle pool has neither
// a goroutine nor a timer.
package workers
