/* SPDX-License-Identifier: Apache-2.0 */
#include "share.h"

#include "kv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_NS UINT64_C(10000000000)

static const char identity[] = KV_MODEL;

static bool report(const char *what, pkv_status status) {
    char message[512] = "";
    (void)pkv_last_error(message, sizeof message);
    fprintf(stderr, "replay: %s: %s: %s\n", what, pkv_status_string(status), message);
    return false;
}

static bool read_key(const char *path, unsigned char *key) {
    FILE *const file = fopen(path, "rb");
    const size_t size = file != NULL ? fread(key, 1, PKV_CLUSTER_KEY_BYTES, file) : 0;
    const bool more = file != NULL && fgetc(file) != EOF;
    if (file == NULL)
        fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
    else if (size != PKV_CLUSTER_KEY_BYTES || more)
        fprintf(stderr, "replay: %s: a cluster key has %d bytes, this file %s\n", path, PKV_CLUSTER_KEY_BYTES,
                more ? "more" : "fewer");
    if (file != NULL) (void)fclose(file);
    return size == PKV_CLUSTER_KEY_BYTES && !more;
}

static bool connect_peers(const run_config *config, pkv_node *node) {
    for (uint32_t i = 0; i < config->num_peers; ++i) {
        const pkv_status status = pkv_node_connect(node, config->peers[i], CONNECT_NS);
        if (status != PKV_OK) return report(config->peers[i], status);
    }
    return true;
}

/* The directory is connected to in the background; what is looked up before counts as not there. */
static bool await_directory(pkv_node *node) {
    const struct timespec moment = {0, 1000000};
    pkv_node_stats stats = PKV_NODE_STATS_INIT;
    for (uint64_t waited_ms = 0; waited_ms < CONNECT_NS / 1000000; ++waited_ms) {
        const pkv_status status = pkv_node_get_stats(node, &stats);
        if (status != PKV_OK) return report("pkv_node_get_stats", status);
        if (stats.directory_endpoints_up == stats.directory_endpoints) return true;
        (void)nanosleep(&moment, NULL);
    }
    fprintf(stderr, "replay: --directory: %d of %d servers do not answer\n",
            (int)(stats.directory_endpoints - stats.directory_endpoints_up), (int)stats.directory_endpoints);
    return false;
}

bool share_open(const run_config *config, pkv_tier *const *tiers, uint32_t num_tiers, pkv_node **node) {
    unsigned char key[PKV_CLUSTER_KEY_BYTES];
    if (!read_key(config->cluster_key, key)) return false;
    pkv_node_options options = PKV_NODE_OPTIONS_INIT;
    options.cluster_key.data = key;
    options.cluster_key.size = sizeof key;
    options.provider = config->provider;
    options.fabric_host = config->fabric;
    options.identity.data = identity;
    options.identity.size = sizeof identity - 1;
    options.directory = config->directory;
    if (config->serve != NULL) {
        options.listen = config->serve;
        options.tiers = tiers;
        options.num_tiers = num_tiers;
    }
    const pkv_status status = pkv_node_open(&options, node);
    if (status != PKV_OK) return report("pkv_node_open", status);
    return await_directory(*node) && connect_peers(config, *node);
}

bool share_read(pkv_node *node, run_result *result) {
    pkv_node_stats stats = PKV_NODE_STATS_INIT;
    uint64_t size = 0;
    pkv_status status = pkv_node_get_stats(node, &stats);
    if (status != PKV_OK) return report("pkv_node_get_stats", status);
    result->connected_peers = stats.connected_peers;
    memcpy(result->provider, stats.provider, sizeof result->provider);
    status = pkv_node_address(node, result->address, sizeof result->address, &size);
    if (status == PKV_ERR_STATE) result->address[0] = '\0'; /* it serves nothing */
    return status == PKV_OK || status == PKV_ERR_STATE || report("pkv_node_address", status);
}

static int told[2]; /* a pipe: any thread may be the one that the signal comes to */

static void on_signal(int number) {
    const int error = errno;
    (void)number;
    (void)!write(told[1], "", 1);
    errno = error;
}

bool share_wait(const char *address) {
    struct sigaction action;
    char byte;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    if (pipe(told) != 0 || sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0) {
        fprintf(stderr, "replay: waiting for a signal: %s\n", strerror(errno));
        return false;
    }
    fprintf(stderr, "replay: serving at %s until SIGTERM or SIGINT\n", address);
    while (read(told[0], &byte, 1) < 0 && errno == EINTR) {
    }
    return true;
}
