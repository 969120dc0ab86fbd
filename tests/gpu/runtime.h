/* SPDX-License-Identifier: Apache-2.0 */
/* A real device behind the functions of the fake one (device/fake/fake.h), so that the tests of tests/device run there: what a
 * program asks of a device goes to the CUDA runtime. Streams are held by a kernel that stands still until it is let go; if nobody
 * does for ten seconds it ends by itself, and the test has failed: somebody waited who should not have.
 *
 * It has neither settings nor counts: who asks for them fails. Tests say what they need (device/device.h). Without a device the
 * program ends before its tests, with the reason and status 77. */
#ifndef PKV_TESTS_GPU_RUNTIME_H
#define PKV_TESTS_GPU_RUNTIME_H

#include "device/fake/fake.h"

const struct fake_device *fake(void);

/* Devices of the tests are numbered from 0: the one that PKV_TEST_DEVICE says, by default the first, then one beside it. */
int num_devices(void);                /* 1 or 2 */
int32_t device_number(int32_t index); /* what the runtime calls it */
bool device_waits_on_words(void);

/* For the end of a test, after reset(): 0 if nothing was wrong that no call has said, or -1. */
int check_runtime(void);

#endif
