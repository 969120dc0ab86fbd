/* SPDX-License-Identifier: Apache-2.0 */
/* A libfabric that has one provider, "fake", inside this process: it behaves as providers do that a test machine does not
 * have. Load it with RTLD_GLOBAL before the plug-in, so that it stands in front of the real one. */
#ifndef PKV_TESTS_FAKE_H
#define PKV_TESTS_FAKE_H

#include <stdatomic.h>
#include <stdint.h>

enum { fake_raw_key_bytes = 32 };

/* Set before a domain is opened, but what stands under "while it runs". */
struct fake_settings {
    int virtual_addresses;      /* FI_MR_VIRT_ADDR */
    int local_regions;          /* FI_MR_LOCAL */
    int provider_keys;          /* FI_MR_PROV_KEY */
    int raw_keys;               /* FI_MR_RAW, keys of fake_raw_key_bytes */
    int no_descriptor;          /* no FI_WAIT_FD */
    uint64_t key_bytes;         /* mr_key_size */
    uint64_t max_message;       /* 0: no limit */
    uint64_t max_registration;  /* longer ones are refused; 0: no limit */
    uint64_t max_registrations; /* more of them are refused; 0: no limit */
    int locks_memory;           /* registered memory counts against RLIMIT_MEMLOCK */
    /* while it runs, by any thread */
    _Atomic int held;            /* nothing lands, and nothing completes */
    _Atomic int again;           /* so many reads are answered with -FI_EAGAIN first; -1: all */
    _Atomic uint64_t fail_at;    /* the read of that number (from 1) and all after it fail, the later ones as flushed */
    _Atomic int without_context; /* the failure names no read, and those that are under way are never heard of again */
    _Atomic int own_error_data;  /* error data in memory of the provider's, overwritten by the next call on the queue */
    _Atomic int reversed;        /* completions come in reverse order */
    _Atomic uint64_t late_ns;    /* reads land, and complete, that long after they were posted */
    _Atomic int busy_closes;     /* so many closings of endpoints are answered with -FI_EBUSY first */
};

struct fake_counts {
    uint64_t reads;         /* that were taken */
    uint64_t landed;        /* of them, with their bytes */
    uint64_t longest_read;  /* bytes */
    uint64_t registrations; /* open now */
    uint64_t mapped_keys;   /* open now */
    uint64_t objects;       /* everything open now */
    uint64_t access;        /* all access that registrations asked for */
    uint64_t last_key;      /* that a registration asked for */
    char asked[64];         /* names of providers that were asked for, in order */
};

/* Both are zeroed by fake_reset(). What is open stays open, and counted. */
struct fake_settings *fake_settings(void);
struct fake_counts fake_counts(void);
void fake_reset(void);

#endif
