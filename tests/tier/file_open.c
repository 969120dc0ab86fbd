/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a file tier: a new file, a warm restart, one that another process has, and files that are damaged, foreign or made
 * for something else. Those are left as they are. */
#include "tier/file_tier.h"

#include <sys/statfs.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { images = 20 };

/* ---- roles of other processes ---- */

static int role_open(char **words) {
    pkv_file_tier_options options = file_options(words[0]);
    options.lock_timeout_ns = strtoull(words[1], NULL, 10) * 1000000;
    return -try_open(&options);
}

/* Has the file, until it is killed. */
static int role_hold(char **words) {
    (void)open_file(words[0]);
    say_ready();
    while (pause() != 0) {
    }
    return 0;
}

/* An ordinary user tries: the message must name the file. */
static int role_open_as_nobody(char **words) {
    drop_root();
    pkv_file_tier_options options = file_options(words[0]);
    const pkv_status status = try_open(&options);
    return status != PKV_OK && !says(words[0]) ? 110 : -status;
}

/* Stores a prompt's four blocks, and five that belong to a sequence without names, and waits to be killed. */
static int role_spill(char **words) {
    pkv_tier *tier = open_file(words[0]);
    pkv_pool *pool = pool_on(16, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    flush(pool);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 18, 3);
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, &result));
    if (result.spilled_blocks != 5 || tier_stats(tier).usage.images != 9) return 111;
    say_ready();
    while (pause() != 0) {
    }
    return 0;
}

static const file_role roles[] = {
    {"open", role_open}, {"hold", role_hold}, {"open-as-nobody", role_open_as_nobody}, {"spill", role_spill}};

/* ---- new files and restarts ---- */

static void a_new_file_is_its_owners_and_has_its_size(void **state) {
    (void)state;
    scratch s = begin_scratch();
    const mode_t mask = umask(0);
    pkv_tier *tier = open_file(s.path);
    umask(mask);
    struct stat info;
    assert_int_equal(stat(s.path, &info), 0);
    assert_int_equal(info.st_mode, S_IFREG | 0600);
    assert_int_equal(info.st_uid, geteuid());
    assert_int_equal(info.st_size, file_payload + file_images * image_bytes);
    const pkv_tier_usage usage = tier_stats(tier).usage;
    assert_int_equal(usage.capacity_bytes, file_images * image_bytes);
    assert_int_equal(usage.used_bytes, 0);
    assert_int_equal(usage.images, 0);
    assert_int_equal(usage.recovered_images, 0);
    assert_int_equal(usage.io_errors, 0);
    assert_in_range(usage.engine, PKV_IO_URING, PKV_IO_THREADS);
    assert_ok(pkv_tier_close(tier));
    end_scratch(&s);
}

static void case_L20_images_are_found_again_after_a_restart(void **state) {
    (void)state;
    /* Each life reads what the one before stored, past the page cache or through it. */
    const uint32_t flags[] = {0, 0, PKV_FILE_BUFFERED, PKV_FILE_BUFFERED, 0};
    scratch s = begin_scratch();
    for (uint32_t life = 0; life < 5; ++life) {
        pkv_file_tier_options options = file_options(s.path);
        options.flags = flags[life];
        if (life % 2 == 1) options.capacity_bytes = options.max_images = 0; /* the file's */
        keyed k = keyed_on(open_with(&options));
        pkv_tier_usage usage = tier_stats(k.tier).usage;
        assert_int_equal(usage.recovered_images, life * 5);
        assert_int_equal(usage.images, life * 5);
        assert_int_equal(usage.used_bytes, life * 5 * image_bytes);
        assert_int_equal(usage.capacity_bytes, file_images * image_bytes);
        if (life > 0) assert_int_equal(get(&k, 0, life * 5, NULL), life * 5);
        assert_ok(put(&k, life * 5, 5));
        assert_int_equal(get(&k, 0, life * 5 + 5, NULL), life * 5 + 5);
        usage = tier_stats(k.tier).usage;
        assert_int_equal(usage.images, life * 5 + 5);
        assert_int_equal(usage.used_bytes, (life * 5 + 5) * image_bytes);
        assert_int_equal(usage.evicted_images, 0);
        assert_int_equal(usage.pinned_images, 0);
        const pkv_tier_stats stats = tier_stats(k.tier);
        assert_int_equal(stats.stores, 5);
        assert_int_equal(stats.bytes_stored, 5 * image_bytes);
        assert_int_equal(stats.loads, life * 10 + 5);
        assert_int_equal(stats.bytes_loaded, (life * 10 + 5) * image_bytes);
        assert_int_equal(stats.failed_loads + stats.failed_stores + stats.checksum_failures, 0);
        end_keyed(&k);
    }
    end_scratch(&s);
}

static void a_prompt_is_found_by_the_next_process_with_another_seed(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_tier *tier = open_file(s.path);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 24, 7);
    push_down(pool);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    tier = open_file(s.path);
    pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, 24, &match);
    assert_int_equal(match.tokens, 24);
    assert_int_equal(match.tier_tokens[0], 24);
    check_rows(table, 0, 24, 7);
    end_table(table);
    assert_int_equal(tier_stats(tier).usage.pinned_images, 0);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    end_scratch(&s);
}

