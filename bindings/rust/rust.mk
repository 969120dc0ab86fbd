# SPDX-License-Identifier: Apache-2.0
# The Rust crates, over the library of this build.

binding_languages += rust
binding_scripts += bindings/rust/check.sh bindings/rust/package.sh bindings/rust/valgrind.sh

CARGO ?= cargo
export CARGO
have_cargo := $(if $(binding_goals),$(shell command -v $(CARGO)))
rust_build := BUILD='$(abspath $(out))' bindings/rust/build.sh

## bindings-rust: the Rust crates with their tests and the example, in build/bindings/rust
## check-bindings-rust: their tests, as packages too, and under valgrind
## install-bindings-rust: their sources, into PREFIX/share/cargo/registry
.PHONY: bindings-rust check-bindings-rust install-bindings-rust uninstall-bindings-rust
ifneq ($(have_cargo),)
bindings-rust: lib
	@echo "  CARGO bindings/rust"
	$(Q)$(rust_build) all
install-bindings-rust: lib
	$(Q)$(rust_build) install '$(DESTDIR)$(PREFIX)/share/cargo/registry'
else
bindings-rust install-bindings-rust:
	$(call binding_skip,rust,cargo is not installed)
endif
check-bindings-rust: bindings-rust $(out)/bin/quickstart $(conformance)
	@$(run_tests) $(filter bindings/rust/%,$(binding_scripts))

uninstall-bindings-rust:
	$(call binding_remove,$(addprefix $(PREFIX)/share/cargo/registry/,pagedkv-$(version) pagedkv-sys-$(version)),$(PREFIX)/share/cargo/registry)
