# SPDX-License-Identifier: Apache-2.0
# Java: a JAR with the native library inside, in build/bindings/java.

java_out := $(binding_out)/java
JAVAC ?= javac
JAVA ?= java
JAR ?= jar
STRIP ?= strip
java_home := $(if $(binding_goals),$(patsubst %/bin/javac,%,$(shell readlink -f "$$(command -v $(JAVAC) || echo /)")))
java_missing := $(if $(have_swig),,swig) \
    $(if $(wildcard $(java_home)/include/jni.h),$(shell $(JAVAC) --release 17 --version > /dev/null 2>&1 || echo a JDK of version 17 or later),a JDK (default-jdk-headless))
java_missing := $(strip $(java_missing))
binding_languages += java
binding_scripts += bindings/java/check.sh

java_jar := $(java_out)/pagedkv-$(version).jar
java_wrapper := $(java_out)/libpagedkv-java.so
java_generated := $(java_out)/generated/org/pagedkv/internal
java_sources := $(sort $(wildcard bindings/java/src/main/java/*.java bindings/java/src/main/java/org/pagedkv/*.java \
    bindings/java/src/main/java/org/pagedkv/internal/*.java))
java_native := $(java_out)/stage/org/pagedkv/native/linux-$(shell uname -m)
# Static methods are called through what SWIG names arguments.
java_lint := -Xlint:all,-static,-missing-explicit-ctor -Werror
java_cflags = -std=c11 -O2 -fPIC -pthread -Wall -Wextra -Wno-unused-parameter -fno-strict-aliasing -fvisibility=hidden $(werror) \
    -Iinclude -Ibindings/swig -Ibindings/java/core -I$(java_home)/include -I$(java_home)/include/linux $(CPPFLAGS) $(CFLAGS)

.PHONY: bindings-java install-bindings-java uninstall-bindings-java
ifneq ($(java_missing),)
bindings-java:
	$(call binding_skip,java,missing: $(java_missing))
install-bindings-java:
	$(call binding_skip,java,missing: $(java_missing))
else
bindings-java: $(java_jar)
endif

$(java_out)/wrapper.c: bindings/java/core/core.i $(swig_files)
	@echo "  SWIG  $@"
	@rm -rf $(java_generated) && mkdir -p $(java_generated)
	$(Q)$(swig) -java -package org.pagedkv.internal -outdir $(java_generated) -o $@ $<

$(java_wrapper): $(java_out)/wrapper.c bindings/java/core/core.c bindings/java/core/core.h bindings/java/core/core.map $(shared)
	@echo "  LINK  $@"
	$(Q)$(CC) $(java_cflags) -shared -Wl,-soname,$(@F) -Wl,--version-script,bindings/java/core/core.map -Wl,--no-undefined \
	  -Wl,-z,relro,-z,now $(LDFLAGS) -o $@ $(java_out)/wrapper.c bindings/java/core/core.c $(shared) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/..'

$(java_out)/classes.stamp: $(java_out)/wrapper.c $(java_sources)
	@echo "  JAVAC $(java_out)/classes"
	@rm -rf $(java_out)/classes
	$(Q)$(JAVAC) --release 17 -encoding UTF-8 $(java_lint) -d $(java_out)/classes $(java_sources) $(java_generated)/*.java
	@touch $@

$(java_jar): $(java_out)/classes.stamp $(java_wrapper) $(shared) $(plugin) $(redis_plugin)
	@echo "  JAR   $@"
	@rm -rf $(java_out)/stage && mkdir -p $(java_native)/pagedkv
	@cp -r $(java_out)/classes/. $(java_out)/stage/
	@cp $(java_wrapper) $(java_native)/ && cp $(shared) $(java_native)/$(soname)
	@$(if $(plugin)$(redis_plugin),cp $(plugin) $(redis_plugin) $(java_native)/pagedkv/,rmdir $(java_native)/pagedkv)
	@$(STRIP) --strip-debug $$(find $(java_native) -name '*.so*') # of the copies
	$(Q)$(JAR) --create --file $@ --module-version $(version) -C $(java_out)/stage .
	@rm -rf $(java_out)/stage

ifeq ($(java_missing),)
# As Debian has it: JARs in share/java, libraries for JNI in lib/jni (they need what `make install` installs).
install-bindings-java: $(java_jar)
	$(INSTALL) -d '$(DESTDIR)$(PREFIX)/share/java' '$(DESTDIR)$(LIBDIR)/jni'
	$(INSTALL) -m 644 $(java_jar) '$(DESTDIR)$(PREFIX)/share/java/'
	ln -sf $(notdir $(java_jar)) '$(DESTDIR)$(PREFIX)/share/java/pagedkv.jar'
	$(INSTALL) -m 755 $(java_wrapper) '$(DESTDIR)$(LIBDIR)/jni/'
endif

uninstall-bindings-java:
	$(call binding_remove,$(addprefix $(PREFIX)/share/java/,$(notdir $(java_jar)) pagedkv.jar) $(LIBDIR)/jni/$(notdir $(java_wrapper)),$(PREFIX)/share/java $(LIBDIR)/jni)
