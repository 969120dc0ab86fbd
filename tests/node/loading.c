/* SPDX-License-Identifier: Apache-2.0 */
/* The first node of a process loads libfabric: what that leaves of the process as it was. */
#include "node/nodes.h"

#include <signal.h>

enum { signals = 65, restorer = 0x04000000 /* the kernel's word for what the C library does with any handler */ };

static void a_handler(int number) { (void)number; }

static void the_first_node_leaves_signals_as_they_were(void **state) {
    (void)state;
    struct sigaction before[signals] = {0}, after = {0}, own = {0};
    own.sa_handler = a_handler;
    own.sa_flags = SA_RESTART;
    assert_int_equal(sigaction(SIGABRT, &own, NULL), 0);
    for (int number = 1; number < signals; ++number) (void)sigaction(number, NULL, &before[number]);
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    if (node == NULL) skip();
    for (int number = 1; number < signals; ++number) {
        if (sigaction(number, NULL, &after) != 0) continue; /* those that the C library has for itself */
        if (after.sa_handler != before[number].sa_handler ||
            ((after.sa_flags ^ before[number].sa_flags) & ~restorer) != 0)
            fail_msg("signal %d has another handler", number);
    }
    assert_ok(pkv_node_close(node));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_node_leaves_signals_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
