# SPDX-License-Identifier: Apache-2.0
# The reference runner of the conformance cases, over the C ABI.

conformance := $(binding_out)/conformance
conformance_objects := $(patsubst %,$(obj)/%.o,$(sort $(wildcard bindings/conformance/*.c)))

$(conformance): $(conformance_objects) $(shared)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(variant_flags) -pthread $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib'

$(obj)/bindings/conformance/%.c.o: bindings/conformance/%.c $(compile_stamp)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(test_flags) -c -o $@ $<

bindings: $(conformance)
-include $(conformance_objects:.o=.d)
