/* SPDX-License-Identifier: Apache-2.0 */
/* Prediction of the blocks that are needed next: which, in which order, and at the ends of every range. */
#include "support/support.h"

#include <math.h>

enum { most_blocks = 64, text_size = 16 * most_blocks };

#define no_scores 0, NULL

static pkv_predictor predictor_of(int32_t policy, uint32_t page_tokens, uint64_t sinks, uint64_t recent,
                                  uint64_t lookahead) {
    pkv_predictor predictor = PKV_PREDICTOR_INIT;
    predictor.policy = policy;
    predictor.page_tokens = page_tokens;
    predictor.sink_tokens = sinks;
    predictor.recent_tokens = recent;
    predictor.lookahead = lookahead;
    return predictor;
}

static void write_list(char *text, const uint64_t *blocks, uint64_t num_blocks) {
    text[0] = '\0';
    for (uint64_t i = 0, at = 0; i < num_blocks; ++i)
        at += (uint64_t)snprintf(text + at, text_size - at, "%s%llu", i == 0 ? "" : " ", (unsigned long long)blocks[i]);
}

/* The blocks that are predicted, as a list in a text. */
static void predict_list(pkv_predictor predictor, uint64_t num_tokens, uint64_t position, uint64_t num_scores,
                         const float *scores, char *text) {
    uint64_t blocks[most_blocks], num_blocks = 0, asked = 0;
    assert_ok(
        pkv_prefetch_predict(&predictor, num_tokens, position, num_scores, scores, blocks, most_blocks, &num_blocks));
    assert_true(num_blocks <= most_blocks);
    assert_ok(pkv_prefetch_predict(&predictor, num_tokens, position, num_scores, scores, NULL, 0, &asked));
    assert_int_equal(asked, num_blocks);
    write_list(text, blocks, num_blocks);
}

static void expect(pkv_predictor predictor, uint64_t num_tokens, uint64_t position, uint64_t num_scores,
                   const float *scores, const char *list) {
    char text[text_size];
    predict_list(predictor, num_tokens, position, num_scores, scores, text);
    if (strcmp(text, list) != 0)
        fail_msg(
            "policy %d, pages of %u, sinks %llu, recent %llu, lookahead %llu, %llu tokens at %llu: \"%s\", not \"%s\"",
            predictor.policy, predictor.page_tokens, (unsigned long long)predictor.sink_tokens,
            (unsigned long long)predictor.recent_tokens, (unsigned long long)predictor.lookahead,
            (unsigned long long)num_tokens, (unsigned long long)position, text, list);
}

/* One line of a table without scores. */
typedef struct {
    int32_t policy;
    uint32_t page_tokens;
    uint64_t sinks, recent, lookahead, num_tokens, position;
    const char *list;
} line;

static void expect_lines(const line *lines, size_t num_lines) {
    for (size_t i = 0; i < num_lines; ++i)
        expect(predictor_of(lines[i].policy, lines[i].page_tokens, lines[i].sinks, lines[i].recent, lines[i].lookahead),
               lines[i].num_tokens, lines[i].position, no_scores, lines[i].list);
}
#define expect_table(lines) expect_lines(lines, sizeof(lines) / sizeof(lines)[0])

enum { seq = PKV_PREDICT_SEQUENTIAL, full = PKV_PREDICT_FULL, hinted = PKV_PREDICT_HINTED };

/* ---- sinks and window ---- */

static void sinks_are_first_at_every_position(void **state) {
    (void)state;
    static const int32_t policies[] = {seq, full, hinted};
    float scores[10];
    for (int i = 0; i < 10; ++i) scores[i] = (float)i; /* the later, the better: sinks are not chosen by score */
    for (int p = 0; p < 3; ++p)
        for (uint64_t position = 0; position <= 40; ++position) {
            char text[text_size];
            predict_list(predictor_of(policies[p], 4, 5, 6, 2), 40, position, policies[p] == hinted ? 10 : 0,
                         policies[p] == hinted ? scores : NULL, text);
            if (strncmp(text, "0 1", 3) != 0 || (text[3] != ' ' && text[3] != '\0'))
                fail_msg("policy %d at %llu: %s", policies[p], (unsigned long long)position, text);
        }
}

