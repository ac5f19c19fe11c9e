# Every target makes its own environment first: Python 3.11 to 3.13, make and gcc
# are all that the machine must have.
PYTHON ?= python3
OLDEST ?= python3.11
PROFILE ?= default
# These studies have targets of their own; any other experiment is a paper.
STUDIES := audit accounting leaderboard
EXPERIMENT ?= $(sort $(filter-out $(STUDIES),$(notdir $(basename $(wildcard experiments/*.yaml)))))

BIN := .venv/bin
READY := .venv/.ready

# The mirror of the real data sets, where it lies beside the checkout.
ifndef DP_ERM_BENCH_DATA
ifneq ($(wildcard ../shared/data/MANIFEST.csv),)
export DP_ERM_BENCH_DATA := $(abspath ../shared/data)
endif
endif

# Hundreds of processes start in tests: each would compile all of the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help test slowest test-alone test-slow test-engines test-oldest lint docs bench reproduce-figures publish audit accounting leaderboard clean

help:
	@echo "make test                 what guards numbers, privacy and records, on all cores"
	@echo "make slowest              the tests that took longest in the last run"
	@echo "make test-slow            other engines, installs, notebooks, the longest runs;"
	@echo "                          what make test runs on the lowest versions, too"
	@echo "make test-engines         every fault on every engine, SLURM too (Debian, apt-get)"
	@echo "make test-oldest          the tests on the lowest versions that are declared"
	@echo "make lint                 ruff, mypy, import-linter, names"
	@echo "make docs                 the site, into site/"
	@echo "make bench                measure what running trials costs, beside Hydra"
	@echo "                          [BENCHOPT=install|path/to/benchopt] and benchopt"
	@echo "make reproduce-figures    run the experiments, draw the figures, check the claims"
	@echo "                          [PROFILE=smoke|default|paper] [EXPERIMENT=name]"
	@echo "make publish              keep their claims, choices and figures in results/published/"
	@echo "make audit                the statistical audit of every algorithm [PROFILE=...]"
	@echo "make accounting           the noise of every accountant, printed constants [PROFILE=...]"
	@echo "make leaderboard          every algorithm on twenty datasets"
	@echo "                          [PROFILE=...]; make publish EXPERIMENT=leaderboard: the docs' page"
	@echo "make clean                remove the environment and the caches, keep results/"

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	{ echo "dp_erm_bench needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is not: name one, as in 'make PYTHON=python3.12 test'." >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

TIMES := .pytest_cache/times.xml

# What measures time comes after the rest, with the machine to itself.
define tested
status=0; \
$(BIN)/python -m pytest -n auto --dist worksteal -m "$(1) and not alone" \
    --junitxml=$(TIMES) || status=$$?; \
[ $$status -ne 2 ] || exit 2; \
$(BIN)/python -m pytest -m "$(1) and alone" --junitxml=$(TIMES:.xml=-alone.xml) \
    $$(grep -rlw --include='test_*.py' mark.alone tests) || status=$$?
endef

test: $(READY)
	@$(call tested,not slow and not engines); exit $$status

# The tests of the last run that took longest, in seconds.
slowest:
	@test -f $(TIMES) || { echo "no times: run make test first" >&2; exit 2; }
	@cat $(TIMES) $(wildcard $(TIMES:.xml=-alone.xml)) | sed 's/<testcase/\n&/g' | sed -n \
	    's/^<testcase classname="\([^"]*\)" name="\([^"]*\)" time="\([^"]*\)".*/\3 \1 \2/p' \
	    | sort -rn | head -40

# What names a published set, from a clone that has none; all with CI_ALL=1.
test-alone: $(READY)
	@.ci/alone

# What they were green for is kept: .ci/run runs them where that has changed.
SLOW := .pytest_cache/slow.digest
test-slow: $(READY)
	@mkdir -p .pytest_cache && $(BIN)/python tests/slow.py >$(SLOW)
	@$(call tested,slow and not engines); \
	$(MAKE) test-oldest || status=$$?; \
	[ $$status -ne 0 ] || cp $(SLOW) tests/slow.digest; exit $$status

# Every fault on every engine, a SLURM of one node among them, in a quarter of an hour;
# what came of each is written into docs/faults.md. The other tests run a part of it.
test-engines: export DP_ERM_BENCH_SLURM := require
test-engines: export DP_ERM_BENCH_FAULTS := $(abspath .pytest_cache/faults.jsonl)
test-engines: $(READY)
	mkdir -p .pytest_cache && rm -f $(DP_ERM_BENCH_FAULTS)
	$(BIN)/python -m pytest -m "engines or slow or not slow" tests/engines
	$(BIN)/python tests/engines/table.py $(DP_ERM_BENCH_FAULTS)

# Python 3.11 too: some of these versions have no wheels for a later one.
.venv-oldest/.ready: requirements-oldest.lock pyproject.toml
	$(OLDEST) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-oldest.lock
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Without what measures this machine (alone), and what measures our own laws by many
# runs: no version of a library decides these.
test-oldest: .venv-oldest/.ready
	.venv-oldest/bin/python -m pytest -n auto --dist worksteal -m "not slow and not engines and not alone" \
	    --ignore tests/audit --ignore tests/twins --ignore tests/solvers/test_contract.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_names.py

.venv-docs/.ready: requirements-docs.lock pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Warnings are errors; then no page may load anything from another host.
docs: .venv-docs/.ready
	.venv-docs/bin/python -m sphinx --quiet -W --keep-going -b html docs site
	.venv-docs/bin/python docs/hosts.py site

bench: $(READY)
	$(BIN)/python -m benchmarks $(BENCH) $(if $(BENCHOPT),--benchopt=$(BENCHOPT))

# One experiment's failure does not keep the others from running; an interrupt does.
# Each run ends with its claims, all of them with one page: results/report.html.
reproduce-figures: $(READY)
	@status=0; folders=; \
	for name in $(EXPERIMENT); do \
	    echo "== $$name, profile $(PROFILE)"; code=0; \
	    $(BIN)/dp-erm-bench experiment=$$name profile=$(PROFILE) || code=$$?; \
	    [ $$code -lt 130 ] || exit $$code; \
	    [ $$code -eq 0 ] || status=$$code; \
	    [ ! -d results/$$name ] || folders="$$folders results/$$name"; \
	done; \
	[ -z "$$folders" ] || { \
	    $(BIN)/dp-erm-bench report $$folders --out results/report.html >/dev/null && \
	    echo "report: results/report.html"; } || status=1; \
	exit $$status

audit accounting leaderboard: $(READY)
	$(BIN)/dp-erm-bench experiment=$@ profile=$(PROFILE)

# What a run leaves, where the README and the docs show it: docs/figures.md.
publish: $(READY)
	$(BIN)/python -m benchmarks.publish $(EXPERIMENT)

clean:
	rm -rf .venv .venv-docs .venv-oldest site jupyter_execute docs/generated docs/notebooks .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find dp_erm_bench tests -name __pycache__ -type d -prune -exec rm -rf {} +
