# acklast: `make help` lists what there is.

GO      ?= go
DIST    := dist
GOFLAGS_LAMBDA := -trimpath -buildvcs=false -tags lambda.norpc -ldflags "-s -w -buildid="
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z_-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: bin/acklast ## Watch reservation expiry survive duplicates, kills and outages (needs only Go)
	@./bin/acklast demo

.PHONY: local
local: bin/acklast ## Run the embedded AWS with the worker until Ctrl-C
	@./bin/acklast local

.PHONY: bin/acklast
bin/acklast:
	@echo "Building acklast; the first time this compiles the embedded AWS, one to two minutes on two cores."
	@$(GO) build -o bin/acklast ./cmd/acklast

.PHONY: build
build: ## Build the Lambda binaries for arm64 into dist/
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build $(GOFLAGS_LAMBDA) -o $(DIST)/worker/bootstrap ./functions/worker

.PHONY: test
test: check ## Run every test with the race detector (needs Go)
	@echo "Testing; a first run compiles the embedded AWS twice, with and without the race detector."
	$(GO) test -race -timeout 15m ./...
	@echo "Not run: the second engines (fauxqs, dynalite, moto); make test-engines runs them and needs Node and Python."

.PHONY: test-engines
test-engines: ## Test on other engines too: fauxqs, dynalite, moto (needs Node and Python, installs the rest)
	@scripts/test-engines.sh

.PHONY: check
check: ## Check formatting, vet and go.mod
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not gofmt-ed (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) mod verify >/dev/null

.PHONY: lint
lint: ## Run the linter (builds it first, some minutes)
	$(GO) run $(GOLANGCI) run ./...

.PHONY: fuzz
fuzz: ## Fuzz the decoder for a minute
	$(GO) test ./internal/job -run '^$$' -fuzz FuzzDecode -fuzztime 60s

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin $(DIST) cdk.out
