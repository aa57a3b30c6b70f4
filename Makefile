# The one door: people and CI go through it.

GO ?= go
LINT := bin/golangci-lint
VULNCHECK := bin/govulncheck
RUNTESTS := bin/runtests
SYSTEMS := linux darwin windows
BENCH_FLAGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test test-long check servers systems tidy lint unit bench generate fmt

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: servers check unit ## everything: servers, systems, lint, drift, all tests under the race detector

check: systems tidy lint ## everything but the tests

servers: # installs redis-server, PostgreSQL and pgbouncer where they are missing, or says how
	@tools/need-servers.sh

systems: ## build, and vet with the tests, for linux, darwin and windows
	@for os in $(SYSTEMS); do \
		echo "$$os: build and vet"; \
		CGO_ENABLED=0 GOOS=$$os $(GO) build ./... && CGO_ENABLED=0 GOOS=$$os $(GO) vet ./... || exit 1; \
	done

tidy: # fails where go.mod or go.sum would change
	$(GO) mod tidy -diff
	$(GO) mod tidy -C bench -diff

lint: $(LINT) $(VULNCHECK) ## all linters, known vulnerabilities; .golangci.yml says which are off and why
	$(LINT) run ./...
	cd bench && ../$(LINT) run ./...
	tools/vulncheck.sh $(VULNCHECK)
	cd bench && ../tools/vulncheck.sh ../$(VULNCHECK)

$(LINT): tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $(LINT)

$(VULNCHECK): tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$(VULNCHECK) golang.org/x/vuln/cmd/govulncheck
	@touch $(VULNCHECK)

# One package after the other: leases of two seconds are lost where two suites starve
# each other on two cores.
unit: ## the tests, with real servers; a skip is a failure
	$(GO) build -o $(RUNTESTS) ./internal/runtests
	MIDGE_TEST_SERVERS=1 $(RUNTESTS) -race -p 1 -timeout 30m ./...
	cd bench && MIDGE_TEST_SERVERS=1 ../$(RUNTESTS) ./...

# Two hours on two cores. One after the other, as some measure time; the storm is last.
test-long: servers ## failures and storms in full, with their figures
	MIDGE_TEST_SERVERS=1 $(GO) test -tags long -count=1 -timeout 60m -v ./internal/pgfault
	MIDGE_TEST_SERVERS=1 $(GO) test -tags long -count=1 -timeout 60m -v \
		-run 'TestACrashedServerLosesNothing|TestAStandbyTakesOver|TestEachOrderIsSoldOnce' ./internal/faulttest
	MIDGE_TEST_SERVERS=1 $(GO) test -tags long -count=1 -timeout 120m ./internal/difftest
	MIDGE_TEST_SERVERS=1 $(GO) test -tags long -count=1 -timeout 60m -v \
		-run 'TestAThawedRunnerStartsNothingStale|TestCancelAllLeavesOthersAlone|TestAStorm' ./internal/faulttest

bench: servers ## measure midge beside its peers: BENCH_FLAGS="-quick -metrics 'drain_*'"; bench/README.md
	@$(GO) run -C bench . $(BENCH_FLAGS)

generate: ## rewrite what is generated: docs/api.txt
	$(GO) test -count=1 ./internal/house -run '^TestSurface$$' -update

fmt: $(LINT) ## format the code
	$(LINT) fmt ./... bench/...
