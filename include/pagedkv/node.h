/* SPDX-License-Identifier: Apache-2.0 */
/** @file node.h
 *  Nodes: page images of one process found and read by others.
 *
 *  A node that listens serves the images of the tiers that it is given. A node that is connected to others has a tier of
 *  theirs (pkv_node_tier), which pools take like any other (pkv_pool_options.tiers): matches, restores and prefetch sessions
 *  read through it. One node may do both. Nodes store nothing in each other.
 *
 *  Control (who has what, where it lies) runs over a TCP connection for each pair, encrypted and authenticated under the
 *  cluster key: X25519, BLAKE2b and XChaCha20-Poly1305 of libsodium. Page bytes move one-sided over libfabric, into the
 *  reader's staging memory; only reads are ever opened to others, so that no peer can write into this process. PAGE BYTES ARE
 *  NOT ENCRYPTED on the wire, and who can see or forge packets of the fabric network can see or spoil them (spoiled ones are
 *  detected: every image is checked in full). Keep the fabric on a network of its own, or run it inside a tunnel.
 *
 *  An image that is found is leased to the reader: it stays for that long. A lease that ends, a peer that dies, bytes that do
 *  not arrive in time or are not the image: each is a miss, and counted. No call waits longer than the times given here.
 *
 *  libfabric sits in a plug-in, libpagedkv-fabric.so, in the folder pagedkv/ beside the library (or PKV_PLUGIN_DIR); it is
 *  loaded when the first node is opened. Without it pkv_node_open gives PKV_ERR_UNSUPPORTED with the reason.
 *
 *  Thread-safety: every call here, from any thread. */
#ifndef PAGEDKV_NODE_H
#define PAGEDKV_NODE_H

#include <pagedkv/pool.h>
#include <pagedkv/tier.h>
#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PKV_CLUSTER_KEY_BYTES 32

/* pkv_node_options.flags */
#define PKV_NODE_PROMOTE 1u /**< an image that a reader takes from a slower one of `tiers` is copied to the first, whatever it evicts
                                 there: a storage node's host memory then holds what is asked for. Copies are made in the
                                 background, at most 64 MiB at a time, and others are not made. They belong to no namespace:
                                 pkv_pool_clear of one leaves them */

typedef struct pkv_node_options {
    size_t struct_size;
    pkv_bytes cluster_key;   /**< PKV_CLUSTER_KEY_BYTES random bytes, a secret that all nodes share; copied */
    const char *name;        /**< for the others' statistics and messages, up to 256 bytes; NULL = "host/pid" */
    const char *listen;      /**< "host:port" of the control connection, port 0 = any; NULL: serves nothing. Name the loopback
                                  address unless others shall come in */
    const char *provider;    /**< of libfabric: "tcp", "net", "tcp;ofi_rxm", "shm" (one machine, one user), "verbs", "efa"; all
                                  nodes the same. NULL = the first that works of verbs, efa, net, tcp */
    const char *fabric_host; /**< local address of the fabric; NULL = the host of `listen`, or loopback */
    pkv_tier *const *tiers;  /**< num_tiers of them: what is served, the fastest first. They stay open as long as the node */
    uint32_t num_tiers;      /**< 0 .. PKV_MAX_TIERS */
    uint32_t num_pools;      /**< 0 .. 64 */
    pkv_pool *const *pools;  /**< num_pools of them: whose geometry (layer groups, shard positions, element types ...) has to be that of
                                  the other node's; without pools any node is taken. Only looked at */
    pkv_bytes identity;      /**< of the model, up to 4096 bytes, kept as a digest: nodes of another one are refused */
    uint64_t export_bytes;   /**< memory that others read from; 0 = 64 MiB */
    uint32_t max_guests;     /**< connections of readers; 0 = 64 */
    uint32_t max_leases;     /**< of one reader; 0 = 65536 */
    uint64_t lease_ns;       /**< 0 = 30 seconds */
    uint64_t timeout_ns;     /**< of connecting, and of answers and reads without a time of their own; 0 = 5 seconds */
    uint32_t flags;          /**< PKV_NODE_* */
    uint32_t reserved;       /**< 0 */
} pkv_node_options;
#define PKV_NODE_OPTIONS_INIT                                                                                          \
    {sizeof(pkv_node_options), {NULL, 0}, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, {NULL, 0}, 0, 0, 0, 0, 0, 0, 0}

