# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# `make` lists the targets. Needed: Go (see go.mod) and GNU make; `make race` also needs a C compiler.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

GO ?= go
export GO

# TESTFLAGS go to every `go test`; PKGS says what is tested.
TESTFLAGS ?=
PKGS ?= ./...

# Packages that only start and stop processes: the race detector would watch them wait.
RACE_SKIP := /(cmd/[^/]+|test/(bed|bench|chaos|cluster|demo|house|integration)(/.*)?|(.*/)?gen)$$

# Benchmarks that exist, one folder a benchmark.
BENCHES := $(patsubst test/bench/%/main.go,%,$(wildcard test/bench/*/main.go))

# Targets whose command is not in this tree.
ABSENT := $(if $(BENCHES),,bench) $(if $(wildcard test/fidelity/*.go),,fidelity) $(if $(wildcard cmd/slipway/main.go),,demo)

GOLANGCI := bin/tools/golangci-lint
HELM := bin/tools/helm

# slipway-scheduler is a kube-scheduler and says which one: without this it calls itself v0.0.0-master.
K8S_VERSION = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
LDFLAGS = -s -w -X k8s.io/component-base/version.gitVersion=$(K8S_VERSION)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' -v absent=' $(ABSENT) ' '/^[a-z0-9-]+:.*## / && !index(absent, " " $$1 " ") {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@$(foreach b,$(BENCHES),printf '  %-16s %s\n' 'bench-$(b)' 'run test/bench/$(b), print its figures';)

.PHONY: build
build: ## build all commands into bin/
	@mkdir -p bin
	@hack/progress.sh -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

.PHONY: k8s
k8s: ## build etcd, kube-apiserver, kube-controller-manager and kwok into bin/k8s/, if missing
	@$(GO) run ./test/cluster/build >&2

.PHONY: test
test: k8s ## run unit and integration tests (PKGS=./provisioner/... TESTFLAGS='-run X -v')
	@$(GO) test -timeout 20m $(TESTFLAGS) $(PKGS) 2>&1 | awk -f hack/summary.awk

.PHONY: race
race: k8s ## run the tests under the race detector, apart from packages that only drive processes
	@packages=$$($(GO) list $(PKGS) | grep -Ev '$(RACE_SKIP)'); \
	$(GO) test -race -timeout 30m $(TESTFLAGS) $$packages 2>&1 | awk -f hack/summary.awk

.PHONY: vet
vet: ## run go vet
	@$(GO) vet $(PKGS)

.PHONY: lint
lint: $(GOLANGCI) ## run golangci-lint, pinned in tools/
	@$(GOLANGCI) run $(PKGS)

.PHONY: sec
sec: $(GOLANGCI) ## run gosec over what is shipped (what it may find, and why: .golangci-security.yaml)
	@$(GOLANGCI) run -c .golangci-security.yaml ./api/... ./cmd/... ./disruption/... ./provisioner/... ./scheduler/... ./webhook/...

.PHONY: vuln
vuln: ## look for known vulnerabilities in what the commands are built of (needs vuln.go.dev, or GOVULNDB)
	@hack/vuln.sh

.PHONY: fix
fix: $(GOLANGCI) ## apply what linters can correct on their own, then format
	@$(GOLANGCI) run --fix $(PKGS) || true
	@$(GOLANGCI) fmt

.PHONY: fmt
fmt: $(GOLANGCI) ## format the sources (gofumpt, import groups)
	@$(GOLANGCI) fmt

.PHONY: fmt-check
fmt-check: $(GOLANGCI) ## show what `make fmt` would change and fail if it is anything
	@$(GOLANGCI) fmt --diff

.PHONY: generate
generate: ## run go generate
	@$(GO) generate ./...

.PHONY: manifests
manifests: $(HELM) ## render the chart in manifests/helm into manifests/install
	@hack/manifests.sh

.PHONY: kubernetes-version
kubernetes-version: ## move the tree to another release of Kubernetes (VERSION=v1.38.0; DRY_RUN=1 shows the difference)
	@hack/kubernetes-version.sh "$(VERSION)" $(if $(DRY_RUN),--dry-run)

.PHONY: verify
verify: ## generate, then check format, vet, lint, modules, house rules and a clean tree
	@hack/verify.sh

ifneq ($(wildcard test/fidelity/*.go),)
.PHONY: fidelity
fidelity: export FIDELITY_PAIRS ?= 1000000
fidelity: export FIDELITY_PLANS ?= 1000
fidelity: k8s ## compare the planner with the scheduler's own filters on generated clusters
	@$(GO) test ./test/fidelity/... -run Fidelity -count=1 -timeout 30m -v $(TESTFLAGS)
endif

ifneq ($(BENCHES),)
.PHONY: bench
bench: $(addprefix bench-,$(BENCHES)) ## run every benchmark

.PHONY: $(addprefix bench-,$(BENCHES))
$(addprefix bench-,$(BENCHES)): bench-%: build k8s
	@$(GO) run ./test/bench/$* $(ARGS)
endif

ifneq ($(wildcard cmd/slipway/main.go),)
.PHONY: demo
demo: build k8s ## a cluster that buys nodes, on this machine and without a cloud account (KEEP=1 leaves it up)
	@bin/slipway demo $(if $(KEEP),--keep) $(ARGS)
endif

.PHONY: chaos
chaos: k8s ## run seeded storms of failures (CHAOS_STORMS=1000 CHAOS_SEED=1; CHAOS_LOGS=folder keeps the logs of bad ones)
	@CHAOS_STORMS=$${CHAOS_STORMS:-1000} $(GO) test ./test/chaos -run Storms -count=1 -timeout 0 -v

.PHONY: seeded
seeded: ## run the provisioner through seeded failures in one process, without a control plane (SEEDED_RUNS=10000 SEEDED_FROM=1)
	@cd provisioner && SEEDED_RUNS=$${SEEDED_RUNS:-10000} $(GO) test -run SeededRuns -count=1 -timeout 0

.PHONY: scale
scale: build k8s ## grow a cluster to 5,000 nodes and 100,000 pods, print how latency, processor and memory grow (ARGS="-sizes 500,1000")
	@$(GO) run ./test/bench/scale $(ARGS)

.PHONY: emulator
emulator: ## run the emulated AWS account alone, for clients of your own (ARGS=-help tells more)
	@$(GO) run ./test/ec2emu/emulator $(ARGS)

.PHONY: contract
contract: ## hold the emulator against moto, call by call (installs moto for the run; needs Python)
	@hack/contract.sh $(ARGS)

# The stock controller is a build of its own module; kube-scheduler comes from the product's pin.
.PHONY: compare-build
compare-build: k8s
	@hack/compare.sh build

.PHONY: compare
compare: compare-latency compare-plan compare-cost compare-consolidation ## every comparison that writes docs/benchmarks.md, one after the other

# Boots and bursts at their real pace take minutes: ARGS="-parts single" does a part, ARGS=-short tries it out.
.PHONY: compare-latency
compare-latency: compare-build build ## pod to instance request, beside the stock Karpenter controller
	@$(GO) run ./test/sidebyside -docs docs/benchmarks.md -parts single,burst-100,burst-1000,idle,shortage $(ARGS)

.PHONY: compare-consolidation
compare-consolidation: compare-build build ## a half-empty cluster to rest, beside the stock Karpenter controller
	@$(GO) run ./test/sidebyside -docs docs/benchmarks.md -parts consolidation -contenders slipway,karpenter $(ARGS)

.PHONY: compare-plan
compare-plan: compare-build ## time, memory and price of plans, beside Karpenter's own scheduler in process
	@$(GO) run ./test/sidebyside/plans -docs docs/benchmarks.md $(ARGS)

.PHONY: compare-cost
compare-cost: compare-build ## what a day of pods costs and disturbs, beside Karpenter's own scheduler and consolidation in process
	@$(GO) run ./test/sidebyside/days -docs docs/benchmarks.md $(ARGS)

.PHONY: compare-emulator
compare-emulator: compare-build ## run the stock Karpenter controller against the emulator (building it takes minutes, once)
	@$(GO) run ./test/ec2emu/stock $(ARGS)

.PHONY: compare-coexistence
compare-coexistence: compare-build build ## run the stock Karpenter controller beside Slipway: neither buys for the other's pods
	@$(GO) run ./test/coexist $(ARGS)

.PHONY: compare-migrate
compare-migrate: compare-build build ## move a cluster from the stock Karpenter controller to Slipway and back: nothing drifts, nothing is interrupted
	@$(GO) run ./test/migration $(ARGS)

.PHONY: clean
clean: ## delete what was built here; Go's caches stay
	rm -rf bin dist

# -C keeps the tools' module out of the product's build.
$(GOLANGCI): tools/go.mod tools/go.sum
	@mkdir -p $(@D)
	@echo "building golangci-lint (once: about 2 minutes on 2 cores)" >&2
	@$(GO) build -C tools -o ../$(@D)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(HELM): tools/helm/go.mod tools/helm/go.sum
	@mkdir -p $(@D)
	@echo "building helm (once: about 2 minutes on 2 cores)" >&2
	@$(GO) build -C tools/helm -o ../../$(@D)/ helm.sh/helm/v4/cmd/helm
	@touch $@
