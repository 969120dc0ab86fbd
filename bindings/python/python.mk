# SPDX-License-Identifier: Apache-2.0
# Python: the package, as it is imported from build/bindings/python; PYTHON names the interpreter (find.sh says which one
# else). setup.py builds the same from pip.

binding_languages += python
binding_scripts += bindings/python/check.sh bindings/python/package.sh

python_out := $(binding_out)/python
python := $(if $(binding_goals),$(shell PYTHON='$(PYTHON)' bindings/python/find.sh))
export PKV_PYTHON := $(python)

.PHONY: bindings-python install-bindings-python uninstall-bindings-python
ifeq ($(binding_goals),)
bindings-python:
else ifeq ($(have_swig),)
bindings-python:
	$(call binding_skip,python,swig is not installed)
else ifeq ($(python),)
bindings-python:
	$(call binding_skip,python,no python3 3.9 or later with its headers (python3-dev) is installed)
else

python_sources := $(sort $(wildcard bindings/python/core/*.c))
python_obj := $(obj)/bindings/python
python_objects := $(python_sources:%.c=$(obj)/%.o) $(python_obj)/core_wrap.o
python_files := $(patsubst bindings/python/%,$(python_out)/%,$(wildcard bindings/python/pagedkv/*))
python_include := $(shell $(python) -c 'import sysconfig; print(sysconfig.get_path("include"))')
python_flags = -O2 -DNDEBUG -fPIC -pthread -fvisibility=hidden -MMD -MP -Iinclude -Ibindings/python/core -Ibindings/swig \
               -I$(python_include) $(CPPFLAGS) $(CFLAGS)
# What SWIG writes is not held to our warnings.
python_warnings := -Wall -Wextra -Wshadow -Wno-cast-function-type -Wno-missing-field-initializers $(werror)

bindings-python: $(python_out)/pagedkv/_core.so $(python_files)

$(python_out)/pagedkv/_core.so: $(python_objects) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) -shared -pthread $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../../../lib'

python_stamp := $(python_obj)/python
$(python_stamp): force
	$(call stamp,$(python) $(python_include) $(python_flags))

$(python_obj)/core_wrap.c: bindings/python/core/core.i $(swig_files)
	@mkdir -p $(@D)
	@echo "  SWIG  $<"
	$(Q)$(swig) -python -builtin -doxygen -o $@ $<

$(python_obj)/core_wrap.o: $(python_obj)/core_wrap.c bindings/python/core/core.h $(python_stamp) $(compile_stamp)
	@echo "  CC    $<"
	$(Q)$(CC) -std=gnu11 $(python_flags) -c -o $@ $<

$(obj)/bindings/python/core/%.o: bindings/python/core/%.c $(python_stamp) $(compile_stamp)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) -std=gnu11 $(python_flags) $(python_warnings) -c -o $@ $<

$(python_out)/pagedkv/%: bindings/python/pagedkv/%
	@mkdir -p $(@D)
	@cp $< $@

-include $(python_objects:.o=.d)
endif

# With pip, from the sources as they are here; PYTHONDIR names the folder: by default where this Python looks for packages, or
# that below PREFIX, if it was given. The package finds the library in LIBDIR.
python_dir = $(or $(PYTHONDIR),$(shell PREFIX='$(if $(filter command line environment,$(origin PREFIX)),$(PREFIX))' \
             $(python) -c 'import os, sys, sysconfig; \
             own, prefix = sysconfig.get_path("purelib"), os.environ["PREFIX"]; \
             print(os.path.join(prefix, "lib", "python%d.%d" % sys.version_info[:2], os.path.basename(own)) if prefix else own)'))

install-bindings-python: bindings-python
ifneq ($(python),)
	PAGEDKV_RUNTIME_DIR='$(LIBDIR)' flock '$(python_out)' sh -c '"$$@"; status=$$?; rm -rf bindings/python/build bindings/python/*.egg-info; \
	  exit $$status' pip $(python) -m pip install --quiet --no-deps --no-build-isolation --upgrade \
	  --target '$(DESTDIR)$(python_dir)' ./bindings/python # pip works among the sources: one at a time
endif

uninstall-bindings-python:
ifneq ($(python),)
	$(if $(python_dir),$(call binding_remove,$(addprefix $(python_dir)/,pagedkv pagedkv-$(version).dist-info),$(python_dir)))
endif
