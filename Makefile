# Common tasks. CMake compiles, scripts/ sets up and runs; this file only combines them.
#   make          compile everything into build/
#   make train    set up, compile, train the quickstart model     make train ARGS="--set train.steps=200"
#   make test     set up, compile, all tests: 7 to 20 minutes on two cores
#   make sanitize set up, the tests again with address, undefined-behaviour and thread sanitizers: 14 to 28 minutes; SLICE=1: a part of them
#   make check-cuda   the CUDA code without a GPU: registers, machine code, plans of cuDNN; ten minutes
#   make soak     long tests, best on a quiet machine: every mesh of up to eight ranks, every place where a disk can fail
#   make fuzz     our parsers under libFuzzer, each for FUZZ_SECONDS
#   make bench    speed of the kernels and of a training step on this machine
#   make peers    steps against compiled PyTorch's and llm.c's, in turns; needs torch, an hour or more
#   make install  compile and install; PREFIX=/usr/local, DESTDIR= for packages
#   make bundle   the program with its libraries in one archive for machines without them; checked in a bare root if run as root
#   make index    each source file with its purpose
#   make check    format, include arrows, warnings as errors      make format   rewrites the sources
.PHONY: build train test sanitize check-cuda soak fuzz bench peers install bundle index check format clean
.DEFAULT_GOAL := build

# Tests that wait leave cores to others.
jobs    := $(shell echo $$((($$(nproc) * 3 + 1) / 2)))
sources := $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' 2> /dev/null)
comma   := ,
ctest   := ctest --parallel $(jobs) --output-on-failure --test-dir
# Formatting differs between versions of clang-format; the house is written with 14.
format  := $(shell command -v clang-format-14 || { clang-format --version 2> /dev/null | grep -q 'version 14\.' && echo clang-format; })

build: build/build.ninja
	cmake --build build

# In CI, warnings are errors, and machine code is made for one GPU architecture; the bundle and
# scripts/kernel_registers.sh cover all.
build/build.ninja:
	cmake -S . -B build -G Ninja $(if $(CI),-DTRIREME_WERROR=ON -DCMAKE_CUDA_ARCHITECTURES=90-real)
build/asan/build.ninja:
	cmake -S . -B build/asan -G Ninja -DTRIREME_SANITIZE=address,undefined $(if $(SLICE),-DTRIREME_TRAIN_PART=$(quarter))
build/tsan/build.ninja:
	cmake -S . -B build/tsan -G Ninja -DTRIREME_SANITIZE=thread

train:
	@scripts/setup.sh
	@$(MAKE) --no-print-directory build/build.ninja
	cmake --build build --target trireme
	@scripts/quickstart.sh $(ARGS)

test:
	@scripts/setup.sh
	@$(MAKE) --no-print-directory build
	$(ctest) build

# The two builds' tests run as one list, the longest test first, so that ctest's last line speaks for both. With SLICE=1, a part of
# them alone, which the commit chooses: a build, a target of it, its tests, and every so many of these.
slices  = asan/tests_train/train/6 asan/tests_steps/(cuda_parallel|cuda_step)/4 asan/tests_kernels/(cuda|emulation|kernels)/8 \
          asan/tests_data/(base|data|model)/2 asan/tests_state/(checkpoint|parallel)/2 tsan/tests/.*/4
commit  = 0x$(shell git rev-parse --short=7 HEAD)
part    = $(subst /, ,$(word $(shell echo $$((1 + $(commit) % $(words $(slices))))),$(slices)))
every   = $(word 4,$(part))
quarter = $(shell echo $$(($(commit) / $(words $(slices)) % 4)))
kinds   = $(if $(SLICE),$(word 1,$(part)),tsan asan)
sanitize:
	@scripts/setup.sh
	@for kind in $(kinds); do $(MAKE) --no-print-directory build/$$kind/build.ninja || exit 1; done
	@for kind in $(kinds); do cmake --build build/$$kind --target $(if $(SLICE),$(word 2,$(part)),tests) || exit 1; done
	@mkdir -p build/sanitized
	@printf 'subdirs("$(CURDIR)/build/%s")\n' $(kinds) > build/sanitized/CTestTestfile.cmake
	$(ctest) build/sanitized --no-tests=error $(if $(SLICE),-R '^$(kinds) $(word 3,$(part)):' \
	  -I $$((1 + $(commit) / $(words $(slices)) % $(every)))$(comma)$(comma)$(every))

# Checks of the CUDA code without a GPU: registers and spills, blocks that fit, machine code, cuDNN's plans.
check-cuda: build
	scripts/kernel_registers.sh
	scripts/check_sass.py build/check_cuda
	$(ctest) build -R "^(cuda|cublas|cudnn|gpu_check):"
	build/test/test_cuda_step "the first step of models as shipped*"
	scripts/cudnn_plans.py build
	git diff --exit-code --stat docs/gpu

soak: build
	build/test/test_checkpoint "[soak]"
	build/test/test_train "[soak]"
	build/test/test_simulation "[soak]"

# FUZZ_SECONDS of each target; what it finds stays in build/fuzz/found, what widens its coverage in build/fuzz/corpus.
FUZZ_SECONDS ?= 60
fuzz:
	@test -f build/fuzz/build.ninja || cmake -S . -B build/fuzz -G Ninja -DTRIREME_SANITIZE=address,undefined -DTRIREME_FUZZ=ON -DBUILD_TESTING=OFF
	cmake --build build/fuzz
	scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS)
	@test -f build/coverage/build.ninja || cmake -S . -B build/coverage -G Ninja -DTRIREME_FUZZ=ON -DTRIREME_COVERAGE=ON -DTRIREME_UNITY=OFF -DTRIREME_CUDA=OFF -DBUILD_TESTING=OFF
	cmake --build build/coverage
	scripts/fuzz_coverage.sh build/coverage build/fuzz/corpus build/fuzz/seeds

bench: build
	build/trireme bench kernels
	build/trireme bench step configs/gpt2-124m.yaml --set train.batch=8 --set train.microbatch=8 --set model.context=256

peers: build
	scripts/peers.py $(ARGS)

PREFIX ?= /usr/local
install: build/build.ninja
	cmake --build build --target trireme
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

bundle:
	scripts/make_bundle.sh
	@if [ "$$(id -u)" = 0 ]; then scripts/bundle_check.sh; else echo "bundle: not checked: scripts/bundle_check.sh needs root"; fi

index:
	@scripts/index.sh

check:
	cmake -S . -B build -G Ninja -DTRIREME_WERROR=ON
	cmake --build build
ifeq ($(format),)
	@echo "check: formatting not checked: clang-format 14 is not here"
else
	@echo "$(format) --dry-run --Werror: $(words $(sources)) files"
	@$(format) --dry-run --Werror $(sources)
endif
	build/test/test_house

format:
	@test -n "$(format)" || { echo "format: clang-format 14 is not here" >&2; exit 1; }
	$(format) -i $(sources)

clean:
	rm -rf build
