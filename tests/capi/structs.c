/* SPDX-License-Identifier: Apache-2.0 */
/* struct_size of every struct in every call that takes one: callers with older and with newer headers, and callers that
 * forgot it. Field case Q17. */
#include "support/support.h"

enum { tail = 64 };

struct fixture {
    pkv_pool *pool;
    pkv_table *table; /* admitted, 4 tokens committed */
    pkv_table *empty;
    pkv_batch *batch;
    pkv_page page; /* held, not published */
    pkv_token tokens[8];
    pkv_prompt prompt;
    uint16_t rows[8 * 8];
    pkv_tensor tensor;
};

static void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    f->pool = make_pool(16, 4);
    count_up(f->tokens, 8, 1);
    f->prompt = prompt_of(f->tokens, 8);
    f->table = admit(f->pool, &f->prompt, NULL);
    write_and_commit(f->table, 4, 1);
    assert_ok(pkv_table_create(f->pool, &f->empty));
    assert_ok(pkv_pool_alloc(f->pool, 0, 1, &f->page));
    f->tensor = (pkv_tensor)PKV_TENSOR_INIT;
    f->tensor.data = f->rows;
    f->tensor.dtype = PKV_DTYPE_F16;
    f->tensor.num_tokens = 8;
}

static void end(struct fixture *f) {
    if (f->batch != NULL) assert_ok(pkv_batch_destroy(f->batch));
    assert_ok(pkv_table_destroy(f->table, NULL));
    assert_ok(pkv_table_destroy(f->empty, NULL));
    release_pages(f->pool, &f->page, 1);
    end_pool(f->pool);
}

/* ---- structs that the library reads ---- */

struct reader {
    const char *name;
    size_t size;
    pkv_status (*call)(struct fixture *f, void *object);
    void (*fill)(struct fixture *f, void *object);
};

static void fill_prompt(struct fixture *f, void *object) { memcpy(object, &f->prompt, sizeof f->prompt); }
static void fill_tensor(struct fixture *f, void *object) { memcpy(object, &f->tensor, sizeof f->tensor); }
static void fill_zero(struct fixture *f, void *object) { (void)f, (void)object; }
static void fill_batch(struct fixture *f, void *object) {
    (void)f;
    ((pkv_batch_options *)object)->max_tables = 1;
}

static pkv_status probe_prompt(struct fixture *f, void *object) {
    pkv_match match = PKV_MATCH_INIT;
    return pkv_pool_probe(f->pool, object, 0, &match);
}
static pkv_status look_up_prompt(struct fixture *f, void *object) {
    pkv_match match = PKV_MATCH_INIT;
    return pkv_pool_lookup(f->pool, object, 0, NULL, 0, &match);
}
static pkv_status publish_prompt(struct fixture *f, void *object) {
    return pkv_pool_publish(f->pool, 0, object, 0, 0, NULL, NULL);
}
static pkv_status admit_prompt(struct fixture *f, void *object) {
    return pkv_table_admit(f->empty, object, NULL, NULL);
}
static pkv_status admit_in_namespace(struct fixture *f, void *object) {
    pkv_prompt prompt = f->prompt;
    prompt.ns = object;
    return pkv_table_admit(f->empty, &prompt, NULL, NULL);
}
static pkv_status clear_namespace(struct fixture *f, void *object) { return pkv_pool_clear(f->pool, object, NULL); }
static pkv_status admit_with_options(struct fixture *f, void *object) {
    return pkv_table_admit(f->empty, &f->prompt, object, NULL);
}
static pkv_status create_batch(struct fixture *f, void *object) { return pkv_batch_create(f->pool, object, &f->batch); }
static pkv_status write_k(struct fixture *f, void *object) {
    const pkv_slot slot = (pkv_slot)f->page * 4;
    return pkv_pool_write(f->pool, 0, 0, 1, &slot, object, &f->tensor, NULL);
}
static pkv_status write_v(struct fixture *f, void *object) {
    return pkv_table_write(f->table, 0, 0, 4, 1, &f->tensor, object, NULL);
}
static pkv_status gather_k(struct fixture *f, void *object) {
    return pkv_table_gather(f->table, 0, 0, 0, 4, object, NULL, NULL);
}
static pkv_status gather_v(struct fixture *f, void *object) {
    return pkv_pool_gather(f->pool, 0, 0, 1, &f->page, 0, 4, NULL, object, NULL);
}
static pkv_status commit_sync(struct fixture *f, void *object) { return pkv_table_commit(f->table, 8, object); }
static pkv_status release_sync(struct fixture *f, void *object) {
    return pkv_pool_release(f->pool, 0, 0, NULL, NULL, object);
}

