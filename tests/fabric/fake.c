/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in over a libfabric that behaves as this machine's providers do not (fake/fake.h). */
#include "fabric/fake/fake.h"
#include "fabric/fabric.h"

#include <sys/resource.h>

static struct fake_settings *(*settings_of)(void);
static struct fake_counts (*counts_of)(void);
static void (*reset)(void);
static struct fake_settings *settings;

static bool load_fake(void) {
    if (settings != NULL) return true;
    char path[8192];
    build_path(path, sizeof path, "tests/fabric/libfake-fabric.so");
    void *fake = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (fake == NULL) return false;
    *(void **)&settings_of = dlsym(fake, "fake_settings");
    *(void **)&counts_of = dlsym(fake, "fake_counts");
    *(void **)&reset = dlsym(fake, "fake_reset");
    if (!load_fabric()) return false;
    settings = settings_of();
    return true;
}

static int set_up(void **state) {
    (void)state;
    if (load_fake()) reset();
    return 0;
}

#define need_fake()                                                                                                    \
    if (settings == NULL) skip()

enum { owner_seed = 5, some_error = EIO };

struct pair {
    struct node reader, owner;
    struct peer to_owner, to_reader;
};

static void open_pair(struct pair *pair, uint64_t bytes) {
    assert_true(open_node(&pair->reader, "fake", bytes, 4));
    assert_true(open_node(&pair->owner, "fake", bytes, owner_seed));
    open_peer(&pair->reader, &pair->to_owner);
    open_peer(&pair->owner, &pair->to_reader);
    connect_peers(&pair->to_owner, &pair->to_reader);
}

static void close_pair(struct pair *pair) {
    fabric->endpoint_close(pair->to_owner.endpoint);
    fabric->endpoint_close(pair->to_reader.endpoint);
    close_node(&pair->reader);
    close_node(&pair->owner);
    const struct fake_counts counts = counts_of();
    assert_int_equal(counts.registrations, 0);
    assert_int_equal(counts.mapped_keys, 0);
    assert_int_equal(counts.objects, 0);
}

static void expect_read(struct pair *pair, uint64_t at, uint64_t bytes, uint64_t offset) {
    memset(pair->reader.data, 0xEE, pair->reader.bytes);
    assert_int_equal(read_now(&pair->reader, &pair->to_owner, &pair->owner, at, bytes, offset), PKV_OK);
    assert_true(holds(pair->reader.data + at, bytes, owner_seed, offset));
    assert_true(all_are(pair->reader.data, at, 0xEE));
    assert_true(all_are(pair->reader.data + at + bytes, pair->reader.bytes - at - bytes, 0xEE));
}

/* Addresses of a peer's memory were taken for offsets, or the other way round, with a provider of the other kind. */
static void case_N01_addresses_are_the_peers_or_offsets(void **state) {
    (void)state;
    need_fake();
    for (int mode = 0; mode < 4; ++mode) {
        reset();
        settings->virtual_addresses = mode % 2;
        settings->max_registration = mode / 2 * 65536;
        struct pair pair;
        open_pair(&pair, 1 << 18);
        assert_int_equal(modes_of(&pair.reader).virtual_addresses, mode % 2);
        const uint64_t address = mode % 2 != 0 ? (uint64_t)(uintptr_t)pair.owner.memory : 0;
        assert_int_equal(pair.owner.windows[0].address, address);
        if (mode == 3) assert_int_equal(pair.owner.windows[1].address, address + pair.owner.windows[0].bytes);
        if (mode == 2) assert_int_equal(pair.owner.windows[1].address, 0);
        expect_read(&pair, 0, 1, 0);
        expect_read(&pair, 3, 100000, 12345);
        expect_read(&pair, 0, pair.owner.bytes, 0);
        close_pair(&pair);
    }
}