static void another_models_pool_finds_nothing(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    for (int life = 0; life < 3; ++life) {
        pkv_namespace ns = PKV_NAMESPACE_INIT;
        ns.model = bytes_of(life == 1 ? "model b" : "model a");
        pkv_prompt prompt = prompt_of(tokens, 16);
        prompt.ns = &ns;
        pkv_tier *tier = open_file(s.path);
        pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
        pkv_table *table = NULL;
        pkv_match match = PKV_MATCH_INIT;
        pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
        options.max_match = PKV_MATCH_ALL;
        assert_ok(pkv_table_create(pool, &table));
        assert_ok(pkv_table_admit(table, &prompt, &options, &match));
        assert_int_equal(match.tokens, life == 2 ? 16 : 0);
        if (life < 2) write_and_commit(table, 16, 40 + (uint32_t)life);
        check_rows(table, 0, 16, life == 1 ? 41 : 40);
        end_table(table);
        push_down(pool);
        end_pool(pool);
        assert_ok(pkv_tier_close(tier));
    }
    end_scratch(&s);
}

static void case_L23_a_pool_of_another_geometry_gets_none_of_the_bytes(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, 4);
    pkv_tier *tier = open_file(s.path);
    pkv_group_options group = small_group(4);
    group.dtype = PKV_DTYPE_BF16; /* images of the same size */
    const pkv_tier_attachment at = attachment(tier, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    const pkv_tier_key key = key_of(2);
    pkv_op *op = NULL;
    pkv_status status = PKV_OK;
    assert_ok(pkv_pool_load(pool, 0, 1, &key, &page, NULL, NULL, &op));
    assert_status(end_op(op, &status, 1), PKV_ERR_IO);
    assert_int_equal(tier_stats(tier).checksum_failures, 1);
    release_pages(pool, &page, 1);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    keyed k = keyed_in(s.path);
    assert_int_equal(get(&k, 0, 4, NULL), 3);
    end_keyed(&k);
    end_scratch(&s);
}

static void images_of_live_sequences_do_not_outlive_their_process(void **state) {
    (void)state;
    scratch s = begin_scratch();
    role_process role = begin_role("spill", s.path, NULL);
    wait_ready(&role);
    kill_role(&role);
    pkv_tier *tier = open_file(s.path);
    const pkv_tier_usage usage = tier_stats(tier).usage;
    assert_int_equal(usage.recovered_images, 4);
    assert_int_equal(usage.used_bytes, 4 * image_bytes);
    assert_int_equal(usage.pinned_images, 0);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, 16, &match);
    assert_int_equal(match.tokens, 16);
    check_rows(table, 0, 16, 7);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    end_scratch(&s);
}

/* ---- capacity ---- */

static void case_L26_a_full_file_forgets_what_was_used_least_recently(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.capacity_bytes = 4 * image_bytes + 100; /* whole blocks of 4096 only */
    options.max_images = 0;
    keyed k = keyed_on(open_with(&options));
    assert_int_equal(tier_stats(k.tier).usage.capacity_bytes, 4 * image_bytes);
    options.max_images = 1; /* one for each 64 KiB, at least one */
    end_keyed(&k);
    k = keyed_on(open_with(&options));
    end_keyed(&k);
    unlink(s.path);
    options.max_images = 100;
    k = keyed_on(open_with(&options));
    for (uint32_t i = 0; i < 4; ++i) assert_ok(put(&k, i, 1));
    assert_ok(put(&k, 0, 1)); /* there already: a use of it */
    assert_ok(put(&k, 4, 1));
    assert_ok(put(&k, 5, 1));
    const pkv_tier_usage usage = tier_stats(k.tier).usage;
    assert_int_equal(usage.images, 4);
    assert_int_equal(usage.used_bytes, 4 * image_bytes);
    assert_int_equal(usage.evicted_images, 2);
    pkv_status got[6];
    assert_int_equal(get(&k, 0, 6, got), 4);
    const pkv_status expected[6] = {PKV_OK, PKV_ERR_NOT_FOUND, PKV_ERR_NOT_FOUND, PKV_OK, PKV_OK, PKV_OK};
    assert_memory_equal(got, expected, sizeof got);
    end_keyed(&k);
    /* The order of uses is known to the next life. */
    k = keyed_on(open_with(&options));
    assert_int_equal(tier_stats(k.tier).usage.recovered_images, 4);
    assert_ok(put(&k, 6, 1));
    assert_int_equal(get_one(&k, 3), PKV_ERR_NOT_FOUND);
    assert_ok(put(&k, 7, 1));
    assert_int_equal(get_one(&k, 0), PKV_ERR_NOT_FOUND);
    assert_int_equal(get(&k, 4, 4, NULL), 4);
    struct stat info;
    assert_int_equal(stat(s.path, &info), 0);
    assert_int_equal(info.st_size, file_payload + 4 * image_bytes);
    end_keyed(&k);
    end_scratch(&s);
}

