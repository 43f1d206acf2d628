# Two commands from a bare clone: `make demo` and `make test`. Both need only Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
# Tests that run beside the others; none that sends Ctrl-C, which a shell keeps from what it runs in the background.
BESIDE := tests/test_learning.py tests/test_pages.py tests/test_parsing.py tests/test_recipes.py tests/test_site.py tests/interop tests/model tests/scoring tests/seeing tests/serving

.PHONY: demo test docs format clean

demo: .venv/installed
	@echo "the translator in the box:"
	@$(BIN)/transduce translate --to de "The animal didn't cross the street because it was too tired."
	@echo "and one of your own:"
	@$(BIN)/transduce prepare demo/numbers --builtin numbers
	@$(BIN)/transduce train demo/numbers --preset tiny --out demo/run --resume
	@$(BIN)/python recipes/demo.py demo/run

test: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@echo "$(BIN)/basedpyright and $(BIN)/pytest in two halves, all side by side"
	@$(BIN)/python tests/browser/install.py && browser=tests/browser || browser=; \
	$(BIN)/basedpyright & types=$$!; \
	$(BIN)/pytest $(BESIDE) $$browser & beside=$$!; \
	$(BIN)/pytest $(addprefix --ignore ,$(BESIDE) tests/browser); others=$$?; \
	wait $$types; types=$$?; wait $$beside; beside=$$?; \
	test -n "$$browser" || echo "no Chromium could be fetched: tests/browser was NOT run"; \
	test $$types = 0 -a $$beside = 0 -a $$others = 0

docs: .venv/installed
	$(BIN)/python -m zensical build --clean --strict
	@echo "open build/site/index.html"

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# torch comes first and pinned, so that no newer build is resolved beside it. Where it brings no triton, the oldest that we
# support is taken: newer ones compile what it refuses.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "transduce needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/pip install --quiet --disable-pip-version-check \
		"triton==3.6.0; platform_system == 'Linux' and platform_machine == 'x86_64'"
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .cache demo build dist
