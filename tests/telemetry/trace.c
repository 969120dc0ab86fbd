/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: when they may begin and end, the file that comes of it, and what restore and gather leave in them. */
#include "telemetry/trace.h"
#include "tier/faulty.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { tag = 7, blocks = 4, tokens = blocks * tiered_page_tokens };

static const uint64_t patience = 10ull * one_second, ms = 1000000;

static trace stop_and_load(trace_scratch *s) {
    uint64_t dropped = 77;
    assert_ok(pkv_trace_stop(s->path, &dropped));
    assert_int_equal(files_in(s->folder), 1);
    trace t = trace_load(s->path);
    assert_int_equal(t.dropped, dropped);
    return t;
}

/* ---- blocks in tiers ---- */

/* A pool over one tier that has the images of four blocks; nothing is cached. */
static pkv_pool *stored_below(faulty *f) {
    pkv_pool *pool = pool_on_faulty(16, f, PKV_TIER_WRITE_BACK, 0);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    assert_int_equal(faulty_images(f), blocks);
    return pool;
}

static void restore_blocks(pkv_pool *pool, uint64_t num_blocks) {
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_table_restore(table, 0, num_blocks, patience, NULL));
    end_table(table);
    (void)evict_pages(pool, UINT32_MAX);
}

static void restore_all(pkv_pool *pool) { restore_blocks(pool, UINT64_MAX); }

/* ---- begin and end ---- */

static void one_trace_at_a_time(void **state) {
    (void)state;
    uint64_t dropped = 77;
    assert_status(pkv_trace_stop(NULL, NULL), PKV_ERR_STATE);
    assert_status(pkv_trace_stop("/nowhere/trace.json", &dropped), PKV_ERR_STATE);
    assert_int_equal(dropped, 77);
    for (int i = 0; i < 3; ++i) {
        assert_ok(pkv_trace_start(0));
        assert_status(pkv_trace_start(0), PKV_ERR_STATE);
        assert_status(pkv_trace_start(5), PKV_ERR_STATE);
        assert_ok(pkv_trace_stop(NULL, &dropped));
        assert_int_equal(dropped, 0);
        assert_status(pkv_trace_stop(NULL, NULL), PKV_ERR_STATE);
    }
}

static void the_number_of_events_has_a_limit(void **state) {
    (void)state;
    assert_status(pkv_trace_start((1u << 24) + 1), PKV_ERR_LIMIT);
    assert_message("16777217");
    assert_status(pkv_trace_start(UINT64_MAX), PKV_ERR_LIMIT);
    assert_status(pkv_trace_stop(NULL, NULL), PKV_ERR_STATE);
    assert_ok(pkv_trace_start(1u << 24));
    assert_ok(pkv_trace_stop(NULL, NULL));
}

static void a_trace_without_events_is_one(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    assert_ok(pkv_trace_start(1));
    trace t = stop_and_load(&s);
    assert_int_equal(json_get(t.root, "traceEvents", json_array)->count, 0);
    assert_int_equal(t.dropped, 0);
    trace_end(&t);
    end_scratch(&s);
}

static void events_without_room_are_dropped_and_counted(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f);
    assert_ok(pkv_trace_start(1));
    for (int i = 0; i < 3; ++i) restore_blocks(pool, 1); /* two spans each: a wait and one load */
    trace t = stop_and_load(&s);
    assert_int_equal(t.num_spans, 1);
    assert_int_equal(t.dropped, 5);
    trace_end(&t);
    /* The next one begins with room. */
    assert_ok(pkv_trace_start(6));
    for (int i = 0; i < 3; ++i) restore_blocks(pool, 1);
    t = stop_and_load(&s);
    assert_int_equal(t.num_spans, 6);
    assert_int_equal(t.dropped, 0);
    trace_end(&t);
    end_pool(pool);
    faulty_end(f);
    end_scratch(&s);
}

static void nothing_is_recorded_between_traces(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f);
    assert_ok(pkv_trace_start(0));
    restore_all(pool);
    assert_ok(pkv_trace_stop(NULL, NULL));
    restore_all(pool);
    assert_ok(pkv_trace_start(0));
    trace t = stop_and_load(&s);
    assert_int_equal(t.num_spans, 0);
    trace_end(&t);
    end_pool(pool);
    faulty_end(f);
    end_scratch(&s);
}

/* ---- the file ---- */

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void the_file_is_replaced_as_a_whole(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    write_text(s.path, "what was there before, and is longer than a trace without events in it is going to be: "
                       "........................................................................................");
    FILE *reader = fopen(s.path, "r"); /* goes on reading what it has opened */
    assert_ok(pkv_trace_start(0));
    trace t = stop_and_load(&s);
    trace_end(&t);
    char word[5] = {0};
    assert_int_equal(fread(word, 1, 4, reader), 4);
    assert_string_equal(word, "what");
    fclose(reader);
    struct stat info;
    assert_int_equal(stat(s.path, &info), 0);
    const mode_t mask = umask(0);
    (void)umask(mask);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
    end_scratch(&s);
}

