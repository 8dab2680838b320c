// Command instructions counts the instructions that a record costs on its way through the engine, tracker and workers, and compares them with
// the committed counts. Unlike times they are the same on a busy machine and an idle one, so they can gate a change:
//
//	go run ./bench/instructions          # fails where something costs more than 10 % over what is committed
//	go run ./bench/instructions --write  # writes the counts anew
//
// It runs benchmarks under valgrind's callgrind, on one processor, twice with different numbers of rounds: the difference is what the rounds
// cost, without the start of the process.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// committed is where the counts lie, from the root of the repository.
const committed = "bench/results/instructions.txt"

// tolerance is by how much a count may grow. The scheduler has a share in them: from run to run, busy machine or not, they differ by up to 3 %.
const tolerance = 0.10

// subject is a benchmark whose instructions are counted.
type subject struct {
	pkg, bench string
	few, many  int // rounds of the two runs
}

var subjects = []subject{
	{"./tracker", "AddDoneAdvance", 100_000, 1_100_000},
	{"./tracker", "AddDoneRangeAdvance", 100_000, 1_100_000},
	{"./tracker", "AddHolesDoneAdvance", 100_000, 1_100_000},
	{"./engine", "PathOnly/bare", 1, 4},
	{"./engine", "PathOnly/order=unordered/batch=0", 1, 4},
	{"./engine", "PathOnly/order=key/batch=0", 1, 4},
	{"./engine", "PathOnly/order=unordered/batch=100", 1, 4},
}

func (s subject) name() string { return strings.TrimPrefix(s.pkg, "./") + "/" + s.bench }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("instructions", flag.ContinueOnError)
	write := f.Bool("write", false, "write "+committed+" anew")
	if err := f.Parse(args); err != nil {
		return err
	}
	if _, err := os.Stat("bench/instructions"); err != nil {
		return errors.New("run it from the root of the repository")
	}
	if _, err := exec.LookPath("valgrind"); err != nil {
		return errors.New("valgrind is not installed, and counts the instructions: install it (apt-get install valgrind)")
	}
	before, err := read(committed)
	if err != nil && !*write {
		return fmt.Errorf("%w: make it with --write", err)
	}
	dir, err := os.MkdirTemp("", "gapless-instructions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only binaries
	var b strings.Builder
	b.WriteString("# Instructions a record, as counted by go run ./bench/instructions\n")
	var more []string
	for _, s := range subjects {
		n, err := s.measure(ctx, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		fmt.Fprintf(&b, "%s %.1f\n", s.name(), n)
		was, known := before[s.name()]
		fmt.Printf("%-45s %8.1f instructions a record", s.name(), n)
		if known {
			fmt.Printf(", committed %.1f (%+.1f %%)", was, 100*(n/was-1))
		}
		fmt.Println()
		if !known || n > was*(1+tolerance) {
			more = append(more, s.name())
		}
	}
	if *write {
		return os.WriteFile(committed, []byte(b.String()), 0o644)
	}
	if len(more) > 0 {
		return fmt.Errorf("more than %.0f %% over what is committed, or not committed: %s. Where that is meant, write the counts anew with --write", 100*tolerance, strings.Join(more, ", "))
	}
	return nil
}

// read reads committed counts by name.
func read(file string) (map[string]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			counts[name] = n
		}
	}
	return counts, nil
}

// measure counts the instructions a record.
func (s subject) measure(ctx context.Context, dir string) (float64, error) {
	bin := filepath.Join(dir, filepath.Base(s.pkg)+".test")
	if _, err := os.Stat(bin); err != nil {
		if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", bin, s.pkg).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, out)
		}
	}
	few, _, err := s.count(ctx, bin, s.few)
	if err != nil {
		return 0, err
	}
	many, records, err := s.count(ctx, bin, s.many)
	if err != nil {
		return 0, err
	}
	return (many - few) / float64(s.many-s.few) / records, nil
}

var (
	collected = regexp.MustCompile(`Collected : (\d+)`)
	perRound  = regexp.MustCompile(`([\d.]+) records/op`)
)

// count counts the instructions of so many rounds, and says how many records are in one. Callgrind ends by an assertion of its own now and
// then, where a signal comes at the wrong time; what a benchmark fails at, it fails at each time.
func (s subject) count(ctx context.Context, bin string, rounds int) (instructions, records float64, err error) {
	for range 3 {
		if instructions, records, err = s.countOnce(ctx, bin, rounds); err == nil || ctx.Err() != nil {
			break
		}
	}
	return instructions, records, err
}

func (s subject) countOnce(ctx context.Context, bin string, rounds int) (instructions, records float64, err error) {
	exact := "^" + strings.ReplaceAll("Benchmark"+s.bench, "/", "$/^") + "$"
	c := exec.CommandContext(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
		bin, "-test.run=^$", "-test.bench="+exact, fmt.Sprintf("-test.benchtime=%dx", rounds))
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1") // its signals confuse callgrind
	out, err := c.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, out)
	}
	found := collected.FindSubmatch(out)
	if found == nil {
		return 0, 0, fmt.Errorf("valgrind did not say how many instructions it saw:\n%s", out)
	}
	if instructions, err = strconv.ParseFloat(string(found[1]), 64); err != nil {
		return 0, 0, err
	}
	records = 1
	if r := perRound.FindSubmatch(out); r != nil {
		if records, err = strconv.ParseFloat(string(r[1]), 64); err != nil {
			return 0, 0, err
		}
	}
	return instructions, records, nil
}
