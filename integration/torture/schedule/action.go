package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what a step does.
type Action string

// The actions. Those that last take as long as Step.For says, and are then undone.
const (
	Start         Action = "start"           // a member
	Stop          Action = "stop"            // a member, cleanly
	Kill          Action = "kill"            // a member, as kill -9 does
	Pause         Action = "pause"           // a member does not run (SIGSTOP), For so long
	Produce       Action = "produce"         // Count records
	Commit        Action = "commit"          // Count records in a transaction that is open For so long
	Abort         Action = "abort"           // the same, which ends in an abort
	DeadLetters   Action = "no-dead-letters" // dead letters can't be written
	KillBroker    Action = "kill-broker"     // kill -9, and started again after For
	RollBrokers   Action = "roll-brokers"    // each in turn is stopped, cleanly, and started again; For is the pause between two
	PauseBroker   Action = "pause-broker"    // SIGSTOP
	Delay         Action = "delay"           // everything that a member (or, with Member 0, a broker) sends and is sent is Latency late
	Cut           Action = "cut"             // its connections are closed and no new ones are made
	HalfOpen      Action = "half-open"       // its connections stay, and nothing arrives
	AddPartitions Action = "add-partitions"  // Count more
	Reset         Action = "reset"           // all members are stopped, the group's offset of Partition is set back to Share of what is committed, and they are started again
	DeleteRecords Action = "delete-records"  // those of Partition up to Share of the log
	Compact       Action = "compact"         // the log
	SetWorkers    Action = "set-workers"     // of a member, to Count
	LoseStore     Action = "lose-store"      // a member is killed, and its dedupe store is gone
)

// actions of a fault's name. All rounds start members and produce.
var faults = map[string][]Action{
	"stop":         {Stop},
	"kill":         {Kill},
	"pause":        {Pause},
	"network":      {Delay, Cut, HalfOpen},
	"broker":       {KillBroker, RollBrokers, PauseBroker},
	"dead-letter":  {DeadLetters},
	"partitions":   {AddPartitions},
	"reset":        {Reset},
	"retention":    {DeleteRecords},
	"compaction":   {Compact},
	"transactions": {Commit, Abort},
	"workers":      {SetWorkers},
	"store":        {LoseStore},
	// In the records themselves.
	"slow":   nil,
	"stuck":  nil,
	"fail":   nil,
	"poison": nil,
	"crash":  nil,
}

// Faults is a set of faults by name.
type Faults map[string]bool

// All are all faults.
func All() Faults {
	all := Faults{}
	for name := range faults {
		all[name] = true
	}
	return all
}

// FaultNames are the names that ParseFaults takes, besides "all", in order.
func FaultNames() []string {
	var names []string
	for name := range faults {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ParseFaults reads names with commas between. "all" is all of them, "none" or nothing is none, and a name behind a minus is taken out:
// "all,-broker".
func ParseFaults(text string) (Faults, error) {
	set := Faults{}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		without, minus := strings.CutPrefix(name, "-")
		_, known := faults[without]
		switch {
		case name == "" || name == "none":
		case name == "all":
			set = All()
		case !known:
			return nil, fmt.Errorf("%q is not a fault; there are all, none, %s", without, strings.Join(FaultNames(), ", "))
		case minus:
			delete(set, without)
		default:
			set[name] = true
		}
	}
	return set, nil
}

// Without leaves out the faults of which the world supports no action, and says which those are.
func (f Faults) Without(w interface{ Supports(Action) bool }) (can Faults, left []string) {
	can = Faults{}
	for name := range f {
		if actions := faults[name]; len(actions) > 0 && !slices.ContainsFunc(actions, w.Supports) {
			left = append(left, name)
			continue
		}
		can[name] = true
	}
	slices.Sort(left)
	return can, left
}

// String is the set as ParseFaults takes it.
func (f Faults) String() string {
	var names []string
	for name, in := range f {
		if in {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
