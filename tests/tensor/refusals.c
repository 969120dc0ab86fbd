/* SPDX-License-Identifier: Apache-2.0 */
/* What write, gather and copy refuse, and that nothing was written then. */
#include "support/paged.h"

static const paged_config small = {
    .dtype = PKV_DTYPE_F16, .k_row = 16, .v_row = 8, .heads = 2, .page_tokens = 4, .layers = 2, .pages = 6};

/* A pool with its pages held, and three rows of K and V. */
typedef struct {
    paged *p;
    flat k, v;
} fixture;

static fixture begin_with(const paged_config *config) {
    test_random random = {1};
    fixture f = {.p = make_paged(config)};
    f.k = make_flat(f.p, 0, 3, flat_dense, &random);
    f.v = make_flat(f.p, 1, 3, flat_dense, &random);
    return f;
}

static void end(fixture *f) {
    end_flat(&f->k);
    end_flat(&f->v);
    end_paged(f->p);
}

static void refuse_write(fixture *f, const pkv_slot *slots, pkv_status expected) {
    assert_status(pkv_pool_write(f->p->pool, 0, 0, 3, slots, &f->k.tensor, &f->v.tensor, NULL), expected);
    check_paged(f->p);
}

/* Neither K nor V were touched by a refused gather. */
static void refuse_gather(fixture *f, uint64_t num_pages, const pkv_page *pages, uint64_t first, uint64_t count,
                          const pkv_tensor *k, const pkv_tensor *v, pkv_status expected) {
    memset(f->k.memory, 0x3C, f->k.size);
    memset(f->v.memory, 0x3C, f->v.size);
    assert_status(pkv_pool_gather(f->p->pool, 0, 0, num_pages, pages, first, count, k, v, NULL), expected);
    for (uint64_t i = 0; i < f->k.size; ++i) assert_int_equal(f->k.memory[i], 0x3C);
    for (uint64_t i = 0; i < f->v.size; ++i) assert_int_equal(f->v.memory[i], 0x3C);
}

static void a_slot_past_the_pages_is_refused(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    refuse_write(&f, (const pkv_slot[]){0, 1, 24}, PKV_ERR_INVALID);
    refuse_write(&f, (const pkv_slot[]){24, 1, 0}, PKV_ERR_INVALID);
    refuse_write(&f, (const pkv_slot[]){0, INT64_C(1) << 32, 1}, PKV_ERR_INVALID);
    refuse_write(&f, (const pkv_slot[]){0, 1, INT64_MAX}, PKV_ERR_INVALID);
    paged_write(f.p, 0, 3, (const pkv_slot[]){0, 1, 23}, &f.k, &f.v);
    end(&f);
}

static void a_slot_in_a_page_that_nobody_holds_is_refused(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    const pkv_page page = 2;
    assert_ok(pkv_pool_release(f.p->pool, 0, 1, &page, NULL, NULL));
    refuse_write(&f, (const pkv_slot[]){4, 5, 8}, PKV_ERR_STATE);
    refuse_write(&f, (const pkv_slot[]){11, 12, 13}, PKV_ERR_STATE);
    pkv_page again;
    assert_ok(pkv_pool_alloc(f.p->pool, 0, 1, &again));
    assert_int_equal(again, page);
    end(&f);
}

static void a_slot_in_a_published_page_is_refused(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    const pkv_page page = 3;
    assert_ok(pkv_pool_publish(f.p->pool, 0, &prompt, 0, 1, &page, NULL));
    refuse_write(&f, (const pkv_slot[]){0, 1, 12}, PKV_ERR_STATE);
    refuse_write(&f, (const pkv_slot[]){15, 16, 17}, PKV_ERR_STATE);
    assert_ok(pkv_pool_clear(f.p->pool, NULL, NULL));
    paged_write(f.p, 0, 3, (const pkv_slot[]){0, 1, 12}, &f.k, &f.v);
    end(&f);
}

