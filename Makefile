# Short names for the scripts.
.DEFAULT_GOAL := help
.PHONY: help demo test wheel gpu-test gpu-check gpu-bench exercise fuzz format lint clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: ## build what is needed and run the demonstration
	@scripts/demo.sh

test: ## check everything that needs no GPU
	@scripts/test.sh

wheel: ## make a manylinux wheel in build/wheel/dist, and try it with NumPy alone
	@scripts/setup.sh build python
	@scripts/wheel.sh

gpu-test: ## run the tests that need a GPU or torch, C++ and Python
	@scripts/gpu_test.sh

gpu-check: ## run the GPU tests under compute-sanitizer
	@scripts/gpu_check.sh

exercise: ## check an exercise of the tutorial: make exercise N=1
	@scripts/exercise.sh $(N)

gpu-bench: ## run the benchmarks whose results are stale (ARGS: see scripts/gpu_bench.sh --help)
	@scripts/gpu_bench.sh $(ARGS)

fuzz: ## run every fuzzer for ten minutes
	@scripts/fuzz.sh

format: ## lay out the sources
	@scripts/setup.sh python
	@scripts/format.sh

lint: ## run clang-tidy over what changed
	@scripts/setup.sh build python
	@scripts/build.sh cpu
	@scripts/lint.sh

clean: ## remove everything that was built
	rm -rf build