static void sinks_end_with_the_block_that_holds_the_last_of_them(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 4, 0, 0, 0, 40, 20, ""},      {seq, 4, 1, 0, 0, 40, 20, "0"},   {seq, 4, 3, 0, 0, 40, 20, "0"},
        {seq, 4, 4, 0, 0, 40, 20, "0"},     {seq, 4, 5, 0, 0, 40, 20, "0 1"}, {seq, 4, 8, 0, 0, 40, 20, "0 1"},
        {seq, 4, 9, 0, 0, 40, 20, "0 1 2"},
    };
    expect_table(lines);
}

static void a_window_is_cut_at_both_ends_of_a_sequence(void **state) {
    (void)state;
    static const line lines[] = {
        /* At the start: fewer tokens before the position than the window has. */
        {seq, 4, 0, 8, 0, 40, 0, ""},
        {seq, 4, 0, 8, 0, 40, 1, "0"},
        {seq, 4, 0, 8, 0, 40, 4, "0"},
        {seq, 4, 0, 8, 0, 40, 5, "0 1"},
        {seq, 4, 0, 8, 0, 40, 8, "0 1"},
        /* Within: it touches one block more where it does not begin with a page. */
        {seq, 4, 0, 8, 0, 40, 9, "0 1 2"},
        {seq, 4, 0, 8, 0, 40, 12, "1 2"},
        {seq, 4, 0, 8, 0, 40, 13, "1 2 3"},
        /* At the end, with a last block that is full, and with one that is not. */
        {seq, 4, 0, 8, 0, 40, 40, "8 9"},
        {seq, 4, 0, 8, 0, 38, 38, "7 8 9"},
        {seq, 4, 0, 1, 0, 37, 37, "9"},
        {seq, 4, 0, 2, 0, 37, 37, "8 9"},
    };
    expect_table(lines);
}

static void the_token_at_the_position_is_not_in_the_window(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 4, 0, 4, 0, 40, 20, "4"}, /* tokens 16 .. 19; token 20 begins block 5 */
        {seq, 4, 0, 1, 0, 40, 20, "4"},
        {seq, 4, 0, 1, 0, 40, 21, "5"},
    };
    expect_table(lines);
}

static void sinks_and_window_that_overlap_are_predicted_once(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 4, 8, 12, 0, 40, 12, "0 1 2"}, /* the window begins in the sinks */
        {seq, 4, 8, 6, 0, 40, 8, "0 1"},     /* it lies in them */
        {seq, 4, 20, 4, 0, 40, 10, "0 1 2 3 4"},
        {seq, 4, 6, 5, 0, 40, 9, "0 1 2"}, /* both touch block 1 */
        {full, 4, 20, 4, 0, 40, 10, "0 1 2 3 4 5 6 7 8 9"},
        {full, 4, 6, 5, 0, 40, 9, "0 1 2 3 4 5 6 7 8 9"},
        {seq, 4, 8, 12, 3, 40, 12, "0 1 2 3 4 5"},
        {seq, 4, 20, 0, 3, 40, 12, "0 1 2 3 4 5"}, /* sinks reach over the position */
        {seq, 4, 40, 0, 3, 40, 12, "0 1 2 3 4 5 6 7 8 9"},
    };
    expect_table(lines);
}

static void sinks_and_window_larger_than_the_sequence_are_all_of_it(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 4, 100, 0, 0, 10, 0, "0 1 2"}, {seq, 4, 0, 100, 0, 10, 10, "0 1 2"},
        {seq, 4, 0, 100, 0, 10, 7, "0 1"},   {full, 4, 100, 100, 0, 10, 10, "0 1 2"},
        {seq, 4, 11, 0, 9, 10, 3, "0 1 2"},
    };
    expect_table(lines);
}

/* ---- policies ---- */