static void case_L26_pinned_images_stay(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.capacity_bytes = 8 * image_bytes;
    pkv_tier *tier = open_with(&options);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, 16, NULL);
    keyed k = keyed_on(tier);
    for (uint32_t i = 0; i < 20; ++i) assert_ok(put(&k, i, 1));
    assert_int_equal(get(&k, 16, 4, NULL), 4);
    pkv_tier_usage usage = tier_stats(tier).usage;
    assert_int_equal(usage.pinned_images, 4);
    assert_int_equal(usage.images, 8);
    assert_int_equal(usage.evicted_images, 16);
    check_rows(table, 0, 16, 7);
    /* Nothing else to forget: no room. */
    pkv_table *other = admit_again(pool, 1, 16, NULL);
    release_pages(k.pool, k.pages, most_keys);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    end_table(table);
    end_table(other);
    usage = tier_stats(tier).usage;
    assert_int_equal(usage.pinned_images, 0);
    assert_in_range(usage.images, 1, 8);
    end_pool(k.pool);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    end_scratch(&s);
}

static void retention_is_kept_from_life_to_life(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.capacity_bytes = 4 * image_bytes;
    pkv_tier *tier = open_with(&options);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.pin = 1;
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, &retention));
    compute(pool, 1, 8, 7);
    flush(pool);
    assert_int_equal(tier_stats(tier).usage.pinned_images, 2);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    keyed k = keyed_on(open_with(&options));
    assert_int_equal(tier_stats(k.tier).usage.pinned_images, 2);
    for (uint32_t i = 0; i < 10; ++i) assert_ok(put(&k, i, 1));
    assert_int_equal(tier_stats(k.tier).usage.evicted_images, 8);
    pool = pool_on(8, k.tier, PKV_TIER_WRITE_BACK);
    pkv_table *table = admit_again(pool, 1, 8, NULL);
    check_rows(table, 0, 8, 7);
    end_table(table);
    end_pool(pool);
    end_keyed(&k);
    end_scratch(&s);
}

static void max_images_bounds_the_number_of_images(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.max_images = 3;
    keyed k = keyed_on(open_with(&options));
    for (uint32_t i = 0; i < 5; ++i) assert_ok(put(&k, i, 1));
    assert_int_equal(tier_stats(k.tier).usage.images, 3);
    assert_int_equal(get(&k, 2, 3, NULL), 3);
    end_keyed(&k);
    k = keyed_on(open_with(&options));
    assert_int_equal(get(&k, 0, 5, NULL), 3);
    end_keyed(&k);
    end_scratch(&s);
}

static void an_image_larger_than_the_file_is_no_space(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.capacity_bytes = image_bytes - PKV_IMAGE_ALIGNMENT;
    keyed k = keyed_on(open_with(&options));
    assert_int_equal(put(&k, 0, 2), PKV_ERR_NO_SPACE);
    assert_int_equal(tier_stats(k.tier).usage.used_bytes, 0);
    assert_int_equal(tier_stats(k.tier).failed_stores, 2);
    assert_int_equal(get(&k, 0, 2, NULL), 0);
    end_keyed(&k);
    end_scratch(&s);
}

/* ---- one process at a time ---- */

static uint64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void a_file_in_use_is_refused_after_the_lock_timeout(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_tier *tier = open_file(s.path);
    const uint64_t begin = milliseconds();
    assert_int_equal(run_role("open", s.path, "60"), -PKV_ERR_BUSY);
    assert_true(milliseconds() - begin >= 60);
    pkv_file_tier_options options = file_options(s.path);
    options.lock_timeout_ns = 5000000;
    refuse_open(&options, PKV_ERR_BUSY, s.path); /* by this process, too */
    options.flags = PKV_FILE_RESET;
    refuse_open(&options, PKV_ERR_BUSY, s.path);
    keyed k = keyed_on(tier);
    assert_ok(put(&k, 0, 4));
    /* One who waits gets it when it is closed. */
    role_process waiting = begin_role("open", s.path, "60000");
    usleep(30000);
    assert_int_equal(get(&k, 0, 4, NULL), 4);
    end_keyed(&k);
    assert_int_equal(end_role(&waiting), 0);
    tier = open_file(s.path);
    assert_int_equal(tier_stats(tier).usage.recovered_images, 4);
    assert_ok(pkv_tier_close(tier));
    end_scratch(&s);
}

static void the_lock_goes_with_a_process_that_is_killed(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, 4);
    role_process role = begin_role("hold", s.path, NULL);
    wait_ready(&role);
    pkv_file_tier_options options = file_options(s.path);
    options.lock_timeout_ns = 5000000;
    refuse_open(&options, PKV_ERR_BUSY, "in use");
    kill_role(&role);
    keyed k = keyed_in(s.path);
    assert_int_equal(get(&k, 0, 4, NULL), 4);
    end_keyed(&k);
    end_scratch(&s);
}

/* ---- files that do not match ---- */

