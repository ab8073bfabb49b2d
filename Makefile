# Needs Python 3.11 or newer, make, and a package index. Everything lands in .venv; nothing is left running.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint types install clean

demo: $(VENV)/installed
	@$(BIN)/python -P deploy/demo/run.py

test: $(VENV)/installed-dev
	@$(BIN)/pytest $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	@$(BIN)/python tests/types.py

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing recalld into $(VENV) (once, about a minute) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing recalld and its test tools into $(VENV) (once, about a minute) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