static void check_unwritable(const char *path, int error) {
    uint64_t dropped = 77;
    assert_ok(pkv_trace_start(0));
    assert_status(pkv_trace_stop(path, &dropped), PKV_ERR_IO);
    assert_message(strerror(error));
    assert_message(path);
    assert_int_equal(dropped, 0);
    assert_status(pkv_trace_stop(NULL, NULL), PKV_ERR_STATE); /* it has ended all the same */
}

static void a_file_that_cannot_be_written_gives_the_reason(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    char path[200];
    (void)snprintf(path, sizeof path, "%s/no/trace.json", s.folder);
    check_unwritable(path, ENOENT);
    check_unwritable("", ENOENT);
    check_unwritable(s.folder, EISDIR);
    check_unwritable("/dev/null", EINVAL); /* a device stays one */
    (void)snprintf(path, sizeof path, "%s/pipe", s.folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_unwritable(path, EINVAL);
    assert_int_equal(unlink(path), 0);
    write_text(s.path, "a file");
    (void)snprintf(path, sizeof path, "%s/trace.json", s.path);
    check_unwritable(path, ENOTDIR);
    assert_int_equal(files_in(s.folder), 1);
    end_scratch(&s);
}

static void a_full_device_leaves_the_old_file(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    write_text(s.path, "old");
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 10;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_ok(pkv_trace_start(0));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const pkv_status status = pkv_trace_stop(s.path, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(status, PKV_ERR_IO);
    assert_message(strerror(EFBIG));
    assert_int_equal(files_in(s.folder), 1);
    struct stat info;
    assert_int_equal(stat(s.path, &info), 0);
    assert_int_equal(info.st_size, 3);
    end_scratch(&s);
}

/* ---- what stands in it ---- */

static void a_restore_shows_its_wait_and_its_loads(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_trace_start(0));
    faulty_block(f, true);
    uint64_t restored = 77;
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 200 * ms, &restored), PKV_ERR_TIMEOUT);
    assert_int_equal(restored, 0);
    faulty_block(f, false);
    eventually(faulty_idle(f));
    f->backwards_at = blocks; /* no load ends before all have begun */
    faulty_script(f, PKV_TIER_LOAD, 0, blocks, fault_hold, 0);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, patience, &restored));
    assert_int_equal(restored, blocks);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, patience, &restored)); /* nothing to wait for */
    trace t = stop_and_load(&s);
    const trace_event *wait = NULL, *load = NULL;
    assert_int_equal(trace_in_lane(&t, "waits", &wait), 2);
    assert_int_equal(trace_in_lane(&t, "tier 0: faulty", &load), 2);
    assert_int_equal(t.num_spans, 4);
    for (int i = 0; i < 2; ++i, ++wait, ++load) {
        assert_string_equal(wait->name, "restore");
        assert_int_equal(json_uint(wait->args, "blocks"), i == 0 ? 0 : blocks);
        assert_string_equal(load->name, "load");
        assert_int_equal(json_uint(load->args, "loads"), blocks);
        assert_int_equal(json_uint(load->args, "bytes"), i == 0 ? 0 : blocks * image_bytes);
        assert_true(wait->begin <= load->begin && load->end <= wait->end);
        if (i == 0) assert_true(load->end - load->begin >= 50 * ms);
        assert_string_equal(wait->process_name, load->process_name);
        assert_int_equal(strncmp(wait->process_name, "pool ", 5), 0);
        assert_true(wait->lane < load->lane); /* in this order */
    }
    trace_end(&t);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
    end_scratch(&s);
}

static void a_gather_shows_its_wait(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    pkv_tier *host = host_tier(32);
    pkv_pool *pool = pool_on(16, host, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_trace_start(0));
    check_rows(table, 0, tokens, tag); /* one gather for each layer; the first one waits */
    trace t = stop_and_load(&s);
    const trace_event *wait = NULL, *load = NULL;
    assert_int_equal(trace_in_lane(&t, "waits", &wait), 1);
    assert_string_equal(wait->name, "gather");
    assert_int_equal(json_uint(wait->args, "blocks"), blocks);
    const uint64_t spans = trace_in_lane(&t, "tier 0: host", &load);
    assert_in_range(spans, 1, blocks); /* read in place, one after another */
    uint64_t loads = 0, bytes = 0;
    for (uint64_t i = 0; i < spans; ++i, ++load) {
        loads += json_uint(load->args, "loads");
        bytes += json_uint(load->args, "bytes");
        assert_true(wait->begin <= load->begin && load->end <= wait->end);
    }
    assert_int_equal(loads, blocks);
    assert_int_equal(bytes, blocks * image_bytes);
    assert_true(stats_of(pool).exposed_ns >= wait->end - wait->begin);
    trace_end(&t);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
    end_scratch(&s);
}

