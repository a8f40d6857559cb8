# Short names for tools/dev.py, which does the work: without make, call `python3 tools/dev.py demo` and so on.
#   make demo SERVE=0          stop after the table of answers
#   make serve PORT=9000       another port
#   make test ARGS="-k serve"  arguments for pytest; for bench, evaluate and bundle, those of their own commands
PYTHON ?= python3
DEV = $(PYTHON) tools/dev.py

.PHONY: help setup demo test lint bench evaluate screenshots bundle serve lock
help: ; @$(DEV) --help
setup: ; @$(DEV) setup
demo: ; @$(DEV) demo $(if $(filter 0,$(SERVE)),--no-serve) $(if $(PORT),--port $(PORT))
test: ; @$(DEV) test $(ARGS)
lint: ; @$(DEV) lint
bench: ; @$(DEV) bench $(ARGS)
evaluate: ; @$(DEV) evaluate $(ARGS)
screenshots: ; @$(DEV) screenshots $(ARGS)
bundle: ; @$(DEV) bundle $(ARGS)
serve: ; @$(DEV) serve $(ARGS) $(if $(PORT),--port $(PORT))
lock: ; @$(DEV) lock
