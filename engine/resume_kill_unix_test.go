//go:build unix

package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// killedEnv makes this test binary a consumer that one record kills.
const killedEnv = "GAPLESS_TEST_KILLED"

const killedAttempts = 2

func init() {
	if broker := os.Getenv(killedEnv); broker != "" {
		childMain = func() { consumeUntilKilled(broker) }
	}
}

// consumeUntilKilled says on its standard output what its handler does, and ends when its standard input does. The record "x"
// kills it, once everything that it had finished by then is committed.
func consumeUntilKilled(broker string) {
	say := func(what string) { fmt.Printf("%d %s\n", time.Now().UnixMilli(), what) }
	var e *Engine
	c := Config{Brokers: []string{broker}, Group: testGroup, Topics: []string{"t"}, Workers: 8, PartitionRecords: 16, FetchMaxPartitionBytes: 300}
	c.Commit.Interval, c.HeartbeatInterval, c.Retry.Attempts = 20*time.Millisecond, 100*time.Millisecond, killedAttempts
	c.Handler = HandlerFunc(func(ctx context.Context, r *Record) error {
		v := string(r.Value)
		say("begin " + v)
		if v == "x" {
			time.Sleep(200 * time.Millisecond)
			say("commit")
			_ = e.Commit(ctx)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		time.Sleep(5 * time.Millisecond)
		say("done " + v)
		return nil
	})
	e, err := New(c)
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		err = e.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// said is a line of a child.
type said struct {
	at   int64 // unix milliseconds
	what string
	of   string
}

// life runs the child until it is killed, or finished says that there is nothing left to do; then it is asked to stop.
func life(t *testing.T, broker string, finished func() bool) (lines []said, killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), killedEnv+"="+broker)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	ended := make(chan struct{})
	asking.Go(func() {
		for !finished() {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
		_ = in.Close()
	})
	for s := bufio.NewScanner(out); s.Scan(); {
		var l said
		if n, _ := fmt.Sscan(s.Text(), &l.at, &l.what, &l.of); n >= 2 {
			lines = append(lines, l)
		}
	}
	err = cmd.Wait()
	close(ended)
	asking.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && ctx.Err() == nil {
		return lines, true
	}
	if err != nil {
		t.Fatalf("the child: %v", err)
	}
	return lines, false
}

// forget makes the group forget its members, so that no test waits for the session of one that is dead.
func forget(t *testing.T, adm *kadm.Client, cl *kgo.Client) {
	t.Helper()
	groups, err := adm.DescribeGroups(context.Background(), testGroup)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = testGroup
	for _, m := range groups[testGroup].Members {
		lm := kmsg.NewLeaveGroupRequestMember()
		lm.MemberID = m.MemberID
		req.Members = append(req.Members, lm)
	}
	if len(req.Members) > 0 {
		if _, err := req.RequestWith(context.Background(), cl); err != nil {
			t.Fatal(err)
		}
	}
}

// Design section 7, C1, C5: a real process that SIGKILLs itself at one record gets through after a bounded number of restarts.
// Nothing is lost, the record is in the dead-letter topic, and what had finished before a commit is never handled again.
func TestKilledByARecord(t *testing.T) {
	const n, poison = 40, 20
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	broker := cluster.ListenAddrs()[0]
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for _, v := range append(slices.Insert(numbers(n), poison, "x"), "end") {
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	finished := func() bool {
		resp, err := adm.FetchOffsets(context.Background(), testGroup)
		o, _ := resp.Lookup("t", 0)
		return err == nil && o.At == n+2
	}
	done := map[string]bool{}     // by some life
	promised := map[string]bool{} // not to be handled again: done some time before a commit was asked for
	kills := 0
	for killed := true; killed; {
		var lines []said
		lines, killed = life(t, broker, finished)
		commit := int64(-1)
		for _, l := range lines {
			if l.what == "commit" {
				commit = l.at
			}
		}
		if killed && commit < 0 {
			t.Fatal("killed by something else")
		}
		for _, l := range lines {
			switch {
			case l.what == "begin" && promised[l.of]:
				t.Errorf("%s was finished and committed, and is handled again", l.of)
			case l.what == "done":
				done[l.of] = true
			}
		}
		for _, l := range lines {
			if l.what == "done" && l.at < commit-100 {
				promised[l.of] = true
			}
		}
		if killed {
			if kills++; kills > uncleanLimit+killedAttempts+1 {
				t.Fatalf("killed %d times", kills)
			}
			forget(t, adm, cl)
		}
	}
	if len(done) != n+1 || done["x"] {
		t.Errorf("%d of %d records were finished", len(done), n+1)
	}
	if kills < uncleanLimit+killedAttempts || len(promised) < poison {
		t.Errorf("killed %d times, %d records promised", kills, len(promised))
	}
	dead, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics("t.dlq"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	letters := dead.PollFetches(ctx).Records()
	if len(letters) != 1 || string(letters[0].Value) != "x" || header(letters[0], HeaderErrorType) != "engine.CrashLoopError" {
		t.Errorf("dead letters %v", letters)
	}
}
