package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/gob"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/proof"
	"github.com/gaplesshq/gapless/integration/torture/member"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// A member is this program once more, in a process of its own, so that it can be killed and paused for real. Its environment says
// what it is. Its standard input takes commands, a line each: "workers 3", and "stop" for a clean stop; the end of the input ends it at
// once, so that none outlives the torture. Its standard output says "ready" when it is.

// planEnv holds a member's plan.
const planEnv = "GAPLESS_TORTURE_MEMBER"

// plan is what a member has to know.
type plan struct {
	Member  schedule.Member
	Round   schedule.Round
	Brokers []string
	Group   string
	Topic   string
	Store   string // the directory of its dedupe store
	Journal string // of this life alone
	Log     string // of all members
}

// text is the plan as it fits into an environment. It is not JSON, which refuses the settings that are functions, even where they are nil.
func (p *plan) text() (string, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(p)
	return base64.StdEncoding.EncodeToString(b.Bytes()), err
}

func planOf(text string) (p plan, err error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(raw)).Decode(&p)
	}
	return p, err
}

// How a member's process ends by itself.
const (
	exitFailed  = 1
	exitCrashed = 3 // a record did it
)

// runMember is a member's main function.
func runMember(text string) {
	p, err := planOf(text)
	if err != nil {
		memberFails(err)
	}
	log, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		memberFails(err)
	}
	zerolog.TimeFieldFormat = clockFormat
	logger := zerolog.New(log).With().Timestamp().Str("process", p.Member.String()).Logger().Level(zerolog.DebugLevel)
	j, err := proof.OpenJournal(p.Journal, member.ID)
	if err != nil {
		memberFails(err)
	}
	c := member.Config(&p.Round, p.Member, member.Options{Journal: j, Crash: func() { os.Exit(exitCrashed) }})
	c.Brokers, c.Group, c.Topics, c.ClientID, c.Log = p.Brokers, p.Group, []string{p.Topic}, p.Member.String(), logger
	c.FetchMaxPartitionBytes = 32 << 10                               // some 300 records: a fetch of the usual size would be all there are
	c.KgoOpts = []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond)} // to see soon that a broker is back
	if p.Round.Dedupe {
		c.Dedupe.Dir = p.Store
	}
	e, err := engine.New(c)
	if err != nil {
		memberFails(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-e.Ready()
		fmt.Println("ready")
	}()
	go obey(e, stop)
	if err := e.Run(ctx); err != nil {
		memberFails(err)
	}
	os.Exit(0)
}

func memberFails(err error) {
	fmt.Println("failed:", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(exitFailed)
}

// obey does what the parent says, until that has gone.
func obey(e *engine.Engine, stop func()) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "stop":
			stop()
		case "workers":
			n, err := strconv.Atoi(rest)
			if err == nil {
				err = e.SetWorkers(n, n)
			}
			if err != nil {
				memberFails(fmt.Errorf("%s: %w", in.Text(), err))
			}
		}
	}
	os.Exit(exitFailed) // the parent is gone, however it ended
}