static void tensors_that_do_not_fit_are_refused(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    pkv_pool *pool = f.p->pool;
    const pkv_slot slots[4] = {0, 1, 2, 3};
    const pkv_tensor k = f.k.tensor, v = f.v.tensor;
    pkv_tensor reserved = v, no_data = v, old = v;
    reserved.reserved = 1;
    no_data.data = NULL;
    old.struct_size = 4;
    assert_status(pkv_pool_write(pool, 0, 0, 4, slots, &k, &v, NULL), PKV_ERR_INVALID); /* 3 rows only */
    assert_true(pkv_pool_write(pool, 0, 0, 3, slots, &k, &reserved, NULL) != PKV_OK);
    assert_status(pkv_pool_write(pool, 0, 0, 3, slots, &k, &no_data, NULL), PKV_ERR_INVALID);
    assert_true(pkv_pool_write(pool, 0, 0, 3, slots, &k, &old, NULL) != PKV_OK);
    assert_status(pkv_pool_write(pool, 0, 0, 3, slots, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_write(pool, 0, 0, 3, slots, NULL, &v, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_write(pool, 0, 0, 3, NULL, &k, &v, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_write(pool, 0, 2, 3, slots, &k, &v, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_write(pool, 1, 0, 3, slots, &k, &v, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_write(NULL, 0, 0, 3, slots, &k, &v, NULL), PKV_ERR_HANDLE);
    end(&f);
}

static void a_tensor_of_a_type_that_does_not_convert_is_refused(void **state) {
    (void)state;
    static const struct {
        int32_t dtype;
        pkv_status status;
    } others[] = {{PKV_DTYPE_OPAQUE, PKV_ERR_UNSUPPORTED},
                  {PKV_DTYPE_F8_E4M3, PKV_ERR_UNSUPPORTED},
                  {PKV_DTYPE_I8, PKV_ERR_UNSUPPORTED},
                  {0, PKV_ERR_INVALID},
                  {99, PKV_ERR_INVALID}};
    fixture f = begin_with(&small);
    const pkv_slot slots[3] = {0, 1, 2};
    const pkv_page page = 0;
    for (int i = 0; i < 5; ++i) {
        pkv_tensor other = f.v.tensor;
        other.dtype = others[i].dtype;
        assert_status(pkv_pool_write(f.p->pool, 0, 0, 3, slots, &f.k.tensor, &other, NULL), others[i].status);
        check_paged(f.p);
        refuse_gather(&f, 1, &page, 0, 3, &f.k.tensor, &other, others[i].status);
    }
    end(&f);
}

static void strides_that_leave_64_bits_are_refused(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    const pkv_slot slots[3] = {0, 1, 2};
    pkv_tensor far = f.v.tensor;
    far.token_stride = UINT64_MAX / 2 + 1;
    assert_status(pkv_pool_write(f.p->pool, 0, 0, 3, slots, &f.k.tensor, &far, NULL), PKV_ERR_INVALID);
    far.token_stride = 16;
    far.head_stride = UINT64_MAX - 4;
    assert_status(pkv_pool_write(f.p->pool, 0, 0, 3, slots, &f.k.tensor, &far, NULL), PKV_ERR_INVALID);
    end(&f);
}

static void a_latent_cache_without_v_takes_none(void **state) {
    (void)state;
    paged_config config = small;
    config.v_row = 0;
    fixture f = begin_with(&config);
    const pkv_page pages[1] = {0};
    const pkv_slot slots[3] = {0, 1, 2};
    assert_status(pkv_pool_write(f.p->pool, 0, 0, 3, slots, &f.k.tensor, &f.k.tensor, NULL), PKV_ERR_INVALID);
    check_paged(f.p);
    refuse_gather(&f, 1, pages, 0, 3, &f.k.tensor, &f.v.tensor, PKV_ERR_INVALID);
    end(&f);
}

static void a_gather_that_cannot_be_is_refused(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    const pkv_page pages[3] = {0, 1, 2}, hole[3] = {0, PKV_NO_PAGE, 2}, past[3] = {0, 6, 2};
    const pkv_tensor *k = &f.k.tensor, *v = &f.v.tensor;
    refuse_gather(&f, 3, hole, 2, 3, k, v, PKV_ERR_INVALID);
    refuse_gather(&f, 3, past, 2, 3, k, v, PKV_ERR_INVALID);
    refuse_gather(&f, 3, pages, 10, 3, k, v, PKV_ERR_INVALID);
    refuse_gather(&f, 3, pages, 0, 4, k, v, PKV_ERR_INVALID); /* 3 rows only */
    assert_ok(pkv_pool_release(f.p->pool, 0, 1, &pages[1], NULL, NULL));
    refuse_gather(&f, 3, pages, 2, 3, k, v, PKV_ERR_STATE);
    assert_ok(pkv_pool_gather(f.p->pool, 0, 0, 3, pages, 0, 3, k, v, NULL)); /* page 1 is outside of the range */
    pkv_page again;
    assert_ok(pkv_pool_alloc(f.p->pool, 0, 1, &again));
    end(&f);
}

static void a_copy_that_cannot_be_is_refused(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    pkv_pool *pool = f.p->pool;
    static const struct {
        pkv_page src[2], dst[2];
        pkv_status expected;
    } copies[] = {
        {{0, 1}, {2, 2}, PKV_ERR_INVALID}, /* twice a destination */
        {{0, 1}, {2, 0}, PKV_ERR_INVALID}, /* source and destination */
        {{0, 1}, {2, 1}, PKV_ERR_INVALID}, {{0, 6}, {2, 3}, PKV_ERR_INVALID},
        {{0, 1}, {2, 6}, PKV_ERR_INVALID}, {{0, PKV_NO_PAGE}, {2, 3}, PKV_ERR_INVALID},
        {{0, 5}, {2, 3}, PKV_ERR_STATE},                                    /* held by nobody */
        {{0, 1}, {2, 5}, PKV_ERR_STATE},   {{0, 1}, {2, 4}, PKV_ERR_STATE}, /* published */
    };
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    const pkv_page published = 4, nobodys = 5;
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 1, &published, NULL));
    assert_ok(pkv_pool_release(pool, 0, 1, &nobodys, NULL, NULL));
    paged_write(f.p, 0, 3, (const pkv_slot[]){0, 4, 5}, &f.k, &f.v);
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; ++i) {
        assert_status(pkv_pool_copy_pages(pool, 0, 2, copies[i].src, copies[i].dst, NULL), copies[i].expected);
        check_paged(f.p);
    }
    paged_copy(f.p, 2, (const pkv_page[]){4, 0}, (const pkv_page[]){2, 3}); /* out of a published one */
    paged_copy(f.p, 2, (const pkv_page[]){0, 0}, (const pkv_page[]){2, 3}); /* one to two */
    pkv_page again;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &again));
    assert_int_equal(again, nobodys);
    end(&f);
}

