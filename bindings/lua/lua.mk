# SPDX-License-Identifier: Apache-2.0
# Lua 5.4: the module, as it is required from build/bindings/lua; and a second time with AddressSanitizer, for its tests.

binding_languages += lua
binding_scripts += bindings/lua/check.sh

LUA ?= lua5.4
LUA_PC ?= lua5.4
lua_out := $(binding_out)/lua
lua_asan_out := $(binding_out)/lua-asan
has_lua := $(if $(binding_goals),$(shell $(PKG_CONFIG) --exists '$(LUA_PC)' && command -v $(LUA)))
export PKV_LUA := $(LUA)

.PHONY: bindings-lua install-bindings-lua uninstall-bindings-lua
ifeq ($(binding_goals),)
bindings-lua:
else ifeq ($(have_swig),)
bindings-lua:
	$(call binding_skip,lua,swig is not installed)
else ifeq ($(has_lua),)
bindings-lua:
	$(call binding_skip,lua,Lua 5.4 and its headers (lua5.4, liblua5.4-dev) are not installed)
else

lua_sources := $(sort $(wildcard bindings/lua/core/*.c))
lua_obj := $(obj)/bindings/lua
lua_asan_obj := $(obj)/bindings/lua-asan
lua_files := $(patsubst bindings/lua/%,%,$(wildcard bindings/lua/pagedkv/*.lua))
lua_flags = -std=gnu11 -fPIC -pthread -fvisibility=hidden -MMD -MP -Iinclude -Ibindings/lua/core -Ibindings/swig \
            $(call pkg,--cflags $(LUA_PC)) $(CPPFLAGS) $(CFLAGS)
lua_warnings := -Wall -Wextra -Wshadow $(werror)
lua_release := -O2 -DNDEBUG
lua_asan := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined
# A Lua state unloads its modules at its end; the library's memory of handles is meant to stay.
lua_link := -shared -pthread -Wl,-z,nodelete

bindings-lua: $(lua_out)/pagedkv/core.so $(lua_asan_out)/pagedkv/core.so $(lua_files:%=$(lua_out)/%) $(lua_files:%=$(lua_asan_out)/%)

$(lua_obj)/core_wrap.c: bindings/lua/core/core.i $(swig_files)
	@mkdir -p $(@D)
	@echo "  SWIG  $<"
	$(Q)$(swig) -lua -o $@ $<

# $(call lua_variant,objects,output,flags)
define lua_variant
$(2)/pagedkv/core.so: $(1)/core_wrap.o $(lua_sources:bindings/lua/%.c=$(1)/%.o) $(shared)
	@mkdir -p $$(@D)
	@echo "  LINK  $$@"
	$(Q)$$(CC) $(3) $$(lua_link) $$(LDFLAGS) -o $$@ $$^ -Wl,-rpath,'$$$$ORIGIN/../../../lib'

$(1)/core_wrap.o: $(lua_obj)/core_wrap.c bindings/lua/core/core.h $(compile_stamp)
	@mkdir -p $$(@D)
	@echo "  CC    $$<"
	$(Q)$$(CC) $(3) $$(lua_flags) -c -o $$@ $$<

$(1)/core/%.o: bindings/lua/core/%.c $(compile_stamp)
	@mkdir -p $$(@D)
	@echo "  CC    $$<"
	$(Q)$$(CC) $(3) $$(lua_flags) $$(lua_warnings) -c -o $$@ $$<

$(2)/%.lua: bindings/lua/%.lua
	@mkdir -p $$(@D)
	@cp $$< $$@

-include $(wildcard $(1)/*.d $(1)/core/*.d)
endef
$(eval $(call lua_variant,$(lua_obj),$(lua_out),$(lua_release)))
$(eval $(call lua_variant,$(lua_asan_obj),$(lua_asan_out),$(lua_asan)))
endif

# Where Lua 5.4 looks below a prefix: share/lua/5.4 and lib/lua/5.4. The module finds the library as any program does.
install-bindings-lua: bindings-lua
ifneq ($(has_lua),)
	$(INSTALL) -d '$(DESTDIR)$(PREFIX)/share/lua/5.4/pagedkv' '$(DESTDIR)$(PREFIX)/lib/lua/5.4/pagedkv'
	$(INSTALL) -m 644 $(lua_files:%=bindings/lua/%) '$(DESTDIR)$(PREFIX)/share/lua/5.4/pagedkv/'
	$(CC) $(lua_link) $(LDFLAGS) -o '$(DESTDIR)$(PREFIX)/lib/lua/5.4/pagedkv/core.so' $(lua_obj)/core_wrap.o \
	  $(lua_sources:bindings/lua/%.c=$(lua_obj)/%.o) $(shared) -Wl,-rpath,'$(LIBDIR)'
endif

uninstall-bindings-lua:
	$(call binding_remove,$(addprefix $(PREFIX)/share/lua/5.4/,$(patsubst bindings/lua/%,%,$(wildcard bindings/lua/pagedkv/*.lua))) $(PREFIX)/lib/lua/5.4/pagedkv/core.so,$(PREFIX)/share/lua/5.4/pagedkv $(PREFIX)/lib/lua/5.4/pagedkv)
