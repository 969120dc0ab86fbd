/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics as text for Prometheus: the format, the values, the names, and what is refused. Of sessions: sessions.c. */
#include "telemetry/exposition.h"
#include "tier/faulty.h"

#include <locale.h>

enum { tag = 7, blocks = 4, tokens = blocks * tiered_page_tokens };

#define POOL(name, label, field, kind)                                                                                 \
    { "pagedkv_pool_" name, label, offsetof(pkv_pool_stats, field), kind }

static const field group_fields[] = {
    POOL("pages", "state=\"free\"", free_pages, field_number),
    POOL("pages", "state=\"held\"", held_pages, field_number),
    POOL("pages", "state=\"cached\"", cached_pages, field_number),
    POOL("pages", "state=\"quarantined\"", quarantined_pages, field_number),
    POOL("capacity_pages", NULL, num_pages, field_number),
    POOL("page_bytes", NULL, page_bytes, field_number),
    POOL("image_bytes", NULL, image_bytes, field_number),
    POOL("pinned_pages", NULL, pinned_pages, field_number),
    POOL("unstored_pages", NULL, unstored_pages, field_number),
    POOL("usage_ratio", NULL, usage, field_ratio),
};

static const field pool_fields[] = {
    POOL("tables", NULL, tables, field_number),
    POOL("namespaces", NULL, namespaces, field_number),
    POOL("index_blocks", NULL, index_blocks, field_number),
    POOL("metadata_bytes", NULL, metadata_bytes, field_number),
    POOL("requests_total", NULL, requests, field_number),
    POOL("asked_tokens_total", NULL, asked_tokens, field_number),
    POOL("hit_tokens_total", NULL, hit_tokens, field_number),
    POOL("retries_total", NULL, retries, field_number),
    POOL("refused_total", NULL, refused, field_number),
    POOL("probes_total", NULL, probes, field_number),
    POOL("allocated_pages_total", NULL, allocated_pages, field_number),
    POOL("failed_allocations_total", NULL, failed_allocations, field_number),
    POOL("evicted_pages_total", NULL, evicted_pages, field_number),
    POOL("cleared_pages_total", NULL, cleared_pages, field_number),
    POOL("published_blocks_total", NULL, published_blocks, field_number),
    POOL("unpublished_blocks_total", NULL, unpublished_blocks, field_number),
    POOL("duplicate_blocks_total", NULL, duplicate_blocks, field_number),
    POOL("key_collisions_total", NULL, key_collisions, field_number),
    POOL("copied_pages_total", NULL, copied_pages, field_number),
    POOL("partial_tokens_total", NULL, partial_tokens, field_number),
    POOL("shared_duplicates_total", NULL, shared_duplicates, field_number),
    POOL("expired_blocks_total", NULL, expired_blocks, field_number),
    POOL("events_total", NULL, events, field_number),
    POOL("stored_images_total", NULL, stored_images, field_number),
    POOL("failed_stores_total", NULL, failed_stores, field_number),
    POOL("dropped_images_total", NULL, dropped_images, field_number),
    POOL("loaded_blocks_total", NULL, loaded_blocks, field_number),
    POOL("adopted_blocks_total", NULL, adopted_blocks, field_number),
    POOL("joined_loads_total", NULL, joined_loads, field_number),
    POOL("spilled_blocks_total", NULL, spilled_blocks, field_number),
    POOL("lost_blocks_total", NULL, lost_blocks, field_number),
    POOL("exposed_seconds_total", NULL, exposed_ns, field_ns),
    POOL("tier_hit_tokens_total", NULL, tier_hit_tokens, field_number),
};

enum {
    num_group_fields = sizeof group_fields / sizeof *group_fields,
    num_pool_fields = sizeof pool_fields / sizeof *pool_fields
};