/** Opens a node, and begins to listen if it shall.
 *  @return PKV_OK; PKV_ERR_UNSUPPORTED without the plug-in or the provider; PKV_ERR_IO when it cannot listen, with the system's
 *          reason; PKV_ERR_INVALID; PKV_ERR_LIMIT (memory that the system does not let be locked, too); PKV_ERR_NO_MEMORY;
 *          PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_open(const pkv_node_options *options, pkv_node **node);

/** Closes a node: stops listening, ends all connections. Its tier finds nothing from now on; reads under way have ended when the
 *  call returns.
 *  @return PKV_OK; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_close(pkv_node *node);

/** The address at which others connect: "host:port".
 *  @param buffer    out, terminated; may be NULL when capacity is 0
 *  @param capacity  bytes at buffer; 0 asks for the size only
 *  @param size      out, bytes with the terminator
 *  @return PKV_OK; PKV_ERR_STATE for a node that does not listen; PKV_ERR_NO_SPACE; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_address(pkv_node *node, char *buffer, uint64_t capacity, uint64_t *size);

/** Adds a node to read from. A connection that ends, or does not come, is tried again, at longer and longer intervals up to ten
 *  seconds, until pkv_node_disconnect.
 *  @param address     "host:port"
 *  @param timeout_ns  longest wait for the first connection; 0 = do not wait
 *  @return PKV_OK; PKV_ERR_TIMEOUT (it is still being tried); PKV_ERR_MISMATCH when the other side refused, or is another
 *          model, geometry, protocol or cluster (the peer is not kept); PKV_ERR_STATE when it is a peer already;
 *          PKV_ERR_INVALID; PKV_ERR_LIMIT at 1024 peers; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_connect(pkv_node *node, const char *address, uint64_t timeout_ns);

/** Removes a node to read from. @return PKV_OK; PKV_ERR_NOT_FOUND; PKV_ERR_HANDLE. Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_disconnect(pkv_node *node, const char *address);

/** The images of the nodes it reads from, as a tier; the same one at each call, with a handle to be closed for each.
 *  Attach it as PKV_TIER_READ_ONLY, after the pool's own tiers.
 *  @return PKV_OK; PKV_ERR_LIMIT; PKV_ERR_HANDLE; PKV_ERR_INVALID
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_tier(pkv_node *node, pkv_tier **tier);

typedef struct pkv_node_peer {
    size_t struct_size;
    char address[264];
    char name[264];     /**< as the peer calls itself; empty before the first connection */
    int32_t connected;  /**< 1 or 0 */
    pkv_status status;  /**< PKV_OK, or why it is not connected */
} pkv_node_peer;
#define PKV_NODE_PEER_INIT {sizeof(pkv_node_peer), {0}, {0}, 0, 0}

/** The nodes it reads from.
 *  @param peers     out; the first one's struct_size is the distance between elements
 *  @param capacity  entries at peers; 0 asks for the number only
 *  @param count     out
 *  @return PKV_OK; PKV_ERR_NO_SPACE; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_peers(pkv_node *node, pkv_node_peer *peers, uint64_t capacity, uint64_t *count);

typedef struct pkv_node_stats {
    size_t struct_size;
    char provider[64]; /**< of libfabric that is used */
    /* served to others */
    uint64_t guests;          /**< gauge: readers that are connected */
    uint64_t accepted;        /**< connections that came to be */
    uint64_t refused;         /**< that did not: another key, protocol, model, geometry; or too many */
    uint64_t lookups_served;  /**< keys asked for */
    uint64_t fetches_served;  /**< ranges of images asked for */
    uint64_t bytes_served;    /**< put where readers read them */
    uint64_t leases;          /**< gauge: images that are leased */
    uint64_t expired_leases;
    uint64_t bad_messages;    /**< each ended its connection */
    /* read from others */
    uint64_t peers;           /**< gauge: nodes to read from */
    uint64_t connected_peers; /**< gauge */
    uint64_t reads;           /**< ranges of images read */
    uint64_t failed_reads;
    uint64_t bytes_read;
    uint64_t late_answers;
    uint64_t reconnects;      /**< connections that ended */
    uint64_t promoted;        /**< images copied to the first tier (PKV_NODE_PROMOTE) */
} pkv_node_stats;
#define PKV_NODE_STATS_INIT {sizeof(pkv_node_stats), {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_HANDLE. Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_get_stats(pkv_node *node, pkv_node_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
