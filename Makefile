# `make run` answers a prompt and `make test` proves it right; both bring what they need.
VENV   := .venv
PYTHON := $(VENV)/bin/python
LLAMAY := $(PYTHON) -m llamay
PYTEST := $(PYTHON) -m pytest -q
MODEL  ?=
PROMPT ?= In one sentence: what is the sea?
TESTS  ?= tests
JOBS   ?= auto

# tests start many processes: none of them should have to compile the package again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test soak bench lint types wheel docs clean

run: $(VENV)/.package
	@.ci/adapter $(PYTHON)
	@.ci/answer $(PYTHON) "$(MODEL)" "$(PROMPT)"

# tests/conftest.py has the longest files first
test: $(VENV)/.dev
	@.ci/adapter $(PYTHON)
	$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)

# a server that is watched for its pace has the machine to itself
soak: $(VENV)/.dev
	$(PYTEST) -m soak -n $(JOBS) --dist loadfile --ignore tests/server $(TESTS)
	$(PYTEST) -m soak tests/server

bench: $(VENV)/.package
	@.ci/adapter $(PYTHON)
	$(LLAMAY) bench $(if $(MODEL),-m $(MODEL)) -prompt 128 -gen 64 -reps 5

lint: $(VENV)/.dev
	$(PYTHON) -m ruff check .

types: $(VENV)/.dev
	@.ci/typed
	$(PYTHON) -m mypy

wheel: $(VENV)/.dev
	$(PYTHON) .ci/wheel.py

docs: $(VENV)/.dev
	$(PYTHON) docs/make_cli.py
	$(PYTHON) docs/make_supported.py

clean:
	rm -rf $(VENV) build dist *.egg-info

# the test tools come on top of the package, so .dev makes both stamps
$(VENV)/.package $(VENV)/.dev: pyproject.toml
	@.ci/install $(VENV) $(@F)
