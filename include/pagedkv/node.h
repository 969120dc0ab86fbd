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
 *  Clearing a pool (pkv_pool_clear) reaches its own tiers, and with them what its node serves; what other nodes have stays, and is
 *  found again. When weights change in place, clear the pools of every node, or give what is computed from then on another
 *  namespace (pkv_namespace.adapter_generation, or another model).
 *
 *  Nodes find each other through a directory, if they are given one: Redis or Valkey servers, each of which knows of a part of all
 *  images. A node that listens writes there where it is (pkv_node_options.heartbeat_ns) and which images its tiers have
 *  (entry_ttl_ns), as they come and go, and takes it back when it is closed. A lookup in the node's tier asks the directory who has
 *  the images, in one round trip, and connects to those nodes. A server that is down, stopped or full of rubbish costs hits, and
 *  nothing else: no wait for it is longer than half of the lookup's time or half a second; nothing that it says is believed:
 *  addresses are proven under the cluster key, nodes show that they have it, and what they have they are asked themselves. The
 *  names of entries are keyed digests: who reads the server learns how many images there are, not what they are of. The servers
 *  need no persistence. They are Redis or Valkey 5 or later, each by itself (not of a Redis Cluster); what a user of theirs needs to
 *  be allowed is AUTH, SELECT, PING, MULTI, EXEC, SET, DEL, GETRANGE, ZADD, ZREM, ZREMRANGEBYSCORE, ZREVRANGE and PEXPIRE on
 *  names that begin with directory_prefix.
 *
 *  libfabric sits in a plug-in, libpagedkv-fabric.so, in the folder pagedkv/ beside the library (or PKV_PLUGIN_DIR); it is
 *  loaded when the first node is opened. Without it pkv_node_open gives PKV_ERR_UNSUPPORTED with the reason; so it does for a node
 *  with a directory without libpagedkv-redis.so, which has hiredis in it.
 *
 *  Thread-safety: every call here, from any thread. */
#ifndef PAGEDKV_NODE_H
#define PAGEDKV_NODE_H

#include <pagedkv/pool.h>
#include <pagedkv/table.h>
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
#define PKV_NODE_COPY 2u    /**< images are copied for readers, into export_bytes of memory. Without it the memory of host tiers is
                                 opened to them as it is: readers, who have the cluster key, can read all that lies there, and do
                                 so without a copy and another message; over RDMA it is locked. What cannot be opened is copied
                                 in any case */

typedef struct pkv_node_options {
    size_t struct_size;
    pkv_bytes cluster_key;   /**< PKV_CLUSTER_KEY_BYTES random bytes, a secret that all nodes share; copied */
    const char *name;        /**< for the others' statistics and messages, up to 256 bytes; NULL = "host/pid" */
    const char *listen;      /**< "host:port" of the control connection, port 0 = any; NULL: serves nothing. Name the loopback
                                  address unless others shall come in */
    const char *provider;    /**< of libfabric: "tcp", "net", "tcp;ofi_rxm", "shm" (one machine, one user), "verbs", "efa"; all
                                  nodes the same. NULL = the first that works of verbs, efa, net, tcp */
    const char *fabric_host; /**< local address of the fabric, or the name of an interface; NULL = the host of `listen`, or
                                  loopback: who reads from other hosts over tcp or net, and does not listen, names one here */
    pkv_tier *const *tiers;  /**< num_tiers of them: what is served, the fastest first. They stay open as long as the node */
    uint32_t num_tiers;      /**< 0 .. PKV_MAX_TIERS */
    uint32_t num_pools;      /**< 0 .. 64 */
    pkv_pool *const *pools;  /**< num_pools of them: whose geometry (layer groups, shard positions, element types ...) has to be that of
                                  the other node's; without pools any node is taken. Only looked at */
    pkv_bytes identity;      /**< of the model, up to 4096 bytes, kept as a digest: nodes of another one are refused */
    uint64_t export_bytes;   /**< memory into which images are copied that others read; 0 = 64 MiB */
    uint32_t max_guests;     /**< connections of readers; 0 = 64 */
    uint32_t max_leases;     /**< of one reader; 0 = 65536 */
    uint64_t lease_ns;       /**< 0 = 30 seconds */
    uint64_t timeout_ns;     /**< of connecting, and of answers and reads without a time of their own; 0 = 5 seconds */
    uint32_t flags;          /**< PKV_NODE_* */
    uint32_t directory_peers; /**< nodes found through the directory that it is connected to, at most; 0 = 64 */
    const char *directory;   /**< servers, all nodes the same: "redis://[[user]:password@]host[:port][/database]", several with
                                  commas between (up to 16); rediss:// with TLS. NULL: none, peers are named by
                                  pkv_node_connect */
    const char *advertise;   /**< "host:port", the address that the directory gives to others, port 0 = that of `listen`; a name is
                                  resolved once, here. NULL = the address of `listen`, which must not be a wildcard then */
    const char *directory_prefix; /**< of names in the directory, up to 64 letters, digits and . _ - : (for access rules of the
                                  server; clusters and models are kept apart in any case); NULL = "pkv" */
    uint64_t heartbeat_ns;   /**< how often the address is written to the directory, where it stays for three times as long;
                                  1 ms .. 1 hour; 0 = 5 seconds */
    uint64_t entry_ttl_ns;   /**< how long the directory keeps the word that a node has an image; a node renews it three times within
                                  that; 1 ms .. 30 days; 0 = 10 minutes. Clocks of nodes must not differ by more */
} pkv_node_options;
#define PKV_NODE_OPTIONS_INIT                                                                                          \
    {sizeof(pkv_node_options), {NULL, 0}, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, {NULL, 0}, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, \
     NULL, 0, 0}

