# make run     a fresh machine to a running service: environment, extension, `snapbid up`
# make check      format, lint, types, and the tests that start no PostgreSQL: within a minute
# make test       lint, types, and what every change needs, against real servers: within four;
#                 TESTS=tests/faults/test_tls.py: these instead
#                 REDIS=/usr/bin/valkey-server: on that Redis or Valkey instead of the wheel's
# make test-all   the other tests, which take longer
# make bench   the benchmarks; QUICK=1: some of them, within three minutes
# make market   the benchmark of bidders, BIDDERS="snapbid fastapi" or all that can be run; QUICK=1;
#               CHECKOUTS="rust-rtb-bidder=PATH aws-bidder=PATH"
# make soak    breaks everything under load for MINUTES=10; SEED=7:2 begins with that scenario;
#              FLEET=1: two machines on a Redis Cluster of three primaries and three replicas;
#              FAULTS="cut off,killed": faults with these names; MUTATION=WAIT: with that kept defect
# make simulate   RUNS=50 of the simulator from SEED=1, STEPS=400 each, in as many PROCESSES as there
#                 are processors; SCRIPT=file plays one again; FAULTS and MUTATION as above
# make fuzz     coverage-guided fuzzing of every decoder for MINUTES=2 in all; TARGET=bid: of one
#               TARGET=cost: looks for the bid request that takes the most processor time
#               INPUTS=10000000: under the sanitizers, several times as fast without coverage
# make sanitize   the extensions' tests under AddressSanitizer and UndefinedBehaviorSanitizer
# make mutants   the kept defects of tests/mutants, which tests must notice; ROOMS="ledger report": of
#                these rooms; DRAW=10: as many, drawn by the date (or by DATE=2026-11-27);
#                SOAK=1: those that a fleet in the soak must notice
# make exchange PREBID_SERVER=checkout   Prebid Server (Go) trades with `snapbid up`; RECORD=1 keeps it
# make wheel   dist/: source distribution and wheel, built twice in different places and compared byte for
#              byte, a bill of materials, and checksums
# make release VERSION=0.2.0   commits that version and its dated changelog, and builds these
# make wheels   a wheel for each version of Python, in containers (BUILDER=podman)
# make container   builds the container file with BUILDER=podman
# make lock    renews requirements/: the newest versions that pyproject.toml allows, with their hashes
#
# Needs Python >= 3.11 with venv and headers, a C compiler and make. PYTHON=... picks another one.

