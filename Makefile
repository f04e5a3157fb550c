# make run         serve on 127.0.0.1:8080 with the embedded store
# make test        in five minutes: every package's tests and the linters; installs memcached if it is missing
# make test-all    in 20 minutes: everything else; installs the tools that it needs
# make figures     the files that a hit over HTTP runs through, with their lines
# make bench       the figures of docs/performance.md, in three to four minutes
# make soak        ten minutes of load while servers are killed; SOAKTIME=1m for one
# make release     the release of the tag at HEAD, in dist
# make examples    runs each example, and holds it to its page
# make clients     builds and tests the TypeScript and Python clients
# make lint        what is in deploy, held to the product and to the tools of its readers
# make microbench  the Go benchmarks
# make league      counterd and other rate limiters by the same traffic: the tables of docs/compare.md, in ten minutes
# make build       bin/counterd and bin/loadtest, and the licenses of what they link

SHELL    := /bin/bash
FUZZTIME ?= 1000x
# What make bench tells loadtest bench: BENCH="-rows A3 -json"
BENCH ?=
SOAKTIME ?= 10m
BENCHTIME ?= 1s
BENCHCOUNT ?= 5

ifndef TWO_AT_A_TIME
.NOTPARALLEL:
endif
.PHONY: run build test test-all deps deps-all check unit built suites figures race conformance seeds modules lint fuzz bench soak microbench

run:
	@echo 'Compiling counterd. The first time takes up to a minute.'
	go run ./cmd/counterd

build:
	go build -trimpath -o bin/ ./cmd/counterd ./loadtest
	cp LICENSE NOTICE THIRD_PARTY_LICENSES bin/

# Both together are what CI runs. Of test-all two targets run at a time, since many wait more than they compute; what each
# says is shown when it has ended.
test: deps check unit
test-all: deps-all
	@$(MAKE) TWO_AT_A_TIME=1 -j2 --output-sync=target race suites seeds conformance fuzz clients release-test league-test lint examples modules

# need PROGRAM: installed with the package manager of this system, where it is missing.
define NEED
need() { \
	command -v $$1 >/dev/null && return; \
	if command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$1; \
	elif command -v dnf >/dev/null; then dnf install -y -q $$1; \
	elif command -v apk >/dev/null; then apk add --quiet $$1; \
	elif command -v brew >/dev/null; then brew install $$1; \
	fi; \
	command -v $$1 >/dev/null || { echo "the tests need $$1: please install it" >&2; exit 1; }; \
}; PATH="$$PATH:/usr/sbin"
endef

# The tests start servers of their own: the programs only have to be installed.
deps:
	@$(NEED); for program in memcached git curl openssl; do need $$program; done
	go mod download

# And proxies in front of them, a browser, and the tools that read what is in deploy.
deps-all: deps deps-clients deps-league
	@$(NEED); for program in nginx caddy curl openssl; do need $$program; done
	@$(CHROMIUM) || $(INSTALL_CHROMIUM) || { echo "the tests need chromium, and a font such as Liberation Sans: please install them" >&2; exit 1; }
	@$(AXE) || { $(NEED); need npm && $(PACK_AXE); } || { echo "the tests need axe.min.js of $(AXE_VERSION), of npm, in bin" >&2; exit 1; }
	@$(PROMTOOL) || $(UNPACK_PROMTOOL) || { echo "the tests need promtool, of Prometheus: please install it, or put it into bin" >&2; exit 1; }
	@test "$$(uname)" != Linux || command -v systemd-analyze >/dev/null || { ! command -v apt-get >/dev/null || apt-get install -y -qq --no-install-recommends systemd; }
	@test "$$(uname)" != Linux || test -x /bin/kill || { ! command -v apt-get >/dev/null || apt-get install -y -qq --no-install-recommends procps; } # the unit names it
	@test "$$(uname)" != Linux || command -v systemd-analyze >/dev/null || { echo "the tests need systemd-analyze, of systemd: please install it" >&2; exit 1; }

# Chromium looks at the pages of counterd and loadtest. Its texts have no width without a font.
CHROMIUM := command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || test -d /Applications/Chromium.app || test -d "/Applications/Google Chrome.app"
define INSTALL_CHROMIUM
if command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-liberation; \
elif command -v dnf >/dev/null; then dnf install -y -q chromium liberation-sans-fonts; \
elif command -v apk >/dev/null; then apk add --quiet chromium font-liberation; \
elif command -v brew >/dev/null; then brew install --cask chromium; \
else false; fi
endef

# axe-core finds faults of accessibility in the pages. It is a tool of the tests alone, under the MPL: no program
# links it, and it is not committed.
AXE_VERSION = axe-core@4.10.3
AXE := test -f bin/axe.min.js
define PACK_AXE
folder=$$(mktemp -d) && mkdir -p bin && \
	npm pack --silent --pack-destination $$folder $(AXE_VERSION) >/dev/null && \
	tar -xzf $$folder/axe-core-*.tgz -C $$folder package/axe.min.js && \
	mv $$folder/package/axe.min.js bin/ && rm -r $$folder
