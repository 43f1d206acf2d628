# Two commands from a bare clone: `make demo` and `make test`. Both need only Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test format clean

demo: .venv/installed
	@$(BIN)/transduce prepare demo/numbers --builtin numbers
	@$(BIN)/transduce train demo/numbers --preset tiny --out demo/run --resume
	@$(BIN)/python recipes/demo.py demo/run

test: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	@echo "$(BIN)/pytest, with the two tests that train beside the others"
	@$(BIN)/pytest tests/test_learning.py & learning=$$!; \
	$(BIN)/python tests/browser/install.py && left_out= || left_out="--ignore tests/browser"; \
	$(BIN)/pytest --ignore tests/test_learning.py $$left_out; others=$$?; \
	test -z "$$left_out" || echo "no Chromium could be fetched: tests/browser was NOT run"; \
	wait $$learning && exit $$others

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# torch comes first and pinned, so that no newer build is resolved beside it.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "transduce needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv demo build dist