/* Refused, unchanged, and PKV_FILE_RESET makes an empty tier of it. */
static void assert_mismatch(const char *path, const pkv_file_tier_options *wanted, const char *text) {
    const snapshot before = read_file(path);
    refuse_open(wanted, PKV_ERR_MISMATCH, text);
    assert_message(path);
    assert_file(path, &before);
    pkv_file_tier_options options = *wanted;
    options.flags |= PKV_FILE_RESET;
    keyed k = keyed_on(open_with(&options));
    assert_int_equal(tier_stats(k.tier).usage.recovered_images, 0);
    assert_int_equal(get(&k, 0, images, NULL), 0);
    assert_ok(put(&k, 0, 2));
    end_keyed(&k);
    options.flags = wanted->flags;
    k = keyed_on(open_with(&options));
    assert_int_equal(tier_stats(k.tier).usage.recovered_images, 2);
    assert_int_equal(get(&k, 0, 2, NULL), 2);
    end_keyed(&k);
    free(before.bytes);
}

static void a_file_that_was_cut_or_extended_does_not_match(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    const pkv_file_tier_options options = file_options(s.path);
    const size_t sizes[] = {1,
                            100,
                            file_header - 1,
                            file_header,
                            file_header + 1,
                            file_header + 5 * file_record,
                            file_payload,
                            file_payload + 1,
                            file_payload + 3 * image_bytes,
                            good.size - PKV_IMAGE_ALIGNMENT,
                            good.size - 1,
                            good.size + 1,
                            good.size + PKV_IMAGE_ALIGNMENT};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        write_file(s.path, good.bytes, good.size);
        assert_int_equal(truncate(s.path, (off_t)sizes[i]), 0);
        assert_mismatch(s.path, &options, "bytes");
    }
    /* Of no length it is as good as new. */
    write_file(s.path, NULL, 0);
    keyed k = keyed_in(s.path);
    assert_int_equal(tier_stats(k.tier).usage.images, 0);
    assert_int_equal(get(&k, 0, images, NULL), 0);
    assert_ok(put(&k, 0, images));
    end_keyed(&k);
    k = keyed_in(s.path);
    assert_int_equal(get(&k, 0, images, NULL), images);
    end_keyed(&k);
    free(good.bytes);
    end_scratch(&s);
}

static void a_file_that_is_none_of_ours_does_not_match(void **state) {
    (void)state;
    scratch s = begin_scratch();
    const pkv_file_tier_options options = file_options(s.path);
    unsigned char *bytes = calloc(1, 1 << 20);
    write_file(s.path, "letters to a friend\n", 20);
    assert_mismatch(s.path, &options, "20 bytes");
    write_file(s.path, bytes, 1 << 20);
    assert_mismatch(s.path, &options, "no file of a file tier");
    test_random random = {7};
    for (int i = 0; i < 1 << 20; ++i) bytes[i] = (unsigned char)next_random(&random);
    write_file(s.path, bytes, 1 << 20);
    assert_mismatch(s.path, &options, "no file of a file tier");
    free(bytes);
    end_scratch(&s);
}

static void a_file_made_for_something_else_does_not_match(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    pkv_file_tier_options options = file_options(s.path);
    options.identity = bytes_of("a model");
    assert_mismatch(s.path, &options, "identity");
    options.identity = bytes_of("a model "); /* the file is the first one's now */
    assert_mismatch(s.path, &options, "identity");
    options.identity = bytes_of("");
    assert_mismatch(s.path, &options, "identity");
    options = file_options(s.path);
    const int64_t changes[] = {PKV_IMAGE_ALIGNMENT, -PKV_IMAGE_ALIGNMENT, file_images * image_bytes};
    for (int i = 0; i < 3; ++i) {
        write_file(s.path, good.bytes, good.size);
        options.capacity_bytes = (uint64_t)(file_images * image_bytes + changes[i]);
        assert_mismatch(s.path, &options, "capacity");
    }
    options = file_options(s.path);
    for (uint64_t max = file_images - 1; max <= file_images + 1; max += 2) {
        write_file(s.path, good.bytes, good.size);
        options.max_images = max;
        assert_mismatch(s.path, &options, "made for");
    }
    free(good.bytes);
    end_scratch(&s);
}

static void an_identity_may_have_any_bytes(void **state) {
    (void)state;
    scratch s = begin_scratch();
    static const char longest[4097] = {1};
    pkv_file_tier_options options = file_options(s.path);
    options.identity.data = longest;
    options.identity.size = 4096;
    assert_ok(try_open(&options));
    assert_ok(try_open(&options));
    options.identity.size = 4095;
    refuse_open(&options, PKV_ERR_MISMATCH, "identity");
    options.identity.size = 4097;
    refuse_open(&options, PKV_ERR_LIMIT, "4097");
    end_scratch(&s);
}