/* Keys that are longer than 8 bytes were cut to 8. */
static void case_N02_long_keys_travel_whole(void **state) {
    (void)state;
    need_fake();
    settings->raw_keys = settings->provider_keys = settings->virtual_addresses = 1;
    settings->key_bytes = fake_raw_key_bytes;
    settings->max_registration = 65536;
    struct pair pair;
    open_pair(&pair, 1 << 18);
    assert_int_equal(modes_of(&pair.reader).raw_keys, 1);
    assert_int_equal(modes_of(&pair.reader).key_bytes, fake_raw_key_bytes);
    assert_int_equal(pair.owner.num_windows, 4);
    for (int i = 0; i < 4; ++i) assert_true(pair.owner.windows[i].key_bytes >= fake_raw_key_bytes);
    expect_read(&pair, 0, pair.owner.bytes, 0);
    expect_read(&pair, 77, 100000, 50000);
    assert_int_equal(counts_of().mapped_keys, 4); /* each once */
    struct node lie = pair.owner;
    lie.windows[0].key[lie.windows[0].key_bytes - 1] ^= 0x80;
    struct result result;
    assert_int_equal(begin_read(&pair.reader, &pair.to_owner, &lie, 0, 1, 0, never, &result), PKV_ERR_IO);
    close_pair(&pair);
}

static void providers_may_choose_keys_of_64_bits(void **state) {
    (void)state;
    need_fake();
    settings->provider_keys = 1;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    assert_int_equal(modes_of(&pair.reader).provider_keys, 1);
    expect_read(&pair, 0, 5000, 1);
    close_pair(&pair);
}

static void keys_are_as_wide_as_the_provider_takes_them(void **state) {
    (void)state;
    need_fake();
    settings->key_bytes = 2; /* so few that some are taken */
    struct node node;
    assert_true(open_node(&node, "fake", 1 << 16, 1));
    pkv_fabric_region *regions[200];
    uint64_t bits = 0;
    for (int i = 0; i < 200; ++i) {
        assert_fabric(fabric->add_memory(node.domain, node.memory, 64, 1, &regions[i], why, sizeof why), PKV_OK);
        assert_true(counts_of().last_key < 1 << 16);
        bits |= counts_of().last_key;
    }
    assert_int_equal(bits, 0xFFFF);
    for (int i = 0; i < 200; ++i) fabric->remove_memory(regions[i]);
    close_node(&node);
}

/* A message above the provider's limit failed, or was said to be done after its first part. */
static void case_N04_a_message_above_the_limit_goes_in_three_parts(void **state) {
    (void)state;
    need_fake();
    settings->max_message = 4096;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    const uint64_t before = counts_of().reads;
    struct result result;
    assert_int_equal(begin_read(&pair.reader, &pair.to_owner, &pair.owner, 0, 2 * 4096 + 1, 100, never, &result),
                     PKV_OK);
    assert_true(wait_for(&result));
    sleep_ms(20);
    assert_int_equal(result.calls, 1);
    assert_int_equal(result.status, PKV_OK);
    assert_true(holds(pair.reader.data, 2 * 4096 + 1, owner_seed, 100));
    assert_int_equal(counts_of().reads - before, 3);
    assert_int_equal(counts_of().longest_read, 4096);
    expect_read(&pair, 1, 4096, 0);
    assert_int_equal(counts_of().reads - before, 4);
    close_pair(&pair);
}

