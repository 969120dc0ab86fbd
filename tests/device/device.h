/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of device pools share: the device, pools on it, and rows in its memory. Include it in place of support/support.h. The
 * device is the fake one (fake/fake.h); with PKV_TESTS_REAL_DEVICE a real one, behind the same functions (gpu/runtime.h). What only
 * the fake one can is said: a test that is about it is skipped elsewhere. */
#ifndef PKV_TESTS_DEVICE_H
#define PKV_TESTS_DEVICE_H

#define PKV_TESTS_ON_DEVICE_ITSELF /* these tests say themselves what is on a device, and in which stream */
#include "support/support.h"

#include "device/fake/fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#ifdef PKV_TESTS_REAL_DEVICE
#include "gpu/runtime.h"
#endif

enum { page_tokens = 4, row_elements = 8 /* of small_group: 2 heads of 4 */, row_bytes = 16 };

#ifdef PKV_TESTS_REAL_DEVICE

enum { is_fake = 0 };

#else

enum { is_fake = 1 };

/* The folder of the fake plug-in: beside this program. */
static inline const char *fake_folder(void) {
    static char folder[4096];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 8);
    assert_true(length > 0);
    folder[length] = 0;
    strcpy(strrchr(folder, '/'), "/fake");
    return folder;
}

static inline const struct fake_device *fake(void) {
    static const struct fake_device *device;
    if (device == NULL) {
        char path[4200];
        snprintf(path, sizeof path, "%s/libpagedkv-cuda.so", fake_folder());
        void *plugin = dlopen(path, RTLD_NOW);
        if (plugin == NULL) fail_msg("%s", dlerror());
        fake_device_entry entry;
        *(void **)&entry = dlsym(plugin, FAKE_DEVICE_ENTRY);
        device = entry();
    }
    return device;
}

/* Of a real one these are other numbers: which devices it is depends on the machine. */
static inline int num_devices(void) { return fake()->settings().devices; }
static inline int32_t device_number(int32_t index) { return index; }
static inline bool device_waits_on_words(void) { return true; }

#endif

/* ---- what a test needs ---- */

#define needs(condition, what)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_message("not here: it needs %s\n", what);                                                            \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)
/* Settings, or counts, that are what the test is about. */
#define needs_fake() needs(is_fake, "the settings or the counts of the fake device")
#define needs_devices(count) needs(num_devices() >= (count), "another device")
#define needs_words() needs(device_waits_on_words(), "a device whose streams wait for words")

/* Changes settings: with_fake(f, f.pace_ns = 0). */
#define with_fake(name, ...)                                                                                           \
    do {                                                                                                               \
        struct fake_settings name = fake()->settings();                                                                \
        __VA_ARGS__;                                                                                                   \
        fake()->set(&name);                                                                                            \
    } while (0)

/* A count, beside what a test sees without it: of a real device always 0. */
#define counted(name) (is_fake ? fake()->counts().name : 0)

/* Whether the device ignores what the library orders. */
static inline bool unordered(void) { return is_fake && fake()->settings().ignore_order; }

/* A device that is in no hurry. A real one takes its time as it likes. */
static inline void slow_device(uint64_t pace_ns) {
    if (is_fake) with_fake(f, f.pace_ns = pace_ns);
}

/* ---- begin and end ---- */

/* For cmocka: every test begins with a device of default settings, and ends with nothing of the library's left on it. */
static inline int begin_test(void **state) {
    (void)state;
#ifndef PKV_TESTS_REAL_DEVICE
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1);
#endif
    fake()->reset();
    return 0;
}

