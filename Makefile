# Two commands matter: `make run` serves the app, `make test` runs every check; both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
PORT ?= 8501
HOST ?= localhost
WORKERS ?= 2

.PHONY: setup setup-dev run test test-all check format bench mutants train train-grid evidence screenshots clean

setup: $(VENV)/run.stamp
setup-dev: $(VENV)/dev.stamp

$(VENV)/run.stamp: requirements.txt
	$(PYTHON) -c 'import sys; sys.exit("Headroom needs Python 3.11 or newer; set PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.txt
	touch $@

$(VENV)/dev.stamp: requirements-dev.txt $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	touch $@

run: setup
	$(BIN)/streamlit run app.py --server.port=$(PORT) --server.address=$(HOST)

check: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

# Everything but the tests marked long: checks, core, pages, and real Chromium.
test: check
	$(BIN)/python -m scripts.find_chromium
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long"

# The rest: what takes minutes.
test-all: setup-dev
	$(BIN)/python -m scripts.find_chromium
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m long

format: setup-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The peers have an environment of their own, which sees all that the app's has.
$(BENCH)/bench.stamp: requirements-bench.txt $(VENV)/dev.stamp
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$($(BENCH)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/app.pth
	$(BENCH)/bin/python -m pip install --quiet -r requirements-bench.txt
	touch $@

# Core and app against their peers, in one interleaved run; JSON lands in build/.
bench: setup-dev $(BENCH)/bench.stamp
	mkdir -p build
	$(BENCH)/bin/python -m bench.prefill --json build/bench-prefill.json
	$(BENCH)/bin/python -m bench.tracing --json build/bench-tracing.json
	$(BIN)/python -m bench.core --json build/bench-core.json
	$(BIN)/python -m scripts.find_chromium
	$(BIN)/python -m bench.pages --json build/bench-pages.json

# Break the core on purpose, one line at a time; every break must be caught by a test.
mutants: setup-dev
	$(BIN)/python -m scripts.mutate

# Make the weights of the first view again from their seed (about five minutes on one core), or those of D, H and G.
train: setup
	$(BIN)/python -m mha_core.training $(if $(D),--d-model $(D) --heads $(H) --kv-heads $(G))

# Train every setting of the knobs that has no weights yet; can be stopped and started again (hours on two cores).
train-grid: setup
	$(BIN)/python -m mha_core.training.grid

# Measure every head of the shipped models that has no evidence yet (seconds to half a minute each), and the four claims.
# Then pool the KV heads of each to every smaller g (ten minutes in all).
evidence: setup
	$(BIN)/python -m mha_core.analysis.evidence
	$(BIN)/python -m mha_core.analysis.claims
	$(BIN)/python -m mha_core.analysis.pooling_cost

screenshots: setup-dev
	$(BIN)/python -m scripts.find_chromium
	$(BIN)/python -m scripts.screenshots

clean:
	rm -rf $(VENV) $(BENCH) build .pytest_cache .ruff_cache .hypothesis
