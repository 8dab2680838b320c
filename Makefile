# Run `make help` to see what there is.
GO       ?= go
MODULES  := . bench bench/peers cmd integration
# The race detector needs a C compiler; without one the tests run without it.
RACE     := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race,)
TAGS     := -tags synctests
LINTER   := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
BASELINE := $(CURDIR)/bench/results/baseline.txt
BIN      := $(CURDIR)/.bin

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: test
test: ## unit, property and scenario tests (only Go needed); race detector where a C compiler is
	$(GO) test $(RACE) $(TAGS) ./...
	cd bench && $(GO) test $(RACE) ./...
	cd cmd && $(GO) test $(RACE) ./...
	cd bench/peers && $(GO) test $(RACE) $$($(GO) list -f '{{if .TestGoFiles}}{{.ImportPath}}{{end}}' ./...)

.PHONY: test-kafka
test-kafka: ## tests against a real Kafka, started by the tests (Java and Maven needed) or at GAPLESS_TEST_BROKERS
	cd integration && $(GO) test $(RACE) $(TAGS) -run '^$$' ./... >/dev/null
	cd integration && $(GO) test $(RACE) $(TAGS) -count=1 -p 1 -timeout 20m ./... # one at a time: each starts brokers

.PHONY: test-torture
test-torture: ## GAPLESS_KILLS (200) kills of a member with a store, then GAPLESS_ROUNDS (10) rounds of all faults on three real brokers; GAPLESS_SEED repeats them
	cd integration && GAPLESS_KILLS=$${GAPLESS_KILLS:-200} $(GO) test -count=1 -timeout 60m -run TestTorture -v ./torture/store
	$(GO) run ./integration/torture --rounds $${GAPLESS_ROUNDS:-10} --seed $${GAPLESS_SEED:-0}

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME (5s) each; their seeds run with `make test`
	@set -e; for m in . cmd; do (cd $$m; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test $(TAGS) -list '^Fuzz' $$p | grep '^Fuzz' || true); do echo "$$p $$f"; $(GO) test $(TAGS) -run '^$$' -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-5s} $$p; done; done); done

.PHONY: test-seeds
test-seeds: ## torture in one process under virtual time, GAPLESS_SEEDS (10,000) rounds; GAPLESS_SEED repeats one, GAPLESS_FAULTS chooses
	cd integration && $(GO) test -c $(TAGS) -o $(BIN)/seeds ./torture/virtual && GAPLESS_SEEDS=$${GAPLESS_SEEDS:-10000} $(BIN)/seeds -test.run TestSeeds -test.timeout 24h

.PHONY: test-mutations
test-mutations: ## deliberate faults, one at a time: which test catches which; MUTATIONS is a regexp of names
	$(GO) run ./integration/mutations -run '$(MUTATIONS)'

.PHONY: test-misbehaviour
test-misbehaviour: ## every error code in every answer, silence and closed connections, against members on an embedded broker; GAPLESS_SEED draws the rest
	$(GO) test -c $(TAGS) -o $(BIN)/misbehaviour.test ./engine
	cd engine && GAPLESS_CASES=all $(BIN)/misbehaviour.test -test.run '^TestMisbehaviour$$' -test.timeout 5h

.PHONY: lint
lint: $(BIN)/golangci-lint ## gofmt, go vet and the linters, in every module
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; }
	@set -e; for m in $(MODULES); do echo "lint $$m"; (cd $$m && $(GO) vet ./... && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...); done

$(BIN)/golangci-lint:
	GOBIN=$(BIN) GOWORK=off $(GO) install $(LINTER)

$(BIN)/benchstat:
	GOBIN=$(BIN) GOWORK=off $(GO) install $(BENCHSTAT)

.PHONY: tidy-check
tidy-check: ## every go.mod is tidy
	@set -e; for m in $(MODULES); do (cd $$m && GOWORK=off $(GO) mod tidy -diff); done

.PHONY: bench
bench: $(BIN)/benchstat ## benchmarks of tracker, workers and bench, BENCH_COUNT (6) times, beside the committed baseline; times are shown, and gate nothing
	@$(MAKE) --no-print-directory bench-run OUT=$(BIN)/bench.txt
	@if [ -f $(BASELINE) ]; then $(BIN)/benchstat $(BASELINE) $(BIN)/bench.txt; else $(BIN)/benchstat $(BIN)/bench.txt; echo "there is no $(BASELINE) to compare with: make bench-baseline, on a quiet machine"; fi

.PHONY: bench-baseline
bench-baseline: ## measure what make bench compares with anew, on a quiet machine
	@$(MAKE) --no-print-directory bench-run OUT=$(BASELINE)

.PHONY: bench-run
bench-run:
	@mkdir -p $(dir $(OUT))
	$(GO) test -run '^$$' -bench . -benchmem -count $${BENCH_COUNT:-6} ./tracker ./workers >$(OUT)
	cd bench && $(GO) test -run '^$$' -bench . -benchtime 1x -count $${BENCH_COUNT:-6} . >>$(OUT)

.PHONY: bench-engine
bench-engine: ## the engine's own benchmarks; those named Crash kill processes and count what is handled again
	$(GO) test -run '^$$' -bench . -benchmem ./engine/...

.PHONY: bench-gate
bench-gate: ## every benchmark of the benchmark once, and the gates on allocations and instructions, which are steady where times are not (valgrind counts)
	cd bench && $(GO) test -run TestAllocations -bench . -benchtime 1x -count 1 .
	@command -v valgrind >/dev/null || { sudo -n apt-get install -qy valgrind || apt-get install -qy valgrind; }
	$(GO) run ./bench/instructions

.PHONY: bench-peers
bench-peers: ## Gapless beside its peers on a real Kafka, in one table (a quarter of an hour; Java, Maven, a C compiler, Python)
	$(GO) run ./bench/peers

# Without optimization it takes two thirds of the time, and finds the same.
VETALL = CGO_ENABLED=0 $(GO) vet '-gcflags=all=-N -l'

.PHONY: build-all
build-all: ## everything builds without C for darwin, and all but the peers for windows
	GOOS=darwin $(VETALL) ./... ./bench/... ./bench/peers/... ./cmd/... ./integration/...
	GOOS=windows $(VETALL) ./... ./bench/... ./cmd/... ./integration/...

.PHONY: demo
demo: ## watch it work on an embedded broker
	$(GO) run ./cmd/gapless demo
