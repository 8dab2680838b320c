// Package bench measures the Gapless engine: at worker counts and any other settings, with handlers and logs of many kinds, against
// two controls that always run with it in turn, the leanest franz-go poll loop on the same log and the same handler on goroutines
// without an engine. It is what `gapless bench` runs; from a test of your own, Sweep measures your own handler.
//
// A Case says what one run measures, Grid makes cases of lists of settings, and Run measures them, Config.Rounds times in turn, into a
// Report: a table, lines of JSON, CSV, a page with pictures, and, by Recommend, which worker count to use and why.
//
// # What is measured, and where
//
// Each run of an arm is a process of its own: this very program, started again, with GAPLESS_BENCH_ROLE in its environment, which package
// bench takes over before main. So CPU, allocations and memory are the consumer's alone; the embedded broker is another process. A handler
// in Go that is passed as Config.Handler can't move to another process: then all that consumes runs in this one.
//
// Figures are read from a run that is under way: after Config.Warm, for Config.Duration. Logs come in three forms. One without end
// is a megabyte of records that the embedded broker serves again and again, under ever higher offsets; it costs the broker next to
// nothing. One with an end (Case.Records) is produced first, and a run ends when all of it is committed. With a rate (Case.Rate) records
// are produced while they are consumed, each with the time at which it was due in its value, and latency is counted from then: a
// producer that falls behind makes latencies longer and hides nothing.
//
// Beside each figure stands its bound: the least of what the bare loop fetches, workers over the time of the handler, cores over the
// CPU that fetching and handling take, and what the order of the hottest key allows.
//
// # Without a broker
//
// Config.Synthetic leaves out the broker, the network and the group. The engine has no door for records that do not come from Kafka, so
// this arm (ArmPipeline) is made of its parts: the client's decoder, package tracker, package workers. It shows what those cost, in each
// order; epochs, commits, retries, dead letters and dedupe are the engine's and not in it.
package bench