/* All fields of a pool's statistics are in a table; memory_kind and key_seed are labels. */
_Static_assert(sizeof(pkv_pool_stats) ==
                   sizeof(size_t) + 8 * (num_group_fields + num_pool_fields) + 2 * sizeof(int32_t),
               "a field of pkv_pool_stats is in no table");

#define TIER(name, field, kind)                                                                                        \
    { "pagedkv_tier_" name, NULL, offsetof(pkv_tier_stats, field), kind }

static const field tier_fields[] = {
    TIER("capacity_bytes", usage.capacity_bytes, field_number),
    TIER("used_bytes", usage.used_bytes, field_number),
    TIER("images", usage.images, field_number),
    TIER("pinned_images", usage.pinned_images, field_number),
    TIER("evicted_images_total", usage.evicted_images, field_number),
    TIER("recovered_images_total", usage.recovered_images, field_number),
    TIER("io_errors_total", usage.io_errors, field_number),
    TIER("lookups_total", lookups, field_number),
    TIER("hits_total", hits, field_number),
    TIER("loads_total", loads, field_number),
    TIER("failed_loads_total", failed_loads, field_number),
    TIER("stores_total", stores, field_number),
    TIER("failed_stores_total", failed_stores, field_number),
    TIER("loaded_bytes_total", bytes_loaded, field_number),
    TIER("stored_bytes_total", bytes_stored, field_number),
    TIER("checksum_failures_total", checksum_failures, field_number),
    TIER("timeouts_total", timeouts, field_number),
    TIER("double_completions_total", double_completions, field_number),
    TIER("open_requests", open_requests, field_number),
    TIER("breaker_trips_total", breaker_trips, field_number),
    TIER("resting", resting, field_flag),
};

enum { num_tier_fields = sizeof tier_fields / sizeof *tier_fields };

/* Besides them: usage.struct_size, engine, registered_buffers, which are labels, and reserved. */
_Static_assert(sizeof(pkv_tier_stats) == 2 * sizeof(size_t) + 8 * (num_tier_fields - 1) + 4 * sizeof(int32_t),
               "a field of pkv_tier_stats is in no table");

static void compare_pool(const exposition *e, pkv_pool *pool, const char *name, uint32_t num_groups) {
    char labels[400];
    for (uint32_t group = 0; group < num_groups; ++group) {
        (void)snprintf(labels, sizeof labels, "pool=\"%s\",group=\"%u\"", name, group);
        const pkv_pool_stats stats = group_stats(pool, group);
        exposition_compare(e, group_fields, num_group_fields, labels, &stats);
    }
    (void)snprintf(labels, sizeof labels, "pool=\"%s\"", name);
    const pkv_pool_stats stats = stats_of(pool);
    exposition_compare(e, pool_fields, num_pool_fields, labels, &stats);
}

static void compare_tier(const exposition *e, pkv_tier *tier, const char *name) {
    char labels[400];
    (void)snprintf(labels, sizeof labels, "tier=\"%s\"", name);
    const pkv_tier_stats stats = tier_stats(tier);
    exposition_compare(e, tier_fields, num_tier_fields, labels, &stats);
}

/* ---- format and values ---- */