static void a_file_of_another_version_or_byte_order_does_not_match(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    const pkv_file_tier_options options = file_options(s.path);
    uint64_t magic;
    uint32_t order, version;
    memcpy(&magic, good.bytes, 8);
    memcpy(&order, good.bytes + 8, 4);
    memcpy(&version, good.bytes + 12, 4);
    const uint64_t swapped_magic = __builtin_bswap64(magic);
    const uint32_t swapped_order = __builtin_bswap32(order), older = version - 1, newer = version + 1, far = UINT32_MAX;
    const struct {
        uint64_t offset;
        const void *bytes;
        size_t size;
        const char *text;
    } patches[] = {{0, &swapped_magic, 8, "byte order"}, {8, &swapped_order, 4, "byte order"},
                   {12, &older, 4, "format version"},    {12, &newer, 4, "format version"},
                   {12, &far, 4, "format version"},      {0, "SQLite format 3", 16, "no file of a file tier"}};
    for (size_t i = 0; i < sizeof patches / sizeof *patches; ++i) {
        write_file(s.path, good.bytes, good.size);
        patch_file(s.path, patches[i].offset, patches[i].bytes, patches[i].size);
        assert_mismatch(s.path, &options, patches[i].text);
    }
    free(good.bytes);
    end_scratch(&s);
}

enum { header_used = 144, state_at = 512, state_used = 24 };

static void a_damaged_header_does_not_match(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    const pkv_file_tier_options options = file_options(s.path);
    for (uint64_t at = 0; at < header_used; ++at) {
        const unsigned char other = good.bytes[at] ^ (unsigned char)(1 << at % 8);
        patch_file(s.path, at, &other, 1);
        refuse_open(&options, PKV_ERR_MISMATCH, s.path);
        patch_file(s.path, at, &good.bytes[at], 1);
        assert_file(s.path, &good);
    }
    /* What it says contradicts itself, with a checksum that is right. */
    const uint64_t fields[] = {16, 24, 32, 40, 48};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i)
        for (int kind = 0; kind < 3; ++kind) {
            unsigned char header[header_used];
            memcpy(header, good.bytes, header_used);
            uint64_t value;
            memcpy(&value, header + fields[i], 8);
            value = kind == 0 ? 0 : kind == 1 ? UINT64_MAX - 4095 : value + 1;
            memcpy(header + fields[i], &value, 8);
            const uint64_t sum = XXH3_64bits(header, header_used - 8);
            memcpy(header + header_used - 8, &sum, 8);
            patch_file(s.path, 0, header, header_used);
            refuse_open(&options, PKV_ERR_MISMATCH, s.path);
        }
    assert_mismatch(s.path, &options, s.path);
    free(good.bytes);
    end_scratch(&s);
}

static void a_torn_write_of_the_state_costs_nothing(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    for (uint64_t at = state_at; at < state_at + state_used; ++at) {
        const unsigned char other = good.bytes[at] ^ (unsigned char)(1 << at % 8);
        patch_file(s.path, at, &other, 1);
        pkv_tier *tier = open_file(s.path);
        assert_int_equal(tier_stats(tier).usage.recovered_images, images);
        assert_ok(pkv_tier_close(tier));
    }
    keyed k = keyed_in(s.path);
    assert_int_equal(get(&k, 0, images, NULL), images);
    end_keyed(&k);
    free(good.bytes);
    end_scratch(&s);
}

/* ---- records ---- */

/* Where the record of image `number` is, in a file with images [0, images). */
static uint64_t record_of(const snapshot *file, uint32_t number) {
    const pkv_tier_key key = key_of(number);
    for (uint64_t at = file_header; at < file_header + file_images * file_record; at += file_record)
        if (memcmp(file->bytes + at + 16, &key, sizeof key) == 0) return at;
    fail_msg("no record of image %u", number);
    return 0;
}

static void a_damaged_record_costs_its_image_only(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    const uint64_t record = record_of(&good, 7);
    for (uint64_t at = 0; at < file_record; ++at) {
        patch_file(s.path, 0, good.bytes, file_payload);
        const unsigned char other = good.bytes[record + at] ^ (unsigned char)(1 << at % 8);
        patch_file(s.path, record + at, &other, 1);
        pkv_tier *tier = open_file(s.path);
        assert_int_equal(tier_stats(tier).usage.recovered_images, images - 1);
        if (at % 16 == 0) {
            keyed k = keyed_on(tier);
            assert_int_equal(get_one(&k, 7), PKV_ERR_NOT_FOUND);
            assert_int_equal(get(&k, 0, images, NULL), images - 1);
            assert_ok(put(&k, 7, 1)); /* and its place is free */
            assert_int_equal(get(&k, 0, images, NULL), images);
            end_keyed(&k);
        } else {
            assert_ok(pkv_tier_close(tier));
        }
    }
    free(good.bytes);
    end_scratch(&s);
}

