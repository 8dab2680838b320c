package enginetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// testCommandRights is testRights for the features of the command.
func testCommandRights(t *testing.T, cluster *kafkatest.Cluster) {
	binary := filepath.Join(t.TempDir(), "gapless.exe")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/gaplesshq/gapless/cmd/gapless").CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	for _, f := range commands {
		for i := -1; i < len(f.rights); i++ {
			var lack *right
			name := "/with exactly these"
			if i >= 0 {
				lack = &f.rights[i]
				name = "/without " + lack.op.String() + " on " + string(lack.on)
			}
			t.Run(f.name+name, func(t *testing.T) {
				t.Parallel()
				tr := newTrial(t, cluster, feature{rights: f.rights, set: all()})
				tr.write()
				tr.commitHalf()
				tr.grantAllBut(lack)
				token := filepath.Join(t.TempDir(), "token")
				if err := os.WriteFile(token, []byte(kafkatest.UnsignedToken(tr.user, time.Hour)), 0o600); err != nil {
					t.Fatal(err)
				}
				args := append(f.args(tr.world), "--brokers="+cluster.Bootstrap(kafkatest.SASLPlaintext), "--sasl-mechanism=OAUTHBEARER", "--sasl-token-file="+token)
				cmd := exec.CommandContext(t.Context(), binary, args...)
				cmd.Stdin = strings.NewReader("a\n")
				out, err := cmd.CombinedOutput()
				switch {
				case lack == nil && err != nil:
					t.Errorf("%v\n%s", err, out)
				case lack != nil && (err == nil) != lack.optional:
					t.Errorf("%v\n%s", err, out)
				case lack != nil && lack.silent:
					if strings.Contains(string(out), tr.topic+" ") {
						t.Errorf("the topic is shown:\n%s", out)
					}
				case lack != nil && !strings.Contains(string(out), tr.saying(*lack)):
					t.Errorf("got %s; want %q", out, tr.saying(*lack))
				}
			})
		}
	}
}

// commitHalf gives the group a commit.
func (tr *trial) commitHalf() {
	tr.Helper()
	ctx, cancel := patient()
	defer cancel()
	var at kadm.Offsets
	at.Add(kadm.Offset{Topic: tr.topic, Partition: 0, At: 1, LeaderEpoch: -1})
	if err := tr.adm.CommitAllOffsets(ctx, tr.group, at); err != nil {
		tr.Fatal(err)
	}
}