static void every_number_of_pools_and_tiers_is_there(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_tier *host = host_tier(16);
    const pkv_tier_attachment at[2] = {attachment(f->tier, PKV_TIER_WRITE_BACK),
                                       attachment(host, PKV_TIER_WRITE_THROUGH)};
    pkv_pool *tiered = pool_over(8, at, 2);
    faulty_script(f, PKV_TIER_LOAD, 0, 1, fault_flip, 100);
    for (int i = 0; i < 3; ++i) {
        compute(tiered, 1 + 100 * i, tokens, tag);
        push_down(tiered);
    }
    pkv_table *table = admit_again(tiered, 1, tokens, NULL);
    check_rows(table, 0, tokens, tag);
    const pkv_group_options groups[2] = {id_group(5), window_group(7, 8, 0)};
    pkv_pool *grouped = make_groups(groups, 2, 4);
    pkv_page pages[3];
    assert_ok(pkv_pool_alloc(grouped, 1, 3, pages));
    pkv_page none[6];
    assert_status(pkv_pool_alloc(grouped, 0, 6, none), PKV_ERR_NO_PAGES);
    eventually(faulty_idle(f) && tier_stats(host).open_requests == 0);

    pkv_pool *const pools[2] = {tiered, grouped};
    pkv_tier *const tiers[2] = {f->tier, host};
    const char *const pool_names[2] = {"tiered", "two groups"};
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = pools;
    sources.num_pools = 2;
    sources.tiers = tiers;
    sources.num_tiers = 2;
    for (int named = 0; named < 2; ++named) {
        sources.pool_names = named ? pool_names : NULL;
        char *text = exposition_text(&sources);
        exposition e = exposition_parse(text);
        compare_pool(&e, tiered, named ? "tiered" : "0", 1);
        compare_pool(&e, grouped, named ? "two groups" : "1", 2);
        compare_tier(&e, f->tier, "0");
        compare_tier(&e, host, "1");
        assert_string_equal(
            exposition_at(&e, "pagedkv_tier_info", "tier=\"1\",engine=\"none\",registered_buffers=\"0\""), "1");
        if (named)
            (void)exposition_at(&e, "pagedkv_pool_info",
                                "pool=\"two groups\",group=\"0\",memory=\"none\",key_seed=\"random\"");
        exposition_free(&e);
        const char *copy = getenv("PKV_TEST_PROMETHEUS"); /* for promtool.sh */
        if (copy != NULL && named) {
            FILE *file = fopen(copy, "w");
            assert_non_null(file);
            assert_true(fputs(text, file) >= 0);
            assert_int_equal(fclose(file), 0);
        }
        free(text);
    }
    assert_true(tier_stats(f->tier).checksum_failures > 0); /* the numbers compared were not all 0 */
    assert_true(stats_of(tiered).exposed_ns > 0);
    assert_true(stats_of(tiered).usage > 0);
    end_table(table);
    for (int i = 0; i < 3; ++i) assert_ok(pkv_pool_release(grouped, 1, 1, &pages[i], NULL, NULL));
    end_groups(grouped);
    end_pool(tiered);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void no_sources_give_an_empty_text(void **state) {
    (void)state;
    const pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    uint64_t size = 0;
    char buffer[4] = "abc";
    assert_ok(pkv_stats_prometheus(&sources, NULL, 0, &size));
    assert_int_equal(size, 1);
    assert_ok(pkv_stats_prometheus(&sources, buffer, 1, &size));
    assert_int_equal(size, 1);
    assert_memory_equal(buffer, "\0bc", 4);
}

static pkv_status refuse_all(void *context, const pkv_tier_batch *batch) {
    (void)context;
    (void)batch;
    return PKV_ERR_IO;
}

static void say_large_numbers(void *context, pkv_tier_usage *usage) {
    (void)context;
    usage->capacity_bytes = UINT64_MAX;
    usage->used_bytes = (UINT64_C(1) << 53) + 1; /* no double */
    usage->images = UINT64_C(10000000000000000001);
    usage->engine = 99;
    usage->registered_buffers = 1;
}

static void large_numbers_keep_their_last_digit(void **state) {
    (void)state;
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.submit = refuse_all;
    ops.usage = say_large_numbers;
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open(&ops, NULL, &tier));
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.tiers = &tier;
    sources.num_tiers = 1;
    char *text = exposition_text(&sources);
    exposition e = exposition_parse(text);
    assert_string_equal(exposition_at(&e, "pagedkv_tier_capacity_bytes", "tier=\"0\""), "18446744073709551615");
    assert_string_equal(exposition_at(&e, "pagedkv_tier_used_bytes", "tier=\"0\""), "9007199254740993");
    assert_string_equal(exposition_at(&e, "pagedkv_tier_images", "tier=\"0\""), "10000000000000000001");
    (void)exposition_at(&e, "pagedkv_tier_info", "tier=\"0\",engine=\"unknown\",registered_buffers=\"1\"");
    exposition_free(&e);
    free(text);
    assert_ok(pkv_tier_close(tier));
}

