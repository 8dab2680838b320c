package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kfake"
)

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestExitCodes(t *testing.T) {
	b, _ := broker(t, "t")
	nobody := "--brokers=" + freeAddr(t)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		args string
		env  string
		code int
		want string // in stderr
	}{
		{args: "", code: 0},
		{args: "--help", code: 0},
		{args: "run --help", code: 0},
		{args: "version", code: 0},
		{args: "--version", env: "GAPLESS_VERSION=1.2.3", code: 0},
		{args: "", env: "GAPLESS_VERSION=1.2.3", code: 0},
		{args: "help", code: 0},
		{args: "help run", code: 0},
		{args: "help completion bash", code: 0},
		{args: "help frob", code: 2, want: `there is no command "frob"`},
		{args: "help stauts", code: 2, want: `did you mean "status"?`},
		{args: "completion bash", code: 0},
		{args: "rum", code: 2, want: `there is no command "rum"`},
		{args: "stauts", code: 2, want: `did you mean "status"?`},
		{args: "run --nope", code: 2, want: "unknown flag: --nope"},
		{args: "run t", code: 2, want: `unexpected argument "t"`},
		{args: "run --workers=x", code: 2, want: `"--workers"`},
		{args: "run --workers=atuo", code: 2, want: "neither auto nor a whole number"},
		{args: "run --workers-min=auto", code: 2, want: "is not a whole number"},
		{args: "run " + b + " --group=g --topic=t --workers=auto --workers-min=9 --workers-max=8", code: 2, want: "--workers-min: 9 is above --workers-max (8)"},
		{args: "run --workers=0", code: 2, want: "leave it out for the default (64)"},
		{args: "run " + b + " --group=g --topic=t", env: "GAPLESS_WORKERS=x", code: 2, want: "GAPLESS_WORKERS"},
		{args: "run " + b + " --group=g --topic=t --retry-base=2s", env: "GAPLESS_RETRY_MAX=1s", code: 2, want: "GAPLESS_RETRY_MAX: 1s is below --retry-base (2s)"},
		{args: "run --sasl-password=x", code: 2, want: "secrets are never flags"},
		{args: "run " + b + " --topic=t", code: 2, want: "--group"},
		{args: "run " + b + " --group=g", code: 2, want: "--topic and --topic-pattern"},
		{args: "run --group=g --topic=t", code: 2, want: "--brokers"},
		{args: "run " + b + " --group=g --topic=t --sink=pritn", code: 2, want: "--sink"},
		{args: "run " + b + " --group=g --topic=t --sink=print --sleep=1s", code: 2, want: "--sleep"},
		{args: "run " + b + " --group=g --topic=t --batch-size=5", code: 2, want: "--batch-size: has an effect with --batch only"},
		{args: "run " + b + " --group=g --topic=t --log-level=loud", code: 2, want: "--log-level"},
		{args: "run " + b + " --group=g --topic=t --replay-last=-1", code: 2, want: "--replay-last"},
		{args: "run " + b + " --group=g --topic=t --tls-ca-file=" + missing, code: 2, want: "--tls-ca-file"},
		{args: "run " + b + " --group=g --topic=t --sasl-password-file=" + missing, code: 2, want: "--sasl-password-file"},
		{args: "run " + b + " --embedded", code: 2, want: "--brokers and --embedded exclude one another"},
		{args: "run --embedded --topic-pattern=^x$", code: 2, want: "--topic-pattern"},
		{args: "run --config=" + missing, code: 2, want: "missing"},
		{args: "run " + nobody + " --group=g --topic=t --start-timeout=300ms", code: 3, want: "check --brokers"},
		{args: "run " + b + " --group=g --topic=nope", code: 3, want: `topic "nope" does not exist; create it, or check --topic`},
		{args: "run " + b + " --group=g --topic=t --dead-letter-no-create", code: 3, want: "--dead-letter-no-create is set"},
		{args: "run " + b + " --group=g --topic=t --admin-addr=256.0.0.1:1", code: 3, want: "--admin-addr"},
		{args: "run " + b + " --group=g --topic=t --replay-last=5", code: 1, want: "there is nothing to replay"},
		{args: "produce", code: 2, want: "--topic"},
		{args: "produce " + b + " --topic=t --size=5", code: 2, want: "--size: is for the generator"},
		{args: "produce " + b + " --topic=t --partitions=5", code: 2, want: "add --create"},
		{args: "produce " + b + " --topic=t --format=xml", code: 2, want: "--format"},
		{args: "produce --topic=t", code: 2, want: "--brokers"},
		{args: "produce " + b + " --topic=nope", code: 3, want: "add --create"},
		{args: "produce " + nobody + " --topic=t --start-timeout=300ms", code: 3, want: "check --brokers"},
		{args: "status", code: 2, want: "--brokers"},
		{args: "status " + b + " --every=0s", code: 2, want: "--every"},
		{args: "status " + b + " --group=nope", code: 1, want: `group "nope" does not exist`},
		{args: "status " + nobody + " --start-timeout=300ms", code: 3, want: "check --brokers"},
		{args: "offsets", code: 0},
		{args: "offsets --help", code: 0},
		{args: "help offsets reset", code: 0},
		{args: "offsets frob", code: 2, want: `there is no command "frob"`},
		{args: "offsets rest", code: 2, want: `did you mean "reset"?`},
		{args: "help offsets frob", code: 2, want: `there is no command "frob"`},
		{args: "offsets show " + b, code: 2, want: "--group"},
		{args: "offsets show --group=g", code: 2, want: "--brokers"},
		{args: "offsets show g", code: 2, want: `unexpected argument "g"`},
		{args: "offsets show " + b + " --group=nope", code: 1, want: `group "nope" does not exist`},
		{args: "offsets show " + nobody + " --group=g --start-timeout=300ms", code: 3, want: "check --brokers"},
		{args: "offsets reset " + b + " --topic=t --to=earliest --yes", code: 2, want: "--group"},
		{args: "offsets reset " + b + " --group=g --to=earliest --yes", code: 2, want: "--topic"},
		{args: "offsets reset " + b + " --group=g --topic=t --yes", code: 2, want: "--to: say where to"},
		{args: "offsets reset " + b + " --group=g --topic=t --to=earliest", code: 2, want: "--yes: is needed where there is no terminal"},
		{args: "offsets reset " + b + " --group=g --topic=t --all-topics --to=earliest --yes", code: 2, want: "--topic and --all-topics exclude one another"},
		{args: "offsets reset " + b + " --group=g --topic=t --to=earliest --by=1 --yes", code: 2, want: "--to and --by exclude one another"},
		{args: "offsets reset " + b + " --group=g --all-topics --partition=1 --to=earliest --yes", code: 2, want: "--partition: needs exactly one --topic"},
		{args: "offsets reset " + b + " --group=g --topic=t --to=yesterday --yes", code: 2, want: `"--to"`},
		{args: "offsets reset " + b + " --group=g --topic=t --to=-5 --yes", code: 2, want: "write --by -5"},
		{args: "offsets reset " + b + " --group=g --topic=t --by=0 --yes", code: 2, want: `"--by"`},
		{args: "offsets reset " + b + " --group=g --topic=t --yes", env: "GAPLESS_TO=noon", code: 2, want: "GAPLESS_TO"},
		{args: "offsets reset " + b + " --group=g --topic=nope --to=earliest --yes", code: 3, want: `topic "nope" does not exist`},
		{args: "offsets reset " + nobody + " --group=g --topic=t --to=earliest --yes --start-timeout=300ms", code: 3, want: "check --brokers"},
		{args: "demo extra", code: 2, want: "unexpected argument"},
	} {
		r := command(t, "", []string{c.env}, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%q ended with %d, want %d; stderr: %s; want in it: %q", c.args, r.code, c.code, r.err, c.want)
		}
		if r.code != 0 && r.out != "" {
			t.Errorf("%q failed, and wrote to stdout: %s", c.args, r.out)
		}
	}
}

