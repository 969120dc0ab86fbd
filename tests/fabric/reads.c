/* SPDX-License-Identifier: Apache-2.0 */
/* Reads between two domains of one process, over every provider that this machine has. */
#include "fabric/fabric.h"

struct pair {
    struct node reader, owner;
    struct peer to_owner, to_reader;
};

enum { reader_seed = 1, owner_seed = 2 };

static void open_pair(struct pair *pair, const char *provider, uint64_t bytes) {
    assert_true(open_node(&pair->reader, provider, bytes, reader_seed));
    assert_true(open_node(&pair->owner, provider, bytes, owner_seed));
    open_peer(&pair->reader, &pair->to_owner);
    open_peer(&pair->owner, &pair->to_reader);
    connect_peers(&pair->to_owner, &pair->to_reader);
}

static void close_pair(struct pair *pair) {
    fabric->endpoint_close(pair->to_owner.endpoint);
    fabric->endpoint_close(pair->to_reader.endpoint);
    close_node(&pair->reader);
    close_node(&pair->owner);
}

static void reads_of_any_size_and_offset_bring_the_right_bytes(void **state) {
    const char *provider = provider_of(state);
    static const uint64_t sizes[] = {1, 2, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 65537, 1000003};
    struct pair pair;
    open_pair(&pair, provider, 3 << 20);
    test_random random = {7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        for (int turn = 0; turn < 4; ++turn) {
            const uint64_t bytes = sizes[i], last = pair.owner.bytes - bytes;
            const uint64_t offset = turn == 0 ? 0 : turn == 1 ? last : random_below(&random, last);
            const uint64_t at = random_below(&random, last);
            memset(pair.reader.data, 0xEE, pair.reader.bytes);
            assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, at, bytes, offset), PKV_OK);
            assert_true(holds(pair.reader.data + at, bytes, owner_seed, offset));
            assert_true(all_are(pair.reader.data, at, 0xEE));
            assert_true(all_are(pair.reader.data + at + bytes, pair.reader.bytes - at - bytes, 0xEE));
        }
    }
    /* All of it, and the other way round. */
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, pair.owner.bytes, 0), PKV_OK);
    assert_true(holds(pair.reader.data, pair.owner.bytes, owner_seed, 0));
    assert_int_equal(read_now(&pair.owner, &pair.to_reader, &pair.reader, 5, 100000, 77), PKV_OK);
    assert_true(holds(pair.owner.data + 5, 100000, reader_seed, 77));
    close_pair(&pair);
}

enum { threads = 4, reads_each = 150, most = 20000 };

struct reading {
    struct pair *pair;
    uint64_t seed;
    struct result results[reads_each];
    uint64_t bytes[reads_each];
    uint64_t offsets[reads_each];
    bool wrong;
};

static void *read_many(void *user) {
    struct reading *reading = user;
    struct pair *pair = reading->pair;
    test_random random = {reading->seed};
    for (int i = 0; i < reads_each; ++i) {
        reading->bytes[i] = 1 + random_below(&random, most);
        reading->offsets[i] = random_below(&random, pair->owner.bytes - most);
        const uint64_t at = (reading->seed * reads_each + (uint64_t)i) * most;
        if (begin_read(&pair->reader, &pair->to_owner, &pair->owner, at, reading->bytes[i], reading->offsets[i],
                       now_ns() + patience, &reading->results[i]) != PKV_OK)
            reading->wrong = true;
    }
    for (int i = 0; i < reads_each && !reading->wrong; ++i) {
        const uint64_t at = (reading->seed * reads_each + (uint64_t)i) * most;
        if (!wait_for(&reading->results[i]) || reading->results[i].status != PKV_OK ||
            !holds(pair->reader.data + at, reading->bytes[i], owner_seed, reading->offsets[i]))
            reading->wrong = true;
    }
    return NULL;
}

static void many_reads_of_several_threads_are_under_way_at_once(void **state) {
    const char *provider = provider_of(state);
    struct pair pair;
    open_pair(&pair, provider, (uint64_t)threads * reads_each * most);
    static struct reading readings[threads];
    pthread_t ids[threads];
    for (uint64_t i = 0; i < threads; ++i) {
        readings[i].pair = &pair;
        readings[i].seed = i;
        readings[i].wrong = false;
        assert_int_equal(pthread_create(&ids[i], NULL, read_many, &readings[i]), 0);
    }
    for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; ++i) {
        assert_false(readings[i].wrong);
        for (int j = 0; j < reads_each; ++j) assert_int_equal(readings[i].results[j].calls, 1);
    }
    close_pair(&pair);
}

