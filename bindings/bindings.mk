# SPDX-License-Identifier: Apache-2.0
# Bindings, included by the Makefile. Each language has its own folder and file here, <language>/<language>.mk, which adds
#   binding_languages   its name: it then has the targets bindings-<language>, install-bindings-<language> and uninstall-bindings-<language>
#   binding_scripts     tests for `make check`: print PASS, FAIL or SKIP lines, as those of tests/ (tests/run.sh)
# and says what is missing where its toolchain is not installed ($(call binding_skip,language,what)): that is a skip, and a
# failure where PKV_REQUIRE_BINDINGS is 1 or CI is set. Bindings are built over the release variant.

binding_out := $(out)/bindings
binding_languages :=
binding_scripts := bindings/swig/check.sh bindings/conformance/check.sh bindings/install.sh
require_bindings := $(filter-out 0,$(or $(PKV_REQUIRE_BINDINGS),$(CI)))
export PKV_REQUIRE_BINDINGS := $(if $(require_bindings),1,0)

# What costs time to find out is asked for only where it is needed.
binding_goals := $(filter check check-% bindings bindings-% install-bindings install-bindings-% uninstall-bindings uninstall-bindings-%,$(MAKECMDGOALS))

SWIG ?= swig
have_swig := $(if $(binding_goals),$(shell command -v $(SWIG)))
# For each language: $(swig) -python -o wrapper.c file.i
swig = $(SWIG) -DSWIGWORDSIZE64 -Iinclude -Ibindings/swig
swig_files := $(sort $(wildcard bindings/swig/*.i bindings/swig/*.h)) $(headers)

# $(call binding_skip,language,what is missing)
define binding_skip
@echo '  $(if $(require_bindings),FAIL,SKIP)  bindings-$(1): $(2)'
@$(if $(require_bindings),false,true)
endef

# $(call binding_remove,files,folders): and the folders that are empty then, up to DESTDIR
define binding_remove
rm -rf $(foreach file,$(1),'$(DESTDIR)$(file)')
@for folder in $(foreach folder,$(2),'$(DESTDIR)$(folder)'); do rmdir -p "$$folder" 2>/dev/null || true; done
endef

## uninstall-bindings: removes what install-bindings put there (same variables)
.PHONY: bindings check-bindings install-bindings uninstall-bindings
bindings:
check-bindings: bindings $(device_plugin)
	@$(run_tests) $(binding_scripts)
install-bindings:
uninstall-bindings:

include $(sort $(wildcard bindings/*/*.mk))

ifeq ($(VARIANT),release)
bindings: $(binding_languages:%=bindings-%)
install-bindings: $(binding_languages:%=install-bindings-%)
uninstall-bindings: $(binding_languages:%=uninstall-bindings-%)
else
binding_scripts := bindings/conformance/check.sh
endif

# Part of `make check`, as the folder "bindings" of it.
ifneq ($(filter * bindings,$(suite)),)
check: bindings $(conformance)
check-long: bindings $(conformance)
test_scripts += $(binding_scripts)
endif
