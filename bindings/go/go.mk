# SPDX-License-Identifier: Apache-2.0
# Go: the tests and the quickstart, in build/bindings/go. A Go module has no build product of its own.

go_out := $(binding_out)/go
GO ?= go
go_import := pagedkv.org/pagedkv
# Nothing is fetched: there are no dependencies. The linker does not know what to make of a compiler behind ccache.
go_env := GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=1 CC='$(filter-out ccache,$(CC))' PKG_CONFIG='$(PKG_CONFIG)' \
    PKG_CONFIG_PATH='$(abspath $(go_out))/pkgconfig'
go_missing := $(if $(binding_goals),$(shell $(GO) version 2>/dev/null | grep -qE ' go1\.(19|[2-9][0-9])' || echo Go 1.19 or later \(golang-go\)))
# The strictest checks of cgo are asked for at run time up to Go 1.20 (check.sh), and when the tests are built from 1.21 on.
go_strict := $(if $(binding_goals),$(if $(shell $(GO) env GOVERSION 2>/dev/null | grep -E '^go1\.(19|20)'),,GOEXPERIMENT=cgocheck2))
binding_languages += go
binding_scripts += bindings/go/check.sh

go_files := $(sort $(wildcard bindings/go/*.go bindings/go/*.c bindings/go/*.h)) bindings/go/go.mod
go_installed := $(filter-out %_test.go,$(go_files)) bindings/go/README.md

.PHONY: bindings-go install-bindings-go uninstall-bindings-go
ifneq ($(go_missing),)
bindings-go:
	$(call binding_skip,go,missing: $(go_missing))
install-bindings-go:
	$(call binding_skip,go,missing: $(go_missing))
else
bindings-go: $(go_out)/pagedkv.test $(go_out)/quickstart

# As Debian has it: sources, which a go.mod names with a replace.
install-bindings-go:
	$(INSTALL) -d '$(DESTDIR)$(PREFIX)/share/gocode/src/$(go_import)'
	$(INSTALL) -m 644 $(go_installed) '$(DESTDIR)$(PREFIX)/share/gocode/src/$(go_import)/'
endif

uninstall-bindings-go:
	$(call binding_remove,$(addprefix $(PREFIX)/share/gocode/src/$(go_import)/,$(notdir $(go_installed))),$(PREFIX)/share/gocode/src/$(go_import))

# What `make install` makes of pkgconfig/, for the library in build/lib.
$(go_out)/pkgconfig/pagedkv.pc: bindings/go/go.mk include/pagedkv/types.h
	@mkdir -p $(@D)
	@printf 'Name: pagedkv\nDescription: in the build tree\nVersion: $(version)\nCflags: -I%s\nLibs: -L%s -lpagedkv\n' \
	  '$(abspath include)' '$(abspath $(out)/lib)' > $@

$(go_out)/pagedkv.test: $(go_files) $(go_out)/pkgconfig/pagedkv.pc $(headers) $(shared)
	@echo "  GO    $@"
	$(Q)cd bindings/go && $(go_env) $(go_strict) $(GO) test -p 2 -c -o '$(abspath $@)' .

$(go_out)/quickstart: bindings/go/examples/quickstart/main.go $(go_out)/pagedkv.test
	@echo "  GO    $@"
	$(Q)cd bindings/go && $(go_env) $(GO) build -p 2 -o '$(abspath $@)' ./examples/quickstart