/* Memory that was longer than a registration may be could not be lent at all. */
static void case_N05_a_region_above_the_limit_takes_two_registrations(void **state) {
    (void)state;
    need_fake();
    settings->max_registration = 100000;
    settings->virtual_addresses = 1;
    struct node node;
    assert_true(open_node(&node, "fake", 1 << 17, owner_seed));
    assert_int_equal(node.num_windows, 2);
    assert_int_equal(node.windows[0].bytes + node.windows[1].bytes, node.bytes);
    assert_true(memcmp(node.windows[0].key, node.windows[1].key, 8) != 0);
    assert_int_equal(counts_of().registrations, 2); /* none for the target */
    assert_int_equal(modes_of(&node).max_region, 65536);
    close_node(&node);

    /* Reads that cross the cut, on both sides. */
    settings->local_regions = 1;
    struct pair pair;
    open_pair(&pair, 1 << 17);
    expect_read(&pair, 65536 - 7, 100, 65536 - 50);
    expect_read(&pair, 0, pair.owner.bytes, 0);
    assert_int_equal(counts_of().longest_read, 65536);
    close_pair(&pair);

    /* More pieces than fit into a window list. */
    reset();
    settings->max_registration = 65536;
    assert_true(open_node(&node, "fake", 1 << 16, 1));
    unsigned char *memory = map(65 * 65536);
    pkv_fabric_region *region = NULL;
    assert_fabric(fabric->add_memory(node.domain, memory, 64 * 65536, 1, &region, why, sizeof why), PKV_OK);
    assert_int_equal(fabric->windows(region, NULL, 0), 64);
    fabric->remove_memory(region);
    assert_int_equal(fabric->add_memory(node.domain, memory, 65 * 65536, 1, &region, why, sizeof why), PKV_ERR_LIMIT);
    assert_non_null(strstr(why, "65536"));
    assert_null(region);
    munmap(memory, 65 * 65536);
    close_node(&node);
    assert_int_equal(counts_of().registrations, 0);
}

static void too_many_registrations_are_said_to_be(void **state) {
    (void)state;
    need_fake();
    settings->max_registrations = 3;
    struct node node;
    assert_true(open_node(&node, "fake", 1 << 16, 1));
    assert_int_equal(modes_of(&node).max_regions, 3);
    pkv_fabric_region *regions[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 2; ++i)
        assert_fabric(fabric->add_memory(node.domain, node.memory, 64, 1, &regions[i], why, sizeof why), PKV_OK);
    assert_int_equal(fabric->add_memory(node.domain, node.memory, 64, 1, &regions[2], why, sizeof why), PKV_ERR_LIMIT);
    assert_non_null(strstr(why, "3 registrations"));
    for (int i = 0; i < 2; ++i) fabric->remove_memory(regions[i]);
    close_node(&node);
}

/* "Cannot allocate memory" was all that was said when the limit of locked memory was in the way. */
static void case_N17_the_limit_of_locked_memory_is_named(void **state) {
    (void)state;
    need_fake();
    settings->locks_memory = 1;
    struct rlimit before, low;
    getrlimit(RLIMIT_MEMLOCK, &before);
    low = before;
    low.rlim_cur = 300000;
    if (before.rlim_max != RLIM_INFINITY && before.rlim_max < low.rlim_cur) skip();
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    struct node node;
    assert_true(open_node(&node, "fake", 1 << 16, 1));
    unsigned char *memory = map(1 << 20);
    pkv_fabric_region *region = NULL;
    assert_int_equal(fabric->add_memory(node.domain, memory, 1 << 20, 1, &region, why, sizeof why), PKV_ERR_LIMIT);
    assert_non_null(strstr(why, "1048576"));
    assert_non_null(strstr(why, "300000"));
    assert_non_null(strstr(why, "65536")); /* that node's own memory */
    assert_non_null(strstr(why, "RLIMIT_MEMLOCK"));
    assert_int_equal(counts_of().registrations, 1); /* nothing is left of the try */
    assert_fabric(fabric->add_memory(node.domain, memory, 1 << 17, 1, &region, why, sizeof why), PKV_OK);
    fabric->remove_memory(region);
    setrlimit(RLIMIT_MEMLOCK, &before);
    munmap(memory, 1 << 20);
    close_node(&node);
}

static void targets_are_registered_where_they_have_to_be(void **state) {
    (void)state;
    need_fake();
    settings->local_regions = 1;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    assert_int_equal(counts_of().registrations, 4);
    assert_int_equal(fabric->windows(pair.reader.target, NULL, 0), 0); /* and are nobody else's */
    expect_read(&pair, 10, 20000, 30);
    close_pair(&pair);
}