static void each_tier_has_a_lane(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    faulty *first = faulty_open(), *second = faulty_open();
    const pkv_tier_attachment at[2] = {attachment(first->tier, PKV_TIER_WRITE_BACK),
                                       attachment(second->tier, PKV_TIER_WRITE_BACK)};
    pkv_pool *pool = pool_over(16, at, 2);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_script(first, PKV_TIER_LOAD, 1, 2, fault_status, PKV_ERR_IO);
    assert_ok(pkv_trace_start(0));
    check_rows(table, 0, tokens, tag);
    trace t = stop_and_load(&s);
    uint64_t loads[2] = {0, 0}, bytes[2] = {0, 0};
    for (uint64_t i = 0; i < t.num_spans; ++i) {
        const int tier = strcmp(t.spans[i].lane_name, "tier 1: faulty") == 0;
        if (strcmp(t.spans[i].name, "load") != 0) continue;
        if (tier == 0) assert_string_equal(t.spans[i].lane_name, "tier 0: faulty");
        loads[tier] += json_uint(t.spans[i].args, "loads");
        bytes[tier] += json_uint(t.spans[i].args, "bytes");
    }
    assert_int_equal(loads[0], blocks);
    assert_int_equal(bytes[0], (blocks - 2) * image_bytes);
    assert_int_equal(loads[1], 2);
    assert_int_equal(bytes[1], 2 * image_bytes);
    trace_end(&t);
    end_table(table);
    end_pool(pool);
    faulty_end(first);
    faulty_end(second);
    end_scratch(&s);
}

/* The ops of a faulty tier under another name. */
static pkv_status submit_to(void *context, const pkv_tier_batch *batch) { return faulty_submit(context, batch); }

static void names_are_escaped(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    faulty *f = faulty_open();
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.name = "a \"tier\"\\\n\x01 \xC3\xA4\xF0\x9F\x98\x80 \xFF\xC0\x80\xED\xA0\x80.";
    ops.submit = submit_to;
    pkv_tier *named = NULL;
    assert_ok(pkv_tier_open(&ops, f, &named));
    pkv_pool *pool = pool_on(16, named, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_trace_start(0));
    check_rows(table, 0, tokens, tag);
    trace t = stop_and_load(&s);
    /* Each byte that is no UTF-8 is replaced. As many spans as there were times without a load. */
    assert_in_range(trace_in_lane(&t,
                                  "tier 0: a \"tier\"\\\n\x01 \xC3\xA4\xF0\x9F\x98\x80 "
                                  "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD.",
                                  NULL),
                    1, blocks);
    trace_end(&t);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(named));
    faulty_end(f);
    end_scratch(&s);
}

/* ---- threads and processes ---- */

typedef struct {
    pkv_pool *pool;
    pkv_token first;
    uint32_t tag;
    atomic_bool *stop;
} restorer;

static void *restore_again_and_again(void *argument) {
    const restorer *r = argument;
    while (!atomic_load(r->stop)) {
        pkv_table *table = admit_again(r->pool, r->first, tokens, NULL);
        const bool whole = info_of(table).matched == tokens;
        if (whole) {
            pkv_table_restore(table, 0, 2, patience, NULL);
            check_rows(table, 0, tokens, r->tag);
        }
        end_table(table);
        /* A lookup that was not answered in time is a miss. */
        if (!whole) compute(r->pool, r->first, tokens, r->tag);
        (void)evict_pages(r->pool, blocks);
    }
    return NULL;
}

static void threads_have_lanes_of_their_own(void **state) {
    (void)state;
    enum { threads = 4 };
    trace_scratch s = begin_scratch();
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(64, f, PKV_TIER_WRITE_BACK, 0);
    atomic_bool stop = false;
    pthread_t workers[threads];
    restorer restorers[threads];
    for (int i = 0; i < threads; ++i) {
        restorers[i] = (restorer){pool, 1 + 1000 * i, 100 + (uint32_t)i, &stop};
        compute(pool, restorers[i].first, tokens, restorers[i].tag);
    }
    push_down(pool);
    for (int i = 0; i < threads; ++i)
        assert_int_equal(pthread_create(&workers[i], NULL, restore_again_and_again, &restorers[i]), 0);
    uint64_t spans = 0, second_lanes = 0;
    /* Until two of them were seen to wait at a time, which takes a while on a busy machine. */
    for (int round = 0; round < (long_tests() ? 200 : 20) || (second_lanes == 0 && round < 2000); ++round) {
        assert_ok(pkv_trace_start(round % 2 == 0 ? 0 : 100));
        usleep(10000);
        trace t = stop_and_load(&s); /* while others go on recording */
        spans += t.num_spans;
        second_lanes += trace_in_lane(&t, "waits (2)", NULL);
        trace_end(&t);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < threads; ++i) assert_int_equal(pthread_join(workers[i], NULL), 0);
    assert_true(spans > 0);
    assert_true(second_lanes > 0);
    flush(pool);
    end_pool(pool);
    faulty_end(f);
    end_scratch(&s);
}