/** Opens a node, and begins to listen if it shall. Servers of a directory are connected to in the background, and may come later.
 *  @return PKV_OK; PKV_ERR_UNSUPPORTED without a plug-in, the provider, or TLS for a directory; PKV_ERR_IO when it cannot listen,
 *          or resolve `advertise`, with the system's reason; PKV_ERR_INVALID; PKV_ERR_LIMIT (memory that the system does not let
 *          be locked, too); PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
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
 *          model, geometry, protocol or cluster, or on another host while one of the two has its fabric on loopback (the peer is
 *          not kept); PKV_ERR_STATE when it is a peer already (one that the
 *          directory has led to stays from now on, and gives PKV_OK);
 *          PKV_ERR_INVALID; PKV_ERR_LIMIT at 1024 peers; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_connect(pkv_node *node, const char *address, uint64_t timeout_ns);

/** Removes a node to read from; a directory may lead to it again. @return PKV_OK; PKV_ERR_NOT_FOUND; PKV_ERR_HANDLE. Thread-safe.
 *  Since 0.1. */
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

/** The nodes it reads from, those that a directory has led to included.
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
    uint64_t fetches_served;  /**< ranges of images that readers had copied: of others they only ask where they lie */
    uint64_t bytes_served;    /**< of them */
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
    /* sequences handed over */
    uint64_t open_offers;         /**< gauge */
    uint64_t offers;              /**< made */
    uint64_t expired_offers;
    uint64_t pulls_served;        /**< of our offers, to the end */
    uint64_t failed_pulls_served; /**< that ended before */
    uint64_t handed_bytes;        /**< of sequences, put where pullers read them */
    uint64_t pulls;               /**< of ours, that ended well */
    uint64_t failed_pulls;        /**< cancelled ones, too */
    uint64_t pulled_bytes;        /**< of rows, checked and written into pages */
    /* the directory; all 0 without one */
    uint64_t directory_endpoints;    /**< gauge: servers */
    uint64_t directory_endpoints_up; /**< gauge: of them connected */
    uint64_t directory_peers;        /**< gauge: of `peers`, those that it has led to */
    uint64_t directory_lookups;      /**< images asked for */
    uint64_t directory_hits;         /**< of them, those of which it named another node */
    uint64_t directory_failures;     /**< of them, those of which nothing was heard in time; entries that it refused */
    uint64_t directory_published;    /**< entries written, renewals too */
    uint64_t directory_dropped;      /**< changes of tiers that could not wait until they are written (65,536 for each server that is
                                          slow or down): made up for by the next renewal */
    uint64_t directory_bad_entries;  /**< read there, and written by no node of this cluster; names that something else has */
} pkv_node_stats;
#define PKV_NODE_STATS_INIT                                                                                            \
    {sizeof(pkv_node_stats), {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_HANDLE. Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_node_get_stats(pkv_node *node, pkv_node_stats *stats);

/* ---- handing a sequence over ------------------------------------------------------------------------------------ */

/* One engine computes a prompt, another one goes on with it: the first offers the sequence, and the second pulls it, given a
 * ticket that travels with the request.
 *
 *   the one                                                  the other
 *   pkv_table_offer(node, table, ...)     ticket  ------->   pkv_table_pull(node, pool, ticket, ...), an operation
 *   pkv_offer_ready, layer by layer       rows, as they are ready, checked, written into pages
 *   pkv_offer_close                                          pkv_pull_table(op, &table): admitted, committed, published
 *
 * What comes over: tokens, media, namespace, the rows of all layers with their scales, the last and partial block included, and
 * the retention of its ranges. Aux bytes are the pages', and stay behind. Of a window group come the blocks that later tokens
 * attend to. Both pools may have other page sizes, layouts and arrangements, and may be other shards of the model: the puller
 * takes the layers and heads that its pool has (first_layer, first_head ... of its groups), from one offer or from several that
 * have them together. Element types, row sizes, windows and fixed scales have to be equal. Blocks that the puller's pool has
 * already are shared and not transferred.
 *
 * The offer holds the pages, whatever becomes of the table, until it has been pulled, is closed or expires. Whoever has the
 * ticket and the cluster's key may pull: a ticket is sealed under that key. Each piece of rows carries a checksum, sent over the
 * encrypted connection, that is compared before anybody sees the table. */

#define PKV_MAX_TICKET_BYTES 512
#define PKV_MAX_TICKETS 64 /**< of one pull */

#define PKV_PULLS_UNLIMITED UINT32_MAX
#define PKV_ALL_GROUPS UINT32_MAX
#define PKV_ALL_LAYERS UINT32_MAX

typedef struct pkv_offer_options {
    size_t struct_size;
    uint64_t num_tokens;  /**< 0 = those that are committed. More: tokens that are named already; their rows come as
                               pkv_offer_ready says */
    uint64_t lifetime_ns; /**< of the ticket: when it is over the pages are let go, pulls under way fail; 0 = 60 seconds */
    const char *address;  /**< "host:port" at which the puller reaches the node; NULL = pkv_node_options.advertise, or the address of
                               `listen` */
    uint32_t max_pulls;   /**< after so many that went well the offer has ended: 2 if two shards pull it; 0 = 1;
                               PKV_PULLS_UNLIMITED */
    uint32_t reserved;    /**< 0 */
} pkv_offer_options;
#define PKV_OFFER_OPTIONS_INIT {sizeof(pkv_offer_options), 0, 0, NULL, 0, 0}

/** Offers a table's sequence to be pulled. Its pages have counts for the offer from now on; the table may go on, be truncated or
 *  destroyed.
 *  @param options     NULL = defaults
 *  @param op_options  how the offer's end is reported (timeout_ns is not used), or NULL. Its operation has max_pulls items (one if
 *                     they are unlimited), each ends with a pull that went well; an offer that ends before gives the others
 *                     PKV_ERR_CANCELLED when it was closed, PKV_ERR_TIMEOUT when it expired, PKV_ERR_CLOSED with its pool or node
 *  @param offer       out: pkv_offer_close
 *  @param op          out: pkv_op_close (pkv_op_cancel withdraws the offer); NULL = not wanted
 *  @return PKV_OK; PKV_ERR_STATE for a node that does not listen, before admit, when offered tokens are not named, or none is
 *          committed and options->num_tokens is 0; PKV_ERR_NOT_RESIDENT when blocks are in tiers, or a window has passed some that
 *          are needed; PKV_ERR_UNSUPPORTED for a pool without memory, or in a device's; PKV_ERR_LIMIT at 65536 open offers, or above 2^28 bytes of
 *          tokens and media; PKV_ERR_INVALID; PKV_ERR_CLOSED; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *  The node: thread-safe; the table: as in table.h. Since 0.1. */
PKV_API pkv_status pkv_table_offer(pkv_node *node, pkv_table *table, const pkv_offer_options *options,
                                   const pkv_op_options *op_options, pkv_offer **offer, pkv_op **op);

/** The offer's ticket: bytes for the puller, to be sent with the request.
 *  @param buffer    out; may be NULL when capacity is 0
 *  @param capacity  bytes at buffer; PKV_MAX_TICKET_BYTES is enough; 0 asks for the size only
 *  @param size      out
 *  @return PKV_OK; PKV_ERR_NO_SPACE; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_offer_ticket(pkv_offer *offer, void *buffer, uint64_t capacity, uint64_t *size);

/** Says that the rows of the first `num_tokens` tokens are written in a layer, and will not change any more: pullers get them from
 *  now on, before the tokens are committed. Room for them is reserved (a copy on write of the last block is noticed). What was
 *  committed when the offer was made is ready by itself. Counted from the start: repeating a call, or less than there is
 *  already, does nothing.
 *  @param group  PKV_ALL_GROUPS: all of them
 *  @param layer  of the group; PKV_ALL_LAYERS: all of them (always, with PKV_ALL_GROUPS)
 *  @param sync   work that still writes the rows; NULL = none
 *  @return PKV_OK; PKV_ERR_INVALID for more tokens than are offered, or no such layer; PKV_ERR_NOT_RESIDENT when there is no page
 *          for them; PKV_ERR_STATE once the offer has ended, or when the table is gone, has another sequence, other tokens, or was
 *          truncated below what was committed; PKV_ERR_TIMEOUT; PKV_ERR_HANDLE
 *  By the thread that has the table. Since 0.1. */
PKV_API pkv_status pkv_offer_ready(pkv_offer *offer, uint32_t group, uint32_t layer, uint64_t num_tokens, const pkv_sync *sync);

typedef struct pkv_offer_info {
    size_t struct_size;
    pkv_status status;     /**< PKV_ERR_BUSY while it is open; PKV_OK: pulled max_pulls times; PKV_ERR_TIMEOUT: expired;
                                PKV_ERR_CLOSED: its pool or node was closed; PKV_ERR_CANCELLED: withdrawn */
    uint32_t pulls;        /**< that went well */
    uint32_t open_pulls;   /**< under way */
    uint32_t failed_pulls;
    uint64_t num_tokens;   /**< offered */
    uint64_t ready_tokens; /**< of them, ready in all layers */
    uint64_t left_ns;      /**< until it expires */
} pkv_offer_info;
#define PKV_OFFER_INFO_INIT {sizeof(pkv_offer_info), 0, 0, 0, 0, 0, 0, 0}

/** @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_HANDLE. Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_offer_get_info(pkv_offer *offer, pkv_offer_info *info);

/** Withdraws the offer, unless it has ended, and closes its handle. Pulls under way fail. When it returns the offer holds no pages.
 *  @return PKV_OK; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_offer_close(pkv_offer *offer);

/* pkv_pull_options.flags */
#define PKV_PULL_NO_MATCH 1u     /**< transfers blocks that the pool has already, too */
#define PKV_PULL_NO_RETENTION 2u /**< leaves the giver's retention behind */

typedef struct pkv_pull_options {
    size_t struct_size;
    const pkv_namespace *ns; /**< that the sequence has to be of, or PKV_ERR_MISMATCH; NULL = whichever it is */
    const uint32_t *groups;  /**< num_groups of them: for each layer group of the pool, the givers' group that it is; NULL = the one
                                  of the same number */
    uint32_t num_groups;     /**< 0, or as many as the pool has */
    uint32_t flags;          /**< PKV_PULL_* */
} pkv_pull_options;
#define PKV_PULL_OPTIONS_INIT {sizeof(pkv_pull_options), NULL, NULL, 0, 0}

/** Begins to pull a sequence. The operation has an item for each layer of the pool, group after group: one that has ended well has
 *  all its rows in pages. It ends when everything is there, checked, committed and published, and pkv_pull_table gives the table;
 *  or it fails, with a message in pkv_op_wait and pkv_pull_table, and leaves nothing in the pool (what was evicted to make room is
 *  gone). A connection that breaks is made again a few times.
 *  @param pool         where the sequence shall go
 *  @param num_tickets  1 .. PKV_MAX_TICKETS; several, when only together they have all layers and heads of the pool
 *  @param tickets      copied
 *  @param options      NULL = defaults
 *  @param op_options   NULL = defaults; timeout_ns counts in all, waiting for the giver's layers included
 *  @param op           out: poll, wait, cancel, pkv_pull_table, close. NULL only with a queue
 *  @return PKV_OK when it has begun; PKV_ERR_INVALID for what is no ticket; PKV_ERR_MISMATCH for a ticket of another cluster's key,
 *          or that was changed; PKV_ERR_UNSUPPORTED for a pool without memory, or in a device's; PKV_ERR_BUSY at 256 pulls under way;
 *          PKV_ERR_CLOSED; PKV_ERR_LIMIT; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *          Of the operation: PKV_OK; PKV_ERR_NOT_FOUND when the giver has no such offer (any more): expired, withdrawn, pulled, or
 *          the giver was started again; PKV_ERR_IO when the giver is not reached, is gone, or its bytes were spoiled on the way;
 *          PKV_ERR_MISMATCH for another geometry, namespace, model, protocol or cluster key, with both sides' values;
 *          PKV_ERR_NO_PAGES, PKV_ERR_AGAIN as pkv_table_admit; PKV_ERR_TIMEOUT; PKV_ERR_CANCELLED; PKV_ERR_CLOSED;
 *          PKV_ERR_LIMIT for rows of more than 2^20 bytes, or than a quarter of the giver's export_bytes; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_table_pull(pkv_node *node, pkv_pool *pool, uint32_t num_tickets, const pkv_bytes *tickets,
                                  const pkv_pull_options *options, const pkv_op_options *op_options, pkv_op **op);

/** Takes the table out of a pull that has ended well; pkv_table_destroy it. An operation that is closed before takes its table with
 *  it (its blocks stay cached).
 *  @param table  out
 *  @return PKV_OK; PKV_ERR_BUSY while the pull is under way; what it failed with; PKV_ERR_STATE for an operation that is no pull,
 *          or whose table was taken; PKV_ERR_LIMIT; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pull_table(pkv_op *op, pkv_table **table);

#ifdef __cplusplus
}
#endif
#endif
