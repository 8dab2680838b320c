// Package tuning finds how many handlers should run at once from what they get done. It is pure: it has no clock, no goroutine
// and no lock; its owner feeds it a Sample every so often and runs with the limit that it answers. docs/tuning.md explains it
// to users, with its sources and its limits.
//
// # What is optimised
//
// The throughput of records that were handled well, with as few handlers as get it done. A consumer with a backlog is a closed
// system: all slots are full all the time, so that by Little's law the time that a record takes and the records done a second
// are one figure. What remains to be found is how the throughput follows from the number of handlers, and that only trying tells:
// if a handler is slower, it may need more of them (it sleeps longer) or fewer (what it calls is overloaded).
//
// So the tuner does experiments. It measures the throughput at its limit, then at another one for as long as it takes, and compares:
// the share of a step in the number of handlers that shows in the throughput is the step's elasticity (1: twice the handlers do twice the
// work; 0: they do the same; below 0: less). More handlers are kept if that is more than a seventh or so, and fewer if next to nothing is
// lost; between the two, and in doubt, all stays as it is. Going up, steps double while elasticity stays near 1; where it does not,
// the knee has been passed, and Little's law says where it was.
//
// # What goes wrong elsewhere, and what is done about it
//
// A limit that follows latency drifts: each noisy comparison moves it by a little, and a baseline that follows as well lets
// overload become normal. Here nothing adds up: a trial that did not pay is taken back whole, and one that seems to is compared once
// more with what came after it. A minimum of latency is a matter of luck where handlers take one of two times; means are compared here,
// over windows that are long against what is running. Idle times say nothing about handlers, so they are not looked at: without
// work for one more handler nothing is measured, tried, kept or forgotten. Completions come in bursts (batches, handlers that run
// in step), so what has been put into unfinished work counts, too.
package tuning