/* Changes one 64-bit field of the record of image 7, whose checksum stays right. */
static void assert_record_refused(const char *path, const snapshot *good, uint64_t field, uint64_t value) {
    const uint64_t at = record_of(good, 7);
    unsigned char record[file_record];
    memcpy(record, good->bytes + at, file_record);
    memcpy(record + field, &value, 8);
    const uint64_t sum = XXH3_64bits(record, file_record - 8);
    memcpy(record + file_record - 8, &sum, 8);
    patch_file(path, 0, good->bytes, file_payload);
    patch_file(path, at, record, file_record);
    keyed k = keyed_in(path);
    assert_int_equal(tier_stats(k.tier).usage.recovered_images, images - 1);
    assert_int_equal(get(&k, 0, images, NULL), images - 1);
    assert_ok(put(&k, 100, 12));
    assert_int_equal(get(&k, 100, 12, NULL), 12);
    end_keyed(&k);
}

static void a_record_that_leads_out_of_the_file_is_no_image(void **state) {
    (void)state;
    enum { offset_field = 48, size_field = 56 };
    const uint64_t end = file_images * image_bytes;
    const uint64_t offsets[] = {end, end - image_bytes + PKV_IMAGE_ALIGNMENT, UINT64_MAX - 4095,
                                UINT64_MAX - image_bytes + 1, 100};
    const uint64_t sizes[] = {0, 4095, end + PKV_IMAGE_ALIGNMENT, UINT64_MAX - 4095};
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; ++i)
        assert_record_refused(s.path, &good, offset_field, offsets[i]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        assert_record_refused(s.path, &good, size_field, sizes[i]);
    free(good.bytes);
    end_scratch(&s);
}

static void two_records_of_one_place_or_one_key_are_one_image(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    const uint64_t first = record_of(&good, 3), second = record_of(&good, 4);
    for (int kind = 0; kind < 2; ++kind) {
        /* Record 4 gets the place of image 3, or its key. */
        unsigned char record[file_record];
        memcpy(record, good.bytes + second, file_record);
        if (kind == 0)
            memcpy(record + 48, good.bytes + first + 48, 8);
        else
            memcpy(record + 16, good.bytes + first + 16, sizeof(pkv_tier_key));
        const uint64_t sum = XXH3_64bits(record, file_record - 8);
        memcpy(record + file_record - 8, &sum, 8);
        patch_file(s.path, 0, good.bytes, file_payload);
        patch_file(s.path, second, record, file_record);
        keyed k = keyed_in(s.path);
        assert_int_equal(tier_stats(k.tier).usage.recovered_images, images - 1);
        /* Either of them was believed; what comes is right or nothing. */
        assert_in_range(get(&k, 0, images, NULL), images - 2, images - 1);
        assert_ok(put(&k, 100, 12));
        assert_int_equal(get(&k, 100, 12, NULL), 12);
        end_keyed(&k);
    }
    free(good.bytes);
    end_scratch(&s);
}

static void a_record_in_anothers_place_is_no_image(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    patch_file(s.path, record_of(&good, 4), good.bytes + record_of(&good, 3), file_record);
    keyed k = keyed_in(s.path);
    assert_int_equal(get_one(&k, 4), PKV_ERR_NOT_FOUND);
    assert_int_equal(get(&k, 0, images, NULL), images - 1);
    end_keyed(&k);
    free(good.bytes);
    end_scratch(&s);
}

static void case_L17_records_of_an_earlier_life_are_no_images(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    pkv_file_tier_options options = file_options(s.path);
    options.flags = PKV_FILE_RESET;
    keyed k = keyed_on(open_with(&options));
    assert_ok(put(&k, 100, 3));
    end_keyed(&k);
    /* All old records but the first three, as a lost write would leave them. */
    patch_file(s.path, file_header + 3 * file_record, good.bytes + file_header + 3 * file_record,
               (file_images - 3) * file_record);
    k = keyed_in(s.path);
    assert_int_equal(tier_stats(k.tier).usage.recovered_images, 3);
    assert_int_equal(get(&k, 0, images, NULL), 0);
    assert_int_equal(get(&k, 100, 3, NULL), 3);
    end_keyed(&k);
    free(good.bytes);
    end_scratch(&s);
}

static void damaged_images_are_misses_and_forgotten(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    const snapshot good = read_file(s.path);
    /* Header, its padding, slices and their padding. */
    const uint64_t places[] = {0, 77, 3000, 4096, 4096 + 127, 8191, 12287};
    enum { damaged = sizeof places / sizeof *places };
    for (uint32_t i = 0; i < damaged; ++i) {
        uint64_t offset;
        memcpy(&offset, good.bytes + record_of(&good, i) + 48, 8);
        const uint64_t at = file_payload + offset + places[i];
        const unsigned char other = good.bytes[at] ^ 16;
        patch_file(s.path, at, &other, 1);
    }
    keyed k = keyed_in(s.path);
    for (uint32_t i = 0; i < images; ++i) assert_int_equal(get_one(&k, i), i < damaged ? PKV_ERR_IO : PKV_OK);
    soon(tier_stats(k.tier).usage.images == images - damaged);
    assert_int_equal(tier_stats(k.tier).checksum_failures, damaged);
    assert_int_equal(tier_stats(k.tier).failed_loads, damaged);
    for (uint32_t i = 0; i < damaged; ++i) assert_int_equal(get_one(&k, i), PKV_ERR_NOT_FOUND);
    assert_int_equal(tier_stats(k.tier).checksum_failures, damaged);
    end_keyed(&k);
    free(good.bytes);
    end_scratch(&s);
}