static pkv_status retain_by_prompt(struct fixture *f, void *object) {
    return pkv_pool_set_retention(f->pool, &f->prompt, 0, 4, object, NULL);
}
static pkv_status retain_by_namespace(struct fixture *f, void *object) {
    return pkv_pool_set_namespace_retention(f->pool, NULL, object);
}
static pkv_status retain_by_table(struct fixture *f, void *object) {
    return pkv_table_set_retention(f->table, 0, 4, object);
}
static pkv_status namespace_to_retain(struct fixture *f, void *object) {
    const pkv_retention retention = PKV_RETENTION_INIT;
    return pkv_pool_set_namespace_retention(f->pool, object, &retention);
}
static pkv_status keys_of_prompt(struct fixture *f, void *object) {
    uint64_t num_keys;
    return pkv_pool_keys(f->pool, object, NULL, 0, &num_keys);
}
static pkv_status prompt_to_retain(struct fixture *f, void *object) {
    const pkv_retention retention = PKV_RETENTION_INIT;
    return pkv_pool_set_retention(f->pool, object, 0, 4, &retention, NULL);
}
static pkv_status create_batch_with_arrays(struct fixture *f, void *object) {
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    options.num_arrays = 1;
    options.arrays = object;
    return pkv_batch_create(f->pool, &options, &f->batch);
}
static pkv_status accept_sync(struct fixture *f, void *object) { return pkv_table_accept(f->table, 0, NULL, object); }
static pkv_status window_sync(struct fixture *f, void *object) { return pkv_table_window(f->table, object); }

static const struct reader readers[] = {
    {"pkv_prompt of pkv_pool_probe", sizeof(pkv_prompt), probe_prompt, fill_prompt},
    {"pkv_prompt of pkv_pool_lookup", sizeof(pkv_prompt), look_up_prompt, fill_prompt},
    {"pkv_prompt of pkv_pool_publish", sizeof(pkv_prompt), publish_prompt, fill_prompt},
    {"pkv_prompt of pkv_table_admit", sizeof(pkv_prompt), admit_prompt, fill_prompt},
    {"pkv_namespace of pkv_table_admit", sizeof(pkv_namespace), admit_in_namespace, fill_zero},
    {"pkv_namespace of pkv_pool_clear", sizeof(pkv_namespace), clear_namespace, fill_zero},
    {"pkv_admit_options", sizeof(pkv_admit_options), admit_with_options, fill_zero},
    {"pkv_batch_options", sizeof(pkv_batch_options), create_batch, fill_batch},
    {"pkv_tensor k of pkv_pool_write", sizeof(pkv_tensor), write_k, fill_tensor},
    {"pkv_tensor v of pkv_table_write", sizeof(pkv_tensor), write_v, fill_tensor},
    {"pkv_tensor k of pkv_table_gather", sizeof(pkv_tensor), gather_k, fill_tensor},
    {"pkv_tensor v of pkv_pool_gather", sizeof(pkv_tensor), gather_v, fill_tensor},
    {"pkv_sync of pkv_table_commit", sizeof(pkv_sync), commit_sync, fill_zero},
    {"pkv_sync of pkv_pool_release", sizeof(pkv_sync), release_sync, fill_zero},
    {"pkv_sync of pkv_table_accept", sizeof(pkv_sync), accept_sync, fill_zero},
    {"pkv_sync of pkv_table_window", sizeof(pkv_sync), window_sync, fill_zero},
    {"pkv_retention of pkv_pool_set_retention", sizeof(pkv_retention), retain_by_prompt, fill_zero},
    {"pkv_retention of pkv_pool_set_namespace_retention", sizeof(pkv_retention), retain_by_namespace, fill_zero},
    {"pkv_retention of pkv_table_set_retention", sizeof(pkv_retention), retain_by_table, fill_zero},
    {"pkv_namespace of pkv_pool_set_namespace_retention", sizeof(pkv_namespace), namespace_to_retain, fill_zero},
    {"pkv_prompt of pkv_pool_set_retention", sizeof(pkv_prompt), prompt_to_retain, fill_prompt},
    {"pkv_prompt of pkv_pool_keys", sizeof(pkv_prompt), keys_of_prompt, fill_prompt},
    {"pkv_batch_arrays", sizeof(pkv_batch_arrays), create_batch_with_arrays, fill_zero},
};

