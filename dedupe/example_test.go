package dedupe_test

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/gaplesshq/gapless/dedupe"
)

// message is what some consumer loop of one's own delivers.
type message struct {
	key, payload string
	offset       uint64
}

// A store beside one's own consumer loop: claim before the handler, mark after it, and commit an offset only when it is durable.
func Example() {
	dir, err := os.MkdirTemp("", "dedupe")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	var durable sync.WaitGroup
	store, err := dedupe.Open(dir, dedupe.Options{
		OnDurable: func(tags []dedupe.Tag, err error) {
			for range tags {
				durable.Done() // here one would tell the committer which offsets may be committed
			}
		},
	})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	ctx := context.Background()
	orders := store.Scope("orders")
	for _, m := range []message{{"A-1", "100", 0}, {"A-2", "250", 1}, {"A-1", "100", 2}, {"A-1", "999", 3}} {
		if err := store.Room(ctx); err != nil {
			panic(err)
		}
		tag := dedupe.Tag{Seq: m.offset}
		claim, verdict, err := store.Claim(orders.Key([]byte(m.key)), store.Fingerprint([]byte(m.payload)), tag)
		if err != nil {
			panic(err)
		}
		switch verdict {
		case dedupe.Mine:
			fmt.Println("handle", m.key, m.payload)
		case dedupe.Seen:
			fmt.Println("skip", m.key, m.payload) // the zero claim: durable with its group, without a mark
		case dedupe.Differs:
			fmt.Println("same key, other payload:", m.key, m.payload)
			store.Release(claim)
			continue
		}
		durable.Add(1)
		store.Mark([]dedupe.Completion{{Claim: claim, Tag: tag}})
		if err := store.Flush(ctx); err != nil { // a real loop goes on instead, and waits in OnFree where a key is Busy
			panic(err)
		}
	}
	durable.Wait()
	// Output:
	// handle A-1 100
	// handle A-2 250
	// skip A-1 100
	// same key, other payload: A-1 999
}

// A crash after the effect and before the mark runs the handler again. If its effect is an upsert by the business key, the
// table is the same as if it had run once.
func Example_upsert() {
	dir, err := os.MkdirTemp("", "dedupe")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	table := map[string]string{} // a database that outlives the process
	log := []string{}            // an effect that does not bear repetition
	handle := func(m message) {
		table[m.key] = m.payload
		log = append(log, m.key)
	}

	m := message{key: "A-1", payload: "100"}
	for _, crash := range []bool{true, false, false} {
		store, err := dedupe.Open(dir, dedupe.Options{})
		if err != nil {
			panic(err)
		}
		claim, verdict, err := store.Claim(store.Scope("orders").Key([]byte(m.key)), 0, dedupe.Tag{})
		if err != nil {
			panic(err)
		}
		if verdict == dedupe.Mine {
			handle(m)
			if !crash {
				store.Mark([]dedupe.Completion{{Claim: claim}})
			}
		}
		fmt.Println(verdict, len(table), len(log))
		if err := store.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// mine 1 1
	// mine 1 2
	// seen 1 2
}
