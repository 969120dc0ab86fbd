/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in for CUDA devices as it loads on every machine: its table is whole, and says why there is no device.
 * Skipped where it was not built. What it does on a device is tests/gpu. */
#include "support/support.h"
#include "tensor/device_table.h"

#include <dlfcn.h>
#include <unistd.h>

static const pkv_device_table *device; /* NULL: there is no plug-in */
static char path[8192];

static void plugin_path(void) {
    char self[4096];
    const char *build = getenv("BUILD");
    if (build == NULL) {
        const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        if (length < 0) exit(2);
        self[length] = '\0';
        for (int i = 0; i < 3; ++i) *strrchr(self, '/') = '\0'; /* tests/tensor/program */
        build = self;
    }
    snprintf(path, sizeof path, "%s/lib/pagedkv/libpagedkv-cuda.so", build);
}

static int load(void **state) {
    (void)state;
    plugin_path();
    if (access(path, R_OK) != 0) return 0;
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        print_error("%s\n", dlerror());
        return 1;
    }
    pkv_device_entry entry;
    *(void **)&entry = dlsym(library, PKV_DEVICE_ENTRY);
    if (entry == NULL) return 1;
    device = entry();
    return device == NULL;
}

#define needs_plugin()                                                                                                 \
    if (device == NULL) skip()

static void the_table_is_whole(void **state) {
    (void)state;
    needs_plugin();
    assert_int_equal(device->struct_size, sizeof *device);
    assert_int_equal(device->version, PKV_DEVICE_VERSION);
    assert_string_equal(device->kind, "cuda");
    /* From the first function to the last there is no hole. */
    const void *const *const functions = (const void *const *)(const void *)&device->available;
    const size_t count = (sizeof *device - offsetof(pkv_device_table, available)) / sizeof(void *);
    for (size_t i = 0; i < count; ++i)
        if (functions[i] == NULL) fail_msg("function %zu of %zu is NULL", i, count);
}

static void its_entry_is_all_that_it_exports(void **state) {
    (void)state;
    needs_plugin();
    void *const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    assert_non_null(dlsym(library, PKV_DEVICE_ENTRY));
    static const char *const hidden[] = {"cudaMalloc", "cudaLaunchKernel", "cudaGetLastError", "pkv_emulated",
                                         "emulated_write"};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; ++i) assert_null(dlsym(library, hidden[i]));
    dlclose(library);
}

static void what_is_not_available_is_explained(void **state) {
    (void)state;
    needs_plugin();
    const int32_t count = device->count();
    static const int32_t no_device[] = {-1, INT32_MIN, INT32_MAX, 1000};
    assert_in_range(count, 0, 999);
    for (int i = 0; i < 4; ++i) {
        char why[256] = "";
        assert_int_equal(device->available(no_device[i], why, sizeof why), PKV_ERR_UNSUPPORTED);
        assert_true(strlen(why) > 10);
        if (count != 0) assert_non_null(strstr(why, "device"));
        assert_int_equal(device->available(no_device[i], NULL, 0), PKV_ERR_UNSUPPORTED);
        /* Cut, and terminated. */
        char little[8];
        memset(little, 'x', sizeof little);
        assert_int_equal(device->available(no_device[i], little, 4), PKV_ERR_UNSUPPORTED);
        assert_memory_equal(little, why, 3);
        assert_int_equal(little[3], 0);
        assert_int_equal(little[4], 'x');
        pkv_device_context *context = (pkv_device_context *)little;
        assert_int_equal(device->open(no_device[i], &context, why, sizeof why), PKV_ERR_UNSUPPORTED);
        assert_null(context);
        assert_true(strlen(why) > 10);
    }
}

static void without_a_device_the_reason_is_that_of_the_first(void **state) {
    (void)state;
    needs_plugin();
    if (device->count() != 0) skip();
    char why[256], again[256];
    assert_int_equal(device->available(0, why, sizeof why), PKV_ERR_UNSUPPORTED);
    print_message("no device: %s\n", why); /* cuda_driver.sh reads it */
    assert_non_null(strstr(why, "driver"));
    pkv_device_context *context = NULL;
    for (int i = 0; i < 3; ++i) { /* as often as it is asked */
        assert_int_equal(device->open(0, &context, again, sizeof again), PKV_ERR_UNSUPPORTED);
        assert_string_equal(why, again);
        assert_null(context);
    }
}

static void contexts_and_arguments_of_null_are_refused(void **state) {
    (void)state;
    needs_plugin();
    char why[256];
    void *address;
    int32_t kind;
    pkv_device_event *event;
    pkv_device_facts facts = {.struct_size = sizeof facts};
    assert_int_equal(device->open(0, NULL, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->facts(NULL, &facts, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->alloc(NULL, 1, &address, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->alloc_pinned(NULL, 1, &address, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->pin(NULL, why, 1, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->address_kind(NULL, why, &kind, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->make_stream(NULL, 0, &address, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->capturing(NULL, NULL, &kind, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->wait_stream(NULL, NULL, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->make_event(NULL, 0, &event, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->record(NULL, NULL, NULL, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->query(NULL, NULL, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->order_after(NULL, NULL, NULL, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->wait_word(NULL, NULL, NULL, 0, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->write_word(NULL, NULL, NULL, 0, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->copy(NULL, NULL, PKV_DEVICE_TO_HOST, NULL, 0, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->write(NULL, NULL, NULL, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->gather(NULL, NULL, NULL, why, sizeof why), PKV_ERR_INVALID);
    assert_int_equal(device->pack(NULL, NULL, NULL, 0, NULL, 0, 0, why, sizeof why), PKV_ERR_INVALID);
    device->close(NULL);
    device->free(NULL, NULL);
    device->free_pinned(NULL, NULL);
    device->unpin(NULL, NULL);
    device->end_stream(NULL, NULL);
    device->end_event(NULL, NULL);
    assert_int_equal(device->stream_id(NULL, NULL), 0);
}

static void nothing_is_printed(void **state) {
    (void)state;
    needs_plugin();
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(stdout);
    fflush(stderr);
    const int out = dup(1), err = dup(2);
    dup2(pipes[1], 1);
    dup2(pipes[1], 2);
    char why[256];
    pkv_device_context *context = NULL;
    device->count();
    device->available(0, why, sizeof why);
    device->available(1000, why, sizeof why);
    if (device->open(0, &context, why, sizeof why) == PKV_OK) device->close(context);
    fflush(stdout);
    fflush(stderr);
    dup2(out, 1);
    dup2(err, 2);
    close(pipes[1]);
    char said[16];
    assert_int_equal(read(pipes[0], said, sizeof said), 0); /* 1 and 2 are what they were: the pipe has no writer */
    close(pipes[0]);
    close(out);
    close(err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(its_entry_is_all_that_it_exports),
        cmocka_unit_test(what_is_not_available_is_explained),
        cmocka_unit_test(without_a_device_the_reason_is_that_of_the_first),
        cmocka_unit_test(contexts_and_arguments_of_null_are_refused),
        cmocka_unit_test(nothing_is_printed),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