/* Calls with a good struct whose struct_size is `size` and whose byte `set`, if it is not 0, is 1. */
static void check_reader(const struct reader *reader, size_t size, size_t set, pkv_status expected) {
    struct fixture f;
    begin(&f);
    union {
        size_t struct_size;
        unsigned char bytes[512];
    } object;
    memset(&object, 0, sizeof object);
    reader->fill(&f, &object);
    object.struct_size = size;
    if (set != 0) object.bytes[set] = 1;
    const pkv_pool_stats before = stats_of(f.pool);
    const pkv_status status = reader->call(&f, &object);
    if (status != expected)
        fail_msg("%s with struct_size %zu gave %s, not %s", reader->name, size, pkv_status_string(status),
                 pkv_status_string(expected));
    if (expected != PKV_OK) {
        const pkv_pool_stats after = stats_of(f.pool);
        assert_same_stats(&before, &after);
    }
    end(&f);
}

#define EACH_READER(r) for (const struct reader *r = readers; r < readers + sizeof readers / sizeof *readers; ++r)

static void case_Q17_newer_callers_may_leave_unknown_fields_0(void **state) {
    (void)state;
    EACH_READER(reader) {
        check_reader(reader, reader->size, 0, PKV_OK);
        check_reader(reader, reader->size + tail, 0, PKV_OK);
    }
}

static void case_Q17_unknown_fields_that_are_set_are_unsupported(void **state) {
    (void)state;
    EACH_READER(reader)
    for (size_t byte = 0; byte < tail; byte += 21)
        check_reader(reader, reader->size + tail, reader->size + byte, PKV_ERR_UNSUPPORTED);
}

static void bytes_past_struct_size_are_not_looked_at(void **state) {
    (void)state;
    EACH_READER(reader) check_reader(reader, reader->size, reader->size, PKV_OK);
}

static void case_Q17_a_forgotten_struct_size_is_invalid(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, sizeof(size_t) - 1, SIZE_MAX, SIZE_MAX >> 1, (size_t)1 << 32, 1000000};
    EACH_READER(reader)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) check_reader(reader, sizes[i], 0, PKV_ERR_INVALID);
}

/* The first one's struct_size is the distance between the elements of an array. */
static void case_Q17_arrays_of_newer_structs_are_stepped_by_their_size(void **state) {
    (void)state;
    enum { newer = 48 };
    struct {
        pkv_batch_arrays known;
        unsigned char unknown[newer];
    } arrays[2];
    int64_t slots[2][4];
    for (int bad = 0; bad < 2; ++bad) {
        pkv_group_options groups[2] = {small_group(4), small_group(4)};
        pkv_pool_options pool_options = PKV_POOL_OPTIONS_INIT;
        pool_options.page_tokens = 4;
        pool_options.num_groups = 2;
        pool_options.groups = groups;
        pkv_pool *pool = NULL;
        assert_ok(pkv_pool_create(&pool_options, &pool));
        memset(arrays, 0, sizeof arrays);
        memset(slots, 0x5A, sizeof slots);
        for (uint32_t i = 0; i < 2; ++i) {
            arrays[i].known = (pkv_batch_arrays)PKV_BATCH_ARRAYS_INIT;
            arrays[i].known.group = i;
            arrays[i].known.slot_mapping = slots[i];
        }
        arrays[0].known.struct_size = sizeof arrays[0];
        arrays[1].known.struct_size = sizeof arrays[0];
        if (bad == 1) arrays[1].unknown[newer - 1] = 1;
        pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
        options.max_tables = 1;
        options.max_tokens = 4;
        options.num_arrays = 2;
        options.arrays = &arrays[0].known;
        pkv_batch *batch = NULL;
        assert_status(pkv_batch_create(pool, &options, &batch), bad == 1 ? PKV_ERR_UNSUPPORTED : PKV_OK);
        for (int i = 0; i < 8; ++i) assert_true((slots[i / 4][i % 4] == PKV_NO_SLOT) == (bad == 0));
        if (bad == 0) assert_ok(pkv_batch_destroy(batch));
        end_pool(pool);
    }
}

/* ---- structs that the library fills ---- */

struct writer {
    const char *name;
    size_t size;
    pkv_status (*call)(struct fixture *f, void *object);
};