static inline int end_test(void **state) {
    (void)state;
    fake()->reset();
#ifdef PKV_TESTS_REAL_DEVICE
    return check_runtime();
#else
    struct fake_counts left;
    uint64_t objects = 1;
    for (int waited = 0; objects != 0 && waited < 30000;
         ++waited) { /* a thread may be about to give staging memory back */
        if (waited != 0) usleep(300);
        left = fake()->counts();
        objects = left.contexts + left.streams + left.events + left.allocations + left.pinned + left.pins;
    }
    if (objects != 0)
        print_error("left: %d contexts, %d streams, %d events, %d allocations, %d pinned, %d pins\n",
                    (int)left.contexts, (int)left.streams, (int)left.events, (int)left.allocations, (int)left.pinned,
                    (int)left.pins);
    return objects == 0 ? 0 : -1;
#endif
}

#define device_test(function) cmocka_unit_test_setup_teardown(function, begin_test, end_test)

/* Nothing was asked of the device that a real one would not have done; a real one has had no error. */
static inline void check_device(void) {
    fake()->finish(NULL);
    assert_int_equal(counted(faults), 0);
    assert_int_equal(counted(capture_faults), 0);
    assert_int_equal(counted(dead_streams), 0);
}

/* ---- pools ---- */

static inline pkv_pool_options device_options(const pkv_group_options *group) {
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = group;
    options.device = PKV_DEVICE_CUDA;
    options.device_index = device_number(0);
    return options;
}

static inline pkv_pool *device_pool_of(const pkv_group_options *group, const pkv_sync *in_place, uint32_t debug) {
    pkv_pool_options options = device_options(group);
    options.in_place = in_place;
    options.debug = debug;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static inline pkv_pool *device_pool(uint64_t num_pages) {
    const pkv_group_options group = small_group(num_pages);
    return device_pool_of(&group, NULL, 0);
}

static inline void end_device_pool(pkv_pool *pool) {
    check_device();
    end_pool(pool);
}

/* ---- memory ---- */

static inline void fill_bytes(void *address, int value, uint64_t size) {
    unsigned char *bytes = malloc(size);
    memset(bytes, value, size);
    fake()->write(address, bytes, size);
    free(bytes);
}

/* Whether all bytes at an address of the device's are these. */
static inline bool are_bytes(const void *address, int value, uint64_t size) {
    unsigned char *bytes = malloc(size);
    fake()->read(bytes, address, size);
    bool same = true;
    for (uint64_t i = 0; i < size; ++i) same = same && bytes[i] == (unsigned char)value;
    free(bytes);
    return same;
}

/* ---- streams ---- */

static inline pkv_sync on(void *stream) {
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_CUDA_STREAM;
    sync.handle = stream;
    return sync;
}

static inline pkv_sync behind(void *event) {
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_CUDA_EVENT;
    sync.handle = event;
    return sync;
}

static inline void *let_go_after_a_while(void *held) {
    usleep(20000);
    fake()->let_go(held);
    return NULL;
}

/* On another thread, to be joined: whoever waits for a stream that is held comes back after that. */
static inline pthread_t let_go_soon(void *held) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, let_go_after_a_while, held), 0);
    return thread;
}

/* ---- rows ---- */

/* Element of (tag, side, layer, token, index). Never 0xFFFF, which poison looks like. */
static inline uint16_t element_of(uint32_t tag, int side, uint32_t layer, uint64_t token, int index) {
    uint64_t mixed = ((((uint64_t)tag * 2 + (uint64_t)side) * 7 + layer) * 1000003 + token) * 64 + (uint64_t)index;
    mixed *= UINT64_C(0x9E3779B97F4A7C15);
    return (uint16_t)((mixed >> 40) % 65535);
}

/* Rows of the small geometry in memory of the device: of K and V. */
typedef struct {
    uint16_t *at[2]; /* device addresses */
    pkv_tensor tensor[2];
    uint64_t num;
} device_rows;

/* They stay until the test ends: a stream that is held may still need them. */
static inline device_rows make_rows(uint64_t num) {
    device_rows rows = {.num = num};
    for (int side = 0; side < 2; ++side) {
        rows.at[side] = fake()->alloc(0, (num + 1) * row_bytes);
        rows.tensor[side] = (pkv_tensor)PKV_TENSOR_INIT;
        rows.tensor[side].data = rows.at[side];
        rows.tensor[side].dtype = PKV_DTYPE_F16;
        rows.tensor[side].num_tokens = num;
        fill_bytes(rows.at[side], 0xEE, (num + 1) * row_bytes);
    }
    return rows;
}