static void case_J22_images_in_a_hole_of_the_file_are_misses(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, images);
    /* The file has its length again, but half of its bytes are zeros. */
    struct stat info;
    wait_closed(s.path);
    assert_int_equal(stat(s.path, &info), 0);
    assert_int_equal(truncate(s.path, file_payload + images / 2 * image_bytes), 0);
    assert_int_equal(truncate(s.path, info.st_size), 0);
    keyed k = keyed_in(s.path);
    uint64_t good = 0;
    for (uint32_t i = 0; i < images; ++i) { /* one after the other: no eight failures in a row */
        if (i % 4 == 0) assert_ok(put(&k, 200 + i, 1));
        good += get_one(&k, i) == PKV_OK;
    }
    assert_int_equal(good, images / 2);
    assert_int_equal(get(&k, 0, images, NULL), images / 2);
    assert_int_equal(tier_stats(k.tier).checksum_failures, images - images / 2);
    end_keyed(&k);
    end_scratch(&s);
}

/* ---- places ---- */

static void paths_that_are_no_files_are_refused(void **state) {
    (void)state;
    scratch s = begin_scratch();
    char path[256];
    pkv_file_tier_options options = file_options(path);
    (void)snprintf(path, sizeof path, "%s/no-folder/images", s.folder);
    refuse_open(&options, PKV_ERR_IO, path);
    refuse_open(&options, PKV_ERR_IO, "No such file or directory");
    (void)snprintf(path, sizeof path, "%s", s.folder);
    refuse_open(&options, PKV_ERR_IO, "Is a directory");
    (void)snprintf(path, sizeof path, "%s/", s.folder);
    refuse_open(&options, PKV_ERR_IO, path);
    (void)snprintf(path, sizeof path, "/dev/null");
    refuse_open(&options, PKV_ERR_INVALID, "not a regular file");
    path[0] = '\0';
    refuse_open(&options, PKV_ERR_INVALID, "empty");
    memset(path, 'x', 255);
    path[255] = '\0';
    char *far = malloc(5000);
    memset(far, '/', 4999);
    far[4999] = '\0';
    memcpy(far + 4600, path, 255);
    options.path = far;
    refuse_open(&options, PKV_ERR_IO, "opening");
    free(far);
    options.path = NULL;
    refuse_open(&options, PKV_ERR_INVALID, "NULL");
    assert_int_equal(mkfifo(s.path, 0600), 0);
    options.path = s.path;
    refuse_open(&options, PKV_ERR_INVALID, "not a regular file");
    end_scratch(&s);
}

static void symbolic_links_are_followed_but_not_to_nowhere(void **state) {
    (void)state;
    scratch s = begin_scratch();
    char link[200];
    (void)snprintf(link, sizeof link, "%s/link", s.folder);
    assert_int_equal(symlink("images", link), 0);
    pkv_file_tier_options options = file_options(link);
    refuse_open(&options, PKV_ERR_IO, link);
    assert_false(file_is_there(s.path));
    make_file(s.path, 4);
    keyed k = keyed_on(open_with(&options));
    assert_int_equal(get(&k, 0, 4, NULL), 4);
    options.path = s.path;
    options.lock_timeout_ns = 5000000;
    refuse_open(&options, PKV_ERR_BUSY, s.path);
    end_keyed(&k);
    unlink(link);
    end_scratch(&s);
}

static void files_without_permission_are_refused(void **state) {
    (void)state;
    scratch s = begin_scratch();
    make_file(s.path, 4);
    const snapshot good = read_file(s.path);
    assert_int_equal(chmod(s.folder, 0755), 0);
    if (geteuid() == 0) assert_int_equal(chown(s.path, 65534, 65534), 0);
    const mode_t modes[] = {0444, 0222, 0};
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(chmod(s.path, modes[i]), 0);
        assert_int_equal(run_role("open-as-nobody", s.path, NULL), -PKV_ERR_IO);
    }
    assert_int_equal(chmod(s.path, 0600), 0);
    assert_file(s.path, &good);
    assert_int_equal(run_role("open-as-nobody", s.path, NULL), 0);
    /* No file, and none may be made. */
    unlink(s.path);
    assert_int_equal(chmod(s.folder, 0555), 0);
    assert_int_equal(run_role("open-as-nobody", s.path, NULL), -PKV_ERR_IO);
    assert_false(file_is_there(s.path));
    assert_int_equal(chmod(s.folder, 0700), 0);
    free(good.bytes);
    end_scratch(&s);
}

