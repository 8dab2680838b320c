// Command soak runs a consumer group for a long time, at a steady rate and with churn, and looks whether anything grows.
//
//	go run ./integration/soak                                  half an hour on a real Kafka that it starts itself
//	go run ./integration/soak --duration 8h --rate 500         as long as you like
//	go run ./integration/soak --seed 7                         the plan of the run that named this seed once more
//
// Member A lives through the whole run. The others leave cleanly and come back, are killed (kill -9) and come back; the number of
// workers changes, partitions are added, the broker is restarted: all by a plan that the seed decides. Every member is a process of
// its own, with a dedupe store, retries, dead letters and the order of keys.
//
// What is said in the end is seen from outside of the engine. The handlers of all processes append a line to one journal when they
// begin a record and when they end it; the latency of a record is the time from when it was meant to be sent, whether or not it could
// be, until its handler has ended; lag is what an independent client reads; the dead letters are read back from their topic. Each
// record must have been handled or dead-lettered, in the order of its key, and the lag must be 0.
//
// Memory, goroutines, open files, the size of the store and the latency are sampled, and each gets a slope (Theil and Sen's, which a
// few outliers do not move). See trend.go for what counts as flat. The exit code is 1 where a record was lost or out of order, the lag
// did not return to 0, a member failed or something grew; 2 for a wrong flag.
package main
