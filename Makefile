# acklast: `make help` lists what there is.

GO       ?= go
# Everything is compiled as the functions are, without paths of this machine and without C, so that what they share with
# the commands and the tests is compiled once, also for another clone. Only the race detector needs C.
export GOFLAGS     := $(strip $(shell $(GO) env GOFLAGS 2>/dev/null) -trimpath)
export CGO_ENABLED ?= 0
# The linter keeps absolute paths in its cache, so two clones must not share one: the second reports files of the first.
export GOLANGCI_LINT_CACHE := $(CURDIR)/.cache/golangci-lint
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2

# The CDK prints a banner on a Node.js past its end of life; the value is the major version it is about.
QUIET := JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=$$(node -p 'process.versions.node.split(".")[0]')
CDK   := $(QUIET) node_modules/.bin/cdk

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z_-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Watch jobs survive copies, kills and outages on an embedded AWS (needs only Go)
	@echo "Building the demo. The first time this compiles the embedded AWS: one to three minutes on two cores."
	@mkdir -p bin && $(GO) build -o bin/demo ./internal/demo/play && ./bin/demo

.PHONY: local
local: bin/acklast bin/desk ## Run the embedded AWS with the worker until Ctrl-C
	@./bin/acklast local

.PHONY: bin/acklast
bin/acklast:
	@echo "Building acklast. The first time this compiles the embedded AWS: one to three minutes on two cores."
	@$(GO) build -o bin/acklast ./cmd/acklast

.PHONY: bin/desk
bin/desk:
	@$(GO) build -o bin/desk ./internal/kinds/reservation/desk

.PHONY: build
build: ## Build the Lambda binaries for arm64 into dist/
	@scripts/build-dist.sh

.PHONY: test
test: check node_modules/.package-lock.json ## Run every test that needs only Go and Node.js
	@$(QUIET) GO="$(GO)" MAKE="$(MAKE)" scripts/test.sh

.PHONY: test-race
test-race: ## Test every package of the functions and the commands with the race detector (needs a C compiler)
	GOGC=400 CGO_ENABLED=1 $(GO) test -race -timeout 20m $$($(GO) list ./... | grep -vE '/(infra|internal/(e2e|demo|soak))(/|$$)')

