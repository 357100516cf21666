# Everything a person or CI runs. `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread: the tensors of tests and examples are small, and idle threads cost more than they give.
export OMP_NUM_THREADS ?= 1
# The folder that holds the data of the papers, and where the runs of `make results` are kept.
DATA ?= $(EXPACC_DATA)
RUNS ?= expacc-reproduce
# Compiling kernels is most of the time of the tests on a GPU: so many processes do it side by side.
SHARES ?= 8
NOTES ?= build/gpu-tests/notes

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-gpu check format docs docs-serve bench figures results results-docs dist clean

help: ## Show this list.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(STAMP) ## Create .venv with everything; does nothing if nothing changed.

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Use make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install ## Compare the losses on digits, with clean and with wrong labels; ends with the report.
	@$(BIN)/expacc compare digits --inject-label-noise 0,0.2 --folds 3x3 --trials 8 --references networks --out expacc-digits

# Each worker begins with its own half of the files, so that what a file prepares is prepared once.
test: install ## Run the tests.
	@$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow"

test-slow: install ## Run the tests that take minutes.
	@$(BIN)/python -m pytest -q -m slow

test-gpu: ## Run the tests that need a GPU, with the Python at hand (PYTHON=..., SHARES=side by side).
	@rm -rf "$(NOTES)" && mkdir -p "$(NOTES)"
	@$(MAKE) --no-print-directory --keep-going --jobs=$(SHARES) --output-sync=target \
		$(foreach place,$(shell seq $(SHARES)),gpu-share-$(place)); code=$$?; \
		$(PYTHON) tests/gpu/conftest.py "$(NOTES)" && exit $$code

gpu-share-%:
	@EXPACC_SHARE=$*/$(SHARES) EXPACC_NOTES="$(NOTES)" $(PYTHON) -m pytest -q --tb=short \
		--no-header -p no:cacheprovider tests/gpu > "$(NOTES)/../gpu-share-$*.log" 2>&1 \
		|| [ $$? -eq 5 ] || { cat "$(NOTES)/../gpu-share-$*.log"; exit 1; }  # 5: a share without tests

check: install ## What CI runs: format, lint, types, documentation, tests.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(MAKE) --no-print-directory docs
	@$(MAKE) --no-print-directory test

docs: install ## Build the documentation in build/site; a warning or a broken link ends it.
	@$(BIN)/python docs/write_site.py
	@PYTHONPATH=docs $(BIN)/zensical build --strict --clean -f build/mkdocs.yml
	@$(BIN)/python docs/pages/links.py build/site

docs-serve: install ## Show the documentation at http://localhost:8000, and what changes in it.
	@$(BIN)/python docs/write_site.py
	@$(BIN)/python docs/write_site.py --watch & trap "kill $$!" EXIT; \
		PYTHONPATH=docs $(BIN)/zensical serve -f build/mkdocs.yml

format: install ## Format the code and mend what the linter can.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: install ## Measure speed and memory; results go to benchmarks/results/.
	@$(BIN)/python benchmarks/losses.py
	@$(BIN)/python benchmarks/exact.py
	@$(BIN)/python benchmarks/sweep.py
	@$(BIN)/python benchmarks/estimator.py
	@$(BIN)/python benchmarks/engines.py

figures: install ## Draw the figures of the README.
	@$(BIN)/python docs/figures/draw_losses.py

results: install ## Do all of the papers' tables again (DATA=folder), then results-docs; resumes.
	@$(BIN)/expacc reproduce --all $(if $(DATA),--data "$(DATA)") --out "$(RUNS)"
	@$(MAKE) --no-print-directory results-docs

results-docs: install ## Write docs/results.md and the README's results from stored rows; runs nothing.
	@$(BIN)/expacc reproduce --all --no-run --quiet --out "$(RUNS)"
	@$(BIN)/python docs/write_results.py "$(RUNS)"

dist: install ## Build the source archive and the wheel (docs/releasing.md).
	@rm -rf build dist
	@$(BIN)/python -m build --no-isolation --outdir dist . > dist.log 2>&1 || { cat dist.log; exit 1; }
	@rm -rf build dist.log
	@$(BIN)/python -m zipfile -l dist/*.whl | grep -v '\.py '

clean: ## Remove the environment and everything generated.
	rm -rf $(VENV) build dist *.egg-info expacc-digits .pytest_cache .mypy_cache .ruff_cache
