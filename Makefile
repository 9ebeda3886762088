# The two commands that matter: make run, make test. Everything they do lives in scripts/.
# make run MODEL=gemma3-1b ARGS="--port 9000" runs another model with more options.
MODEL ?= smollm2-135m
ARGS ?=

.PHONY: run test lint bench soak fuzz openapi faults

run:
	@scripts/setup
	@exec .venv/bin/mashbox run $(MODEL) $(ARGS)

test lint bench soak fuzz openapi faults:
	@scripts/$@ $(ARGS)