static void memory_is_lent_for_reading_only(void **state) {
    (void)state;
    need_fake();
    settings->local_regions = 1;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    assert_int_equal(counts_of().access, (1u << 8 | 1u << 12)); /* FI_READ, FI_REMOTE_READ */
    close_pair(&pair);
}

static void a_provider_that_is_busy_is_asked_again(void **state) {
    (void)state;
    need_fake();
    settings->max_message = 1000;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    settings->again = 50;
    expect_read(&pair, 0, 20000, 0);
    settings->again = -1;
    struct result result;
    const uint64_t begin = now_ns();
    assert_int_equal(begin_read(&pair.reader, &pair.to_owner, &pair.owner, 0, 4096, 0, begin + second / 10, &result),
                     PKV_OK);
    assert_true(wait_for(&result));
    assert_int_equal(result.status, PKV_ERR_TIMEOUT);
    assert_true(result.at >= begin + second / 10 && result.at < begin + 20 * second);
    assert_int_equal(begin_read(&pair.reader, &pair.to_owner, &pair.owner, 0, 4096, 0, never, &result), PKV_ERR_STATE);
    close_pair(&pair);
}

enum { reads = 20 };
static struct result results[reads];

static void begin_reads(struct pair *pair, uint64_t deadline_ns) {
    for (uint64_t i = 0; i < reads; ++i)
        assert_int_equal(begin_read(&pair->reader, &pair->to_owner, &pair->owner, i * 3000, 3000, i * 3000, deadline_ns,
                                    &results[i]),
                         PKV_OK);
}

static void parts_may_end_in_any_order(void **state) {
    (void)state;
    need_fake();
    settings->reversed = 1;
    settings->max_message = 100;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    for (int round = 0; round < 10; ++round) {
        memset(pair.reader.data, 0xEE, pair.reader.bytes);
        begin_reads(&pair, never);
        for (uint64_t i = 0; i < reads; ++i) {
            assert_true(wait_for(&results[i]));
            assert_int_equal(results[i].status, PKV_OK);
            assert_int_equal(results[i].calls, 1);
            assert_true(holds(pair.reader.data + i * 3000, 3000, owner_seed, i * 3000));
        }
    }
    close_pair(&pair);
}

static void without_a_descriptor_the_thread_looks_now_and_then(void **state) {
    (void)state;
    need_fake();
    settings->no_descriptor = 1;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    assert_int_equal(modes_of(&pair.reader).sleeps, 0);
    for (uint64_t i = 0; i < 20; ++i) expect_read(&pair, i, 1000, 2 * i);
    close_pair(&pair);
}

/* An error that named no read left them all waiting. */
static void case_N08_an_error_without_a_read_ends_them_all_once(void **state) {
    (void)state;
    need_fake();
    settings->max_message = 1000;
    struct pair pair;
    open_pair(&pair, 1 << 16);
    settings->fail_at = counts_of().reads + 31; /* in the eleventh */
    settings->without_context = 1;
    settings->held = 1;
    begin_reads(&pair, never);
    settings->held = 0;
    for (int i = 0; i < reads; ++i) {
        assert_true(wait_for(&results[i]));
        assert_int_equal(results[i].status, i < 10 ? PKV_OK : PKV_ERR_IO);
        if (i >= 10) assert_int_equal(results[i].error, some_error);
    }
    fabric->endpoint_close(pair.to_owner.endpoint);
    pair.to_owner.endpoint = NULL;
    for (int i = 0; i < reads; ++i) assert_int_equal(results[i].calls, 1);
    close_pair(&pair);
}

/* What the provider had to say about an error was looked at after it had been overwritten. */
static void case_N10_error_data_is_copied_at_once(void **state) {
    (void)state;
    need_fake();
    for (int own = 0; own < 2; ++own) {
        struct pair pair;
        reset();
        settings->own_error_data = own;
        open_pair(&pair, 1 << 16);
        settings->fail_at = counts_of().reads + 1;
        assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, 1000, 0), PKV_ERR_IO);
        char text[256];
        const size_t length = fabric->endpoint_failure(pair.to_owner.endpoint, text, sizeof text);
        assert_int_equal(length, strlen(text));
        assert_non_null(strstr(text, "fake error 77: cable pulled"));
        char cut[8];
        assert_int_equal(fabric->endpoint_failure(pair.to_owner.endpoint, cut, sizeof cut), length);
        assert_int_equal(strlen(cut), sizeof cut - 1);
        assert_int_equal(fabric->endpoint_failure(pair.to_reader.endpoint, text, sizeof text), 0);
        close_pair(&pair);
    }
}

