/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes over a libfabric that behaves as this machine's providers do not (fake/fake.h): whatever mode a provider has, images
 * arrive as they are. */
#include "node/nodes.h"
#include "fabric/build.h"
#include "fabric/fake/fake.h"

#include <dlfcn.h>
#include <sys/resource.h>

enum { blocks = 12, tokens = blocks * tiered_page_tokens, tag = 31 };

static struct fake_settings *settings; /* NULL: no plug-in, no fake */
static void (*reset)(void);
static struct fake_counts (*counts_of)(void);

static void load_fake(void) {
    char path[8192];
    build_path(path, sizeof path, "tests/fabric/libfake-fabric.so");
    void *fake = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (fake == NULL) return;
    struct fake_settings *(*settings_of)(void);
    *(void **)&settings_of = dlsym(fake, "fake_settings");
    *(void **)&counts_of = dlsym(fake, "fake_counts");
    *(void **)&reset = dlsym(fake, "fake_reset");
    settings = settings_of();
    reset();
}

typedef struct {
    pkv_tier *tier;
    pkv_node *server, *reader;
} pair;

static pkv_tier *tier_with_sequence(void) {
    pkv_tier *tier = host_tier(100);
    pkv_pool *writer = pool_on(64, tier, PKV_TIER_WRITE_BACK);
    compute(writer, 1, tokens, tag);
    push_down(writer);
    end_pool(writer);
    return tier;
}

static pkv_node_options small_options(uint32_t flags) {
    pkv_node_options options = node_options();
    options.export_bytes = 1 << 20;
    options.flags = flags;
    return options;
}

static void open_pair(pair *p, uint32_t flags) {
    p->tier = tier_with_sequence();
    p->server = open_server_with(small_options(flags), p->tier);
    assert_non_null(p->server);
    const pkv_node_options options = small_options(0);
    p->reader = open_node(&options);
    assert_ok(pkv_node_connect(p->reader, address_of(p->server).text, 5ull * one_second));
}

static void close_pair(pair *p) {
    assert_ok(pkv_node_close(p->reader));
    assert_ok(pkv_node_close(p->server));
    assert_ok(pkv_tier_close(p->tier));
    assert_int_equal(counts_of().registrations, 0);
    assert_int_equal(counts_of().mapped_keys, 0);
    assert_int_equal(counts_of().objects, 0);
}

static void read_all(pair *p) {
    pkv_pool *pool = pool_on_node(64, p->reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
}

struct mode {
    const char *name;
    void (*set)(struct fake_settings *to);
};

static void offsets(struct fake_settings *to) { (void)to; }
static void addresses(struct fake_settings *to) { to->virtual_addresses = 1; }
static void local(struct fake_settings *to) { to->local_regions = to->virtual_addresses = 1; }
static void its_keys(struct fake_settings *to) { to->provider_keys = 1; }
static void raw_keys(struct fake_settings *to) {
    to->raw_keys = to->provider_keys = to->virtual_addresses = 1;
    to->key_bytes = fake_raw_key_bytes;
}
static void narrow_keys(struct fake_settings *to) { to->key_bytes = 1; }
static void small_messages(struct fake_settings *to) { to->max_message = 1000; }
static void small_regions(struct fake_settings *to) {
    to->max_registration = 65536;
    to->local_regions = to->virtual_addresses = 1;
}
static void no_descriptors(struct fake_settings *to) { to->no_descriptor = 1; }
static void any_order(struct fake_settings *to) {
    to->reversed = 1;
    to->max_message = 3000;
}
static void late(struct fake_settings *to) { to->late_ns = 3000000; }

static const struct mode modes[] = {
    {"offsets", offsets},
    {"virtual addresses", addresses},
    {"local regions", local},
    {"the provider's keys", its_keys},
    {"raw keys", raw_keys},
    {"keys of a byte", narrow_keys},
    {"small messages", small_messages},
    {"small regions", small_regions},
    {"no descriptors", no_descriptors},
    {"any order", any_order},
    {"late", late},
};

/* With the images where they lie, and copied. */
static void images_arrive_whatever_mode_the_provider_has(void **state) {
    (void)state;
    if (settings == NULL) skip();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; ++i) {
        for (int copied = 0; copied < 2; ++copied) {
            print_message("%s%s\n", modes[i].name, copied ? ", copied" : "");
            reset();
            modes[i].set(settings);
            pair p;
            open_pair(&p, copied ? PKV_NODE_COPY : 0);
            read_all(&p);
            assert_int_equal(node_stats(p.server).fetches_served, copied ? blocks : 0);
            assert_true(counts_of().reads > 0);
            close_pair(&p);
        }
    }
}

