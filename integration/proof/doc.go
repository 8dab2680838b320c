// Package proof judges a consumer group from outside. Handlers write down what they begin and end, in a journal that all processes
// append to; another client reads what the group has committed, the log and the dead letters; whoever breaks things notes what was
// broken and when. Judge compares the four, and trusts nothing that the engine says of itself.
//
// To prove handlers of your own, wrap them in Journal.Wrap, run them as wildly as you like, gather the Evidence and read the
// Verdict:
//
//	j, err := proof.OpenJournal("journal", func(r *engine.Record) string { return orderID(r) })
//	...
//	Handler: j.Wrap(handler, "m1.1"),
//	...
//	v := proof.Judge(&proof.Evidence{Order: engine.OrderKey, Records: inTheTopic, Lines: lines, Commits: samples, Ends: ends})
//	for _, f := range v.Findings {
//		fmt.Println(f)
//	}
package proof
