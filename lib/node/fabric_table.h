// SPDX-License-Identifier: Apache-2.0
// The table through which the library reaches libfabric: libpagedkv-fabric.so, opened with dlopen when the first node is
// opened, exports one function that returns it. C types only, and sizes first: a plug-in and a library of different
// releases either understand each other, or say so. For C as well as for C++.
//
// A domain is one provider, with a thread of its own that drives all its endpoints and sleeps while nothing moves. Memory
// that peers may read is registered for remote reads, and for nothing else; reads land in memory that was registered as
// their target. There is one endpoint for each peer: once endpoint_close() has returned, nothing that this peer sends, and
// no read from it, touches memory any more, which is what closing it is for.
//
// Messages of failures are written to `why`, terminated and cut to fit; a NULL `why` takes none.
//
// Loading the plug-in loads libfabric, whose shm provider then puts handlers of its own on SIGBUS, SIGSEGV, SIGTERM and
// SIGINT, before any code of the plug-in runs. Whoever loads it saves the actions of those four before, and puts them back.
// The first call of its entry sets FI_OFI_RXM_ENABLE_PASSTHRU in the environment if it is not there and libfabric is older than
// 1.18: without it the tcp provider crashes, and is refused if somebody else has used libfabric before.
//
// The provider "shm" is the plug-in's own: the kernel copies from one process to the other (process_vm_readv). It takes nothing of
// libfabric's provider of that name, whose readers wait for ever for a lock that a killed peer held, and leaves nothing in
// /dev/shm. Both processes have to belong to one user, who may read either; keys guard against mistakes only.
#pragma once

#include <pagedkv/types.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PKV_FABRIC_VERSION 1
#define PKV_FABRIC_PLUGIN "libpagedkv-fabric.so"
#define PKV_FABRIC_ENTRY "pkv_fabric_plugin"
#define PKV_FABRIC_MAX_KEY 256
#define PKV_FABRIC_MAX_NAME 512
#define PKV_FABRIC_MAX_REGIONS 64

typedef struct pkv_fabric_domain pkv_fabric_domain;
typedef struct pkv_fabric_region pkv_fabric_region;
typedef struct pkv_fabric_endpoint pkv_fabric_endpoint;

/** What a provider asks of its users, as it was read. UINT64_MAX: no limit that is known. */
typedef struct pkv_fabric_modes {
    size_t struct_size;
    char provider[64]; /**< as libfabric names it: both ends of a connection need the same */
    char fabric[64];
    int32_t virtual_addresses; /**< FI_MR_VIRT_ADDR: remote addresses are the peer's; else offsets in its region */
    int32_t local_regions;     /**< FI_MR_LOCAL: targets of reads have to be registered */
    int32_t provider_keys;     /**< FI_MR_PROV_KEY: the provider chooses keys; else they are random here */
    int32_t raw_keys;          /**< FI_MR_RAW: keys are mapped before use; may be longer than 8 bytes */
    int32_t manual_progress;   /**< nothing moves unless the domain's thread looks */
    int32_t sleeps;            /**< the thread sleeps in descriptors of the provider's; else it looks now and then */
    int32_t copies;            /**< a read is a copy, which whoever wants the bytes can make: copy() */
    int32_t reserved;
    uint64_t key_bytes;     /**< of a key itself; in a window it may take more */
    uint64_t max_message;   /**< bytes of one read */
    uint64_t max_region;    /**< bytes of one registration: known once the provider has refused a longer one */
    uint64_t max_regions;   /**< registrations that the provider is made for */
    uint64_t max_in_flight; /**< parts of reads of one endpoint that are with the provider at a time */
} pkv_fabric_modes;

/** Memory that a peer may read: sent to it, and given back here by it. One for each registration that the memory took. */
typedef struct pkv_fabric_window {
    uint64_t bytes;
    uint64_t address;   /**< of the first byte, as reads must name it */
    uint32_t key_bytes; /**< used of `key`; the rest is 0 */
    uint8_t key[PKV_FABRIC_MAX_KEY];
} pkv_fabric_window;