struct chain {
    struct pair *pair;
    int left;
    struct result last;
};

static void read_next(void *user, pkv_status status, int32_t error) {
    struct chain *chain = user;
    struct pair *pair = chain->pair;
    if (status == PKV_OK && --chain->left > 0)
        status =
            fabric->read(pair->to_owner.endpoint, pair->reader.target, pair->reader.data, 1000, pair->owner.windows,
                         pair->owner.num_windows, (uint64_t)chain->left, now_ns() + patience, read_next, chain);
    if (status != PKV_OK || chain->left == 0) record(&chain->last, status, error);
}

static void the_end_of_a_read_may_begin_the_next(void **state) {
    const char *provider = provider_of(state);
    struct pair pair;
    open_pair(&pair, provider, 1 << 16);
    struct chain chain = {.pair = &pair, .left = 200};
    assert_int_equal(fabric->read(pair.to_owner.endpoint, pair.reader.target, pair.reader.data, 1000,
                                  pair.owner.windows, pair.owner.num_windows, 200, never, read_next, &chain),
                     PKV_OK);
    assert_true(wait_for(&chain.last));
    assert_int_equal(chain.last.status, PKV_OK);
    assert_true(holds(pair.reader.data, 1000, owner_seed, 1));
    close_pair(&pair);
}

static void what_cannot_be_read_is_refused_at_once(void **state) {
    const char *provider = provider_of(state);
    struct pair pair;
    open_pair(&pair, provider, 1 << 16);
    struct node *reader = &pair.reader, *owner = &pair.owner;
    struct result result;
    assert_int_equal(begin_read(reader, &pair.to_owner, owner, 0, 2, owner->bytes - 1, never, &result),
                     PKV_ERR_INVALID);
    assert_int_equal(begin_read(reader, &pair.to_owner, owner, 0, 1, UINT64_MAX, never, &result), PKV_ERR_INVALID);
    assert_int_equal(begin_read(reader, &pair.to_owner, owner, owner->bytes - 1, 2, 0, never, &result),
                     PKV_ERR_INVALID);
    assert_int_equal(begin_read(reader, &pair.to_owner, owner, 0, UINT64_MAX, 0, never, &result), PKV_ERR_INVALID);
    owner->windows[0].key_bytes = 3;
    assert_int_equal(begin_read(reader, &pair.to_owner, owner, 0, 1, 0, never, &result), PKV_ERR_INVALID);
    assert_int_equal(result.calls, 0);
    assert_int_equal(fabric->endpoint_connect(pair.to_owner.endpoint, pair.to_reader.name, pair.to_reader.name_bytes,
                                              why, sizeof why),
                     PKV_ERR_STATE);
    struct peer lonely;
    open_peer(reader, &lonely);
    assert_int_equal(begin_read(reader, &lonely, owner, 0, 1, 0, never, &result), PKV_ERR_STATE);
    assert_int_equal(fabric->endpoint_connect(lonely.endpoint, "x", 1, why, sizeof why), PKV_ERR_INVALID);
    assert_true(strlen(why) > 10);
    fabric->endpoint_close(lonely.endpoint);
    /* No bytes are no work, and leave the endpoint as good as it was. */
    memset(&result, 0, sizeof result);
    assert_int_equal(
        fabric->read(pair.to_owner.endpoint, reader->target, reader->data, 0, NULL, 0, 0, never, record, &result),
        PKV_OK);
    assert_true(wait_for(&result));
    assert_int_equal(result.status, PKV_OK);
    close_pair(&pair);
}

/* One bad window: PKV_ERR_IO, and not one byte from elsewhere. */
static void expect_io(const char *provider, void (*spoil)(pkv_fabric_window *window)) {
    struct pair pair;
    open_pair(&pair, provider, 1 << 16);
    memset(pair.reader.data, 0xEE, pair.reader.bytes);
    struct node lie = pair.owner;
    spoil(&lie.windows[0]);
    const uint64_t begin = now_ns();
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &lie, 0, 4096, lie.windows[0].bytes - 4096), PKV_ERR_IO);
    assert_true(now_ns() - begin < patience / 2);
    assert_true(all_are(pair.reader.data, pair.reader.bytes, 0xEE));
    char text[256] = "";
    assert_true(fabric->endpoint_failure(pair.to_owner.endpoint, text, sizeof text) > 0);
    assert_true(strlen(text) > 0);
    /* It is of no more use; a new one is. */
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, 1, 0), PKV_ERR_STATE);
    struct peer again, back;
    open_peer(&pair.reader, &again);
    open_peer(&pair.owner, &back);
    connect_peers(&again, &back);
    assert_int_equal(read_now(&pair.reader, &again, &pair.owner, 0, 4096, 0), PKV_OK);
    assert_true(holds(pair.reader.data, 4096, owner_seed, 0));
    fabric->endpoint_close(again.endpoint);
    fabric->endpoint_close(back.endpoint);
    close_pair(&pair);
}