static pkv_status match_of_lookup(struct fixture *f, void *object) {
    return pkv_pool_lookup(f->pool, &f->prompt, 0, NULL, 0, object);
}
static pkv_status match_of_probe(struct fixture *f, void *object) {
    return pkv_pool_probe(f->pool, &f->prompt, PKV_MATCH_ALL, object);
}
static pkv_status match_of_admit(struct fixture *f, void *object) {
    return pkv_table_admit(f->empty, &f->prompt, NULL, object);
}
static pkv_status layout_of(struct fixture *f, void *object) { return pkv_pool_layout(f->pool, 0, 0, object); }
static pkv_status info_of_page(struct fixture *f, void *object) { return pkv_pool_page_info(f->pool, 0, 0, object); }
static pkv_status result_of_clear(struct fixture *f, void *object) { return pkv_pool_clear(f->pool, NULL, object); }
static pkv_status result_of_clear_all(struct fixture *f, void *object) { return pkv_pool_clear_all(f->pool, object); }
static pkv_status stats_into(struct fixture *f, void *object) { return pkv_pool_get_stats(f->pool, 0, object); }
static pkv_status info_of_table(struct fixture *f, void *object) { return pkv_table_get_info(f->table, object); }

static const struct writer writers[] = {
    {"pkv_match of pkv_pool_lookup", sizeof(pkv_match), match_of_lookup},
    {"pkv_match of pkv_pool_probe", sizeof(pkv_match), match_of_probe},
    {"pkv_match of pkv_table_admit", sizeof(pkv_match), match_of_admit},
    {"pkv_layer_layout", sizeof(pkv_layer_layout), layout_of},
    {"pkv_page_info", sizeof(pkv_page_info), info_of_page},
    {"pkv_clear_result of pkv_pool_clear", sizeof(pkv_clear_result), result_of_clear},
    {"pkv_clear_result of pkv_pool_clear_all", sizeof(pkv_clear_result), result_of_clear_all},
    {"pkv_pool_stats", sizeof(pkv_pool_stats), stats_into},
    {"pkv_table_info", sizeof(pkv_table_info), info_of_table},
};

#define EACH_WRITER(w) for (const struct writer *w = writers; w < writers + sizeof writers / sizeof *writers; ++w)

static void check_writer(const struct writer *writer, size_t size, pkv_status expected) {
    struct fixture f;
    begin(&f);
    union {
        size_t struct_size;
        unsigned char bytes[512];
    } object;
    memset(&object, 0xAB, sizeof object);
    object.struct_size = size;
    const pkv_pool_stats before = stats_of(f.pool);
    const pkv_status status = writer->call(&f, &object);
    if (status != expected)
        fail_msg("%s with struct_size %zu gave %s, not %s", writer->name, size, pkv_status_string(status),
                 pkv_status_string(expected));
    const size_t written = expected == PKV_OK ? size : sizeof(size_t);
    assert_int_equal(object.struct_size, size);
    for (size_t i = written; i < sizeof object; ++i)
        if (object.bytes[i] != 0xAB) fail_msg("%s with struct_size %zu wrote byte %zu", writer->name, size, i);
    for (size_t i = writer->size; i < written; ++i) assert_int_equal(object.bytes[i], 0);
    if (expected != PKV_OK) {
        const pkv_pool_stats after = stats_of(f.pool);
        assert_same_stats(&before, &after);
    }
    end(&f);
}

static void case_Q17_results_fill_what_the_caller_has(void **state) {
    (void)state;
    EACH_WRITER(writer)
    for (size_t size = sizeof(size_t); size <= writer->size + tail; size += 8) check_writer(writer, size, PKV_OK);
}

static void results_without_struct_size_are_invalid_and_change_nothing(void **state) {
    (void)state;
    const size_t sizes[] = {0, sizeof(size_t) - 1, SIZE_MAX, 1000000};
    EACH_WRITER(writer)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) check_writer(writer, sizes[i], PKV_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_Q17_newer_callers_may_leave_unknown_fields_0),
        cmocka_unit_test(case_Q17_unknown_fields_that_are_set_are_unsupported),
        cmocka_unit_test(bytes_past_struct_size_are_not_looked_at),
        cmocka_unit_test(case_Q17_a_forgotten_struct_size_is_invalid),
        cmocka_unit_test(case_Q17_arrays_of_newer_structs_are_stepped_by_their_size),
        cmocka_unit_test(case_Q17_results_fill_what_the_caller_has),
        cmocka_unit_test(results_without_struct_size_are_invalid_and_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
