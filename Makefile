# SPDX-License-Identifier: Apache-2.0
# Build, test and install libpagedkv. `make help` lists the targets.
#
# Variables that are meant to be set: CC CXX CFLAGS CXXFLAGS LDFLAGS; WERROR=1 (warnings are errors); V=1 (show the
# commands); SUITE=folder (check, bench); JOBS=n (parallel jobs; -jn wins); PREFIX LIBDIR INCLUDEDIR DESTDIR (install).

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

# release, asan, ubsan or tsan. Each variant has its own objects, libraries and programs.
VARIANT ?= release
obj := build/obj/$(VARIANT)
out := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))

# lib/tensor/cuda and lib/fabric are for plug-ins with libraries of their own.
lib_sources := $(filter-out lib/tensor/cuda/% lib/fabric/%,$(sort $(wildcard lib/*/*.cpp lib/*/*/*.cpp)))
lib_objects := $(lib_sources:%=$(obj)/%.o)
fabric_sources := $(sort $(wildcard lib/fabric/*.cpp))
fabric_objects := $(fabric_sources:%=$(obj)/%.o)
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
# check-static. Of the scripts only those of the examples say something about a variant, and nothing about tsan's: the
# examples have one thread.
SUITE ?=
suite := $(or $(SUITE),*)
no_tests := tests/support/% tests/bench/% tests/static/%
test_sources := $(filter-out $(no_tests),$(sort $(wildcard tests/$(suite)/*.c)))
test_programs := $(test_sources:tests/%.c=$(out)/tests/%)
test_scripts := $(filter-out $(no_tests),$(sort $(wildcard tests/$(suite)/*.sh)))
ifneq ($(VARIANT),release)
test_scripts := $(if $(filter asan ubsan,$(VARIANT)),$(filter tests/examples/%,$(test_scripts)))
endif

# ---- flags -----------------------------------------------------------------------------------------------------------

variant_release := -O2 -DNDEBUG
variant_asan := -O1 -fno-omit-frame-pointer -fsanitize=address
variant_ubsan := -O1 -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=all
variant_tsan := -O1 -fno-omit-frame-pointer -fsanitize=thread
variant_flags := $(variant_$(VARIANT))
ifeq ($(variant_flags),)
$(error VARIANT=$(VARIANT): must be release, asan, ubsan or tsan)
endif

PKG_CONFIG ?= pkg-config
pkg = $(shell $(PKG_CONFIG) $(1) 2>/dev/null)
lib_cflags := $(call pkg,--cflags libxxhash libsodium liburing)
lib_libs := $(or $(call pkg,--libs libsodium liburing),-lsodium -luring)
# The plug-in for remote nodes is built where libfabric is. libfabric knows nothing of sanitizers: they are for the rest.
has_fabric := $(if $(filter release,$(VARIANT)),$(shell $(PKG_CONFIG) --exists 'libfabric >= 1.17' 2>/dev/null && echo yes))
fabric_cflags := $(call pkg,--cflags libfabric)
fabric_libs := $(call pkg,--libs libfabric)
plugin := $(if $(has_fabric),$(out)/lib/pagedkv/libpagedkv-fabric.so)
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
shared_flags := -shared -Wl,-soname,$(soname) -Wl,--version-script,lib/pagedkv.map -Wl,-z,relro,-z,now
plugin_flags := -shared -Wl,-soname,libpagedkv-fabric.so -Wl,--version-script,lib/fabric/plugin.map -Wl,-z,relro,-z,now
ifeq ($(VARIANT),release)
shared_flags += -Wl,--no-undefined
plugin_flags += -Wl,--no-undefined
endif

# Objects are made anew when a compiler or a flag changes, and the library when a source is removed.
compile_stamp := $(obj)/compile
link_stamp := $(obj)/link
compile_text = $(CC) $(CXX) $(variant_flags) $(warnings) $(lib_cflags) $(CPPFLAGS) $(CFLAGS) $(CXXFLAGS)
link_text = $(LDFLAGS) $(lib_libs) $(lib_objects) $(fabric_libs) $(fabric_objects)

# ---- library ---------------------------------------------------------------------------------------------------------

## lib: the shared and the static library, in build/lib, and the plug-in for remote nodes (the default)
.PHONY: lib
lib: $(shared) $(static) $(plugin)
ifeq ($(plugin)$(filter-out release,$(VARIANT)),)
	@echo "  SKIP  libpagedkv-fabric.so: libfabric 1.17 or later is not installed, so there are no remote nodes"
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

$(obj)/lib/fabric/%.cpp.o: private lib_cflags += $(fabric_cflags)

$(obj)/%.cpp.o: %.cpp $(compile_stamp)
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(cxx_flags) -c -o $@ $<

$(obj)/tests/bench/%.cpp.o: private lib_cflags += $(bench_cflags)

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

-include $(lib_objects:.o=.d) $(fabric_objects:.o=.d) $(support_objects:.o=.d) $(bench_objects:.o=.d) $(wildcard $(obj)/tests/*/*.d) \
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
check: lib examples $(test_programs)
	@$(run_tests) $(test_programs) $(test_scripts)

## check-asan: the tests with AddressSanitizer and leak detection
## check-ubsan: the tests with UndefinedBehaviorSanitizer
## check-tsan: the tests with ThreadSanitizer
.PHONY: check-asan check-ubsan check-tsan
check-asan check-ubsan check-tsan: check-%:
	@$(MAKE) VARIANT=$* check

# Blocks that only an inner pointer leads to (arrays of C++ objects) are "possibly lost", and no leaks.
valgrind := valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite

## check-valgrind: the test programs under valgrind's memcheck (slow)
.PHONY: check-valgrind
check-valgrind: lib $(test_programs)
	@TEST_TIMEOUT=3000 TEST_WRAPPER='$(valgrind)' $(run_tests) $(test_programs)

## check-long: the tests with their long runs (shadow models with many more steps and seeds)
.PHONY: check-long
check-long: lib examples $(test_programs)
	@PKV_TEST_LONG=1 TEST_TIMEOUT=7200 $(run_tests) $(test_programs) $(test_scripts)

## check-static: without running the library: lock annotations (clang), headers in C and C++, include arrows
.PHONY: check-static
check-static:
	@$(run_tests) $(sort $(wildcard tests/static/*.sh)) tests/abi/headers.sh tests/abi/includes.sh

## format: clang-format over the sources (the public headers are set by hand)
.PHONY: format
format:
	clang-format -i $(wildcard lib/*/*.h lib/*/*.cpp lib/*/*/*.h lib/*/*/*.cpp examples/*.[ch] \
	  examples/*/*.[ch] tests/*/*.[ch] tests/*/*.cpp)

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
ifneq ($(plugin),)
	$(INSTALL) -d '$(DESTDIR)$(LIBDIR)/pagedkv'
	$(INSTALL) -m 755 $(plugin) '$(DESTDIR)$(LIBDIR)/pagedkv/'
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
	rm -f '$(DESTDIR)$(LIBDIR)/pagedkv/libpagedkv-fabric.so'
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