/* The first error was the cause; what was reported were the "flushed" that followed it. */
static void case_M17_the_first_error_is_the_one_that_is_reported(void **state) {
    (void)state;
    need_fake();
    for (int round = 0; round < 2; ++round) {
        struct pair pair;
        reset();
        settings->max_message = 1000;
        open_pair(&pair, 1 << 16);
        settings->fail_at = counts_of().reads + 5;
        settings->held = 1;
        begin_reads(&pair, never);
        settings->held = 0;
        for (int i = 0; i < reads; ++i) {
            assert_true(wait_for(&results[i]));
            assert_int_equal(results[i].status, i == 0 ? PKV_OK : PKV_ERR_IO);
            if (i > 0) assert_int_equal(results[i].error, some_error);
        }
        char text[256];
        fabric->endpoint_failure(pair.to_owner.endpoint, text, sizeof text);
        assert_non_null(strstr(text, "cable pulled"));
        assert_null(strstr(text, "flushed"));
        close_pair(&pair);
        for (int i = 0; i < reads; ++i) assert_int_equal(results[i].calls, 1);
    }
}

static void what_lands_late_lands_before_the_endpoint_is_closed(void **state) {
    (void)state;
    need_fake();
    struct pair pair;
    open_pair(&pair, 1 << 16);
    settings->held = 1;
    const uint64_t deadline = now_ns() + second / 20;
    begin_reads(&pair, deadline);
    for (int i = 0; i < reads; ++i) {
        assert_true(wait_for(&results[i]));
        assert_int_equal(results[i].status, PKV_ERR_TIMEOUT);
        assert_true(results[i].at >= deadline);
    }
    fabric->endpoint_close(pair.to_owner.endpoint);
    pair.to_owner.endpoint = NULL;
    memset(pair.reader.data, 0xEE, pair.reader.bytes);
    settings->held = 0;
    sleep_ms(50);
    assert_true(all_are(pair.reader.data, pair.reader.bytes, 0xEE));
    for (int i = 0; i < reads; ++i) assert_int_equal(results[i].calls, 1);

    /* Left open, they land, and are not reported a second time. */
    struct peer again, back;
    open_peer(&pair.reader, &again);
    open_peer(&pair.owner, &back);
    connect_peers(&again, &back);
    settings->held = 1;
    const uint64_t before = counts_of().landed;
    struct result result;
    assert_int_equal(begin_read(&pair.reader, &again, &pair.owner, 0, 1000, 0, now_ns() + second / 20, &result),
                     PKV_OK);
    assert_true(wait_for(&result));
    assert_int_equal(result.status, PKV_ERR_TIMEOUT);
    settings->held = 0;
    const uint64_t end = now_ns() + 20 * second;
    while (counts_of().landed == before) {
        assert_true(now_ns() < end);
        sleep_ms(1);
    }
    sleep_ms(20);
    assert_int_equal(result.calls, 1);
    fabric->endpoint_close(again.endpoint);
    assert_true(holds(pair.reader.data, 1000, owner_seed, 0));
    fabric->endpoint_close(back.endpoint);
    close_pair(&pair);
}

static void closing_waits_for_a_busy_provider(void **state) {
    (void)state;
    need_fake();
    struct pair pair;
    open_pair(&pair, 1 << 16);
    settings->late_ns = second;
    begin_reads(&pair, never);
    settings->busy_closes = 30;
    fabric->endpoint_close(pair.to_owner.endpoint);
    pair.to_owner.endpoint = NULL;
    assert_int_equal(settings->busy_closes, 0);
    for (int i = 0; i < reads; ++i) {
        assert_int_equal(results[i].calls, 1);
        assert_int_equal(results[i].status, PKV_ERR_CANCELLED);
    }
    close_pair(&pair);
}