func TestConfigFile(t *testing.T) {
	b, cl := broker(t, "t", "u")
	fill(t, cl, "t", 2)
	path := filepath.Join(t.TempDir(), "gapless.yaml")
	content := strings.Join([]string{
		"# one file for all commands", "brokers: [" + strings.TrimPrefix(b, "--brokers=") + "]", "group: g", "topic: t",
		"retry: {attempts: 5, base: 10ms}", "until-end: true", "generate: 3 # of produce", "every: 1s  # of status",
	}, "\n")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := len(printedLines(t, must(t, "", "run", "--config", path))); n != 6 {
		t.Errorf("%d lines, want 6", n)
	}
	r := command(t, "", []string{"GAPLESS_CONFIG=" + path, "GAPLESS_GROUP=other"}, "run")
	if n := len(printedLines(t, r.out)); r.code != 0 || n != 6 {
		t.Errorf("by GAPLESS_CONFIG: exit code %d, %d lines; %s", r.code, n, r.err)
	}
	if r := command(t, "", []string{"GAPLESS_CONFIG=" + path, "GAPLESS_GRUOP=x"}, "run"); !strings.Contains(r.err, "GAPLESS_GRUOP is not a setting; did you mean GAPLESS_GROUP?") {
		t.Errorf("a mistyped variable went unnoticed: %s", r.err)
	}
	if err := os.WriteFile(path, []byte(content+"\nworkres: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "", nil, "status", "--config", path); r.code != 2 || !strings.Contains(r.err, `gapless.yaml:9: unknown key "workres"`) {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

func TestPasswords(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "ann", "s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"status", "--brokers=" + cluster.ListenAddrs()[0], "--sasl-mechanism=SCRAM-SHA-256", "--sasl-user=ann", "--start-timeout=2s"}
	for _, c := range []struct {
		name string
		env  []string
		more []string
		code int
		want string
	}{
		{name: "by environment", env: []string{"GAPLESS_SASL_PASSWORD=s3cret"}},
		{name: "by file", more: []string{"--sasl-password-file=" + file}},
		{name: "the file by environment", env: []string{"GAPLESS_SASL_PASSWORD_FILE=" + file}},
		{name: "both", env: []string{"GAPLESS_SASL_PASSWORD=s3cret"}, more: []string{"--sasl-password-file=" + file}, code: 2, want: "both set"},
		{name: "none", code: 2, want: "needs both --sasl-user and --sasl-password-file"},
		{name: "wrong", env: []string{"GAPLESS_SASL_PASSWORD=guess"}, code: 3, want: "refuse the credentials"},
	} {
		r := command(t, "", c.env, append(args, c.more...)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: exit code %d, want %d; %s", c.name, r.code, c.code, r.err)
		}
	}
	run := append([]string{"run", "--group=g", "--topic=t"}, args[1:]...)
	if r := command(t, "", []string{"GAPLESS_SASL_PASSWORD=guess"}, run...); r.code != 3 || !strings.Contains(r.err, "refuse the credentials") {
		t.Errorf("run with a wrong password: exit code %d; %s", r.code, r.err)
	}
}

// The token is read again at each authentication: tokens are short-lived, and something renews the file.
func TestTokenFileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	s := secrets{tokenFile: file}
	var cfg engine.Config
	if err := s.fill(&cfg, &app{}); err == nil {
		t.Error("a missing token file was accepted")
	}
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if cfg.SASL.Token == nil {
			if err := s.fill(&cfg, &app{}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := cfg.SASL.Token(t.Context()); err != nil || got != token {
			t.Errorf("token %q, %v; want %q", got, err, token)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	names := []string{"run", "produce", "status", "offsets", "offsets show", "offsets reset", "dedupe", "dedupe stats", "dedupe get",
		"dedupe forget", "dedupe verify", "dedupe compact", "demo"}
	for _, name := range names {
		help := must(t, "", append(strings.Fields(name), "--help")...)
		if !strings.Contains(help, "Examples:") || !strings.Contains(help, "  gapless "+name) {
			t.Errorf("the help of %s has no examples", name)
		}
		if name != "demo" && !strings.Contains(help, "Exit codes:") {
			t.Errorf("the help of %s does not list the exit codes", name)
		}
	}
	if out := must(t, "", "--version"); out != must(t, "", "version") {
		t.Errorf("--version prints %q, which is not what version does", out)
	}
	if help := must(t, "", "help", "run"); help != must(t, "", "run", "--help") {
		t.Errorf("help run prints\n%s", help)
	}
	for _, name := range names {
		if help := must(t, "", append(strings.Fields(name), "--help")...); strings.Contains(help, "(default )") {
			t.Errorf("the help of %s has an empty default:\n%s", name, help)
		}
	}
	help := must(t, "", "run", "--help")
	for _, s := range settingTable {
		if !strings.Contains(help, "--"+s.flag) {
			t.Errorf("the help of run does not have --%s", s.flag)
		}
	}
}

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"offsets ":            "reset",
		"offsets reset --to ": "earliest",
		"offsets reset --for": "--forget-dedupe",
		"offsets show --gr":   "--group",
		"help offsets ":       "show",
		"dedupe ":             "forget",
		"dedupe get --js":     "--json-key",
		"run --order ":        "unordered",
		"run --give-up ":      "dead-letter",
		"run --sink ":         "discard",
		"produce --format ":   "lines",
		"run --dead-letter-":  "--dead-letter-topic",
		"st":                  "status",
	} {
		words := strings.Split(args, " ")
		out := must(t, "", append([]string{"__complete"}, words...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%q completes to %s; want %s", args, out, want)
		}
	}
}

// No output of the command has a secret in it: not at debug level, not as JSON, not in what it refuses, not at the admin address.
func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "planted-s3cret"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "ann", secret))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	dir := t.TempDir()
	keep := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := "GAPLESS_SASL_PASSWORD=" + secret
	connect := []string{"--brokers=" + cluster.ListenAddrs()[0], "--sasl-mechanism=SCRAM-SHA-256", "--sasl-user=ann", "--start-timeout=2s"}
	for name, c := range map[string]struct {
		env  string
		args []string
		code int
	}{
		"produce":              {env, append([]string{"produce", "--topic=t", "--json"}, connect...), 0},
		"status":               {env, append([]string{"status", "--json"}, connect...), 0},
		"run":                  {env, append([]string{"run", "--group=g", "--topic=t", "--until-end", "--log-level=debug", "--log-format=json", "--json", "--admin-addr=127.0.0.1:0"}, connect...), 0},
		"run, wrong":           {env + "-wrong", append([]string{"run", "--group=g", "--topic=t", "--log-level=debug"}, connect...), 3},
		"version":              {env, []string{"version"}, 0},
		"as a flag":            {"", append([]string{"run", "--sasl-password=" + secret}, connect...), 2},
		"in the settings file": {"", append([]string{"run", "--config=" + keep("a.yaml", "sasl-password: "+secret+"\n")}, connect...), 2},
		"nested in it":         {"", append([]string{"run", "--config=" + keep("b.yaml", "sasl:\n  password: "+secret+"\n")}, connect...), 2},
		"with an address":      {"", []string{"run", "--group=g", "--topic=t", "--brokers=ann:" + secret + "@b:9092"}, 2},
		"a key that is none":   {env, append([]string{"run", "--group=g", "--topic=t", "--tls-cert-file=" + keep("c.pem", secret), "--tls-key-file=" + keep("k.pem", secret)}, connect...), 2},
		"mechanism missing":    {env, []string{"status", connect[0]}, 2},
		"token that is none":   {"", append([]string{"status", "--sasl-token-file=" + keep("token", secret)}, connect[0], "--sasl-mechanism=OAUTHBEARER", "--start-timeout=2s"), 3},
	} {
		r := command(t, "v\n", []string{c.env}, c.args...)
		if r.code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", name, r.code, c.code, r.err)
		}
		if strings.Contains(r.out+r.err, secret) {
			t.Errorf("%s shows the secret:\n%s%s", name, r.out, r.err)
		}
	}
}
