# Needs Python 3.11 or newer, make, and a package index. Everything lands in .venv; nothing is left running.
PYTHON ?= python3
VENV   ?= .venv
PYTEST_ARGS ?= -q -n auto --dist loadfile
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCK   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
          --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

.PHONY: demo test lint types install lock audit dist pythons clean

demo: $(VENV)/installed
	@$(BIN)/python -P deploy/demo/run.py

test: $(VENV)/installed-dev
	@$(BIN)/pytest $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	@$(BIN)/python tests/typecheck.py

install: $(VENV)/installed

# Newest versions within pyproject.toml's ranges: `make lock LOCK_ARGS=--upgrade`.
lock: $(VENV)/installed-dev
	@$(LOCK) $(LOCK_ARGS) pyproject.toml -o requirements.lock
	@$(LOCK) $(LOCK_ARGS) --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock

audit: $(VENV)/installed-dev
	@$(BIN)/python deploy/release/audit.py requirements-dev.lock

dist: $(VENV)/installed-dev
	@$(BIN)/python deploy/release/dist.py dist

# The package and its pure parts on every supported interpreter of this machine.
pythons: $(VENV)/installed-dev
	@$(BIN)/python deploy/release/pythons.py

# What is installed is what was tested: versions and hashes come from the lock.
$(VENV)/installed: pyproject.toml requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing recalld into $(VENV) (once, about a minute) …"
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml requirements-dev.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing recalld and its test tools into $(VENV) (once, about a minute) …"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@PYTHONWARNINGS=ignore $(PIP) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .pythons build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
