//go:build synctests

package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/proof"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// round runs one seed.
func round(t *testing.T, seed uint64, f schedule.Faults) (v proof.Verdict, r *schedule.Round, log *schedule.Log, err error) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld()
		r = schedule.Generate(seed, 1+int(seed%3), f, w.Supports)
		log = schedule.NewLog(live())
		w.Events = func(m schedule.Member, ev engine.Event) {
			log.Printf("  %s: %s %s[%d]@%d count %d %v %s %s", m, ev.Name, ev.Topic, ev.Partition, ev.Offset, ev.Count, ev.Err, ev.Reason, ev.Hint)
		}
		v, err = schedule.Run(context.Background(), r, w, log, schedule.Options{})
		if cerr := w.Close(); err == nil {
			err = cerr
		}
	})
	return v, r, log, err
}

// number is a setting of the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

func TestSeeds(t *testing.T) {
	first, n := number("GAPLESS_FIRST_SEED", 1), number("GAPLESS_SEEDS", 20)
	if one := number("GAPLESS_SEED", 0); one > 0 {
		first, n = one, 1
	}
	var mu sync.Mutex
	var all proof.Verdict
	begun := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for seed := first; seed < first+n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				v, r, log, err := round(t, seed, schedule.All())
				mu.Lock()
				defer mu.Unlock()
				all.Add(&v)
				if err == nil && v.OK() && n > 1 {
					return
				}
				if err != nil || !v.OK() {
					t.Errorf("seed %d: %v", seed, err)
				}
				fmt.Printf("%v\n%v\n", r, log)
				for _, f := range v.Findings {
					fmt.Println("SEED", seed, f)
				}
				fmt.Printf("SEED %d: %+v\n", seed, err)
			})
		}
	})
	all.Seed, all.Seconds = first, time.Since(begun).Seconds()
	text, _ := json.Marshal(&all)
	fmt.Printf("%s\n", text)
}

// live shows what happens as it happens, where somebody looks at one seed.
func live() func(string) {
	if os.Getenv("GAPLESS_LIVE") == "" {
		return nil
	}
	return func(line string) { fmt.Println(line) }
}
