package enginetest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

var updateDocs = flag.Bool("update-docs", false, "write the tables that the documentation takes from the tests")

const securityGuide = "../../docs/security.md"

// The table in the guide is the one that the tests below go by.
func TestRightsTableIsDocumented(t *testing.T) {
	b, err := os.ReadFile(securityGuide)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- rights: made by TestRightsTableIsDocumented -->\n", "<!-- end of rights -->"
	before, rest, ok1 := strings.Cut(string(b), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", securityGuide)
	}
	if table == rightsTable() {
		return
	}
	if !*updateDocs {
		t.Fatalf("the table in %s is not that of the tests; run this test with -update-docs. It should be:\n%s", securityGuide, rightsTable())
	}
	if err := os.WriteFile(securityGuide, []byte(before+begin+rightsTable()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// trial is a feature that is tried by a user who has no rights but those that are granted.
type trial struct {
	*world
	f    feature
	user string
	l    *ledger
	c    engine.Config
	n    int // records so far
}

func newTrial(t *testing.T, cluster *kafkatest.Cluster, f feature) *trial {
	t.Helper()
	tr := &trial{world: worldOn(t, cluster, 1), f: f}
	tr.user = tr.topic
	tr.l = tr.ledger()
	tr.c = tr.config(tr.l.keep(func(_ context.Context, r *engine.Record) error {
		if f.emits {
			r.Emit(&kgo.Record{Topic: tr.nameOf(theOutput), Value: append([]byte(nil), r.Value...)})
		}
		return nil
	}))
	if f.fails {
		tr.c.Handler = engine.HandlerFunc(func(context.Context, *engine.Record) error { return engine.Permanent(errBoom) })
	}
	if f.emits {
		cluster.CreateTopic(t, tr.nameOf(theOutput), 1, nil)
	}
	f.set(tr.world, &tr.c)
	tr.at(&tr.c, kafkatest.SASLPlaintext)
	tr.c.SASL = engine.SASL{Mechanism: "OAUTHBEARER", Token: func(context.Context) (string, error) {
		return kafkatest.UnsignedToken(tr.user, time.Hour), nil
	}}
	return tr
}

func (tr *trial) grantAllBut(lack *right) {
	tr.Helper()
	for i := range tr.f.rights {
		if r := &tr.f.rights[i]; r != lack {
			tr.grant(tr.user, *r)
		}
	}
}

// works writes records, and returns when the member has done all that the feature is about with them.
func (tr *trial) works() {
	tr.Helper()
	tr.write()
	tr.done()
}

func (tr *trial) write() {
	tr.Helper()
	tr.produce(0, fmt.Sprintf("k=%d", tr.n), fmt.Sprintf("j=%d", tr.n+1))
	tr.n += 2
}

func (tr *trial) done() {
	tr.Helper()
	tr.noLagLeft()
	switch {
	case tr.f.emits:
		tr.read(tr.nameOf(theOutput), tr.n)
	case tr.f.fails:
		tr.read(tr.nameOf(theDeadLetter), tr.n)
	default:
		tr.l.reaches(tr.n)
	}
}

// warnings are what a member says when something is missing.
var warnings = []engine.EventName{engine.EventConfigWarning, engine.EventCommitFailed, engine.EventFetchFailed, engine.EventSessionEnded,
	engine.EventDeadLetterFailed, engine.EventOutputFailed, engine.EventUnreachable, engine.EventStartFailed}

func testRights(t *testing.T, cluster *kafkatest.Cluster) {
	for _, f := range features {
		t.Run(f.name+f.variant+"/with exactly these", func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t, cluster, f)
			tr.grantAllBut(nil)
			m := tr.start(tr.c)
			tr.works()
			m.becomesHealthy()
			m.stop()
			m.quiet(warnings...)
		})
		for i := range f.rights {
			lack := &f.rights[i]
			t.Run(fmt.Sprintf("%s/without %v on %s", f.name+f.variant, lack.op, lack.on), func(t *testing.T) {
				t.Parallel()
				tr := newTrial(t, cluster, f)
				tr.grantAllBut(lack)
				tr.write()
				tr.c.StartTimeout = 2 * patience // it is not what ends the start
				m := tr.launch(tr.c)
				says := tr.saying(*lack)
				if err, ended := m.tells(says); ended {
					if lack.optional || !strings.Contains(err.Error(), says) {
						t.Fatalf("Run returned %v; want %q", err, says)
					}
				}
				if lack.optional {
					tr.done()
					m.stop()
				}
			})
		}
	}
}

// tells waits until the member tells of something in these words: in an event, or in what Run returns.
func (m *member) tells(words string) (err error, ended bool) {
	m.w.Helper()
	timeout := time.After(patience)
	for {
		m.mu.Lock()
		changed := m.changed
		for _, ev := range m.events {
			if strings.Contains(ev.Hint, words) || ev.Err != nil && strings.Contains(ev.Err.Error(), words) {
				m.mu.Unlock()
				return nil, false
			}
		}
		m.mu.Unlock()
		select {
		case <-changed:
		case <-m.done:
			return m.err, true
		case <-timeout:
			m.w.Fatalf("never told %q; told %v", words, m.told())
		}
	}
}

// C1, C3, C9: a right that is taken away while a member runs is named by an event and by what makes it unhealthy; nothing is
// committed over what is not done, and the work goes on, without a restart, when the right is back.
func testRightsTakenAway(t *testing.T, cluster *kafkatest.Cluster) {
	for _, f := range features {
		for i := range f.rights {
			taken := f.rights[i]
			own := taken.on == theDeadLetter || taken.on == theOutput || strings.HasPrefix(f.name, "consume topics by name")
			if !own || taken.optional || taken.op == kadm.OpCreate {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v on %s", f.name+f.variant, taken.op, taken.on), func(t *testing.T) {
				t.Parallel()
				tr := newTrial(t, cluster, f)
				tr.grantAllBut(nil)
				m := tr.start(tr.c)
				tr.works()

				tr.revoke(tr.user, taken)
				if taken.on == theDeadLetter || taken.on == theOutput { // what is not tried is not missed
					tr.write()
				}
				says := tr.saying(taken)
				if err, ended := m.tells(says); ended {
					t.Fatalf("Run returned: %v", err)
				}
				tr.eventually("what makes it unhealthy names the right", func() bool {
					_, problems := m.e.Healthy()
					return strings.Contains(fmt.Sprint(problems), says)
				})
				if taken.on == theTopic || taken.on == theGroup {
					tr.write()
				}
				if at := tr.committed(0); at > int64(tr.n-2) {
					t.Errorf("committed %d over records that are not done", at)
				}
				tr.grant(tr.user, taken)
				tr.done()
				m.becomesHealthy()
				m.stop()
				for _, n := range warnings { // told, not shouted
					if c := m.count(n); c > 10 {
						t.Errorf("%d events %s", c, n)
					}
				}
			})
		}
	}
}