static void numbers_are_the_same_in_every_locale(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR", "ru_RU.UTF-8", NULL};
    int i = 0;
    while (names[i] != NULL && setlocale(LC_ALL, names[i]) == NULL) ++i;
    if (names[i] == NULL) {
        print_message("no locale with another decimal point is installed\n");
        skip();
    }
    pkv_pool *pool = make_pool(3, 4);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = &pool;
    sources.num_pools = 1;
    char *text = exposition_text(&sources);
    assert_non_null(setlocale(LC_ALL, "C"));
    exposition e = exposition_parse(text);
    compare_pool(&e, pool, "0", 1);
    exposition_free(&e);
    free(text);
    release_pages(pool, &page, 1);
    end_pool(pool);
}

static void ratios_are_read_back_as_they_were(void **state) {
    (void)state;
    enum { num_pages = 7 };
    pkv_pool *pool = make_pool(num_pages, 4);
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = &pool;
    sources.num_pools = 1;
    pkv_page pages[num_pages];
    for (int held = 0; held <= num_pages; ++held) { /* sevenths */
        char *text = exposition_text(&sources);
        exposition e = exposition_parse(text);
        compare_pool(&e, pool, "0", 1);
        exposition_free(&e);
        free(text);
        if (held < num_pages) assert_ok(pkv_pool_alloc(pool, 0, 1, &pages[held]));
    }
    release_pages(pool, pages, num_pages);
    end_pool(pool);
}

/* ---- the buffer ---- */

static void the_text_fits_exactly_or_is_not_written(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = &pool;
    sources.num_pools = 1;
    uint64_t size = 0, again = 0;
    assert_ok(pkv_stats_prometheus(&sources, NULL, 0, &size));
    char *buffer = malloc(size + 1), *before = malloc(size + 1);
    memset(buffer, 0x5A, size + 1);
    memcpy(before, buffer, size + 1);
    const uint64_t too_small[] = {1, 2, size / 2, size - 1};
    for (int i = 0; i < 4; ++i) {
        again = 0;
        assert_status(pkv_stats_prometheus(&sources, buffer, too_small[i], &again), PKV_ERR_NO_SPACE);
        assert_int_equal(again, size);
        assert_memory_equal(buffer, before, size + 1);
    }
    assert_ok(pkv_stats_prometheus(&sources, buffer, 0, &again)); /* the size only */
    assert_int_equal(again, size);
    assert_memory_equal(buffer, before, size + 1);
    assert_ok(pkv_stats_prometheus(&sources, buffer, size, &again));
    assert_int_equal(again, size);
    assert_int_equal(strlen(buffer) + 1, size);
    assert_int_equal(buffer[size], 0x5A);
    exposition e = exposition_parse(buffer);
    exposition_free(&e);
    free(before);
    free(buffer);
    end_pool(pool);
}

/* ---- names ---- */

static void check_name(pkv_pool *pool, const char *name) {
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = &pool;
    sources.pool_names = &name;
    sources.num_pools = 1;
    char *text = exposition_text(&sources);
    exposition e = exposition_parse(text);
    for (uint64_t i = 0; i < e.num_samples; ++i) {
        assert_string_equal(e.samples[i].label[0].name, "pool");
        assert_string_equal(e.samples[i].label[0].value, name);
    }
    exposition_free(&e);
    free(text);
}

static pkv_status with_name(pkv_pool *pool, const char *name) {
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = &pool;
    sources.pool_names = &name;
    sources.num_pools = 1;
    uint64_t size = 77;
    const pkv_status status = pkv_stats_prometheus(&sources, NULL, 0, &size);
    if (status != PKV_OK) assert_int_equal(size, 77);
    return status;
}