/* Whether a thread may be in the middle of anything at a fork: sanitizers have locks of their own, which stay held then. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool busy_at_fork = false;
#else
static const bool busy_at_fork = true;
#endif

static int trace_in_child(const char *path) {
    alarm(20); /* a hang is a failure */
    if (pkv_trace_stop(NULL, NULL) != PKV_ERR_STATE) return 1;
    if (pkv_trace_start(10) != PKV_OK) return 2;
    if (pkv_trace_start(10) != PKV_ERR_STATE) return 3;
    return pkv_trace_stop(path, NULL) == PKV_OK ? 0 : 4;
}

static void a_child_process_has_no_trace_until_it_begins_one(void **state) {
    (void)state;
    trace_scratch s = begin_scratch();
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f);
    atomic_bool stop = false;
    restorer r = {pool, 1, tag, &stop};
    pthread_t worker;
    if (busy_at_fork) assert_int_equal(pthread_create(&worker, NULL, restore_again_and_again, &r), 0);
    assert_ok(pkv_trace_start(0));
    if (!busy_at_fork) restore_all(pool);
    eventually(busy_at_fork || faulty_idle(f));
    for (int i = 0; i < 20; ++i) { /* the worker may be in the middle of recording */
        const pid_t child = fork();
        if (child == 0) _exit(trace_in_child(s.path));
        int status = 0;
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    trace t = trace_load(s.path);
    assert_int_equal(t.num_spans, 0);
    trace_end(&t);
    t = stop_and_load(&s); /* the parent's went on */
    assert_true(t.num_spans > 0);
    trace_end(&t);
    atomic_store(&stop, true);
    if (busy_at_fork) assert_int_equal(pthread_join(worker, NULL), 0);
    flush(pool);
    end_pool(pool);
    faulty_end(f);
    end_scratch(&s);
}

/* ---- the reader of these tests ---- */

static void the_reader_takes_json_and_nothing_else(void **state) {
    (void)state;
    static const char *const good[] = {"0",
                                       "-0.5e+3",
                                       " [ ] ",
                                       "{}",
                                       "[1,2 , {\"a\":[null,true,false]}]",
                                       "\"\\u00e4\\ud83d\\ude00\\n\\/\xC3\xA4\"",
                                       "{\"a\":1,\"b\":\"\"}"};
    static const char *const bad[] = {"",
                                      " ",
                                      "01x",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "[1,]",
                                      "[1 2]",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "{\"a\"}",
                                      "nul",
                                      "\"\n\"",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\xFF\"",
                                      "\"\xC0\x80\"",
                                      "[1]]",
                                      "\"a",
                                      "{\"a\":1,\"a\":2}",
                                      "NaN",
                                      "'a'",
                                      "[",
                                      "{",
                                      "\"\xED\xA0\x80\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; ++i) {
        json *value = json_parse(good[i], strlen(good[i]));
        if (value == NULL) fail_msg("refused: %s", good[i]);
        json_free(value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
        if (json_parse(bad[i], strlen(bad[i])) != NULL) fail_msg("taken: %s", bad[i]);
    json *value = json_parse(good[5], strlen(good[5]));
    assert_string_equal(value->text, "\xC3\xA4\xF0\x9F\x98\x80\n/\xC3\xA4");
    json_free(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reader_takes_json_and_nothing_else),
        cmocka_unit_test(one_trace_at_a_time),
        cmocka_unit_test(the_number_of_events_has_a_limit),
        cmocka_unit_test(a_trace_without_events_is_one),
        cmocka_unit_test(events_without_room_are_dropped_and_counted),
        cmocka_unit_test(nothing_is_recorded_between_traces),
        cmocka_unit_test(the_file_is_replaced_as_a_whole),
        cmocka_unit_test(a_file_that_cannot_be_written_gives_the_reason),
        cmocka_unit_test(a_full_device_leaves_the_old_file),
        cmocka_unit_test(a_restore_shows_its_wait_and_its_loads),
        cmocka_unit_test(a_gather_shows_its_wait),
        cmocka_unit_test(each_tier_has_a_lane),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(threads_have_lanes_of_their_own),
        cmocka_unit_test(a_child_process_has_no_trace_until_it_begins_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
