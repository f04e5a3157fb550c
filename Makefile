# make run         serve on 127.0.0.1:8080 with the embedded store
# make test        all that a fresh machine needs, then every check and test
# make bench       the figures of docs/performance.md, in three to four minutes
# make soak        ten minutes of load while servers are killed; SOAKTIME=1m for one
# make lint        what is in deploy, held to the product and to the tools of its readers
# make microbench  the Go benchmarks
# make build       bin/counterd and bin/loadtest, and the licenses of what they link

SHELL    := /bin/bash
FUZZTIME ?= 10000x
# What make bench tells loadtest bench: BENCH="-rows A3 -json"
BENCH ?=
SOAKTIME ?= 10m
BENCHTIME ?= 1s
BENCHCOUNT ?= 5

.NOTPARALLEL:
.PHONY: run build test deps check unit lint fuzz bench soak microbench

run:
	go run ./cmd/counterd

build:
	go build -trimpath -o bin/ ./cmd/counterd ./loadtest
	cp LICENSE NOTICE THIRD_PARTY_LICENSES bin/

test: deps check unit lint fuzz

# The tests start servers of their own, and proxies in front of them; here the
# programs only have to be there.
deps:
	@PATH="$$PATH:/usr/sbin"; for program in memcached nginx caddy curl; do \
		command -v $$program >/dev/null && continue; \
		if command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$program; \
		elif command -v dnf >/dev/null; then dnf install -y -q $$program; \
		elif command -v apk >/dev/null; then apk add --quiet $$program; \
		elif command -v brew >/dev/null; then brew install $$program; \
		fi; \
		command -v $$program >/dev/null || { echo "the tests need $$program: please install it" >&2; exit 1; }; \
	done
	@$(CHROMIUM) || $(INSTALL_CHROMIUM) || { echo "the tests need chromium, and a font such as Liberation Sans: please install them" >&2; exit 1; }
	@$(PROMTOOL) || $(UNPACK_PROMTOOL) || { echo "the tests need promtool, of Prometheus: please install it, or put it into bin" >&2; exit 1; }
	@test "$$(uname)" != Linux || command -v systemd-analyze >/dev/null || { ! command -v apt-get >/dev/null || apt-get install -y -qq --no-install-recommends systemd; }
	@test "$$(uname)" != Linux || test -x /bin/kill || { ! command -v apt-get >/dev/null || apt-get install -y -qq --no-install-recommends procps; } # the unit names it
	@test "$$(uname)" != Linux || command -v systemd-analyze >/dev/null || { echo "the tests need systemd-analyze, of systemd: please install it" >&2; exit 1; }
	go mod download

# Chromium looks at the pages that loadtest writes. Its texts have no width without a font.
CHROMIUM := command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || test -d /Applications/Chromium.app || test -d "/Applications/Google Chrome.app"
define INSTALL_CHROMIUM
if command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-liberation; \
elif command -v dnf >/dev/null; then dnf install -y -q chromium liberation-sans-fonts; \
elif command -v apk >/dev/null; then apk add --quiet chromium font-liberation; \
elif command -v brew >/dev/null; then brew install --cask chromium; \
else false; fi
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

check:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w $$unformatted"; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff
	go mod verify
	staticcheck=$$(go tool -n staticcheck) && cd deploy/lint && go vet ./... && $$staticcheck ./...

# The simulations go through their thousands of seeds, and their half minutes, only
# without the race detector; with it, through a tenth. A hundred thousand features are hit
# without it, too, a Memcached is filled with a million counters, and the real log is held to
# second implementations in all ways.
SIMULATIONS = ^(TestNoWindow|TestSimulation|TestNoStarvation|TestBurstsWithCopies|TestMendedCopies|TestMendingSimulation)

unit:
	go test -race -shuffle=on -timeout 40m ./...
	go test -timeout 10m -run '$(SIMULATIONS)|^TestDecisionsEqual|^TestRetryAfter' ./hierarchy
	go test -run '^TestTheSeriesStayTheSame' ./internal/metrics
	go test -run '^TestAMillionCounters' ./loadtest/plan
	go test -run '^TestOnTheRealLog|^TestOnLogsByChance|^TestTheEngineAgrees' ./loadtest/whatif ./loadtest/suggest

# What is in deploy, held to the product and to the tools of its readers. It starts what the
# Dockerfile makes, so it needs Linux; as root also in a root filesystem of its own. What it
# reads is outside of its module, where the cache of go test does not look.
lint:
	@test "$$(uname)" != Linux && echo "deploy is not linted: that needs Linux" || { cd deploy/lint && go test -count=1 -timeout 10m ./...; }

# Each fuzzer for some thousand inputs, one after the other. A number, not a time:
# go test now and then calls the end of the time a failure.
fuzz:
	@set -e; packages=$$(go list ./...); for package in $$packages; do \
		fuzzers=$$(go test -list '^Fuzz' $$package); \
		for fuzzer in $$(echo "$$fuzzers" | sed -n '/^Fuzz/p'); do \
			echo "$$package $$fuzzer"; \
			go test -run '^$$' -fuzz "^$$fuzzer\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1000x $$package; \
		done; \
	done

bench: build
	bin/loadtest bench $(BENCH)

soak: build
	bin/loadtest verify -soak $(SOAKTIME)

microbench:
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -count $(BENCHCOUNT) ./hierarchy ./memcache ./api
