# SPDX-License-Identifier: Apache-2.0
# Build, test and install libpagedkv. `make help` lists the targets.
#
# Variables that are meant to be set: CC CXX CFLAGS CXXFLAGS LDFLAGS; WERROR=1 (warnings are errors); V=1 (show the
# commands); SUITE=folder (check, bench); JOBS=n (parallel jobs; -jn wins); PREFIX LIBDIR INCLUDEDIR DESTDIR (install);
# CUDA_HOME (where bin/nvcc is; by default nvcc is looked for in PATH and in /usr/local/cuda), CUDA_ARCHS='90' (the devices
# that are built for; all by default).

.DEFAULT_GOAL := lib
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS) --no-print-directory
endif
ifndef V
Q := @
endif

# `make deps check`: what deps installs is looked up when this file is read, so the other goals run in a make of their
# own after it.
other_goals := $(filter-out deps,$(MAKECMDGOALS))
ifneq ($(and $(filter deps,$(MAKECMDGOALS)),$(other_goals)),)
.PHONY: deps after-deps $(other_goals)
deps:
	@.ci/deps
after-deps: deps
	@$(MAKE) $(other_goals)
$(other_goals): after-deps
	@:
else

# ---- what is built ---------------------------------------------------------------------------------------------------

version := $(shell sed -n 's/^.define PKV_VERSION_STRING "\(.*\)"$$/\1/p' include/pagedkv/types.h)
soname := libpagedkv.so.$(firstword $(subst ., ,$(version)))

# release, asan, ubsan, tsan or fuzz. Each variant has its own objects, libraries and programs.
VARIANT ?= release
obj := build/obj/$(VARIANT)
out := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))

# lib/tensor/cuda, lib/fabric and lib/redis are for plug-ins with libraries of their own.
lib_sources := $(filter-out lib/tensor/cuda/% lib/fabric/% lib/redis/%,$(sort $(wildcard lib/*/*.cpp lib/*/*/*.cpp)))
lib_objects := $(lib_sources:%=$(obj)/%.o)
# The kernels' bodies on the host: for tests (lib/tensor/cuda/emulated.h).
emulated_objects := $(patsubst %,$(obj)/%.o,$(sort $(wildcard lib/tensor/cuda/emulated.cpp lib/tensor/cuda/plan*.cpp)))
cuda_sources := $(filter-out lib/tensor/cuda/emulated.cpp,$(sort $(wildcard lib/tensor/cuda/*.cpp)))
cuda_kernels := $(sort $(wildcard lib/tensor/cuda/*.cu))
cuda_obj := build/obj/nvcc
cuda_objects := $(cuda_sources:%=$(obj)/%.o) $(cuda_kernels:%=$(cuda_obj)/%.o)
fabric_sources := $(sort $(wildcard lib/fabric/*.cpp))
fabric_objects := $(fabric_sources:%=$(obj)/%.o)
redis_objects := $(patsubst %,$(obj)/%.o,$(sort $(wildcard lib/redis/*.cpp)))
shared := $(out)/lib/libpagedkv.so.$(version)
static := $(out)/lib/libpagedkv.a
headers := $(sort $(wildcard include/pagedkv/*.h))

# An example is one file, examples/<name>.c, or a folder of them, examples/<name>/*.c, or both.
example_names := $(sort $(patsubst examples/%.c,%,$(wildcard examples/*.c)) \
                   $(patsubst examples/%/,%,$(dir $(wildcard examples/*/*.c))))