static void other_key(pkv_fabric_window *window) { window->key[0] ^= 1; }
static void longer(pkv_fabric_window *window) { window->bytes += 2048; }
static void far_away(pkv_fabric_window *window) { window->address += 1u << 30; }

static void a_wrong_key_reads_nothing(void **state) {
    const char *provider = provider_of(state);
    expect_io(provider, other_key);
}

static void outside_of_the_window_nothing_is_read(void **state) {
    const char *provider = provider_of(state);
    expect_io(provider, longer);
    expect_io(provider, far_away);
}

static void memory_that_was_removed_is_not_read(void **state) {
    const char *provider = provider_of(state);
    struct pair pair;
    open_pair(&pair, provider, 1 << 16);
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, 4096, 0), PKV_OK);
    fabric->remove_memory(pair.owner.region);
    pair.owner.region = NULL;
    memset(pair.reader.data, 0xEE, pair.reader.bytes);
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, 4096, 0), PKV_ERR_IO);
    /* shm finds out afterwards: memory of reads that failed may have been written to. */
    if (strcmp(provider, "shm") != 0) assert_true(all_are(pair.reader.data, pair.reader.bytes, 0xEE));
    close_pair(&pair);
}

/* Memory was registered, unmapped, and other memory mapped in its place: what was read was the old memory. */
static void case_N11_memory_mapped_anew_is_the_new_memory(void **state) {
    const char *provider = provider_of(state);
    enum { bytes = 1 << 16, turns = 4 };
    struct pair pair;
    open_pair(&pair, provider, bytes);
    unsigned char *at = map(bytes);
    for (uint64_t turn = 0; turn < turns; ++turn) {
        struct node lent = pair.owner;
        fill(at, bytes, 100 + turn);
        assert_fabric(fabric->add_memory(pair.owner.domain, at, bytes, 1, &lent.region, why, sizeof why), PKV_OK);
        lent.num_windows = fabric->windows(lent.region, lent.windows, PKV_FABRIC_MAX_REGIONS);
        assert_int_equal(read_now(&pair.reader, &pair.to_owner, &lent, 0, bytes, 0), PKV_OK);
        assert_true(holds(pair.reader.data, bytes, 100 + turn, 0));
        fabric->remove_memory(lent.region);
        munmap(at, bytes);
        void *again = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        assert_ptr_equal(again, at);
    }
    munmap(at, bytes);
    close_pair(&pair);
}

static pkv_status copy_now(struct pair *pair, const struct node *owner, uint64_t at, uint64_t bytes, uint64_t offset,
                           uint64_t deadline_ns) {
    struct node *reader = &pair->reader;
    return fabric->copy(pair->to_owner.endpoint, reader->target, reader->data + at, bytes, owner->windows,
                        owner->num_windows, offset, deadline_ns);
}

