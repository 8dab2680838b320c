package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// Generate draws a round from a seed, with these faults. The same arguments give the same round.
func Generate(seed uint64, brokers int, f Faults, supports func(Action) bool) *Round {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x726f756e64)), faults: f, supports: supports, r: &Round{Seed: seed, Brokers: brokers}}
	g.settings()
	g.mix()
	g.begin()
	for range 4 + g.rng.IntN(12) {
		g.fault()
	}
	slices.SortStableFunc(g.r.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return g.r
}

type generator struct {
	rng      *rand.Rand
	faults   Faults
	supports func(Action) bool
	r        *Round

	busy    [Hosts + 1]time.Duration // until then something happens to the member; 0: the brokers
	up      [Hosts + 1]bool          // after that
	alone   time.Duration            // until then nothing else may happen
	horizon time.Duration            // when the last step begins
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// between is a duration from a to b.
func (g *generator) between(a, b time.Duration) time.Duration {
	return (a + time.Duration(g.rng.Int64N(int64(b-a)+1))).Round(time.Millisecond)
}

func (g *generator) settings() {
	r, rng := g.r, g.rng
	r.Protocol = pick(rng, engine.ProtocolClassic, engine.ProtocolClassic, engine.ProtocolConsumer)
	r.Balancer = pick(rng, engine.BalancerCooperativeSticky, engine.BalancerCooperativeSticky, engine.BalancerRange, engine.BalancerSticky, engine.BalancerRoundRobin)
	r.Static = rng.IntN(3) == 0
	r.LeaveOnStop = r.Static && rng.IntN(2) == 0
	r.Partitions = 1 + rng.IntN(6)
	r.Kind = Plain
	if kinds := g.kinds(); len(kinds) > 0 && rng.IntN(2) == 0 {
		r.Kind = pick(rng, kinds...)
	}
	r.Order = pick(rng, engine.OrderKey, engine.OrderKey, engine.OrderUnordered, engine.OrderPartition)
	if rng.IntN(3) == 0 {
		r.Batch = 2 + rng.IntN(20)
	}
	r.Workers = 1 + rng.IntN(24)
	r.PartitionRecords = 20 + rng.IntN(400)
	r.Commit = pick(rng, engine.Commit{Interval: time.Second}, engine.Commit{Interval: 100 * time.Millisecond}, engine.Commit{Interval: 20 * time.Millisecond},
		engine.Commit{Records: 1 + rng.IntN(100)}, engine.Commit{Each: true}, engine.Commit{Interval: time.Duration(1+rng.IntN(5)) * time.Second})
	r.Retry = engine.Retry{Attempts: 2 + rng.IntN(3), Base: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	r.Session, r.Heartbeat = 6*time.Second, pick(rng, 500*time.Millisecond, time.Second, 2*time.Second)
	r.Rebalance, r.Drain = pick(rng, 9*time.Second, 15*time.Second), pick(rng, time.Second, 2*time.Second, 3*time.Second)
	r.Keys = 1 + rng.IntN(60)
	if r.Dedupe = rng.IntN(2) == 0; r.Dedupe {
		r.MaxDelay = pick(rng, 0, 0, 10*time.Millisecond, 50*time.Millisecond)
		r.MaxGroup = pick(rng, 0, 0, 1+rng.IntN(100))
		r.MaxPending = pick(rng, 0, 0, 2+rng.IntN(50))
	}
}

// kinds are those of which the faults speak, and that the world has.
func (g *generator) kinds() (kinds []Kind) {
	for fault, kind := range map[string]Kind{"compaction": Compacted, "retention": Retained, "transactions": Transactional} {
		if g.faults[fault] && g.supports(faults[fault][0]) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

func (g *generator) mix() {
	r, rng := g.r, g.rng
	m := &r.Mix
	draw := func(fault string, of ...int) int {
		if n := pick(rng, of...); g.faults[fault] {
			return n
		}
		return 0
	}
	m.Slow = draw("slow", 0, 20, 100)
	m.Stuck = draw("stuck", 0, 0, 2, 10)
	m.Fail = draw("fail", 0, 20, 100)
	m.Poison = draw("poison", 0, 0, 5, 20)
	m.Crash = draw("crash", 0, 0, 0, 0, 1)
	if r.Dedupe {
		m.Copies = pick(rng, 0, 100, 300)
	}
}

// begin starts members, and spreads what is produced over the round.
func (g *generator) begin() {
	r, rng := g.r, g.rng
	r.Length = g.between(15*time.Second, 45*time.Second)
	g.horizon = r.Length
	for host := range 1 + rng.IntN(Hosts-1) {
		at := time.Duration(0)
		if host > 0 {
			at = g.between(0, 2*time.Second)
		}
		g.step(Step{At: at, Action: Start, Member: host + 1})
		g.busy[host+1], g.up[host+1] = at+time.Second, true
	}
	bursts := 5 + rng.IntN(15)
	for range bursts {
		s := Step{At: g.between(0, r.Length), Action: Produce, Count: 1 + rng.IntN(120)}
		if r.Kind == Transactional && rng.IntN(4) > 0 {
			s.Action, s.For = pick(rng, Commit, Commit, Abort), g.between(0, 2*time.Second)
		}
		g.step(s)
	}
	g.step(Step{At: 0, Action: Produce, Count: 50 + rng.IntN(200)})
}

func (g *generator) step(s Step) { g.r.Steps = append(g.r.Steps, s) }

// fault adds one, with what ends it.
func (g *generator) fault() {
	var names []string
	for name, in := range g.faults {
		if in && len(faults[name]) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return
	}
	name := pick(g.rng, names...)
	actions := slices.DeleteFunc(slices.Clone(faults[name]), func(a Action) bool { return !g.supports(a) })
	if len(actions) == 0 {
		return
	}
	at := max(g.between(time.Second, g.horizon), g.alone)
	switch a := pick(g.rng, actions...); a {
	case Stop, Kill, Pause, SetWorkers, LoseStore:
		g.toMember(a, at)
	case Delay, Cut, HalfOpen:
		g.toNetwork(a, at)
	case KillBroker, PauseBroker, RollBrokers, DeadLetters:
		g.toBrokers(a, at)
	case AddPartitions:
		g.step(Step{At: at, Action: a, Count: 1 + g.rng.IntN(2)})
	case Reset:
		g.reset(at)
	case DeleteRecords:
		if g.r.Kind == Retained {
			g.step(Step{At: at, Action: a, Partition: int32(g.rng.IntN(8)), Share: g.rng.Float64()})
		}
	case Compact:
		if g.r.Kind == Compacted {
			g.step(Step{At: at, Action: a})
		}
	}
}

// toMember does something to a member that is not otherwise busy, and starts it again where it ends.
func (g *generator) toMember(a Action, at time.Duration) {
	host := 1 + g.rng.IntN(Hosts)
	at = max(at, g.busy[host])
	if !g.up[host] {
		g.step(Step{At: at, Action: Start, Member: host})
		g.up[host], g.busy[host] = true, at+time.Second
		return
	}
	s := Step{At: at, Action: a, Member: host}
	until := at + 500*time.Millisecond
	switch a {
	case SetWorkers:
		s.Count = 1 + g.rng.IntN(24)
	case Pause:
		s.For = g.between(100*time.Millisecond, 2*g.r.Session)
		until = at + s.For
	default:
		if a == LoseStore && !g.r.Dedupe {
			s.Action = Kill
		}
		until = at + g.r.Drain + 500*time.Millisecond
		if g.up[host] = g.rng.IntN(4) > 0; g.up[host] {
			back := at + g.between(0, g.r.Session*3/2)
			g.step(Step{At: back, Action: Start, Member: host})
			until = max(until, back+time.Second)
		}
	}
	g.step(s)
	g.busy[host] = until
}

// toNetwork breaks a member's network, or the brokers'.
func (g *generator) toNetwork(a Action, at time.Duration) {
	s := Step{At: at, Action: a, For: g.between(200*time.Millisecond, 2*g.r.Session)}
	if a == Delay {
		s.Latency = g.between(10*time.Millisecond, 400*time.Millisecond)
	}
	who := 0
	if g.rng.IntN(4) == 0 {
		s.Broker = 1 + g.rng.IntN(g.r.Brokers)
	} else if who = 1 + g.rng.IntN(Hosts); !g.up[who] {
		return
	} else {
		s.Member = who
	}
	s.At = max(s.At, g.busy[who])
	g.busy[who] = s.At + s.For
	g.step(s)
}

func (g *generator) toBrokers(a Action, at time.Duration) {
	s := Step{At: max(at, g.busy[0]), Action: a, For: g.between(200*time.Millisecond, 2*g.r.Session)}
	switch a {
	case KillBroker, PauseBroker:
		s.Broker = 1 + g.rng.IntN(g.r.Brokers)
	case RollBrokers:
		s.For = g.between(0, 2*time.Second)
	}
	g.busy[0] = s.At + s.For
	if a == RollBrokers {
		g.busy[0] += time.Duration(g.r.Brokers) * s.For
	}
	g.step(s)
}

// reset happens when nothing else does.
func (g *generator) reset(at time.Duration) {
	for _, busy := range g.busy {
		at = max(at, busy)
	}
	for host := range g.busy {
		g.busy[host] = at + g.r.Session
	}
	g.alone = at
	g.step(Step{At: at, Action: Reset, Partition: int32(g.rng.IntN(8)), Share: g.rng.Float64()})
}