/* Field case N17: memory that cannot be locked made all of it useless, or went by without a word. */
static void case_N17_memory_that_cannot_be_locked_is_named_or_done_without(void **state) {
    (void)state;
    if (settings == NULL) skip();
    struct rlimit before, low;
    getrlimit(RLIMIT_MEMLOCK, &before);
    low = before;
    low.rlim_cur = 700000; /* less than a tier, more than staging memory and some exports */
    if (before.rlim_max != RLIM_INFINITY && before.rlim_max < low.rlim_cur) skip();
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    reset();
    settings->locks_memory = 1;
    settings->local_regions = 1;

    /* Not even the exports: the node says what it needs, and what there is. */
    pkv_tier *tier = tier_with_sequence();
    pkv_node_options options = small_options(0);
    options.listen = "127.0.0.1:0";
    options.tiers = &tier;
    options.num_tiers = 1;
    pkv_node *node = NULL;
    char why[512];
    assert_status(pkv_node_open(&options, &node), PKV_ERR_LIMIT);
    pkv_last_error(why, sizeof why);
    assert_non_null(strstr(why, "1048576"));
    assert_non_null(strstr(why, "700000"));
    assert_non_null(strstr(why, "RLIMIT_MEMLOCK"));
    assert_int_equal(counts_of().registrations, 0);

    /* The exports, and no tier: its images are copied. */
    options.export_bytes = 200000;
    pair p = {tier, NULL, NULL};
    assert_ok(pkv_node_open(&options, &p.server));
    assert_int_equal(counts_of().registrations, 1);
    const pkv_node_options reading = small_options(0);
    p.reader = open_node(&reading);
    assert_ok(pkv_node_connect(p.reader, address_of(p.server).text, 5ull * one_second));
    read_all(&p);
    assert_int_equal(node_stats(p.server).fetches_served, blocks);

    /* Nothing for the reader: what it had is a miss, and the tier that it has besides works as before. */
    low.rlim_cur = 1;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    pkv_tier *own = host_tier(100), *remote = tier_of_node(p.reader);
    const pkv_tier_attachment both[] = {attachment(own, PKV_TIER_WRITE_BACK), attachment(remote, PKV_TIER_READ_ONLY)};
    pkv_pool *pool = pool_over(64, both, 2);
    compute(pool, 9000, tokens, tag + 1);
    push_down(pool);
    pkv_table *ours = admit_again(pool, 9000, tokens, NULL), *theirs = admit_again(pool, 1, tokens, NULL);
    const pkv_status status = pkv_table_restore(theirs, 0, UINT64_MAX, 2ull * one_second, NULL);
    assert_true(status != PKV_OK);
    end_table(theirs);
    assert_ok(pkv_table_restore(ours, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(ours, 0, tokens, tag + 1);
    end_table(ours);
    end_pool(pool);
    assert_ok(pkv_tier_close(remote));
    assert_ok(pkv_tier_close(own));
    setrlimit(RLIMIT_MEMLOCK, &before);
    close_pair(&p);
}

int main(void) {
    test_provider = "fake";
    load_fake();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_arrive_whatever_mode_the_provider_has),
        cmocka_unit_test(case_N17_memory_that_cannot_be_locked_is_named_or_done_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
