/* SPDX-License-Identifier: Apache-2.0 */
/* Where there is no plug-in, another one, no driver or no device: the library works, and says why the device does not. The
 * plug-in stays loaded once it is, so each test is a process of its own. */
#include "device/device.h"

#include <sys/wait.h>

/* Runs a test in a child that has loaded nothing yet. */
static void in_child(void (*test)(void)) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        test();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* In the child an assertion cannot jump into cmocka. */
static void need(bool holds, const char *what) {
    if (holds) return;
    char message[512];
    pkv_last_error(message, sizeof message);
    fprintf(stderr, "not so: %s; last error: %s\n", what, message);
    _exit(1);
}
#define need(condition) need(condition, #condition)

static bool says(const char *text) {
    char message[512];
    pkv_last_error(message, sizeof message);
    return strstr(message, text) != NULL;
}

static pkv_status create(int32_t device, int32_t index, pkv_pool **pool) {
    const pkv_group_options group = small_group(4);
    pkv_pool_options options = device_options(&group);
    options.device = device;
    options.device_index = index;
    return pkv_pool_create(&options, pool);
}

static void host_pool_works(void) {
    pkv_pool *pool = NULL;
    need(create(PKV_DEVICE_HOST, 0, &pool) == PKV_OK);
    pkv_page page = 7;
    need(pkv_pool_alloc(pool, 0, 1, &page) == PKV_OK && page == 0);
    need(pkv_pool_release(pool, 0, 1, &page, NULL, NULL) == PKV_OK);
    need(pkv_pool_order(pool, NULL) == PKV_OK);
    need(pkv_pool_destroy(pool) == PKV_OK);
}

static void without_plugin(void) {
    setenv("PKV_PLUGIN_DIR", "/nowhere/at/all", 1);
    for (int i = 0; i < 2; ++i) { /* the second time, too */
        need(pkv_device_available(PKV_DEVICE_CUDA, 0) == PKV_ERR_UNSUPPORTED);
        need(says("/nowhere/at/all/libpagedkv-cuda.so"));
        pkv_pool *pool = (pkv_pool *)1;
        need(create(PKV_DEVICE_CUDA, 0, &pool) == PKV_ERR_UNSUPPORTED && pool == (pkv_pool *)1);
        need(says("/nowhere/at/all/libpagedkv-cuda.so"));
    }
    need(pkv_device_available(PKV_DEVICE_HOST, 0) == PKV_OK);
    host_pool_works();
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1); /* it has been installed meanwhile */
    need(pkv_device_available(PKV_DEVICE_CUDA, 0) == PKV_OK);
}

static void without_a_plugin_the_reason_is_said_and_the_library_works(void **state) {
    (void)state;
    in_child(without_plugin);
}

static void other_version(void) {
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1);
    setenv("PKV_FAKE_VERSION", "2", 1);
    need(pkv_device_available(PKV_DEVICE_CUDA, 0) == PKV_ERR_UNSUPPORTED);
    need(says("version") && says("2"));
    pkv_pool *pool = NULL;
    need(create(PKV_DEVICE_CUDA, 0, &pool) == PKV_ERR_UNSUPPORTED);
    host_pool_works();
}

static void a_plugin_of_another_version_is_refused(void **state) {
    (void)state;
    in_child(other_version);
}

static void shorter_table(void) {
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1);
    setenv("PKV_FAKE_TABLE", "short", 1);
    need(pkv_device_available(PKV_DEVICE_CUDA, 0) == PKV_ERR_UNSUPPORTED);
    need(says("version"));
}

static void a_plugin_with_a_shorter_table_is_refused(void **state) {
    (void)state;
    in_child(shorter_table);
}

static void older_table(void) { /* without what was added later */
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1);
    setenv("PKV_FAKE_TABLE", "old", 1);
    pkv_pool *pool = NULL;
    need(create(PKV_DEVICE_CUDA, 0, &pool) == PKV_OK);
    pkv_page page = 0;
    const pkv_sync sync = on(fake()->make_stream(0));
    need(pkv_pool_alloc(pool, 0, 1, &page) == PKV_OK);
    need(pkv_pool_release(pool, 0, 1, &page, NULL, &sync) == PKV_OK);
    need(pkv_pool_destroy(pool) == PKV_OK);
}

static void a_plugin_without_later_functions_works(void **state) {
    (void)state;
    in_child(older_table);
}

static void no_driver(void) {
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1);
    with_fake(f, f.devices = 0);
    need(pkv_device_available(PKV_DEVICE_CUDA, 0) == PKV_ERR_UNSUPPORTED);
    need(says("no driver") && says("CUDA device 0"));
    pkv_pool *pool = NULL;
    need(create(PKV_DEVICE_CUDA, 0, &pool) == PKV_ERR_UNSUPPORTED && says("no driver"));
    host_pool_works();
    need(fake()->counts().contexts == 0);
}

static void without_a_driver_the_reason_is_said_and_the_library_works(void **state) {
    (void)state;
    in_child(no_driver);
}

static void kinds_and_indices(void) {
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1);
    need(pkv_device_available(PKV_DEVICE_CUDA, 1) == PKV_OK);
    need(pkv_device_available(PKV_DEVICE_CUDA, 2) == PKV_ERR_UNSUPPORTED && says("no such device") && says("2"));
    need(pkv_device_available(PKV_DEVICE_CUDA, -1) == PKV_ERR_INVALID && says("-1"));
    need(pkv_device_available(2, 0) == PKV_ERR_INVALID && says("2"));
    need(pkv_device_available(-1, 0) == PKV_ERR_INVALID);
    need(pkv_device_available(PKV_DEVICE_HOST, 1) == PKV_ERR_UNSUPPORTED && says("1"));
    pkv_pool *pool = NULL;
    need(create(PKV_DEVICE_CUDA, 2, &pool) == PKV_ERR_UNSUPPORTED);
    need(create(PKV_DEVICE_HOST, 1, &pool) == PKV_ERR_UNSUPPORTED);
    need(create(9, 0, &pool) == PKV_ERR_INVALID);
    need(fake()->counts().contexts == 0); /* to ask does not begin to use it */
}

static void kinds_and_indices_are_checked(void **state) {
    (void)state;
    in_child(kinds_and_indices);
}

static void loading_nothing(void) {
    setenv("PKV_PLUGIN_DIR", fake_folder(), 1);
    host_pool_works();
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (fgets(line, sizeof line, maps) != NULL) need(strstr(line, "libpagedkv-cuda") == NULL);
    fclose(maps);
}

static void host_pools_load_no_plugin(void **state) {
    (void)state;
    in_child(loading_nothing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_plugin_the_reason_is_said_and_the_library_works),
        cmocka_unit_test(a_plugin_of_another_version_is_refused),
        cmocka_unit_test(a_plugin_with_a_shorter_table_is_refused),
        cmocka_unit_test(a_plugin_without_later_functions_works),
        cmocka_unit_test(without_a_driver_the_reason_is_said_and_the_library_works),
        cmocka_unit_test(kinds_and_indices_are_checked),
        cmocka_unit_test(host_pools_load_no_plugin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