static void sizes_beyond_the_limits_leave_no_file(void **state) {
    (void)state;
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.capacity_bytes = UINT64_C(1) << 57;
    refuse_open(&options, PKV_ERR_LIMIT, "too large");
    options.capacity_bytes = UINT64_MAX;
    refuse_open(&options, PKV_ERR_LIMIT, "too large");
    options = file_options(s.path);
    options.max_images = UINT64_C(1) << 32;
    refuse_open(&options, PKV_ERR_LIMIT, "too large");
    options.max_images = UINT64_MAX;
    refuse_open(&options, PKV_ERR_LIMIT, "too large");
    options = file_options(s.path);
    for (options.capacity_bytes = 0; options.capacity_bytes < 4096; options.capacity_bytes += 4095)
        refuse_open(&options, PKV_ERR_INVALID, "capacity_bytes");
    assert_false(file_is_there(s.path));
    /* A file that is there is not touched, also when it was to be reset. */
    make_file(s.path, 4);
    const snapshot good = read_file(s.path);
    options.capacity_bytes = UINT64_C(1) << 57;
    options.flags = PKV_FILE_RESET;
    refuse_open(&options, PKV_ERR_LIMIT, "too large");
    assert_file(s.path, &good);
    free(good.bytes);
    end_scratch(&s);
}

static void case_L10_a_file_system_without_room_keeps_no_file(void **state) {
    (void)state;
    struct statfs info;
    if (statfs("/dev/shm", &info) != 0 || info.f_type != 0x01021994 || info.f_blocks == 0 ||
        access("/dev/shm", W_OK) != 0)
        skip(); /* no tmpfs with a limit: it says so at once, without filling itself first */
    char path[64] = "/dev/shm/pkv-file-XXXXXX";
    assert_non_null(mkdtemp(path));
    strcat(path, "/images");
    pkv_file_tier_options options = file_options(path);
    options.capacity_bytes = 2 * (uint64_t)info.f_blocks * (uint64_t)info.f_bsize;
    refuse_open(&options, PKV_ERR_NO_SPACE, "No space left on device");
    assert_message(path);
    assert_false(file_is_there(path));
    /* A file of the same name with less room is made as ever. */
    options = file_options(path);
    keyed k = keyed_on(open_with(&options));
    assert_ok(put(&k, 0, images));
    assert_int_equal(get(&k, 0, images, NULL), images);
    end_keyed(&k);
    /* One that was to be reset to more than there is has lost its images, and is taken for a new one. */
    options.flags = PKV_FILE_RESET;
    options.capacity_bytes = 2 * (uint64_t)info.f_blocks * (uint64_t)info.f_bsize;
    refuse_open(&options, PKV_ERR_NO_SPACE, path);
    k = keyed_in(path);
    assert_int_equal(get(&k, 0, images, NULL), 0);
    end_keyed(&k);
    unlink(path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
}

int main(int argc, char **argv) {
    play_role(argc, argv, roles, sizeof roles / sizeof *roles);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_is_its_owners_and_has_its_size),
        cmocka_unit_test(case_L20_images_are_found_again_after_a_restart),
        cmocka_unit_test(a_prompt_is_found_by_the_next_process_with_another_seed),
        cmocka_unit_test(another_models_pool_finds_nothing),
        cmocka_unit_test(case_L23_a_pool_of_another_geometry_gets_none_of_the_bytes),
        cmocka_unit_test(images_of_live_sequences_do_not_outlive_their_process),
        cmocka_unit_test(case_L26_a_full_file_forgets_what_was_used_least_recently),
        cmocka_unit_test(case_L26_pinned_images_stay),
        cmocka_unit_test(retention_is_kept_from_life_to_life),
        cmocka_unit_test(max_images_bounds_the_number_of_images),
        cmocka_unit_test(an_image_larger_than_the_file_is_no_space),
        cmocka_unit_test(a_file_in_use_is_refused_after_the_lock_timeout),
        cmocka_unit_test(the_lock_goes_with_a_process_that_is_killed),
        cmocka_unit_test(a_file_that_was_cut_or_extended_does_not_match),
        cmocka_unit_test(a_file_that_is_none_of_ours_does_not_match),
        cmocka_unit_test(a_file_made_for_something_else_does_not_match),
        cmocka_unit_test(an_identity_may_have_any_bytes),
        cmocka_unit_test(a_file_of_another_version_or_byte_order_does_not_match),
        cmocka_unit_test(a_damaged_header_does_not_match),
        cmocka_unit_test(a_torn_write_of_the_state_costs_nothing),
        cmocka_unit_test(a_damaged_record_costs_its_image_only),
        cmocka_unit_test(a_record_that_leads_out_of_the_file_is_no_image),
        cmocka_unit_test(two_records_of_one_place_or_one_key_are_one_image),
        cmocka_unit_test(a_record_in_anothers_place_is_no_image),
        cmocka_unit_test(case_L17_records_of_an_earlier_life_are_no_images),
        cmocka_unit_test(damaged_images_are_misses_and_forgotten),
        cmocka_unit_test(case_J22_images_in_a_hole_of_the_file_are_misses),
        cmocka_unit_test(paths_that_are_no_files_are_refused),
        cmocka_unit_test(symbolic_links_are_followed_but_not_to_nowhere),
        cmocka_unit_test(files_without_permission_are_refused),
        cmocka_unit_test(sizes_beyond_the_limits_leave_no_file),
        cmocka_unit_test(case_L10_a_file_system_without_room_keeps_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