static void names_are_escaped(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(1, 4);
    char longest[257];
    memset(longest, 'x', 256);
    longest[256] = '\0';
    const char *const names[] = {"",
                                 "a",
                                 "a\"b",
                                 "back\\slash",
                                 "two\nlines",
                                 "\\n",
                                 "\\\"\n\\\\",
                                 "},x=\"",
                                 "# HELP",
                                 "tab\tand\rreturn",
                                 "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF",
                                 longest};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) check_name(pool, names[i]);
    end_pool(pool);
}

static void names_that_are_not_utf8_or_too_long_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(1, 4);
    const char *const bad[] = {"\x80",
                               "\xC3",
                               "\xC3(",
                               "\xC0\xAF",
                               "\xC1\xBF",
                               "\xE0\x9F\xBF",
                               "\xE2\x82",
                               "\xED\xA0\x80",
                               "\xED\xBF\xBF",
                               "\xF0\x8F\xBF\xBF",
                               "\xF4\x90\x80\x80",
                               "\xF5\x80\x80\x80",
                               "\xFE",
                               "\xFF",
                               "good\xE2\x82\x28",
                               "\xF0\x9F\x98"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        assert_status(with_name(pool, bad[i]), PKV_ERR_INVALID);
        assert_message("pool_names[0]");
    }
    assert_ok(with_name(pool, "\xED\x9F\xBF\xEE\x80\x80\xE0\xA0\x80\xF0\x90\x80\x80"));
    char text[258];
    memset(text, 'x', 257);
    text[257] = '\0';
    assert_status(with_name(pool, text), PKV_ERR_INVALID);
    assert_message("256");
    assert_status(with_name(pool, NULL), PKV_ERR_INVALID);
    end_pool(pool);
}

static void the_same_name_twice_is_refused(void **state) {
    (void)state;
    pkv_pool *const pools[2] = {make_pool(1, 4), make_pool(1, 4)};
    pkv_tier *tier = host_tier(1);
    const char *const names[2] = {"same", "same"};
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = pools;
    sources.pool_names = names;
    sources.num_pools = 2;
    uint64_t size = 77;
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_INVALID);
    assert_message("same");
    assert_int_equal(size, 77);
    sources.num_pools = 1;
    sources.tiers = &tier; /* of another kind: another label */
    sources.tier_names = names;
    sources.num_tiers = 1;
    assert_ok(pkv_stats_prometheus(&sources, NULL, 0, &size));
    end_pool(pools[0]);
    end_pool(pools[1]);
    assert_ok(pkv_tier_close(tier));
}

/* ---- what is refused ---- */

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(1, 4);
    char buffer[100];
    uint64_t size = 77;
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    assert_status(pkv_stats_prometheus(NULL, NULL, 0, &size), PKV_ERR_INVALID);
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, NULL), PKV_ERR_INVALID);
    assert_status(pkv_stats_prometheus(&sources, NULL, 100, &size), PKV_ERR_INVALID);
    sources.struct_size = 4;
    assert_status(pkv_stats_prometheus(&sources, buffer, 100, &size), PKV_ERR_INVALID);
    sources.struct_size = sizeof sources;
    sources.num_pools = 1;
    assert_status(pkv_stats_prometheus(&sources, buffer, 100, &size), PKV_ERR_INVALID);
    assert_message("pools");
    sources.num_pools = 0;
    sources.num_tiers = 1;
    assert_status(pkv_stats_prometheus(&sources, buffer, 100, &size), PKV_ERR_INVALID);
    assert_message("tiers");
    sources.num_tiers = 0;
    sources.num_sessions = 1;
    assert_status(pkv_stats_prometheus(&sources, buffer, 100, &size), PKV_ERR_INVALID);
    assert_message("sessions");
    assert_int_equal(size, 77);
    end_pool(pool);
}

