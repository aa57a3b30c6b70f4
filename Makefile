# The only entry point for people and CI.

GO ?= go
LINT := bin/golangci-lint
VULNCHECK := bin/govulncheck
RUNTESTS := bin/runtests
SYSTEMS := darwin windows
# Other projects' dashboards, which only make shots runs. The module has no tests, and its
# vulnerabilities are those of these projects.
PEERS := dashboard/browser/peers
# The modules beside the root's. They exist so that users of the root do not download what only
# these modules need.
MODULES := bench storage/sqlite/modernc examples/embedded examples/onboarding internal/difftest internal/faulttest \
	metrics/prometheus tracing/otel examples/shop cmd/midge dashboard/browser $(PEERS)
# The modules that hold code for more than one system.
PORTABLE := . storage/sqlite/modernc internal/faulttest cmd/midge
BENCH_FLAGS ?=
SHOTS_FLAGS ?=
BUDGETS_FLAGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test test-long servers systems tidy lint linters vulncheck unit bench guard shots budgets generate fmt

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The compiler, the linters and the tests take a fifth less processor time if they collect garbage less often.
# One compiler takes up to 1.5 GB then, instead of 1 GB.
test lint: export GOGC := 400

# The shadow memory of the race detector is two to four times the memory of the tests. It may have huge pages, and
# stays in place when memory is used again: raced tests have a fifth of the page faults, and take about a third less
# processor time.
test: export GORACE := no_huge_pages_for_shadow=0 clear_shadow_mmap_threshold=1073741824

test: servers unit ## all tests, with real servers; a skip is a failure

servers: # installs redis-server, PostgreSQL, pgbouncer and the other programs that tests need, or says how
	@tools/need-servers.sh
	@tools/need-prometheus.sh
	@tools/need-axe.sh

systems: # vets all packages for darwin and windows, as the linters do for linux; what they import is compiled without optimization, which is faster
	@for os in $(SYSTEMS); do for module in $(PORTABLE); do \
		echo "$$os: vet $$module"; \
		(cd $$module && CGO_ENABLED=0 GOOS=$$os $(GO) vet -gcflags=all='-N -l -dwarf=false' ./...) || exit 1; \
	done; done

tidy: # fails if go.mod or go.sum would change
	$(GO) mod tidy -diff
	for module in $(MODULES); do $(GO) mod tidy -C $$module -diff || exit 1; done

lint: tidy systems linters vulncheck ## go.mod, the three systems, all linters, known vulnerabilities

linters: $(LINT) # .golangci.yml says which are off and why; two modules at once, because the linters of one module keep only one processor busy
	@printf '%s\n' . $(MODULES) | xargs -P 2 -I {} sh -c 'cd {} && \
		out=$$($(CURDIR)/$(LINT) run --allow-parallel-runners ./... 2>&1); failed=$$?; echo "{}: $$out"; exit $$failed'

vulncheck: $(VULNCHECK)
	tools/vulncheck.sh $(CURDIR)/$(VULNCHECK) . $(filter-out $(PEERS),$(MODULES))

$(LINT): tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $(LINT)

$(VULNCHECK): tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$(VULNCHECK) golang.org/x/vuln/cmd/govulncheck
	@touch $(VULNCHECK)

unit: # the tests, without a check of what is installed; internal/runtests/plan.go lists them
	$(GO) build -o $(RUNTESTS) ./internal/runtests
	MIDGE_TEST_SERVERS=1 $(RUNTESTS)

PART ?=

test-long: servers ## failures, random sequences and storms in full, or one part: PART=storm; CONTRIBUTING.md lists the parts
	@GO=$(GO) tools/test-long.sh $(PART)

bench: servers ## measure midge beside its peers: BENCH_FLAGS="-quick -metrics 'drain_*'"; bench/README.md
	@$(GO) run -C bench . $(BENCH_FLAGS)

guard: servers ## compare the speed with a reference commit: GUARD_FLAGS="-quick -storages redis"; bench/README.md
	@$(GO) run -C bench ./guard $(GUARD_FLAGS)

shots: ## draw each page of the dashboard into contact sheets, beside its peers: SHOTS_FLAGS="-out /tmp/shots -scene night"
	@$(GO) run -C dashboard/browser . $(SHOTS_FLAGS)

budgets: servers ## measure the dashboard with 1,000,000 tasks: BUDGETS_FLAGS="-storage redis -only pages"
	@$(GO) run -C dashboard/browser ./measure $(BUDGETS_FLAGS)

generate: ## rewrite what is generated: docs/api.txt, sums of SQL functions
	$(GO) test -count=1 ./internal/house -run '^TestSurface$$' -update
	$(GO) test -count=1 ./storage/postgres -run '^TestAReleasedFunctionIsNotChanged$$' -update

fmt: $(LINT) ## format the code
	$(LINT) fmt ./... $(MODULES:%=%/...)