static void sequential_predicts_from_the_block_of_the_position_on(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 4, 0, 0, 3, 40, 0, "0 1 2"},
        {seq, 4, 0, 0, 3, 40, 3, "0 1 2"},
        {seq, 4, 0, 0, 3, 40, 4, "1 2 3"},
        {seq, 4, 0, 0, 3, 40, 18, "4 5 6"},
        {seq, 4, 0, 0, 3, 40, 31, "7 8 9"},
        {seq, 4, 0, 0, 3, 40, 32, "8 9"},
        {seq, 4, 0, 0, 3, 40, 39, "9"},
        {seq, 4, 0, 0, 3, 40, 40, ""},
        {seq, 4, 0, 0, 3, 38, 38, "9"},
        {seq, 4, 0, 0, 0, 40, 18, ""},
        {seq, 4, 0, 0, 1, 40, 18, "4"},
        {seq, 4, 0, 0, 10, 40, 0, "0 1 2 3 4 5 6 7 8 9"},
        {seq, 4, 0, 0, 11, 40, 0, "0 1 2 3 4 5 6 7 8 9"},
    };
    expect_table(lines);
}

static void sequential_does_not_look_further_for_blocks_of_the_window(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 4, 0, 4, 3, 40, 18, "3 4 5 6"}, /* block 4 is in the window, and one of the three */
        {seq, 4, 0, 4, 1, 40, 18, "3 4"},
        {seq, 4, 4, 6, 2, 40, 20, "0 3 4 5 6"},
    };
    expect_table(lines);
}

static void full_predicts_every_block_once(void **state) {
    (void)state;
    static const line lines[] = {
        {full, 4, 0, 0, 0, 24, 0, "0 1 2 3 4 5"},  {full, 4, 0, 0, 0, 24, 24, "0 1 2 3 4 5"},
        {full, 4, 1, 5, 0, 24, 16, "0 2 3 1 4 5"}, {full, 4, 5, 2, 0, 24, 24, "0 1 5 2 3 4"},
        {full, 4, 0, 4, 0, 24, 10, "1 2 0 3 4 5"}, {full, 4, 0, 4, 9, 23, 23, "4 5 0 1 2 3"},
        {full, 4, 4, 4, 9, 23, 8, "0 1 2 3 4 5"},
    };
    expect_table(lines);
}

static void pages_need_not_be_powers_of_two(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 5, 6, 7, 2, 52, 29, "0 1 4 5 6"},
        {seq, 7, 7, 7, 2, 50, 21, "0 2 3 4"},
        {seq, 7, 8, 8, 2, 50, 21, "0 1 2 3 4"},
        {seq, 48, 49, 1, 1, 1000, 960, "0 1 19 20"},
        {full, 3, 4, 4, 0, 17, 17, "0 1 4 5 2 3"},
        {seq, 1, 2, 3, 2, 20, 10, "0 1 7 8 9 10 11"},
        {seq, 65535, 65536, 65536, 1, 65535 * 6, 65535 * 4, "0 1 2 3 4"},
        {seq, 65536, 65536, 65536, 1, 65536 * 6, 65536 * 4, "0 3 4"},
    };
    expect_table(lines);
}

static void empty_and_short_sequences_have_as_many_blocks_as_they_have(void **state) {
    (void)state;
    static const line lines[] = {
        {seq, 4, 8, 8, 8, 0, 0, ""},      {full, 4, 8, 8, 8, 0, 0, ""},  {hinted, 4, 8, 8, 8, 0, 0, ""},
        {seq, 4, 0, 0, 8, 1, 0, "0"},     {full, 4, 0, 0, 0, 1, 1, "0"}, {seq, 4, 0, 0, 8, 4, 4, ""},
        {seq, 4, 0, 0, 8, 3, 3, "0"},     {seq, 4, 1, 1, 8, 1, 1, "0"},  {hinted, 4, 0, 2, 8, 4, 3, "0"},
        {seq, 65536, 1, 1, 1, 1, 1, "0"},
    };
    expect_table(lines);
}

/* ---- scores ---- */

static void hinted_takes_the_highest_scores_first(void **state) {
    (void)state;
    static const float scores[] = {0.1f, 0.7f, -3.0f, 0.9f, 0.8f, 0.2f};
    expect(predictor_of(hinted, 4, 0, 0, 3), 24, 12, 6, scores, "3 4 1");
    expect(predictor_of(hinted, 4, 0, 0, 6), 24, 0, 6, scores, "3 4 1 5 0 2");
    expect(predictor_of(hinted, 4, 0, 0, UINT64_MAX), 24, 24, 6, scores, "3 4 1 5 0 2");
    expect(predictor_of(hinted, 4, 0, 0, 1), 24, 24, 6, scores, "3");
    expect(predictor_of(hinted, 4, 0, 0, 0), 24, 24, 6, scores, "");
}

