// SPDX-License-Identifier: Apache-2.0
// The table through which the library reaches hiredis: libpagedkv-redis.so, opened with dlopen when the first node with
// a directory is opened, exports one function that returns it. C types only, and sizes first: a plug-in and a library
// of different releases either understand each other, or say so. For C as well as for C++.
//
// A line is one connection to a Redis or Valkey server, used by one thread at a time. Commands are queued with
// append(), and exchange() sends them and hands out their replies in order, all within a deadline and a number of
// bytes: what the server says is a stranger's word, and can neither hold up nor fill up whoever asked. After a failure
// a line is of no more use than to be closed.
//
// Signals should be blocked on threads that call it: hiredis may raise SIGPIPE. Messages of failures are written to
// `why`, terminated and cut to fit; a NULL `why` takes none. They have nothing in them that a server has said: servers
// repeat in their errors what they were sent, passwords too.
#pragma once

#include <pagedkv/types.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PKV_REDIS_VERSION 1
#define PKV_REDIS_PLUGIN "libpagedkv-redis.so"
#define PKV_REDIS_ENTRY "pkv_redis_plugin"

typedef struct pkv_redis_line pkv_redis_line;

/* pkv_redis_reply.kind */
#define PKV_REDIS_STATUS 1
#define PKV_REDIS_ERROR 2
#define PKV_REDIS_STRING 3
#define PKV_REDIS_NUMBER 4
#define PKV_REDIS_NIL 5
#define PKV_REDIS_LIST 6
#define PKV_REDIS_OTHER 7 /**< what the library does not ask for */

typedef struct pkv_redis_reply {
    int32_t kind;
    uint32_t reserved;
    const char *text; /**< of a status, error or string: bytes, not terminated */
    uint64_t bytes;
    int64_t number;
    const struct pkv_redis_reply *items; /**< of a list; none of them is a list */
    uint64_t num_items;
} pkv_redis_reply;

typedef struct pkv_redis_server {
    size_t struct_size;
    const char *host; /**< name or address; a name is resolved by the system, which takes the time that it takes */
    uint16_t port;
    uint16_t
        tls; /**< 1: with TLS, and a certificate that the system trusts (SSL_CERT_FILE, SSL_CERT_DIR), for this host */
    int32_t wake_fd; /**< open() and exchange() give up with PKV_ERR_CANCELLED when it becomes readable; -1 = none */
} pkv_redis_server;

typedef struct pkv_redis_table {
    size_t struct_size;
    uint32_t version;
    uint32_t tls;        /**< 1: it can */
    const char *hiredis; /**< version that it was built with, for messages */

    /** Connects. `deadline_ns` is of CLOCK_MONOTONIC. PKV_ERR_IO with the system's reason; PKV_ERR_TIMEOUT;
     *  PKV_ERR_CANCELLED; PKV_ERR_UNSUPPORTED: TLS, without it; PKV_ERR_NO_MEMORY. */
    pkv_status (*open)(const pkv_redis_server *server, uint64_t deadline_ns, pkv_redis_line **line, char *why,
                       size_t why_bytes);

    /** Queues a command: `count` words of `sizes` bytes each. PKV_ERR_NO_MEMORY. */
    pkv_status (*append)(pkv_redis_line *line, uint32_t count, const char *const *words, const size_t *sizes);

    /** Sends what was queued, and calls `reply` for each of the next `count` replies, with its number; a reply is
     *  valid during the call, which must not use the line. PKV_OK after the last one; PKV_ERR_TIMEOUT;
     *  PKV_ERR_CANCELLED; PKV_ERR_LIMIT: the server has sent more than `most_bytes`; PKV_ERR_CLOSED: it has closed the
     *  connection; PKV_ERR_MISMATCH: what it sends is no reply, or a list within a list; PKV_ERR_IO;
     *  PKV_ERR_NO_MEMORY; PKV_ERR_STATE after an earlier failure. */
    pkv_status (*exchange)(pkv_redis_line *line, uint64_t count, uint64_t most_bytes, uint64_t deadline_ns,
                           void (*reply)(void *user, uint64_t number, const pkv_redis_reply *reply), void *user,
                           char *why, size_t why_bytes);

    void (*close)(pkv_redis_line *line);
} pkv_redis_table;

/** The plug-in's one export. NULL, with the reason, when it does not speak this version. The table is static. */
typedef const pkv_redis_table *(*pkv_redis_entry)(uint32_t version, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