typedef struct pkv_fabric_table {
    size_t struct_size;
    uint32_t version;
    uint32_t reserved;
    const char *libfabric; /**< version that runs, for messages */

    /** Opens a provider: by name ("tcp", "net", "tcp;ofi_rxm", "shm", "verbs", "efa"), or, NULL or "", the first that works
     *  of verbs, efa, net, tcp. `host`: local address, or name of an interface; NULL = loopback for those that run over
     *  sockets, the first device for others. Not looked at for shm. PKV_ERR_UNSUPPORTED: no such provider, or one without what is
     *  needed (reads, the key length), with the reason. */
    pkv_status (*open)(const char *provider, const char *host, pkv_fabric_domain **domain, char *why, size_t why_bytes);
    /** All its endpoints and regions have been closed. NULL is allowed. */
    void (*close)(pkv_fabric_domain *domain);
    /** `struct_size` of the caller is honoured. */
    void (*modes)(pkv_fabric_domain *domain, pkv_fabric_modes *modes);

    /** Registers memory: for peers to read (remote 1), or as a target of reads (0). Memory longer than the provider
     *  registers at once is registered in pieces. PKV_ERR_LIMIT with need and limit when the system does not allow so much
     *  locked memory, or when it would take more than PKV_FABRIC_MAX_REGIONS pieces. May take long (pages are locked), and
     *  holds up no reads. */
    pkv_status (*add_memory)(pkv_fabric_domain *domain, void *base, uint64_t bytes, int32_t remote,
                             pkv_fabric_region **region, char *why, size_t why_bytes);
    /** No read from or to it is under way any more. NULL is allowed. */
    void (*remove_memory)(pkv_fabric_region *region);
    /** What peers need to read it; returns how many windows there are, and writes as many as there is room for. Window i
     *  continues where the one before it ends. A target has none. */
    uint32_t (*windows)(const pkv_fabric_region *region, pkv_fabric_window *windows, uint32_t capacity);

    /** An endpoint for one peer, and the name under which the peer reaches it. `name_bytes`: in, room at `name`
     *  (PKV_FABRIC_MAX_NAME is enough); out, bytes of the name. */
    pkv_status (*endpoint_open)(pkv_fabric_domain *domain, pkv_fabric_endpoint **endpoint, void *name,
                                size_t *name_bytes, char *why, size_t why_bytes);
    /** Names the peer's endpoint, once; before the first read. PKV_ERR_INVALID: no name of this provider's. With shm also
     *  PKV_ERR_NOT_FOUND: the peer is gone (the others see that when they read), and PKV_ERR_UNSUPPORTED: the system does not
     *  let this process read that one (another user, Yama, a seccomp filter). */
    pkv_status (*endpoint_connect)(pkv_fabric_endpoint *endpoint, const void *name, size_t name_bytes, char *why,
                                   size_t why_bytes);
    /** Ends all reads of the endpoint, with PKV_ERR_CANCELLED, and then the endpoint. From no callback, and while no other
     *  thread is inside a call on it. NULL is allowed. */
    void (*endpoint_close)(pkv_fabric_endpoint *endpoint);

    /** Reads `bytes` bytes from `offset` on in a peer's memory, in as many parts as the provider needs, into `data` inside
     *  `target`. PKV_OK: `done` is called once, on the domain's thread or inside endpoint_close(), with no lock held and
     *  possibly before this returns: with PKV_OK once all bytes stand there, PKV_ERR_TIMEOUT when the deadline
     *  (CLOCK_MONOTONIC; UINT64_MAX = none) came first, also while the provider takes no more work (-FI_EAGAIN),
     *  PKV_ERR_IO with libfabric's error number (FI_E*), or PKV_ERR_CANCELLED. After any failure of a read the endpoint is
     *  of no more use: reads are refused with PKV_ERR_STATE, those that the provider has not taken yet end with the first
     *  error, and memory of reads that failed may still be written until endpoint_close() has returned. `done` may call
     *  this, and has to be quick. Thread-safe.
     *  PKV_ERR_INVALID: outside the windows or the target, or a key that cannot be one; PKV_ERR_STATE also before
     *  endpoint_connect(). `windows` is not used after the call. */
    pkv_status (*read)(pkv_fabric_endpoint *endpoint, pkv_fabric_region *target, void *data, uint64_t bytes,
                       const pkv_fabric_window *windows, uint32_t num_windows, uint64_t offset, uint64_t deadline_ns,
                       void (*done)(void *user, pkv_status status, int32_t error), void *user);
    /** The first error that the provider reported on this endpoint, in words, with what the provider said about it: later
     *  ones only follow from it. Empty if there was none. Returns the text's length. Thread-safe. */
    size_t (*endpoint_failure)(pkv_fabric_endpoint *endpoint, char *text, size_t text_bytes);

    /** With a provider that copies: as read(), but on the calling thread and done when it returns, whatever it returns: PKV_OK,
     *  PKV_ERR_TIMEOUT, PKV_ERR_IO, and what read() returns. What it copies is in that thread's cache. A failure is this
     *  call's alone. Others: PKV_ERR_UNSUPPORTED. Thread-safe. */
    pkv_status (*copy)(pkv_fabric_endpoint *endpoint, pkv_fabric_region *target, void *data, uint64_t bytes,
                       const pkv_fabric_window *windows, uint32_t num_windows, uint64_t offset, uint64_t deadline_ns);
} pkv_fabric_table;

/** What PKV_FABRIC_ENTRY is. NULL with a reason for a library of another version. */
typedef const pkv_fabric_table *(*pkv_fabric_entry)(uint32_t version, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