.PHONY: check
check: ## Check formatting and vet
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not gofmt-ed (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	@echo "Formatting and vet. The first time this compiles every package."
	GOGC=400 $(GO) vet ./...

.PHONY: bench
bench: ## Measure what a job costs, as a table and in bench.json; see docs/benchmarks.md for how to read it (many minutes)
	@scripts/bench.sh

.PHONY: bench-peers
bench-peers: ## Compare with a bare Go worker and with Powertools for TypeScript, also under faults (needs Node.js; some minutes)
	@scripts/bench-peers.sh

.PHONY: soak
soak: ## Run a mixed load under mixed faults and check its record (SOAK_DURATION=5m or SOAK_DELIVERIES=n, SOAK_SEED=0 takes a new one)
	$(GO) test ./internal/soak -run '^TestSoak$$' -count 1 -v -timeout 24h -args -soak.seed=$${SOAK_SEED:-0} -soak.duration=$${SOAK_DURATION:-5m} -soak.deliveries=$${SOAK_DELIVERIES:-0}

.PHONY: simulate
simulate: ## Play the whole system in virtual time, then its parts (SEEDS=2000; SIM_SEED plays one story of the whole)
	$(GO) test ./internal/simulation -run '^TestSimulation$$' -count 1 -v -timeout 10h -args -simulation.from=0 -simulation.seed=$${SIM_SEED:-0} -simulation.seeds=$${SEEDS:-2000}
	@[ "$${SIM_SEED:-0}" != 0 ] || $(MAKE) --no-print-directory simulate-parts

.PHONY: simulate-parts
simulate-parts: ## Play the worker, an effect and the redrive in virtual time, each with fakes of its own (SEEDS=2000)
	$(GO) test ./internal/worker -run '^TestConsumer$$' -count 1 -v -timeout 10h -rapid.checks=$${SEEDS:-2000}
	$(GO) test ./internal/effect -run '^TestNeverTwice$$' -count 1 -v -timeout 10h -rapid.checks=$${SEEDS:-2000}
	$(GO) test ./internal/redrive -run '^TestWhatARunSaysIsTrue$$' -count 1 -timeout 10h -args -redrive.seeds=$${SEEDS:-2000}

.PHONY: mutants
mutants: ## Remove each guard from a copy of the source, and show which test goes red (some minutes)
	$(GO) test ./internal/mutants -run '^TestEveryGuardHasATest$$' -count 1 -v -timeout 60m -args -mutants

.PHONY: soak-mixed
soak-mixed: ## Run the soak with the worker of an earlier commit beside this one (OLD=commit)
	@scripts/soak-mixed.sh

.PHONY: lint
lint: ## Run the linter (the first time it is compiled: some minutes)
	$(GO) run $(GOLANGCI) run ./...
	cd docs/example && $(GO) run $(GOLANGCI) run ./...

.PHONY: fuzz
fuzz: ## Fuzz everything that is read from outside, each target for FUZZTIME (1m)
	@for target in job:Decode job:Wrapped job:Event job:Scheduled job:Memory redrive:Request doctor:ReadSettings dynamo:CancellationReasons kinds/reminder:Answer; do \
		$(GO) test ./internal/$${target%%:*} -run '^$$' -fuzz "^Fuzz$${target##*:}$$" -fuzztime $${FUZZTIME:-1m} -fuzzminimizetime 100x || exit 1; \
	done

node_modules/.package-lock.json: package.json package-lock.json
	@npm ci --ignore-scripts --no-audit --no-fund

.PHONY: synth
synth: node_modules/.package-lock.json ## Synthesise the stack and check it against the CDK's rules
	@echo "Synthesising the stack. The first time this compiles the CDK: some minutes on two cores."
	@$(CDK) synth --quiet --strict -c env=default

.PHONY: deploy
deploy: node_modules/.package-lock.json ## Deploy to the AWS account of your credentials (ARGS="-c acklast:...")
	@$(CDK) deploy $(ARGS)

.PHONY: destroy
destroy: node_modules/.package-lock.json ## Delete the stack, unless jobs wait in EventBridge Scheduler (ARGS="-c ...")
	@$(QUIET) $(GO) run ./infra/teardown node_modules/.bin/cdk $(ARGS)

.PHONY: test-engines
test-engines: synth ## Run the suites on fauxqs, dynalite, moto and MiniStack too, lint the template, replay the permissions, take a copy over (needs Python)
	@scripts/timed.sh "adoption" $(GO) test -tags adoption -count 1 -timeout 20m ./internal -run '^TestAdopt'
	@scripts/timed.sh "the example's stack" $(GO) test -tags adoption -count 1 -timeout 20m ./infra/stack -run '^TestTheExample'
	@scripts/timed.sh "second engines" scripts/test-engines.sh
	@scripts/timed.sh "MiniStack" scripts/ministack-engine.sh
	@scripts/timed.sh "template" scripts/cfn-engines.sh
	@scripts/timed.sh "permissions" scripts/iam-engine.sh

.PHONY: test-browser
test-browser: node_modules/.package-lock.json ## Play an incident in a real browser, with an accessibility check (needs Chromium; ARGS=-update renews the pictures)
	$(GO) vet -tags browser ./cmd/acklast
	$(GO) test -tags browser -count 1 -timeout 20m ./cmd/acklast -run '^TestBrowser' $(ARGS)

# STACK names the stack, MINISTACK_PORT the port.
.PHONY: ministack-up ministack-deploy ministack-e2e ministack-down
ministack-up: ## Start MiniStack, a free AWS in processes (needs Python, no Docker)
	@scripts/ministack.sh up
ministack-deploy: ## Deploy the stack into MiniStack
	@scripts/ministack.sh deploy
ministack-e2e: ## Run the black-box end-to-end tests against MiniStack
	@scripts/ministack.sh e2e
ministack-down: ## Stop MiniStack; everything in it is gone
	@scripts/ministack.sh down

.PHONY: localstack-up localstack-deploy localstack-e2e localstack-down
localstack-up: ## Start LocalStack in Docker (needs LOCALSTACK_AUTH_TOKEN)
	@scripts/localstack.sh up
localstack-deploy: ## Deploy the stack into LocalStack
	@scripts/localstack.sh deploy
localstack-e2e: ## Run the end-to-end tests against LocalStack
	@scripts/localstack.sh e2e
localstack-down: ## Remove LocalStack and everything in it
	@scripts/localstack.sh down

.PHONY: clean
clean: ## Remove all built files
	rm -rf bin dist cdk.out .cache/engines