PYTHON ?= python3
CC ?= cc
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
# Most modules are never imported, and Python compiles those that are. (For pip, PIP_NO_COMPILE=1
# means to compile.)
INSTALL := $(PIP) install --no-compile
BUILD := $(PY) setup.py --quiet build_ext --inplace
FRAME := pyproject.toml setup.py
NATIVE := $(wildcard native/*.pxd native/*.h) $(shell find native/snapbid -type f)
EXTENSION := build/.extension
STUBS := $(subst /,.,$(patsubst src/%.pyi,%,$(shell find src/snapbid -name '*.pyi')))

# pyproject.toml's list of that name, a requirement a line.
needs = $(PY) -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	print(*(r for k in sys.argv[1:] for r in (p["project"]["dependencies"] if k == "run" else \
	p["build-system"]["requires"] if k == "build" else \
	p["project"]["optional-dependencies"][k])), sep="\n")' $(1)

# Each list of pyproject.toml has its file of pinned versions and hashes; nothing else is installed.
LISTS := build run embedded parquet sbom dev bench fuzz wheels lock
locked = $(foreach list,$(1),-r requirements/$(list).txt)

MINUTES ?= $(if $(filter fuzz,$(MAKECMDGOALS)),2,10)

.PHONY: run build check test test-all lint style types bench market soak simulate mutants fuzz sanitize sanitized \
	exchange wheel release wheels container lock clean prerequisites on_path
.DELETE_ON_ERROR:

run: build
	$(PY) -m snapbid up

build: $(VENV)/.run $(EXTENSION)

# Each test is in one of three tiers: `check` has those of `CHECKED` that start no PostgreSQL, `test`
# these and all others but the long ones, `test-all` the long ones. tests/conftest.py has the marks.
CHECKED := tests/test_source.py tests/unit tests/conformance
IN_CHECK := not postgres and not long
IN_TEST := not long
IN_TEST_ALL := long

# Files of tests side by side, each worker with stores of its own, and more workers than there are
# processors where tests wait: for programs to start, above all long ones for a fault to pass or a
# hold to end. The suite starts interpreters by the hundred: they may keep what they have compiled.
# tests/conftest.py has the order of the files.
PROCESSORS := $$(getconf _NPROCESSORS_ONLN)
PYTEST = $(if $(REDIS),PATH="$(CURDIR)/build/redis:$$PATH") PYTHONDONTWRITEBYTECODE= $(PY) -m pytest \
	--maxprocesses 4 --dist loadfile --no-loadscope-reorder
JUDGES := $(VENV)/.npm $(VENV)/.rtblint

# Types are checked while tests run, and what is wrong with them is said after the tests.
beside_types = mkdir -p build && { $(MAKE) --no-print-directory types >build/types 2>&1 & \
	types=$$!; $(1); tests=$$?; wait $$types; types=$$?; cat build/types; exit $$((tests + types)); }

check: style build $(if $(REDIS),on_path)
	@$(call beside_types,$(PYTEST) -n $(PROCESSORS) -q -m "$(IN_CHECK)" $(CHECKED))

# TESTS=tests/unit, TESTS="-n0 tests/integration/test_up.py -k port": these, whatever their tier.
TESTS ?=
test: build $(if $(REDIS),on_path)
	@$(MAKE) --no-print-directory --jobs=3 style $(JUDGES)
	@$(call beside_types,$(PYTEST) -n $$(($(PROCESSORS) + 1)) $(or $(TESTS),-m "$(IN_TEST)"))

test-all: $(VENV)/.dev build $(JUDGES) $(if $(REDIS),on_path)
	@$(PYTEST) -n $$(($(PROCESSORS) * 2)) -m "$(IN_TEST_ALL)"

# The embedded Redis is the redis-server on PATH, if there is one: here it is REDIS by that name.
on_path:
	@"$(REDIS)" --version
	@mkdir -p build/redis && ln -sfn "$$(realpath "$$(command -v "$(REDIS)")")" build/redis/redis-server

lint: style types

style: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.dev build
	$(PY) -m mypy
	$(PY) -m mypy.stubtest --concise $(STUBS)

bench: $(VENV)/.dev $(VENV)/.bench build
	$(PY) -m bench $(if $(QUICK),--quick)

market: $(VENV)/.dev $(VENV)/.bench build
	$(PY) -m bench.market $(BIDDERS) $(if $(QUICK),--quick) $(addprefix --checkout ,$(CHECKOUTS))

MUTATED = $(if $(MUTATION),-m support.mutants --in "$(MUTATION)")

soak: $(VENV)/.dev build
	PYTHONPATH=tests $(PY) $(MUTATED) -m support.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(FLEET),--fleet) \
	$(if $(FAULTS),--faults "$(FAULTS)")

simulate: $(VENV)/.dev build
	PYTHONPATH=tests $(PY) $(MUTATED) -m support.simulator $(if $(SEED),--seed $(SEED)) \
	$(if $(RUNS),--runs $(RUNS)) $(if $(STEPS),--steps $(STEPS)) \
	$(if $(SCRIPT),--script $(SCRIPT)) \
	$(if $(FAULTS),--faults "$(FAULTS)") $(if $(PROCESSES),--processes $(PROCESSES)) \
	$(if $(SHARDS),--shards $(SHARDS))

mutants: $(VENV)/.dev build
	PYTHONPATH=tests $(PY) -m support.mutants $(if $(SOAK),--soak) $(if $(DRAW),--draw $(DRAW)) $(if $(DATE),--date $(DATE)) $(ROOMS)

# With INPUTS, under the sanitizers and without instrumented code: as many as that, in all.
fuzz: $(VENV)/.dev $(VENV)/.fuzz build $(if $(INPUTS),sanitized)
	$(if $(INPUTS),$(SANITIZING):tests,PYTHONPATH=tests) $(PY) -m support.fuzz \
	$(if $(INPUTS),--inputs $(INPUTS),--minutes $(MINUTES)) $(TARGET)

# A build of its own; leaks are not looked for, since the interpreter never frees all it has.
SANITIZED := build/sanitize
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZED_TESTS := tests/property/test_matcher.py tests/property/test_explain.py \
	tests/unit/test_lookups.py tests/unit/test_catalog.py tests/unit/test_campaign.py \
	tests/unit/test_metrics.py tests/unit/test_admission.py tests/unit/test_golive.py \
	tests/unit/test_response.py tests/unit/test_auction_log.py tests/unit/test_notice.py \
	tests/unit/test_outcome.py tests/property/test_head.py \
	tests/unit/test_answering.py tests/unit/test_replies.py tests/unit/test_running.py \
	tests/unit/test_bounds.py tests/unit/test_replacing.py tests/unit/test_pods.py \
	tests/unit/test_logged_bids.py tests/unit/test_members.py tests/unit/test_click_stamp.py \
	tests/property/test_bid_entries.py tests/property/test_packed_commands.py

SANITIZING = PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=64 \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	PYTHONPATH=$(SANITIZED)/lib

sanitize: sanitized
	$(SANITIZING) $(PY) -m pytest -s $(SANITIZED_TESTS)

sanitized: $(VENV)/.dev
	@echo "building the extensions with $(SANITIZERS)"
	@CFLAGS="$(SANITIZERS) -fno-omit-frame-pointer -g -O1" LDFLAGS="$(SANITIZERS)" $(PY) setup.py \
	--quiet build --build-base $(SANITIZED) --build-lib $(SANITIZED)/lib

# Go builds only what has changed since the last time, and takes what it depends on from its proxy.
exchange: $(VENV)/.dev build
	@test -f "$(PREBID_SERVER)/go.mod" || { echo "PREBID_SERVER=... must name a checkout of \
	github.com/prebid/prebid-server" >&2; exit 1; }
	cd "$(PREBID_SERVER)" && go build -buildvcs=false -o "$(CURDIR)/build/prebid-server" .
	PYTHONPATH=tests $(PY) -m support.exchange $(if $(RECORD),--record) \
	build/prebid-server "$(PREBID_SERVER)"

# The wheel is built from the source distribution, and both twice. What they must not depend on differs
# between the two builds: place, time zone, hash seed, and whether pip builds the wheel. Files have the
# time of the last commit, and the same modes whatever the umask.
SOURCES := pyproject.toml setup.py MANIFEST.in README.md CHANGELOG.md LICENSE native requirements src
BUILT_VERSION = $$($(PY) src/snapbid/base/version.py)
SETUP = $(abspath $(PY)) -W ignore setup.py --quiet
PIP_WHEEL = $(abspath $(PY)) -m pip --quiet wheel --no-build-isolation --no-deps .
wheel wheels: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),315532800)
wheel: $(VENV)/.run $(VENV)/.sbom
	@rm -rf build/wheel && mkdir -p build/wheel/first build/wheel/second/further/down \
	build/wheel/one build/wheel/two dist
	@echo "building the source distribution, and from it the wheel, twice, side by side"
	@umask 022; $(call build_both,first,$(SETUP) bdist_wheel --dist-dir,one) & first=$$!; \
	export TZ=Asia/Kathmandu PYTHONHASHSEED=7; \
	$(call build_both,second/further/down,$(PIP_WHEEL) --wheel-dir,two) >/dev/null && wait $$first
	@cd build/wheel/one && for built in *; do cmp "$$built" "../two/$$built" || exit 1; done
	@cp build/wheel/one/* dist/
	@echo "listing what a server installs with it"
	@$(PYTHON) -m venv --without-pip build/wheel/server
	@$(PIP) --python build/wheel/server install --require-hashes $(call locked,run)
	@$(PIP) --python build/wheel/server install --no-deps build/wheel/one/*.whl
	@$(VENV)/bin/cyclonedx-py environment --output-reproducible \
	-o dist/$$(basename build/wheel/one/*.whl .whl).cdx.json build/wheel/server/bin/python
	@$(sum_up)

# $(call build_both,PLACE,BUILDER,RESULT): a source distribution in build/wheel/PLACE, and a wheel from it.
build_both = (tar c --mode=u=rwX,go=rX --exclude='*.so' --exclude=__pycache__ --exclude='*.egg-info' \
	$(SOURCES) | tar x -C build/wheel/$(1) && version="$(BUILT_VERSION)" && cd build/wheel/$(1) && \
	printf "Version: %s\n" "$$version" >PKG-INFO && \
	SNAPBID_BUILT=1 $(SETUP) sdist --formats=tar --dist-dir . && tar xf "snapbid-$$version.tar" && \
	tar c --sort=name --mtime="@$$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
	"snapbid-$$version" | gzip -n >"$(CURDIR)/build/wheel/$(3)/snapbid-$$version.tar.gz" && \
	cd "snapbid-$$version" && $(2) "$(CURDIR)/build/wheel/$(3)")

sum_up = version="$(BUILT_VERSION)" && cd dist && \
	sha256sum "snapbid-$$version.tar.gz" "snapbid-$$version"-* | tee SHA256SUMS

# A wheel for each version of Python, from the source distribution, as [tool.cibuildwheel] says: for
# this processor, or for another one by an emulator (CIBW_ARCHS=aarch64).
wheels: wheel $(VENV)/.wheels
	CIBW_CONTAINER_ENGINE=$(BUILDER) $(VENV)/bin/cibuildwheel --platform linux --output-dir dist \
	"dist/snapbid-$(BUILT_VERSION).tar.gz"
	@$(sum_up)

# Commits the version and the dated changelog, unless they are there, and builds what is released.
RELEASED := $(shell sed -n 's/^RELEASE: Final = "\(.*\)"/\1/p' src/snapbid/base/version.py)
refuse = { echo "no release: $(1)" >&2; exit 1; }
release:
	@expr "$(VERSION)" : '[0-9]*\.[0-9]*\.[0-9]*$$' >/dev/null || $(call refuse,say which: VERSION=0.2.0)
	@printf '%s\n' "$(RELEASED)" "$(VERSION)" | sort -VC || \
	$(call refuse,$(VERSION) comes before $(RELEASED))
	@! git rev-parse --quiet --verify "refs/tags/v$(VERSION)" >/dev/null || \
	$(call refuse,v$(VERSION) is tagged)
	@test -z "$$(git status --porcelain)" || $(call refuse,there are changes that are not committed)
	@grep -m1 '^## ' CHANGELOG.md | grep -qE '^## (Unreleased|$(VERSION) \(.*\))$$' || \
	$(call refuse,the newest section of CHANGELOG.md is not "## Unreleased")
	@sed -i "0,/^## /s/^## .*/## $(VERSION) ($$(date -u +%F))/" CHANGELOG.md
	@sed -i 's/^RELEASE: Final = .*/RELEASE: Final = "$(VERSION)"/' src/snapbid/base/version.py
	@git diff --quiet || git commit --quiet --all --message "release: $(VERSION)"
	@$(MAKE) --no-print-directory wheel
	@echo "to publish it:"
	@echo "git tag --annotate v$(VERSION) --message 'Snapbid $(VERSION)' $$(git rev-parse --short HEAD)"

BUILDER ?= podman
container:
	$(BUILDER) build --build-arg VERSION="$$($(PYTHON) src/snapbid/base/version.py)" -f src/snapbid/operations/export/files/Containerfile -t snapbid .

# One resolution of everything, for all platforms and versions of Python; each list is a part of it.
COMPILE = $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command "make lock" --no-emit-find-links

lock: $(VENV)/.lock
	@mkdir -p build
	@$(call needs,$(LISTS)) | $(COMPILE) --upgrade - -o build/locked.txt
	@for list in $(LISTS); do $(call needs,$$list) | \
	$(COMPILE) - -c build/locked.txt -o requirements/$$list.txt || exit 1; done

clean:
	rm -rf $(VENV) build dist src/snapbid.egg-info
	rm -rf .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src -name '*.so' -delete
	find src tests bench workload native -name __pycache__ -prune -exec rm -rf {} +

# ensurepip would compile all of pip, most of which is never imported: eight seconds instead of one.
UNPACK_PIP = $(PY) -c 'import ensurepip, pathlib, sysconfig, zipfile; \
	bundled = pathlib.Path(ensurepip.__file__).with_name("_bundled"); \
	places = sysconfig.get_config_var("WHEEL_PKG_DIR"), bundled; \
	wheels = [wheel for place in places if place for wheel in pathlib.Path(place).glob("pip-*.whl")]; \
	zipfile.ZipFile(wheels[0]).extractall(sysconfig.get_path("purelib"))' 2>/dev/null

$(VENV)/.run: $(FRAME) $(patsubst %,requirements/%.txt,build run embedded)
	@$(MAKE) --no-print-directory prerequisites GOALS="$(MAKECMDGOALS)"
	@echo "1/3 making the environment in $(VENV)"
	@$(PYTHON) -m venv --without-pip $(VENV)
	@$(PY) -c "import pip" 2>/dev/null || $(UNPACK_PIP) || $(PY) -m ensurepip
	@echo "2/3 installing what the build needs"
	@$(INSTALL) --require-hashes $(call locked,build)
	@echo "3/3 compiling the extension, and meanwhile installing what runs: $$(cat \
	requirements/run.txt requirements/embedded.txt | grep -c ==) packages, Redis and PostgreSQL \
	among them"
	@$(BUILD) & built=$$!; $(INSTALL) --require-hashes $(call locked,run embedded) && \
	SNAPBID_BUILT=1 $(INSTALL) --no-build-isolation --no-deps --editable .; \
	installed=$$?; wait $$built && exit $$installed
	@mkdir -p build && touch $(EXTENSION) $@

$(patsubst %,$(VENV)/.%,dev bench fuzz wheels lock sbom): $(VENV)/.%: requirements/%.txt $(VENV)/.run
	@echo "installing what $* needs"
	@$(INSTALL) --require-hashes $(call locked,$*)
	@touch $@

# The accessibility checker and the player that judge in tests, which skip what they lack.
$(VENV)/.npm: $(wildcard tests/npm/*) $(VENV)/.run
	@mkdir -p $(VENV)/npm && cp tests/npm/* $(VENV)/npm
	@if ! command -v npm >/dev/null || ! npm ci --prefix $(VENV)/npm --ignore-scripts --silent; then \
	echo "axe-core and vast-client are not installed (npm): neither accessibility nor what a player \
	makes of VAST is checked" >&2; fi
	@touch $@

# A validator of bids that judges in tests, which skip what they lack. Without optimization, building
# it takes half the time.
RTBLINT := 0.14.6
$(VENV)/.rtblint: $(VENV)/.run
	@if ! command -v cargo >/dev/null || ! cargo install rtblint --version $(RTBLINT) --locked --quiet \
	--debug --root $(VENV)/cargo; then \
	echo "rtblint is not installed (cargo): answers are not checked by it" >&2; fi
	@touch $@

# It has been built above; this follows changes of the sources.
$(EXTENSION): $(NATIVE) setup.py | $(VENV)/.run
	@echo "building the extension"
	@$(BUILD)
	@touch $@

prerequisites:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or \
	newer (Debian: apt install python3 python3-venv python3-dev)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is \
	$$($(PYTHON) -V 2>&1): Python 3.11 or newer is needed \
	($(strip make PYTHON=python3.11 $(GOALS)))" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module \
	(Debian: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; \
	sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || \
	{ echo "$(PYTHON) has no headers: Python.h (Debian: apt install python3-dev)" >&2; exit 1; }
	@command -v $(firstword $(CC)) >/dev/null || { echo "no C compiler: $(firstword $(CC)) \
	(Debian: apt install gcc libc6-dev)" >&2; exit 1; }
	@printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $(CC) -x c -fsyntax-only - \
	2>/dev/null || { echo "$(CC) compiles nothing: the C headers are missing (Debian: apt install \
	libc6-dev)" >&2; exit 1; }
