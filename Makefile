# Each target sets up what it needs: .venv is made and filled where it is missing or older than its recipe.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH := $(VENV)/.bench
DOCS := $(VENV)/.docs

# Idle OpenMP threads sleep instead of spinning: on a busy or small machine the tests take half the time.
export OMP_WAIT_POLICY ?= passive

# Two test processes, each with contiguous tests until one runs out: files' own fixtures are mostly made once.
PARALLEL ?= -n 2 --dist worksteal

.PHONY: install demo test test-slow test-browser check format bench docs lock sbom clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing copilot4d and its dependencies into $(VENV) (a few minutes the first time) ..."
	@test -z "$(LOCKED)" || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

$(BENCH): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	@touch $@

$(DOCS): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	@touch $@

demo: $(INSTALLED)
	$(BIN)/copilot4d demo --out demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -q $(PARALLEL) -m "not slow and not browser"

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -q $(PARALLEL) -m "slow and not browser"

test-browser: docs
	$(BIN)/python -m pytest -q -m browser

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/prose.py

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in site/: open site/index.html, or with search: python -m http.server -d site"

bench: $(BENCH)
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# The sha256 of everything that constraints.txt pins, but torch; `make install LOCKED=1` installs by them.
lock:
	$(PYTHON) .ci/lock.py

sbom: $(INSTALLED)
	$(BIN)/python .ci/sbom.py sbom.cdx.json

clean:
	rm -rf $(VENV) demo site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