endef

# Debian's package of Prometheus starts a server: so it is unpacked for its promtool, and
# not installed. Those of Alpine and Homebrew start none.
PROMTOOL := test "$$(uname)" != Linux || command -v promtool >/dev/null || test -x bin/promtool
define UNPACK_PROMTOOL
if command -v apt-get >/dev/null; then \
	folder=$$(mktemp -d) && chmod 0755 $$folder && mkdir -p bin && \
	(cd $$folder && { apt-get download -qq -o APT::Sandbox::User=root prometheus || { apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root prometheus; }; } && dpkg-deb -x prometheus_*.deb .) && \
	cp $$folder/usr/bin/promtool bin/ && rm -r $$folder; \
elif command -v apk >/dev/null; then apk add --quiet prometheus; \
else false; fi
endef

# The tag testall adds the tests that make test leaves out, openissues those that fail until an open issue is resolved.
check:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w $$unformatted"; exit 1; }
	go vet -tags testall,openissues ./...
	go tool staticcheck -tags testall,openissues ./...

# go test ./... alone does the same. Simulations run a budget of their seeds: internal/testkit. check has run go vet.
unit: built
	$(BUILT) go test -vet=off -shuffle=on -timeout 15m ./...

# The programs that tests run as processes are built once for all packages: internal/testkit/builttest.
built:
	go build -o bin/tests/ ./cmd/counterd ./loadtest
BUILT = COUNTERD_BUILT=$(CURDIR)/bin/tests

# The suites that take minutes: real servers that die and return, soaks, whole logs. The tag testall adds their files.
# They wait more than they compute, so four packages run at a time.
suites: built
	@set -eo pipefail; \
	files=$$(git ls-files '*_test.go' | xargs grep -lx '//go:build testall' | grep -v '^loadtest/league/'); \
	tests=$$(sed -n 's/^func \(Test[A-Z0-9][^(]*\).*/\1/p' $$files | sort -u | paste -sd '|' -); \
	COUNTERD_TEST=all $(BUILT) go test -tags testall -vet=off -p 4 -timeout 20m -run "^($$tests)\$$" $$(dirname $$files | sort -u | sed 's,^,./,')

modules:
	go mod tidy -diff
	go mod verify
	for module in deploy/lint deploy/release examples internal/conformance loadtest/league; do (cd $$module && go mod tidy -diff) || exit 1; done

# The tests of make test with the race detector, and a 200th of the seeds.
race: built
	$(BUILT) go test -race -vet=off -shuffle=on -timeout 30m -skip '^($(SEQUENTIAL))$$' $$(go list ./... | grep -vE '/($(SINGLE))$$')
# These packages have no concurrency to test, or are tools: make test runs their tests.
SINGLE = api/page|api/wire|docs|events|events/rulesfile|internal/eventlog/journal|internal/insight/dryrun|internal/rls/rlsconfig|internal/testkit.*|internal/yamlfile|loadtest/(accesslog|bench|columns|exactlog|fleet|league|memcached|migrate|page|plan|process|replay|rlsclient|share|traffic|verify.*|whatif)|loadtest
# These have one goroutine, in which the race detector finds nothing, for minutes. make test runs them.
SEQUENTIAL = TestCalm|TestSimulationFindsSabotage|TestSimulationFindsSabotageOfReplicas|TestSimulationFindsSabotageOfSettlements|TestOutsideThePromiseOfReplicas|TestResetForgetsOneCounterOnly|TestGrowth|TestNothingIsLostUnsaid|TestAnIncrementOfAFullLog|TestZipf|TestMemory|TestChunks.*|TestTheLogIsBounded|TestAFullLogOfIncrements|TestIncrementsLeaveRoomForHits|TestAFloodOfCountedHitsIsDenied|TestEmbeddedMemoryIsBounded|TestEmbeddedGivesBackRoom|TestChosenFeaturesTakeNoMoreMemory|TestACounterWithManyBuckets

# Exchanges of the API against its description, rules files against their schema, pages in a browser, and proxies. They
# are a module of their own, and what they read is where the cache of go test does not look.
conformance:
	staticcheck=$$(go tool -n staticcheck) && cd internal/conformance && go vet ./... && $$staticcheck ./... && go test -vet=off -count=1 -timeout 20m ./...