static void a_caller_of_an_older_header_gives_what_it_knows(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(1, 4);
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.struct_size = offsetof(pkv_prometheus_sources, tiers);
    sources.pools = &pool;
    sources.num_pools = 1;
    sources.num_tiers = 5; /* behind its end */
    char *text = exposition_text(&sources);
    exposition e = exposition_parse(text);
    compare_pool(&e, pool, "0", 1);
    exposition_free(&e);
    free(text);
    struct {
        pkv_prometheus_sources known;
        uint64_t more;
    } newer = {PKV_PROMETHEUS_SOURCES_INIT, 0};
    newer.known.struct_size = sizeof newer;
    uint64_t size = 0;
    assert_ok(pkv_stats_prometheus(&newer.known, NULL, 0, &size));
    newer.more = 1;
    assert_status(pkv_stats_prometheus(&newer.known, NULL, 0, &size), PKV_ERR_UNSUPPORTED);
    end_pool(pool);
}

static void handles_that_are_not_open_are_refused(void **state) {
    (void)state;
    pkv_pool *pools[2] = {make_pool(1, 4), NULL};
    pkv_tier *tiers[2] = {host_tier(1), NULL};
    pkv_prefetch *sessions[1] = {NULL};
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    uint64_t size = 77;
    sources.pools = pools;
    sources.num_pools = 2;
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    pools[1] = (pkv_pool *)(void *)tiers[0]; /* of another kind */
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    pools[1] = make_pool(1, 4);
    assert_ok(pkv_stats_prometheus(&sources, NULL, 0, &size));
    size = 77;
    end_pool(pools[1]);
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    sources.num_pools = 1;
    sources.tiers = tiers;
    sources.num_tiers = 2;
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    tiers[1] = (pkv_tier *)(void *)pools[0];
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    sources.num_tiers = 1;
    sources.sessions = sessions;
    sources.num_sessions = 1;
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    sessions[0] = (pkv_prefetch *)(void *)pools[0];
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    assert_int_equal(size, 77);
    end_pool(pools[0]);
    assert_ok(pkv_tier_close(tiers[0]));
}

/* ---- threads ---- */

static void *alloc_and_release(void *argument) {
    pkv_pool *pool = argument;
    for (int i = 0; i < 3000; ++i) {
        pkv_page page;
        if (pkv_pool_alloc(pool, 0, 1, &page) == PKV_OK) pkv_pool_release(pool, 0, 1, &page, NULL, NULL);
    }
    return NULL;
}

static void a_pool_at_work_adds_up(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 4);
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, alloc_and_release, pool), 0);
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.pools = &pool;
    sources.num_pools = 1;
    for (int round = 0; round < 50; ++round) {
        char *text = exposition_text(&sources);
        exposition e = exposition_parse(text);
        uint64_t sum = 0;
        for (uint64_t i = 0; i < e.num_samples; ++i)
            if (strcmp(e.samples[i].name, "pagedkv_pool_pages") == 0) sum += strtoull(e.samples[i].value, NULL, 10);
        assert_int_equal(sum, 8);
        exposition_free(&e);
        free(text);
    }
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_pools_and_tiers_is_there),
        cmocka_unit_test(no_sources_give_an_empty_text),
        cmocka_unit_test(large_numbers_keep_their_last_digit),
        cmocka_unit_test(numbers_are_the_same_in_every_locale),
        cmocka_unit_test(ratios_are_read_back_as_they_were),
        cmocka_unit_test(the_text_fits_exactly_or_is_not_written),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(names_that_are_not_utf8_or_too_long_are_refused),
        cmocka_unit_test(the_same_name_twice_is_refused),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_caller_of_an_older_header_gives_what_it_knows),
        cmocka_unit_test(handles_that_are_not_open_are_refused),
        cmocka_unit_test(a_pool_at_work_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