/* Where a read is a copy, it can be had at once; elsewhere it cannot. */
static void copies_are_made_at_once_or_not_at_all(void **state) {
    const char *provider = provider_of(state);
    struct pair pair;
    open_pair(&pair, provider, 3 << 20);
    if (!modes_of(&pair.reader).copies) {
        assert_int_equal(copy_now(&pair, &pair.owner, 0, 4096, 0, never), PKV_ERR_UNSUPPORTED);
        close_pair(&pair);
        return;
    }
    memset(pair.reader.data, 0xEE, pair.reader.bytes);
    assert_int_equal(copy_now(&pair, &pair.owner, 7, (2 << 20) + 5, 1001, never), PKV_OK);
    assert_true(holds(pair.reader.data + 7, (2 << 20) + 5, owner_seed, 1001));
    assert_true(all_are(pair.reader.data, 7, 0xEE));
    assert_int_equal(copy_now(&pair, &pair.owner, 0, 4096, pair.owner.bytes - 4095, never), PKV_ERR_INVALID);
    assert_int_equal(copy_now(&pair, &pair.owner, pair.reader.bytes - 1, 2, 0, never), PKV_ERR_INVALID);
    assert_int_equal(copy_now(&pair, &pair.owner, 0, 4096, 0, 1), PKV_ERR_TIMEOUT);
    struct node lie = pair.owner;
    lie.windows[0].key[0] ^= 1;
    assert_int_equal(copy_now(&pair, &lie, 0, 4096, 0, never), PKV_ERR_IO);
    lie = pair.owner;
    lie.windows[0].bytes += 4096;
    assert_int_equal(copy_now(&pair, &lie, 0, 4096, pair.owner.bytes, never), PKV_ERR_IO);
    /* None of this is the endpoint's fault. */
    assert_int_equal(copy_now(&pair, &pair.owner, 0, 4096, 0, never), PKV_OK);
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, 4096, 0), PKV_OK);
    fabric->remove_memory(pair.owner.region);
    pair.owner.region = NULL;
    assert_int_equal(copy_now(&pair, &pair.owner, 0, 4096, 0, never), PKV_ERR_IO);
    close_pair(&pair);
}

static void keys_are_not_guessed(void **state) {
    const char *provider = provider_of(state);
    struct node node;
    assert_true(open_node(&node, provider, 1 << 16, 1));
    const pkv_fabric_modes modes = modes_of(&node);
    if (!modes.provider_keys && modes.key_bytes >= 8) {
        uint64_t keys[8];
        for (int i = 0; i < 8; ++i) {
            pkv_fabric_region *region = NULL;
            pkv_fabric_window window;
            assert_fabric(fabric->add_memory(node.domain, node.memory, 4096, 1, &region, why, sizeof why), PKV_OK);
            assert_int_equal(fabric->windows(region, &window, 1), 1);
            memcpy(&keys[i], window.key, 8);
            assert_true(keys[i] > UINT32_MAX);
            for (int j = 0; j < i; ++j) assert_true(keys[i] - keys[j] > 1u << 20 && keys[j] - keys[i] > 1u << 20);
            fabric->remove_memory(region);
        }
    }
    close_node(&node);
}

static void closing_ends_each_read_once(void **state) {
    const char *provider = provider_of(state);
    enum { reads = 64, bytes = 1 << 18, rounds = 5 };
    for (int round = 0; round < rounds; ++round) {
        struct pair pair;
        open_pair(&pair, provider, (uint64_t)reads * bytes);
        static struct result results[reads];
        for (uint64_t i = 0; i < reads; ++i)
            assert_int_equal(
                begin_read(&pair.reader, &pair.to_owner, &pair.owner, i * bytes, bytes, i * bytes, never, &results[i]),
                PKV_OK);
        if (round % 2 == 1) assert_true(wait_for(&results[round])); /* in the middle of it */
        fabric->endpoint_close(pair.to_owner.endpoint);
        pair.to_owner.endpoint = NULL;
        for (uint64_t i = 0; i < reads; ++i) {
            assert_int_equal(results[i].calls, 1);
            if (results[i].status == PKV_OK)
                assert_true(holds(pair.reader.data + i * bytes, bytes, owner_seed, i * bytes));
            else
                assert_int_equal(results[i].status, PKV_ERR_CANCELLED);
        }
        /* Nothing comes after it. */
        memset(pair.reader.data, 0xEE, pair.reader.bytes);
        sleep_ms(50);
        assert_true(all_are(pair.reader.data, pair.reader.bytes, 0xEE));
        close_pair(&pair);
    }
}

/* A KV cache's read that never came back: its peer was gone, and there was no time limit that anybody kept. */
static void case_N07_a_read_of_a_peer_that_is_gone_ends_in_time(void **state) {
    const char *provider = provider_of(state);
    struct pair pair;
    open_pair(&pair, provider, 1 << 16);
    struct peer gone, lonely;
    open_peer(&pair.owner, &gone);
    open_peer(&pair.reader, &lonely); /* first, or it might get the name of the one that is gone */
    fabric->endpoint_close(gone.endpoint);
    struct result result;
    const uint64_t begin = now_ns();
    if (fabric->endpoint_connect(lonely.endpoint, gone.name, gone.name_bytes, why, sizeof why) == PKV_OK) {
        assert_int_equal(begin_read(&pair.reader, &lonely, &pair.owner, 0, 4096, 0, begin + second / 2, &result),
                         PKV_OK);
        assert_true(wait_for(&result));
        assert_true(result.status == PKV_ERR_TIMEOUT || result.status == PKV_ERR_IO);
        assert_true(result.at - begin < 20 * second);
        assert_int_equal(read_now(&pair.reader, &lonely, &pair.owner, 0, 1, 0), PKV_ERR_STATE);
    }
    fabric->endpoint_close(lonely.endpoint);
    /* The others have noticed nothing. */
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, 4096, 0), PKV_OK);
    assert_true(holds(pair.reader.data, 4096, owner_seed, 0));
    close_pair(&pair);
}