# What the race detector makes too slow: the tests that ask internal/testkit how much to do.
# make seeds SEEDS=seeds has simulations go through all of their seeds, of which make test goes through a fiftieth: an hour.
# It also finds the mutants of internal/replica/ledger, which no product code uses yet.
SEEDS ?= all
seeds: built
	@set -eo pipefail; for folder in $$(find . -name '*_test.go' | xargs grep -lE '$(SCALED)' | xargs -n1 dirname | sort -u | grep -v -e /testkit $(if $(filter seeds,$(SEEDS)),,-e /ledger)); do \
		tests=$$(awk '/^func / {name = ""} /^func Test/ {name = $$2; sub(/\(.*/, "", name)} /$(SCALED)/ {if (name == "") exit 1; print name}' $$folder/*_test.go | sort -u | paste -sd '|' -); \
		echo "$$folder $$tests"; \
		COUNTERD_TEST=$(SEEDS) $(BUILT) go test -vet=off -timeout 60m -run "^($$tests)\$$" $$folder; \
	done
SCALED = (testkit\.($(if $(filter seeds,$(SEEDS)),Seeds|)Fifth|Thorough|All|Lasting)|mutant\.Test)\(

# What is in deploy, held to the product and to the tools of its readers. It starts what the
# Dockerfile makes, so it needs Linux; as root also in a root filesystem of its own. What it
# reads is outside of its module, where the cache of go test does not look.
lint:
	staticcheck=$$(go tool -n staticcheck) && cd deploy/lint && go vet ./... && $$staticcheck ./...
	@test "$$(uname)" != Linux && echo "deploy is not linted: that needs Linux" || { cd deploy/lint && go test -count=1 -timeout 10m ./...; }

# Each fuzzer for some thousand inputs, one after the other. A number, not a time:
# go test now and then calls the end of the time a failure.
fuzz:
	@set -e; packages=$$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); for package in $$packages; do \
		fuzzers=$$(cd $$package && go test -vet=off -list '^Fuzz'); \
		for fuzzer in $$(echo "$$fuzzers" | sed -n '/^Fuzz/p'); do \
			echo "$$package $$fuzzer"; \
			(cd $$package && go test -vet=off -run '^$$' -fuzz "^$$fuzzer\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1000x); \
		done; \
	done

figures:
	go run ./internal/testkit/hitfiles

bench: build
	bin/loadtest bench $(BENCH)

soak: build
	bin/loadtest verify -soak $(SOAKTIME)

microbench:
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -count $(BENCHCOUNT) ./internal/eventlog/journal ./internal/limiter ./memcache ./api ./internal/rls

# The examples, each by the command of its page. They are a module of their own, and what they start is where the cache
# of go test does not look.
.PHONY: examples
examples:
	@$(NEED); for program in memcached nginx; do need $$program; done
	staticcheck=$$(go tool -n staticcheck) && cd examples && go vet ./... && $$staticcheck ./...
	cd examples && go test -vet=off -count=1 -timeout 10m ./...

# What counterd and other rate limiters admit, deny, tell, take and decide a second, by the same traffic: ten minutes.
# It rewrites the tables of docs/compare.md. LEAGUE="-ratelimit PROGRAM -gubernator PROGRAM" adds those.
LEAGUE ?=
.PHONY: league league-test deps-league
league: deps-league
	cd loadtest/league && go run . -markdown ../../docs/compare.md $(LEAGUE)

# A module of its own, since the others are libraries and protocols that no program of counterd needs.
league-test: deps-league
	staticcheck=$$(go tool -n staticcheck) && cd loadtest/league && go vet ./... && $$staticcheck ./... && go test -vet=off -timeout 10m ./...

# Debian starts the server that it installs, on the usual port.
deps-league:
	@$(NEED); need memcached; \
	command -v redis-server >/dev/null || { need redis-server; service redis-server stop >/dev/null 2>&1 || true; }

# The release of the tag at HEAD, in dist: archives, Debian packages, SBOMs and checksums. It takes a clean clone.
.PHONY: release
release:
	cd deploy/release && go run . -out ../../dist

# What makes a release, held to the tools of its readers: two releases are equal. It needs git, dpkg and systemd-analyze.
.PHONY: release-test
release-test:
	staticcheck=$$(go tool -n staticcheck) && cd deploy/release && go vet ./... && $$staticcheck ./...
	@test "$$(uname)" != Linux && echo "releases are not tested: that needs Linux" || { cd deploy/release && go test -vet=off -count=1 -timeout 10m ./...; }

# The clients for TypeScript and Python: built, packed, and tested against this tree's counterd.
.PHONY: clients
clients: deps-clients
	cd clients/typescript && npm ci --no-audit --no-fund && npm test
	cd clients/python && mypy --strict counterd && $(PYTHON) -m unittest
.PHONY: deps-clients
deps-clients:
	@$(NEED); for program in npm node python3 mypy openssl; do need $$program; done
	@$(PYTHON) -c 'import setuptools, wheel' 2>/dev/null || { command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-setuptools python3-wheel; } || { echo "the tests need setuptools and wheel, for $(PYTHON): please install them" >&2; exit 1; }
# That of Debian, where it is.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