static void sinks_and_window_do_not_count_as_blocks_by_score(void **state) {
    (void)state;
    static const float scores[] = {0.9f, 0.1f, 0.2f, 0.8f, 0.3f, 0.7f};
    expect(predictor_of(hinted, 4, 4, 4, 2), 24, 16, 6, scores, "0 3 5 4");
    expect(predictor_of(hinted, 4, 4, 4, 9), 24, 16, 6, scores, "0 3 5 4 2 1");
    expect(predictor_of(hinted, 4, 24, 0, 2), 24, 16, 6, scores, "0 1 2 3 4 5");
}

static void equal_scores_take_the_lower_block_first(void **state) {
    (void)state;
    static const float same[] = {1, 1, 1, 1, 1, 1};
    static const float two[] = {1, 2, 1, 2, 1, 2};
    static const float zeros[] = {-0.0f, 0.0f, -0.0f, 0.0f};
    expect(predictor_of(hinted, 4, 0, 0, 3), 24, 0, 6, same, "0 1 2");
    expect(predictor_of(hinted, 4, 4, 0, 3), 24, 0, 6, same, "0 1 2 3");
    expect(predictor_of(hinted, 4, 0, 0, 4), 24, 0, 6, two, "1 3 5 0");
    expect(predictor_of(hinted, 4, 0, 0, 4), 16, 0, 4, zeros, "0 1 2 3");
}

static void a_score_that_is_no_number_predicts_nothing(void **state) {
    (void)state;
    const float some[] = {NAN, 0.5f, -NAN, 0.7f, NAN, 0.1f};
    const float none[] = {NAN, NAN, NAN, NAN, NAN, NAN};
    expect(predictor_of(hinted, 4, 0, 0, 6), 24, 0, 6, some, "3 1 5");
    expect(predictor_of(hinted, 4, 0, 0, 2), 24, 0, 6, some, "3 1");
    expect(predictor_of(hinted, 4, 1, 4, 6), 24, 24, 6, none, "0 5"); /* sinks and window need no score */
}

static void infinite_scores_are_highest_and_lowest(void **state) {
    (void)state;
    const float scores[] = {-INFINITY, 3.0e38f, INFINITY, -3.0e38f, INFINITY, -INFINITY};
    expect(predictor_of(hinted, 4, 0, 0, 6), 24, 0, 6, scores, "2 4 1 3 0 5");
}

static void blocks_without_a_score_are_not_predicted_by_score(void **state) {
    (void)state;
    static const float scores[] = {0.1f, 0.2f, 0.3f, 0.9f, 0.8f, 0.7f};
    expect(predictor_of(hinted, 4, 0, 0, 6), 24, 0, 3, scores, "2 1 0");
    expect(predictor_of(hinted, 4, 2, 2, 6), 24, 24, 3, scores, "0 5 2 1");
    expect(predictor_of(hinted, 4, 2, 2, 6), 24, 24, no_scores, "0 5");
    expect(predictor_of(hinted, 4, 0, 0, 6), 16, 0, 6, scores,
           "3 2 1 0"); /* and scores without a block count for nothing */
    expect(predictor_of(hinted, 4, 0, 0, 6), 15, 0, 6, scores, "3 2 1 0");
    expect(predictor_of(hinted, 4, 0, 0, 6), 0, 0, 6, scores, "");
}

/* ---- large numbers ---- */

static void the_largest_values_do_not_wrap(void **state) {
    (void)state;
    const uint64_t most = UINT64_MAX;
    const line lines[] = {
        {seq, 4, most, most, most, 10, 5, "0 1 2"},
        {full, 4, most, most, most, 10, 10, "0 1 2"},
        {hinted, 4, most, most, most, 10, 0, "0 1 2"},
        {seq, 4, 0, most, 0, 10, 5, "0 1"},
        {seq, 4, 0, 0, most, 10, 5, "1 2"},
        {seq, 4, 0, 0, most, 10, 10, "2"},
        {seq, 3, most - 1, 0, 0, 10, 10, "0 1 2 3"},
        {seq, 65536, most, most, most, 65537, 65537, "0 1"},
    };
    expect_table(lines);
}