static void what_is_not_there_is_refused_with_the_reason(void **state) {
    (void)state;
    need_fake();
    pkv_fabric_domain *domain = NULL;
    settings->key_bytes = 300;
    assert_int_equal(fabric->open("fake", NULL, &domain, why, sizeof why), PKV_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "keys are too long"));
    settings->key_bytes = 9; /* and not raw */
    assert_int_equal(fabric->open("fake", NULL, &domain, why, sizeof why), PKV_ERR_UNSUPPORTED);
    reset();
    assert_int_equal(fabric->open("fake", "other0", &domain, why, sizeof why), PKV_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "other0"));
    assert_fabric(fabric->open("fake", "fake0", &domain, why, sizeof why), PKV_OK);
    fabric->close(domain);
    reset();
    assert_int_equal(fabric->open(NULL, NULL, &domain, why, sizeof why), PKV_ERR_UNSUPPORTED);
    assert_string_equal(counts_of().asked, "verbs efa net tcp ");
    assert_int_equal(counts_of().objects, 0);
    void *plugin = NULL;
    char path[8192];
    assert_true(plugin_path(path, sizeof path));
    plugin = dlopen(path, RTLD_NOW);
    pkv_fabric_entry entry;
    *(void **)&entry = dlsym(plugin, PKV_FABRIC_ENTRY);
    assert_null(entry(PKV_FABRIC_VERSION + 1, why, sizeof why));
    assert_true(strlen(why) > 10);
    assert_ptr_equal(entry(PKV_FABRIC_VERSION, NULL, 0), fabric);
    dlclose(plugin);
}

static void structs_of_any_size_are_read(void **state) {
    (void)state;
    need_fake();
    struct node node;
    assert_true(open_node(&node, "fake", 1 << 16, 1));
    struct {
        pkv_fabric_modes modes;
        char after[32];
    } room;
    memset(&room, 0x77, sizeof room);
    room.modes.struct_size = offsetof(pkv_fabric_modes, fabric);
    fabric->modes(node.domain, &room.modes);
    assert_string_equal(room.modes.provider, "fake");
    assert_true(all_are((unsigned char *)room.modes.fabric, sizeof room.modes.fabric, 0x77));
    room.modes.struct_size = sizeof room;
    fabric->modes(node.domain, &room.modes);
    assert_string_equal(room.modes.fabric, "fake fabric");
    assert_true(all_are((unsigned char *)room.after, sizeof room.after, 0x77));
    close_node(&node);
}

#define test(function) cmocka_unit_test_setup(function, set_up)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        test(case_N01_addresses_are_the_peers_or_offsets),
        test(case_N02_long_keys_travel_whole),
        test(providers_may_choose_keys_of_64_bits),
        test(keys_are_as_wide_as_the_provider_takes_them),
        test(case_N04_a_message_above_the_limit_goes_in_three_parts),
        test(case_N05_a_region_above_the_limit_takes_two_registrations),
        test(too_many_registrations_are_said_to_be),
        test(case_N17_the_limit_of_locked_memory_is_named),
        test(targets_are_registered_where_they_have_to_be),
        test(memory_is_lent_for_reading_only),
        test(a_provider_that_is_busy_is_asked_again),
        test(parts_may_end_in_any_order),
        test(without_a_descriptor_the_thread_looks_now_and_then),
        test(case_N08_an_error_without_a_read_ends_them_all_once),
        test(case_N10_error_data_is_copied_at_once),
        test(case_M17_the_first_error_is_the_one_that_is_reported),
        test(what_lands_late_lands_before_the_endpoint_is_closed),
        test(closing_waits_for_a_busy_provider),
        test(what_is_not_there_is_refused_with_the_reason),
        test(structs_of_any_size_are_read),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