static void a_pool_without_bytes_has_none_to_move(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_page pages[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    uint16_t data[8] = {0};
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 1;
    const pkv_slot slot = 0;
    assert_status(pkv_pool_write(pool, 0, 0, 1, &slot, &rows, &rows, NULL), PKV_ERR_UNSUPPORTED);
    assert_status(pkv_pool_gather(pool, 0, 0, 1, pages, 0, 1, &rows, &rows, NULL), PKV_ERR_UNSUPPORTED);
    assert_status(pkv_pool_copy_pages(pool, 0, 1, &pages[0], &pages[1], NULL), PKV_ERR_UNSUPPORTED);
    assert_ok(pkv_pool_release(pool, 0, 2, pages, NULL, NULL));
    end_pool(pool);
}

static void a_count_of_0_needs_no_tensors(void **state) {
    (void)state;
    fixture f = begin_with(&small);
    assert_ok(pkv_pool_write(f.p->pool, 0, 0, 0, NULL, NULL, NULL, NULL));
    assert_ok(pkv_pool_gather(f.p->pool, 0, 0, 0, NULL, 0, 0, NULL, NULL, NULL));
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(f.p->pool, &prompt, NULL);
    assert_ok(pkv_table_write(table, 0, 0, 0, 0, NULL, NULL, NULL));
    assert_ok(pkv_table_gather(table, 0, 0, 0, 0, NULL, NULL, NULL));
    end_table(table);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_past_the_pages_is_refused),
        cmocka_unit_test(a_slot_in_a_page_that_nobody_holds_is_refused),
        cmocka_unit_test(a_slot_in_a_published_page_is_refused),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(a_tensor_of_a_type_that_does_not_convert_is_refused),
        cmocka_unit_test(strides_that_leave_64_bits_are_refused),
        cmocka_unit_test(a_latent_cache_without_v_takes_none),
        cmocka_unit_test(a_gather_that_cannot_be_is_refused),
        cmocka_unit_test(a_copy_that_cannot_be_is_refused),
        cmocka_unit_test(a_pool_without_bytes_has_none_to_move),
        cmocka_unit_test(a_count_of_0_needs_no_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
