#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Field case Q19: a program that takes the library in with dlopen() and lets go of it with dlclose(), while threads of the library's
# are at work: they have to stay where they are.

set -u
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

cat > "$tmp/reload.c" << 'END'
#include <dlfcn.h>
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL(name) ((__typeof__(name) *)symbol(#name))

static void *library;

static void *symbol(const char *name) {
    void *const address = dlsym(library, name);
    if (address == NULL) printf("%s\n", dlerror()), exit(1);
    return address;
}

static void expect(pkv_status status, const char *what) {
    char text[1024] = "";
    if (status == PKV_OK) return;
    CALL(pkv_last_error)(text, sizeof text);
    printf("%s: %d: %s\n", what, (int)status, text);
    exit(1);
}

/* A sequence goes down into a tier, and is on its way up again. */
static void begin(pkv_pool **pool, pkv_table **table, pkv_prefetch **session) {
    pkv_tier *tier = NULL;
    pkv_host_tier_options host = PKV_HOST_TIER_OPTIONS_INIT;
    host.capacity_bytes = 1 << 20;
    expect(CALL(pkv_tier_open_host)(&host, &tier), "tier");
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = 32, group.num_layers = 2, group.num_kv_heads = 1, group.k_head_dim = group.v_head_dim = 16;
    pkv_tier_attachment attached = PKV_TIER_ATTACHMENT_INIT;
    attached.tier = tier;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 4, options.num_groups = 1, options.groups = &group, options.num_tiers = 1, options.tiers = &attached;
    expect(CALL(pkv_pool_create)(&options, pool), "pool");
    expect(CALL(pkv_tier_close)(tier), "tier"); /* the pool has it */
    static pkv_token tokens[64];
    for (int i = 0; i < 64; ++i) tokens[i] = i;
    pkv_prompt prompt = PKV_PROMPT_INIT;
    prompt.tokens = tokens, prompt.num_tokens = 64;
    pkv_match match = PKV_MATCH_INIT;
    expect(CALL(pkv_table_create)(*pool, table), "table");
    expect(CALL(pkv_table_admit)(*table, &prompt, NULL, &match), "admit");
    static char rows[64 * 32];
    pkv_tensor k = PKV_TENSOR_INIT;
    k.data = rows, k.num_tokens = 64, k.dtype = PKV_DTYPE_F16;
    for (uint32_t layer = 0; layer < 2; ++layer)
        expect(CALL(pkv_table_write)(*table, 0, layer, 0, 64, &k, &k, NULL), "write");
    expect(CALL(pkv_table_commit)(*table, 64, NULL), "commit");
    pkv_spill_result spilled = PKV_SPILL_RESULT_INIT;
    expect(CALL(pkv_table_spill)(*table, 0, 12, NULL, &spilled), "spill");
    pkv_prefetch_options how = PKV_PREFETCH_OPTIONS_INIT;
    expect(CALL(pkv_prefetch_open)(*pool, &how, session), "session");
    uint64_t submitted = 0;
    expect(CALL(pkv_prefetch_submit)(*session, *table, 0, &submitted), "submit");
}

int main(int argc, char **argv) {
    for (int i = 0; argc == 3 && i < 100; ++i) {
        pkv_pool *pool = NULL;
        pkv_table *table = NULL;
        pkv_prefetch *session = NULL;
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) return printf("%s\n", dlerror()), 1;
        begin(&pool, &table, &session);
        if (strcmp(argv[2], "closed") == 0) {
            expect(CALL(pkv_prefetch_close)(session, NULL), "close");
            expect(CALL(pkv_table_destroy)(table, NULL), "destroy");
            expect(CALL(pkv_pool_destroy)(pool), "destroy");
        }
        dlclose(library);
    }
    return argc == 3 ? 0 : 2;
}
END
# shellcheck disable=SC2086 # a command and its arguments
${CC:-cc} -std=gnu11 -O1 -Iinclude -o "$tmp/reload" "$tmp/reload.c" -ldl || { echo "FAIL the program compiles"; exit 1; }

status=0
for how in open closed; do
    "$tmp/reload" "$BUILD/lib/libpagedkv.so" $how > "$tmp/log" 2>&1
    code=$?
    if [ $code = 0 ]; then
        echo "PASS case_Q19 100 times dlopen() and dlclose() with a session that is $how"
    else
        echo "FAIL case_Q19 100 times dlopen() and dlclose() with a session that is $how ($code)"
        sed 's/^/    /' "$tmp/log"
        status=1
    fi
done
exit $status