static void a_domain_has_many_peers(void **state) {
    const char *provider = provider_of(state);
    enum { peers = 12 };
    struct pair pair;
    struct peer there[peers], back[peers];
    open_pair(&pair, provider, 1 << 16);
    for (int i = 0; i < peers; ++i) {
        open_peer(&pair.reader, &there[i]);
        open_peer(&pair.owner, &back[i]);
        connect_peers(&there[i], &back[i]);
    }
    for (int turn = 0; turn < 2; ++turn) {
        for (uint64_t i = 0; i < peers; ++i) {
            assert_int_equal(read_now(&pair.reader, &there[i], &pair.owner, 0, 4000, i * 100), PKV_OK);
            assert_true(holds(pair.reader.data, 4000, owner_seed, i * 100));
        }
    }
    for (int i = 0; i < peers; ++i) {
        fabric->endpoint_close(there[i].endpoint);
        fabric->endpoint_close(back[i].endpoint);
    }
    close_pair(&pair);
}

/* The thread sleeps: a domain that nobody uses takes next to no time. */
static void an_idle_domain_takes_no_time(void **state) {
    const char *provider = provider_of(state);
    struct pair pair;
    open_pair(&pair, provider, 1 << 16);
    assert_int_equal(read_now(&pair.reader, &pair.to_owner, &pair.owner, 0, 4096, 0), PKV_OK);
    sleep_ms(100);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep_ms(500);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double used = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    const pkv_fabric_modes modes = modes_of(&pair.reader);
    print_message(
        "[     INFO ] %s in %s: virtual addresses %d, local regions %d, provider keys %d, raw keys %d, manual %d, "
        "sleeps %d, keys of %llu bytes, %llu in flight; idle %.2f %%\n",
        modes.provider, modes.fabric, modes.virtual_addresses, modes.local_regions, modes.provider_keys, modes.raw_keys,
        modes.manual_progress, modes.sleeps, (unsigned long long)modes.key_bytes,
        (unsigned long long)modes.max_in_flight, used / 0.5 * 100);
    assert_true(used < 0.25); /* a thread that spins takes 0.5 */
    close_pair(&pair);
}

static void nothing_is_left_in_dev_shm(void **state) {
    (void)provider_of(state);
    assert_int_equal(shm_files_of(getpid()), 0);
}

static const struct provider_test tests[] = {
    {"reads_of_any_size_and_offset_bring_the_right_bytes", reads_of_any_size_and_offset_bring_the_right_bytes},
    {"many_reads_of_several_threads_are_under_way_at_once", many_reads_of_several_threads_are_under_way_at_once},
    {"the_end_of_a_read_may_begin_the_next", the_end_of_a_read_may_begin_the_next},
    {"what_cannot_be_read_is_refused_at_once", what_cannot_be_read_is_refused_at_once},
    {"a_wrong_key_reads_nothing", a_wrong_key_reads_nothing},
    {"outside_of_the_window_nothing_is_read", outside_of_the_window_nothing_is_read},
    {"memory_that_was_removed_is_not_read", memory_that_was_removed_is_not_read},
    {"case_N11_memory_mapped_anew_is_the_new_memory", case_N11_memory_mapped_anew_is_the_new_memory},
    {"copies_are_made_at_once_or_not_at_all", copies_are_made_at_once_or_not_at_all},
    {"keys_are_not_guessed", keys_are_not_guessed},
    {"closing_ends_each_read_once", closing_ends_each_read_once},
    {"case_N07_a_read_of_a_peer_that_is_gone_ends_in_time", case_N07_a_read_of_a_peer_that_is_gone_ends_in_time},
    {"a_domain_has_many_peers", a_domain_has_many_peers},
    {"an_idle_domain_takes_no_time", an_idle_domain_takes_no_time},
    {"nothing_is_left_in_dev_shm", nothing_is_left_in_dev_shm},
};

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return run_with_every_provider(tests, sizeof tests / sizeof tests[0]);
}