example_programs := $(example_names:%=$(out)/bin/%)
example_objects = $(patsubst %,$(obj)/%.o,$(sort $(wildcard examples/$(1).c examples/$(1)/*.c)))
bench_objects := $(patsubst %,$(obj)/%.o,$(sort $(wildcard tests/bench/*.cpp)))
support_objects := $(patsubst %,$(obj)/%.o,$(sort $(wildcard tests/support/*.c)))

# A test is a C program, tests/<folder>/<name>.c, or a script, tests/<folder>/<name>.sh. tests/static is for
# check-static, tests/gpu for check-gpu and bench-gpu. Of the scripts only those of the examples say something about a variant, and nothing about tsan's: the
# examples have one thread.
SUITE ?=
suite := $(or $(SUITE),*)
no_tests := tests/support/% tests/bench/% tests/static/% tests/gpu/%
test_sources := $(filter-out $(no_tests),$(sort $(wildcard tests/$(suite)/*.c)))
test_programs := $(test_sources:tests/%.c=$(out)/tests/%)
# Fuzz targets, tests/fuzz/<name>.cpp, use what is inside the library. Among the tests they run over what was found before.
fuzz_names := $(filter-out replay,$(patsubst tests/fuzz/%.cpp,%,$(sort $(wildcard tests/fuzz/*.cpp))))
test_programs += $(if $(filter * fuzz,$(suite)),$(fuzz_names:%=$(out)/tests/fuzz/%))
test_scripts := $(filter-out $(no_tests),$(sort $(wildcard tests/$(suite)/*.sh)))
ifneq ($(VARIANT),release)
test_scripts := $(if $(filter asan ubsan,$(VARIANT)),$(filter tests/examples/%,$(test_scripts)))
endif

# ---- flags -----------------------------------------------------------------------------------------------------------

variant_release := -O2 -DNDEBUG
variant_asan := -O1 -fno-omit-frame-pointer -fsanitize=address
variant_ubsan := -O1 -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=all
variant_tsan := -O1 -fno-omit-frame-pointer -fsanitize=thread
variant_fuzz := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
variant_flags := $(variant_$(VARIANT))
ifeq ($(variant_flags),)
$(error VARIANT=$(VARIANT): must be release, asan, ubsan, tsan or fuzz)
endif

PKG_CONFIG ?= pkg-config
pkg = $(shell $(PKG_CONFIG) $(1) 2>/dev/null)
lib_cflags := $(call pkg,--cflags libxxhash libsodium liburing)
lib_libs := $(or $(call pkg,--libs libsodium liburing),-lsodium -luring)
# The plug-in for remote nodes is built where libfabric is. Its tests have a libfabric of their own besides.
has_fabric := $(shell $(PKG_CONFIG) --exists 'libfabric >= 1.17' 2>/dev/null && echo yes)
fabric_cflags := $(call pkg,--cflags libfabric)
fabric_libs := $(call pkg,--libs libfabric)
plugin := $(if $(has_fabric),$(out)/lib/pagedkv/libpagedkv-fabric.so)
fake_objects := $(patsubst %,$(obj)/%.o,$(sort $(wildcard tests/fabric/fake/*.c)))
fabric_tests := $(if $(and $(has_fabric),$(filter * fabric,$(suite))),$(out)/tests/fabric/libfake-fabric.so)
# The plug-in for CUDA devices is built where nvcc is, for the devices of this list that it knows, and for later ones as PTX.
# Its kernels are the same in every variant.
cuda_home := $(or $(CUDA_HOME),$(patsubst %/bin/nvcc,%,$(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))))
NVCC ?= $(cuda_home)/bin/nvcc
has_cuda := $(if $(cuda_home),$(shell [ -x '$(cuda_home)/bin/nvcc' ] && echo yes))
cuda_known := $(if $(has_cuda),$(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code 2>/dev/null)))
CUDA_ARCHS ?= $(filter $(cuda_known),75 80 86 89 90 100 120)
cuda_codes = $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
             $(foreach arch,$(lastword $(filter 75 80 86 89 90,$(CUDA_ARCHS))) $(lastword $(CUDA_ARCHS)),-gencode arch=compute_$(arch),code=compute_$(arch))
cuda_cflags := $(if $(has_cuda),-isystem $(cuda_home)/include)
cuda_libs := $(firstword $(wildcard $(cuda_home)/lib64/libcudart_static.a $(cuda_home)/lib/libcudart_static.a)) -ldl -lrt
cuda_plugin_name := libpagedkv-cuda.so
cuda_plugin := $(if $(has_cuda),$(out)/lib/pagedkv/$(cuda_plugin_name))
# The plug-in for directories is built where hiredis is, with TLS where hiredis has it.
has_hiredis := $(shell $(PKG_CONFIG) --exists hiredis 2>/dev/null && echo yes)
has_hiredis_ssl := $(if $(has_hiredis),$(shell $(PKG_CONFIG) --exists hiredis_ssl openssl 2>/dev/null && echo yes))
hiredis_packages := hiredis $(if $(has_hiredis_ssl),hiredis_ssl openssl)
hiredis_cflags := $(call pkg,--cflags $(hiredis_packages)) -DPKV_REDIS_TLS=$(if $(has_hiredis_ssl),1,0)
hiredis_libs := $(call pkg,--libs $(hiredis_packages))
redis_plugin := $(if $(has_hiredis),$(out)/lib/pagedkv/libpagedkv-redis.so)
device_fake_objects := $(patsubst %,$(obj)/%.o,$(sort $(wildcard tests/device/fake/*.c)))
device_plugin := $(out)/tests/device/fake/libpagedkv-cuda.so
# Tests of host pools run on it again: tests/device/suites.sh.
device_suites := $(shell sed -n 's/^\([a-z][^ ]*\) .*/\1/p' tests/device/suites.list)
device_tests := $(if $(filter * device,$(suite)),$(device_plugin) $(device_suites:%=$(out)/tests/%))
# Those of tests/device that a real device can run (build/tests/gpu/device_*), and the same over a stand-in of the CUDA runtime.
device_pools := bytes capture order tiers prefetch
runtime_tests := $(if $(and $(has_cuda),$(filter * device,$(suite))),$(device_pools:%=$(out)/tests/device/runtime_%))
test_programs += $(runtime_tests)
test_cflags = $(call pkg,--cflags cmocka)
test_libs = $(or $(call pkg,--libs cmocka),-lcmocka)
bench_cflags = $(call pkg,--cflags benchmark)
bench_libs = $(or $(call pkg,--libs benchmark),-lbenchmark)

CFLAGS ?= -g
CXXFLAGS ?= -g
werror := $(if $(filter-out 0,$(WERROR)),-Werror)
warnings := -Wall -Wextra -Wshadow $(werror)
common_flags := $(variant_flags) -fPIC -pthread $(warnings) -MMD -MP
cxx_flags = -std=c++20 $(common_flags) -Wconversion -fvisibility=hidden -fvisibility-inlines-hidden -Iinclude -Ilib \
            $(lib_cflags) $(CPPFLAGS) $(CXXFLAGS)
test_flags = -std=c11 -D_GNU_SOURCE $(common_flags) -Iinclude -Itests $(test_cflags) $(CPPFLAGS) $(CFLAGS)
example_flags = -std=c99 -pedantic $(common_flags) -Iinclude $(CPPFLAGS) $(CFLAGS)
# A program that lets go of the library (dlclose) may have left threads of it at work: it stays.
shared_flags := -shared -Wl,-soname,$(soname) -Wl,--version-script,lib/pagedkv.map -Wl,-z,relro,-z,now,-z,nodelete
plugin_flags := -shared -Wl,-soname,libpagedkv-fabric.so -Wl,--version-script,lib/fabric/plugin.map -Wl,-z,relro,-z,now
redis_plugin_flags := -shared -Wl,-soname,libpagedkv-redis.so -Wl,--version-script,lib/redis/plugin.map -Wl,-z,relro,-z,now
cuda_plugin_flags := -shared -Wl,-soname,$(cuda_plugin_name) -Wl,--version-script,lib/tensor/cuda/plugin.map -Wl,-z,relro,-z,now
nvcc_flags = -std=c++17 -O3 -Xfatbin=-compress-all -Xcompiler -fPIC,-fvisibility=hidden -Iinclude -Ilib
ifeq ($(VARIANT),release)
shared_flags += -Wl,--no-undefined
redis_plugin_flags += -Wl,--no-undefined
plugin_flags += -Wl,--no-undefined
cuda_plugin_flags += -Wl,--no-undefined
endif

# Objects are made anew when a compiler or a flag changes, and the library when a source is removed.
compile_stamp := $(obj)/compile
link_stamp := $(obj)/link
hiredis_stamp := $(obj)/hiredis
compile_text = $(CC) $(CXX) $(variant_flags) $(warnings) $(lib_cflags) $(CPPFLAGS) $(CFLAGS) $(CXXFLAGS)
link_text = $(LDFLAGS) $(lib_libs) $(lib_objects) $(fabric_libs) $(fabric_objects) $(cuda_libs) $(cuda_objects) $(hiredis_libs) $(redis_objects)
nvcc_stamp := $(cuda_obj)/compile
nvcc_text = $(NVCC) $(nvcc_flags) $(cuda_codes)

# ---- library ---------------------------------------------------------------------------------------------------------

## lib: the shared and the static library, in build/lib, and the plug-ins for remote nodes and for CUDA (the default)
.PHONY: lib
lib: $(shared) $(static) $(plugin) $(cuda_plugin) $(redis_plugin)
ifeq ($(plugin),)
	@echo "  SKIP  libpagedkv-fabric.so: libfabric 1.17 or later is not installed, so there are no remote nodes"
endif
ifndef redis_plugin
	@echo "  SKIP  libpagedkv-redis.so: hiredis is not installed, so nodes find each other by address only"
endif
ifeq ($(cuda_plugin),)
	@echo "  SKIP  $(cuda_plugin_name): there is no nvcc in CUDA_HOME or PATH, so there are no CUDA devices"
endif

$(shared): $(lib_objects) lib/pagedkv.map $(link_stamp)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread $(shared_flags) $(LDFLAGS) -o $@ $(lib_objects) $(lib_libs)
	@ln -sf $(@F) $(@D)/$(soname)
	@ln -sf $(soname) $(@D)/libpagedkv.so

$(static): $(lib_objects) $(link_stamp)
	@mkdir -p $(@D)
	@echo "  AR    $@"
	@rm -f $@
	$(Q)$(AR) rcs $@ $(lib_objects)

$(out)/lib/pagedkv/libpagedkv-fabric.so: $(fabric_objects) lib/fabric/plugin.map $(link_stamp)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread $(plugin_flags) $(LDFLAGS) -o $@ $(fabric_objects) $(fabric_libs)

$(out)/lib/pagedkv/$(cuda_plugin_name): $(cuda_objects) lib/tensor/cuda/plugin.map $(link_stamp)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread $(cuda_plugin_flags) $(LDFLAGS) -o $@ $(cuda_objects) $(cuda_libs)

$(cuda_obj)/%.cu.o: %.cu $(nvcc_stamp)
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(NVCC) $(nvcc_flags) $(cuda_codes) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(obj)/lib/tensor/cuda/%.cpp.o: private lib_cflags += $(cuda_cflags)

$(out)/lib/pagedkv/libpagedkv-redis.so: $(redis_objects) lib/redis/plugin.map $(link_stamp)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread $(redis_plugin_flags) $(LDFLAGS) -o $@ $(redis_objects) $(hiredis_libs)

$(obj)/lib/fabric/%.cpp.o: private lib_cflags += $(fabric_cflags)
$(obj)/lib/redis/%.cpp.o: private lib_cflags += $(hiredis_cflags)
$(redis_objects): $(hiredis_stamp)

$(obj)/%.cpp.o: %.cpp $(compile_stamp)
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(cxx_flags) -c -o $@ $<

$(obj)/tests/bench/%.cpp.o: private lib_cflags += $(bench_cflags) $(fabric_cflags)

$(obj)/tests/fuzz/%.cpp.o: private lib_cflags += -Itests $(test_cflags)

$(obj)/tests/%.c.o: tests/%.c $(compile_stamp)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(test_flags) -c -o $@ $<

$(obj)/examples/%.c.o: examples/%.c $(compile_stamp)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(example_flags) -c -o $@ $<

# $(call stamp,text): rewrites the target only if the text is another than last time
define stamp
@mkdir -p $(@D)
@printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' > $@
endef

.PHONY: force
$(compile_stamp): force
	$(call stamp,$(strip $(compile_text)))
$(link_stamp): force
	$(call stamp,$(strip $(link_text)))
$(hiredis_stamp): force
	$(call stamp,$(strip $(hiredis_cflags)))
$(nvcc_stamp): force
	$(call stamp,$(strip $(nvcc_text)))

-include $(lib_objects:.o=.d) $(emulated_objects:.o=.d) $(cuda_objects:.o=.d) $(fabric_objects:.o=.d) $(redis_objects:.o=.d) $(support_objects:.o=.d) $(bench_objects:.o=.d) \
         $(fake_objects:.o=.d) $(device_fake_objects:.o=.d) $(wildcard $(obj)/tests/*/*.d) \
         $(wildcard $(obj)/examples/*.d $(obj)/examples/*/*.d)

# ---- programs --------------------------------------------------------------------------------------------------------

## examples: the programs of examples/, in build/bin
.PHONY: examples
examples: $(example_programs)

.SECONDEXPANSION:
$(out)/bin/%: $$(call example_objects,$$*) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(variant_flags) -pthread $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib' -lm

# Two files of replay's that it has use for.
$(out)/bin/longcontext: $(patsubst %,$(obj)/examples/replay/%.c.o,json progress)

$(out)/tests/%: $(obj)/tests/%.c.o $(support_objects) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(variant_flags) -pthread $(LDFLAGS) -o $@ $< $(support_objects) $(shared) \
	  -Wl,-rpath,'$$ORIGIN/../../lib' $(test_libs) -lm

$(out)/tests/tensor/cuda_%: $(obj)/tests/tensor/cuda_%.c.o $(emulated_objects) $(support_objects) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread $(LDFLAGS) -o $@ $< $(emulated_objects) $(support_objects) $(shared) \
	  -Wl,-rpath,'$$ORIGIN/../../lib' $(test_libs) -lm

# Programs for a machine with a GPU: the suites of the emulated kernels, on the device, those of tests/device that a real one
# can run, and those for devices alone.
gpu_suites := $(patsubst %,$(out)/tests/gpu/%,rows convert pages)
gpu_tests := $(patsubst tests/%.c,$(out)/tests/%,$(filter-out tests/gpu/device.c tests/gpu/runtime.c tests/gpu/stand_in.c,$(sort $(wildcard tests/gpu/*.c))))
gpu_pools := $(device_pools:%=$(out)/tests/gpu/device_%)
gpu_programs := $(if $(has_cuda),$(gpu_suites) $(gpu_pools) $(gpu_tests) $(out)/tests/gpu/bench)
gpu_support := $(obj)/tests/gpu/device.c.o $(cuda_obj)/tests/gpu/kernels.cu.o $(support_objects)
link_gpu = $(Q)$(CXX) $(variant_flags) -pthread $(LDFLAGS) -o $@ $(filter %.o,$^) $(shared) -Wl,-rpath,'$$ORIGIN/../../lib' \
           $(test_libs) $(cuda_libs) -lm

$(gpu_suites): $(out)/tests/gpu/%: $(obj)/tests/tensor/cuda_%.c.o $(obj)/tests/gpu/on_device.cpp.o $(gpu_support) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(link_gpu)

$(gpu_tests): $(out)/tests/gpu/%: $(obj)/tests/gpu/%.c.o $(gpu_support) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(link_gpu)

$(gpu_pools): $(out)/tests/gpu/%: $(obj)/tests/gpu/%.c.o $(obj)/tests/gpu/runtime.c.o $(gpu_support) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(link_gpu)

$(out)/tests/device/runtime_%: $(obj)/tests/gpu/device_%.c.o $(patsubst %,$(obj)/tests/gpu/%.c.o,runtime device stand_in) $(support_objects) $(shared) | $(device_plugin)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(variant_flags) -pthread $(LDFLAGS) -o $@ $(filter %.o,$^) $(shared) -Wl,-rpath,'$$ORIGIN/../../lib' $(test_libs) -lm

$(obj)/tests/gpu/device_%.c.o: tests/device/%.c $(compile_stamp)
	@mkdir -p $(@D)
	@echo "  CC    $< for a real device"
	$(Q)$(CC) $(test_flags) -DPKV_TESTS_REAL_DEVICE -c -o $@ $<

$(out)/tests/gpu/bench: $(obj)/tests/gpu/bench.cpp.o $(gpu_support) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(link_gpu)

$(obj)/tests/gpu/%.c.o: private test_cflags += -Ilib $(cuda_cflags)
$(obj)/tests/gpu/%.cpp.o: private lib_cflags += -Itests $(cuda_cflags) $(call pkg,--cflags cmocka)

$(fuzz_names:%=$(out)/tests/fuzz/%): $(out)/tests/fuzz/%: $(obj)/tests/fuzz/%.cpp.o $(obj)/tests/fuzz/replay.cpp.o $(static)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread $(LDFLAGS) -o $@ $^ $(test_libs) $(lib_libs)

$(out)/tests/fabric/libfake-fabric.so: $(fake_objects)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(variant_flags) -pthread -shared $(LDFLAGS) -o $@ $(fake_objects)

$(obj)/tests/tensor/cuda_%.c.o: private test_cflags += -Ilib
$(obj)/tests/fabric/fake/%.c.o: private test_cflags += $(fabric_cflags)

# A device of host memory, in a folder of its own: PKV_PLUGIN_DIR leads there.
$(device_plugin): $(device_fake_objects) $(emulated_objects)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread -shared $(LDFLAGS) -o $@ $^

$(obj)/tests/device/fake/%.c.o: private test_cflags += -Ilib -fvisibility=hidden

## bench-binary: the benchmarks, as one program: build/bin/pkv-bench
.PHONY: bench-binary
bench-binary: $(out)/bin/pkv-bench

$(out)/bin/pkv-bench: $(bench_objects) $(static)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -pthread $(LDFLAGS) -o $@ $(bench_objects) $(static) $(bench_libs) $(lib_libs)

## bench: run the benchmarks; SUITE=kernels runs one suite, BENCH_ARGS='--benchmark_format=json' adds options
.PHONY: bench
bench: $(out)/bin/pkv-bench
	$< $(if $(SUITE),--benchmark_filter='^$(SUITE)/') $(BENCH_ARGS)

demo_file := $(out)/demo/kv-cache.pkv
demo_args := --capacity 2000 --page-tokens 512 --host-bytes 256M --file $(demo_file)
demo_trace := examples/traces/conversation_trace.jsonl

demo_long := $(out)/demo/longcontext

## demo: build and run the examples: a recorded trace through memory and a file (DEMO_ARGS adds options), a long context
.PHONY: demo
demo: $(out)/bin/quickstart $(out)/bin/tier $(out)/bin/replay $(out)/bin/longcontext
	$(out)/bin/quickstart
	$(out)/bin/tier
	@mkdir -p $(dir $(demo_file)) && rm -f $(demo_file)
	$(out)/bin/replay $(demo_args) --file-bytes 1536M $(DEMO_ARGS) $(demo_trace)
	$(out)/bin/replay $(demo_args) --last 2000 $(DEMO_ARGS) $(demo_trace)
	@rm -f $(demo_long).pkv
	$(out)/bin/longcontext --file $(demo_long).pkv --trace $(demo_long).trace.json --svg $(demo_long).svg

# ---- tests -----------------------------------------------------------------------------------------------------------

run_tests := CC='$(CC)' CXX='$(CXX)' MAKE='$(MAKE)' BUILD='$(abspath $(out))' VARIANT='$(VARIANT)' tests/run.sh

## check: build everything and run the tests; SUITE=prefix runs those of one folder of tests/
.PHONY: check
check: lib examples $(test_programs) $(fabric_tests) $(device_tests)
	@$(run_tests) $(test_programs) $(test_scripts)

## check-asan: the tests with AddressSanitizer and leak detection
## check-ubsan: the tests with UndefinedBehaviorSanitizer
## check-tsan: the tests with ThreadSanitizer
.PHONY: check-asan check-ubsan check-tsan
check-asan check-ubsan check-tsan: check-%:
	@$(MAKE) VARIANT=$* check

# Blocks that only an inner pointer leads to (arrays of C++ objects) are "possibly lost", and no leaks.
valgrind := valgrind -q --fair-sched=yes --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite

## check-valgrind: the test programs under valgrind's memcheck (slow)
.PHONY: check-valgrind
check-valgrind: lib $(test_programs) $(fabric_tests) $(device_tests)
	@TEST_TIMEOUT=3000 TEST_WRAPPER='$(valgrind)' $(run_tests) $(test_programs)

## check-long: the tests with their long runs (shadow models with many more steps and seeds)
.PHONY: check-long
check-long: lib examples $(test_programs) $(fabric_tests) $(device_tests)
	@PKV_TEST_LONG=1 TEST_TIMEOUT=7200 $(run_tests) $(test_programs) $(test_scripts)

## check-gpu: the tests for a machine with a GPU, also under compute-sanitizer; elsewhere they are built, and say why not
## bench-gpu: what the device's functions do beside what the device can do; tests/gpu/run.sh runs both within ten minutes
.PHONY: check-gpu bench-gpu
check-gpu bench-gpu: lib $(gpu_programs)
	@BUILD='$(abspath $(out))' CUDA_HOME='$(cuda_home)' tests/gpu/run.sh $(if $(filter check-gpu,$@),check sanitize,bench peers)

## check-static: without running the library: lock annotations (clang), headers in C and C++, include arrows
.PHONY: check-static
check-static:
	@$(run_tests) $(sort $(wildcard tests/static/*.sh)) tests/abi/headers.sh tests/abi/includes.sh

# Each target in turn, for so long; FUZZ_TARGET=name runs one. What is found goes to build/fuzz/corpus, and what ends a target to
# build/fuzz/found-*.
FUZZ_SECONDS ?= 60
FUZZ_TARGET ?=
fuzz_run := $(or $(FUZZ_TARGET),$(fuzz_names))
fuzz_programs := $(fuzz_run:%=$(out)/bin/fuzz-%)

$(fuzz_names:%=$(out)/bin/fuzz-%): $(out)/bin/fuzz-%: $(obj)/tests/fuzz/%.cpp.o $(static)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(variant_flags) -fsanitize=fuzzer -pthread $(LDFLAGS) -o $@ $^ $(lib_libs)

.PHONY: fuzz fuzz-run fuzz-merge
## fuzz: run each fuzz target of tests/fuzz for FUZZ_SECONDS (60); needs clang
fuzz:
	@$(MAKE) VARIANT=fuzz CC='$(or $(FUZZ_CC),clang)' CXX='$(or $(FUZZ_CXX),clang++)' fuzz-run
fuzz-run: $(fuzz_programs) $(fuzz_run:%=$(out)/tests/fuzz/%)
	@for target in $(fuzz_run); do \
	  mkdir -p build/fuzz/corpus/$$target; \
	  $(out)/tests/fuzz/$$target build/fuzz/corpus/$$target || exit 1; \
	  echo "== $$target: $(FUZZ_SECONDS) s"; \
	  $(out)/bin/fuzz-$$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 -verbosity=0 \
	    -artifact_prefix=build/fuzz/found-$$target- build/fuzz/corpus/$$target \
	    $$(ls -d tests/fuzz/corpus/$$target 2>/dev/null) || exit 1; \
	done
## fuzz-merge: add to tests/fuzz/corpus what fuzz found since, as few files as reach the same code
fuzz-merge:
	@for target in $(fuzz_run); do \
	  mkdir -p tests/fuzz/corpus/$$target build/fuzz/corpus/$$target; \
	  build/fuzz/bin/fuzz-$$target -merge=1 -verbosity=0 tests/fuzz/corpus/$$target build/fuzz/corpus/$$target || exit 1; \
	done

## cuda-report: registers of the CUDA kernels on each device, and how wide their accesses are; nothing may spill
.PHONY: cuda-report
cuda-report:
	@NVCC='$(NVCC)' CUDA_ARCHS='$(CUDA_ARCHS)' tests/static/cuda_kernels.sh --report

## format: clang-format over the sources (the public headers are set by hand)
.PHONY: format
format:
	clang-format -i $(wildcard lib/*/*.h lib/*/*.cpp lib/*/*/*.h lib/*/*/*.cpp examples/*.[ch] \
	  examples/*/*.[ch] tests/*/*.[ch] tests/*/*.cpp)

# ---- bindings --------------------------------------------------------------------------------------------------------

## bindings: what the bindings are made of, in build/bindings; languages without a toolchain are skipped
## check-bindings: their tests (part of check)
## install-bindings: installs them, each as its language does (PREFIX and DESTDIR as for install)
include bindings/bindings.mk

# ---- install ---------------------------------------------------------------------------------------------------------

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
INSTALL ?= install

## install: into PREFIX (/usr/local); DESTDIR, LIBDIR, INCLUDEDIR and PKGCONFIGDIR as usual
.PHONY: install
install: lib
	$(INSTALL) -d '$(DESTDIR)$(INCLUDEDIR)/pagedkv' '$(DESTDIR)$(LIBDIR)' '$(DESTDIR)$(PKGCONFIGDIR)'
	$(INSTALL) -m 644 $(headers) '$(DESTDIR)$(INCLUDEDIR)/pagedkv/'
	$(INSTALL) -m 755 $(shared) '$(DESTDIR)$(LIBDIR)/'
	$(INSTALL) -m 644 $(static) '$(DESTDIR)$(LIBDIR)/'
	ln -sf $(notdir $(shared)) '$(DESTDIR)$(LIBDIR)/$(soname)'
	ln -sf $(soname) '$(DESTDIR)$(LIBDIR)/libpagedkv.so'
ifneq ($(plugin)$(redis_plugin)$(cuda_plugin),)
	$(INSTALL) -d '$(DESTDIR)$(LIBDIR)/pagedkv'
	$(INSTALL) -m 755 $(plugin) $(redis_plugin) $(cuda_plugin) '$(DESTDIR)$(LIBDIR)/pagedkv/'
endif
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	  -e 's|@INCLUDEDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|' -e 's|@VERSION@|$(version)|' \
	  -e 's|@LIBS_PRIVATE@|$(strip $(lib_libs))|' pkgconfig/pagedkv.pc.in > '$(DESTDIR)$(PKGCONFIGDIR)/pagedkv.pc'
	chmod 644 '$(DESTDIR)$(PKGCONFIGDIR)/pagedkv.pc'
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" != 0 ] || ldconfig 2>/dev/null || true

## uninstall: removes what install put there (same variables)
.PHONY: uninstall
uninstall:
	rm -f $(headers:include/pagedkv/%='$(DESTDIR)$(INCLUDEDIR)/pagedkv/%')
	@rmdir '$(DESTDIR)$(INCLUDEDIR)/pagedkv' 2>/dev/null || true
	rm -f '$(DESTDIR)$(LIBDIR)/$(notdir $(shared))' '$(DESTDIR)$(LIBDIR)/$(soname)' \
	  '$(DESTDIR)$(LIBDIR)/libpagedkv.so' '$(DESTDIR)$(LIBDIR)/libpagedkv.a' '$(DESTDIR)$(PKGCONFIGDIR)/pagedkv.pc'
	rm -f '$(DESTDIR)$(LIBDIR)/pagedkv/libpagedkv-fabric.so' '$(DESTDIR)$(LIBDIR)/pagedkv/libpagedkv-redis.so' \
	  '$(DESTDIR)$(LIBDIR)/pagedkv/$(cuda_plugin_name)'
	@rmdir '$(DESTDIR)$(LIBDIR)/pagedkv' 2>/dev/null || true

# ---- the rest --------------------------------------------------------------------------------------------------------

## deps: install what build and tests need (Debian and Ubuntu), or say what is missing
.PHONY: deps
deps:
	@.ci/deps

## clean: remove build/
.PHONY: clean
clean:
	rm -rf build

## help: this list
.PHONY: help
help:
	@sed -n 's/^## \([a-z-]*\): \(.*\)$$/  make \1\t\2/p' Makefile | expand -t 24

endif