/* What a kernel of the engine's puts there when its turn comes in the stream; NULL: now. */
static inline void fill_rows(const device_rows *rows, void *stream, uint32_t tag, uint32_t layer, uint64_t token,
                             uint64_t num) {
    uint16_t *values = malloc(num * row_bytes + 1);
    for (int side = 0; side < 2; ++side) {
        for (uint64_t i = 0; i < num * row_elements; ++i)
            values[i] = element_of(tag, side, layer, token + i / row_elements, (int)(i % row_elements));
        if (stream != NULL)
            fake()->put(stream, rows->at[side], values, num * row_bytes);
        else
            fake()->write(rows->at[side], values, num * row_bytes);
    }
    free(values);
}

/* Whether rows are those of a tag; the stream has been waited for. */
static inline bool are_rows(const device_rows *rows, uint32_t tag, uint32_t layer, uint64_t token, uint64_t first,
                            uint64_t num) {
    uint16_t *values = malloc(num * row_bytes + 1);
    bool same = true;
    for (int side = 0; side < 2; ++side) {
        fake()->read(values, rows->at[side] + first * row_elements, num * row_bytes);
        for (uint64_t i = 0; i < num * row_elements; ++i)
            same = same && values[i] == element_of(tag, side, layer, token + i / row_elements, (int)(i % row_elements));
    }
    free(values);
    return same;
}

static inline void assert_rows(const device_rows *rows, uint32_t tag, uint32_t layer, uint64_t token, uint64_t num) {
    if (!are_rows(rows, tag, layer, token, 0, num)) fail_msg("rows of layer %u are not those of tag %u", layer, tag);
}

/* Both layers of tokens [token, token + num) of a table, written in a stream. */
static inline void write_tokens(pkv_table *table, void *stream, uint64_t token, uint64_t num, uint32_t tag) {
    const pkv_sync sync = on(stream);
    device_rows rows = make_rows(num);
    for (uint32_t layer = 0; layer < 2; ++layer) {
        fill_rows(&rows, stream, tag, layer, token, num);
        assert_ok(pkv_table_write(table, 0, layer, token, num, &rows.tensor[0], &rows.tensor[1], &sync));
    }
}

/* Gathers both layers in a stream, waits for it, and says whether they are those of a tag. */
static inline bool has_tokens(pkv_table *table, void *stream, uint64_t token, uint64_t num, uint32_t tag) {
    const pkv_sync sync = on(stream);
    device_rows rows = make_rows(num);
    bool same = true;
    for (uint32_t layer = 0; layer < 2; ++layer) {
        assert_ok(pkv_table_gather(table, 0, layer, token, num, &rows.tensor[0], &rows.tensor[1], &sync));
        fake()->finish(stream);
        same = same && are_rows(&rows, tag, layer, token, 0, num);
    }
    return same;
}

static inline void assert_tokens(pkv_table *table, void *stream, uint64_t token, uint64_t num, uint32_t tag) {
    if (!has_tokens(table, stream, token, num, tag)) fail_msg("the table has other bytes than those of tag %u", tag);
}

/* A table whose prompt's tokens count up from `first`, without a match. */
static inline pkv_table *new_table(pkv_pool *pool, pkv_token first, uint64_t num_tokens) {
    pkv_token tokens[256];
    assert_true(num_tokens <= 256);
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_NO_MATCH;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    return table;
}

/* The same with whatever matches of it: `matched` tokens. */
static inline pkv_table *matching_table(pkv_pool *pool, pkv_token first, uint64_t num_tokens, uint64_t matched) {
    pkv_token tokens[256];
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit(pool, &prompt, &match);
    assert_int_equal(match.tokens, matched);
    return table;
}

#endif
