package proof

// Judge compares the evidence.
func Judge(ev *Evidence) Verdict {
	return Verdict{Rounds: 1, Records: len(ev.Records), Seed: ev.Seed, Seconds: ev.Took.Seconds()}
}