static void the_longest_sequence_is_predicted_by_what_is_asked_for(void **state) {
    (void)state;
    const uint64_t longest = 1ull << 40;
    const line lines[] = {
        {seq, 1, 2, 2, 2, longest, longest - 1, "0 1 1099511627773 1099511627774 1099511627775"},
        {seq, 1, 0, 0, 9, longest, longest, ""},
        {seq, 65536, 1, 1, 2, longest, longest - 65536 * 2, "0 16777213 16777214 16777215"},
    };
    expect_table(lines);
    static const float scores[] = {1, 3, 2};
    expect(predictor_of(hinted, 1, 0, 1, 2), longest, longest, 3, scores, "1099511627775 1 2");
}

static void asking_for_the_number_takes_no_memory(void **state) {
    (void)state;
    const uint64_t longest = 1ull << 40;
    uint64_t count = 0;
    pkv_predictor predictor = predictor_of(full, 1, 0, 0, 0);
    assert_ok(pkv_prefetch_predict(&predictor, longest, 7, no_scores, NULL, 0, &count));
    assert_int_equal(count, longest);
    uint64_t blocks[3] = {5, 5, 5};
    count = 0;
    assert_status(pkv_prefetch_predict(&predictor, longest, 7, no_scores, blocks, 3, &count), PKV_ERR_NO_SPACE);
    assert_int_equal(count, longest);
    predictor = predictor_of(seq, 3, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_ok(pkv_prefetch_predict(&predictor, longest, longest, no_scores, NULL, 0, &count));
    assert_int_equal(count, longest / 3 + 1);
}

/* ---- capacity and errors ---- */

static void blocks_are_written_only_where_all_of_them_have_room(void **state) {
    (void)state;
    const pkv_predictor predictor = predictor_of(seq, 4, 4, 4, 3); /* 0 4 5 6 7 */
    static const uint64_t list[] = {0, 4, 5, 6, 7};
    for (uint64_t capacity = 0; capacity <= 7; ++capacity) {
        uint64_t blocks[8], count = 77;
        for (int i = 0; i < 8; ++i) blocks[i] = 99;
        assert_status(pkv_prefetch_predict(&predictor, 40, 20, no_scores, blocks, capacity, &count),
                      capacity == 0 || capacity >= 5 ? PKV_OK : PKV_ERR_NO_SPACE);
        assert_int_equal(count, 5);
        for (uint64_t i = 0; i < 8; ++i) assert_int_equal(blocks[i], capacity >= 5 && i < 5 ? list[i] : 99);
    }
}

static void nothing_predicted_fits_any_capacity(void **state) {
    (void)state;
    const pkv_predictor predictor = predictor_of(seq, 4, 0, 0, 3);
    uint64_t block = 99, count = 77;
    assert_ok(pkv_prefetch_predict(&predictor, 40, 40, no_scores, &block, 1, &count));
    assert_int_equal(count, 0);
    assert_int_equal(block, 99);
    count = 77;
    assert_ok(pkv_prefetch_predict(&predictor, 40, 40, no_scores, NULL, 0, &count));
    assert_int_equal(count, 0);
}

static void arguments_out_of_range_are_refused_and_change_nothing(void **state) {
    (void)state;
    const uint64_t longest = 1ull << 40;
    const struct {
        int32_t policy;
        uint32_t page_tokens;
        uint64_t num_tokens, position;
        pkv_status status;
        const char *message;
    } lines[] = {
        {-1, 4, 40, 20, PKV_ERR_INVALID, "-1"},
        {3, 4, 40, 20, PKV_ERR_INVALID, "3"},
        {INT32_MAX, 4, 40, 20, PKV_ERR_INVALID, "2147483647"},
        {seq, 0, 40, 20, PKV_ERR_INVALID, "page_tokens is 0"},
        {seq, PKV_MAX_PAGE_TOKENS + 1, 40, 20, PKV_ERR_INVALID, "65537"},
        {seq, UINT32_MAX, 40, 20, PKV_ERR_INVALID, "4294967295"},
        {seq, 4, 40, 41, PKV_ERR_INVALID, "41"},
        {full, 4, 0, 1, PKV_ERR_INVALID, "1"},
        {hinted, 4, 40, UINT64_MAX, PKV_ERR_INVALID, "18446744073709551615"},
        {seq, 4, longest + 1, 20, PKV_ERR_LIMIT, "1099511627777"},
        {full, 4, UINT64_MAX, UINT64_MAX, PKV_ERR_LIMIT, "18446744073709551615"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
        const pkv_predictor predictor = predictor_of(lines[i].policy, lines[i].page_tokens, 4, 4, 4);
        uint64_t blocks[4] = {99, 99, 99, 99}, count = 77;
        assert_status(
            pkv_prefetch_predict(&predictor, lines[i].num_tokens, lines[i].position, no_scores, blocks, 4, &count),
            lines[i].status);
        assert_message(lines[i].message);
        assert_int_equal(count, 77);
        for (int b = 0; b < 4; ++b) assert_int_equal(blocks[b], 99);
    }
}

static void missing_pointers_are_refused(void **state) {
    (void)state;
    const pkv_predictor predictor = predictor_of(hinted, 4, 4, 4, 4);
    uint64_t blocks[most_blocks], count = 77;
    assert_status(pkv_prefetch_predict(NULL, 40, 20, no_scores, blocks, most_blocks, &count), PKV_ERR_INVALID);
    assert_status(pkv_prefetch_predict(&predictor, 40, 20, no_scores, blocks, most_blocks, NULL), PKV_ERR_INVALID);
    assert_status(pkv_prefetch_predict(&predictor, 40, 20, no_scores, NULL, most_blocks, &count), PKV_ERR_INVALID);
    assert_status(pkv_prefetch_predict(&predictor, 40, 20, 1, NULL, blocks, most_blocks, &count), PKV_ERR_INVALID);
    assert_int_equal(count, 77);
}

static void predictors_of_other_sizes_are_read_as_such(void **state) {
    (void)state;
    struct {
        pkv_predictor known;
        uint64_t later;
    } larger = {predictor_of(seq, 4, 0, 0, 3), 0};
    larger.known.struct_size = sizeof larger;
    uint64_t blocks[4], count = 0;
    assert_ok(pkv_prefetch_predict(&larger.known, 40, 20, no_scores, blocks, 4, &count));
    assert_int_equal(count, 3);
    larger.later = 1;
    assert_status(pkv_prefetch_predict(&larger.known, 40, 20, no_scores, blocks, 4, &count), PKV_ERR_UNSUPPORTED);
    pkv_predictor predictor = predictor_of(seq, 4, 4, 4, 3);
    predictor.struct_size = offsetof(pkv_predictor, recent_tokens); /* what is not there is 0 */
    assert_ok(pkv_prefetch_predict(&predictor, 40, 20, no_scores, blocks, 4, &count));
    assert_int_equal(count, 1);
    predictor.struct_size = 0;
    assert_status(pkv_prefetch_predict(&predictor, 40, 20, no_scores, blocks, 4, &count), PKV_ERR_INVALID);
    predictor.struct_size = 4097;
    assert_status(pkv_prefetch_predict(&predictor, 40, 20, no_scores, blocks, 4, &count), PKV_ERR_INVALID);
}

/* ---- a model that goes token by token ---- */

typedef struct {
    uint64_t blocks[most_blocks];
    uint64_t count;
    bool taken[most_blocks];
} model;

static void model_take(model *m, uint64_t block) {
    if (m->taken[block]) return;
    m->taken[block] = true;
    m->blocks[m->count++] = block;
}

static void model_predict(model *m, const pkv_predictor *p, uint64_t num_tokens, uint64_t position, uint64_t num_scores,
                          const float *scores) {
    memset(m, 0, sizeof *m);
    for (uint64_t token = 0; token < num_tokens; ++token)
        if (token < p->sink_tokens) model_take(m, token / p->page_tokens);
    for (uint64_t token = 0; token < position; ++token)
        if (position - token <= p->recent_tokens) model_take(m, token / p->page_tokens);
    uint64_t num_blocks = 0;
    while (num_blocks * p->page_tokens < num_tokens) ++num_blocks;
    for (uint64_t block = 0; block < num_blocks && p->policy == full; ++block) model_take(m, block);
    for (uint64_t block = position / p->page_tokens; block < num_blocks && p->policy == seq; ++block)
        if (block - position / p->page_tokens < p->lookahead) model_take(m, block);
    for (uint64_t left = p->lookahead; left > 0 && p->policy == hinted; --left) {
        int best = -1;
        for (uint64_t block = 0; block < num_blocks && block < num_scores; ++block)
            if (!m->taken[block] && scores[block] == scores[block] && (best < 0 || scores[block] > scores[best]))
                best = (int)block;
        if (best < 0) break;
        model_take(m, (uint64_t)best);
    }
}

/* Small numbers mostly, since ends meet there, and now and then any. */
static uint64_t any_amount(test_random *random, uint64_t bound) {
    const uint64_t kind = random_below(random, 8);
    if (kind == 0) return 0;
    if (kind == 1) return next_random(random);
    if (kind == 2) return UINT64_MAX - random_below(random, 3);
    return random_below(random, bound + 2);
}

static float any_score(test_random *random) {
    const uint64_t kind = random_below(random, 12);
    if (kind == 0) return NAN;
    if (kind == 1) return INFINITY;
    if (kind == 2) return -INFINITY;
    return (float)random_below(random, 9) - 4.0f; /* few values: many are equal */
}

static void predictions_agree_with_a_model_that_counts_tokens(void **state) {
    (void)state;
    const uint64_t seed = 20250611, rounds = long_tests() ? 5000000 : 100000;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    for (uint64_t round = 0; round < rounds; ++round) {
        const uint32_t page_tokens = (uint32_t)(1 + random_below(&random, 17));
        const uint64_t num_tokens = random_below(&random, 1 + page_tokens * random_below(&random, most_blocks));
        const uint64_t position = random_below(&random, num_tokens + 1);
        pkv_predictor predictor =
            predictor_of((int32_t)random_below(&random, 3), page_tokens, any_amount(&random, num_tokens),
                         any_amount(&random, num_tokens), any_amount(&random, most_blocks));
        float scores[most_blocks];
        const uint64_t num_scores = predictor.policy == hinted ? random_below(&random, most_blocks + 1) : 0;
        for (uint64_t i = 0; i < num_scores; ++i) scores[i] = any_score(&random);
        model m;
        model_predict(&m, &predictor, num_tokens, position, num_scores, scores);
        char list[text_size];
        write_list(list, m.blocks, m.count);
        expect(predictor, num_tokens, position, num_scores, num_scores == 0 ? NULL : scores, list);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sinks_are_first_at_every_position),
        cmocka_unit_test(sinks_end_with_the_block_that_holds_the_last_of_them),
        cmocka_unit_test(a_window_is_cut_at_both_ends_of_a_sequence),
        cmocka_unit_test(the_token_at_the_position_is_not_in_the_window),
        cmocka_unit_test(sinks_and_window_that_overlap_are_predicted_once),
        cmocka_unit_test(sinks_and_window_larger_than_the_sequence_are_all_of_it),
        cmocka_unit_test(sequential_predicts_from_the_block_of_the_position_on),
        cmocka_unit_test(sequential_does_not_look_further_for_blocks_of_the_window),
        cmocka_unit_test(full_predicts_every_block_once),
        cmocka_unit_test(pages_need_not_be_powers_of_two),
        cmocka_unit_test(empty_and_short_sequences_have_as_many_blocks_as_they_have),
        cmocka_unit_test(hinted_takes_the_highest_scores_first),
        cmocka_unit_test(sinks_and_window_do_not_count_as_blocks_by_score),
        cmocka_unit_test(equal_scores_take_the_lower_block_first),
        cmocka_unit_test(a_score_that_is_no_number_predicts_nothing),
        cmocka_unit_test(infinite_scores_are_highest_and_lowest),
        cmocka_unit_test(blocks_without_a_score_are_not_predicted_by_score),
        cmocka_unit_test(the_largest_values_do_not_wrap),
        cmocka_unit_test(the_longest_sequence_is_predicted_by_what_is_asked_for),
        cmocka_unit_test(asking_for_the_number_takes_no_memory),
        cmocka_unit_test(blocks_are_written_only_where_all_of_them_have_room),
        cmocka_unit_test(nothing_predicted_fits_any_capacity),
        cmocka_unit_test(arguments_out_of_range_are_refused_and_change_nothing),
        cmocka_unit_test(missing_pointers_are_refused),
        cmocka_unit_test(predictors_of_other_sizes_are_read_as_such),
        cmocka_unit_test(predictions_agree_with_a_model_that_counts_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
