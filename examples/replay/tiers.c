/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers.h"

#include "kv.h"
#include "share.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What the images in the file belong to. Keys keep models and geometries apart; this keeps other programs' files safe. */
static const char identity[] = KV_MODEL;

static uint64_t round_up(uint64_t bytes) {
    return (bytes + PKV_IMAGE_ALIGNMENT - 1) / PKV_IMAGE_ALIGNMENT * PKV_IMAGE_ALIGNMENT;
}

/* A header with the page's tokens, then a slice for each layer. */
uint64_t tiers_image_bytes(const run_config *config) {
    const uint64_t slice = run_token_bytes(config) / config->layers * config->page_tokens;
    const uint64_t header = 256 + 8 * (uint64_t)config->layers + sizeof(pkv_token) * config->page_tokens;
    return round_up(header) + config->layers * round_up(slice);
}

static bool add(tier_set *set, run_place place, pkv_status status, pkv_tier *tier, const char *what) {
    char message[512] = "";
    if (status == PKV_OK) {
        set->tiers[set->count] = tier;
        set->places[set->count++] = place;
        return true;
    }
    (void)pkv_last_error(message, sizeof message);
    fprintf(stderr, "replay: %s: %s: %s\n", what, pkv_status_string(status), message);
    return false;
}

static bool open_host(const run_config *config, tier_set *set) {
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    pkv_tier *tier = NULL;
    options.capacity_bytes = config->host_bytes;
    const pkv_status status = pkv_tier_open_host(&options, &tier);
    return add(set, PLACE_HOST, status, tier, "--host-bytes");
}

static bool open_file(const run_config *config, tier_set *set) {
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    pkv_tier *tier = NULL;
    struct stat info;
    const bool exists = stat(config->file, &info) == 0 && info.st_size > 0;
    if (!exists && config->file_bytes == 0) {
        fprintf(stderr, "replay: %s: a new file needs --file-bytes\n", config->file);
        return false;
    }
    options.path = config->file;
    options.capacity_bytes = config->file_bytes;
    options.identity.data = identity;
    options.identity.size = sizeof identity - 1;
    /* The default is made for images of 64 KiB and more. */
    if (!exists) options.max_images = 1 + config->file_bytes / tiers_image_bytes(config);
    const pkv_status status = pkv_tier_open_file(&options, &tier);
    return add(set, PLACE_FILE, status, tier, "--file");
}

/* Serves the tiers that are open already; theirs comes last. */
static bool open_node(const run_config *config, tier_set *set) {
    pkv_tier *tier = NULL;
    if (!share_open(config, set->tiers, set->count, &set->node)) return false;
    if (config->num_peers == 0 && config->directory == NULL) return true;
    const pkv_status status = pkv_node_tier(set->node, &tier);
    return add(set, PLACE_REMOTE, status, tier, "--peer");
}

bool tiers_open(const run_config *config, tier_set *set) {
    memset(set, 0, sizeof *set);
    if ((config->host_bytes == 0 || open_host(config, set)) && (config->file == NULL || open_file(config, set)) &&
        (config->cluster_key == NULL || open_node(config, set)))
        return true;
    tiers_close(set);
    return false;
}

void tiers_close(tier_set *set) {
    if (set->node != NULL) (void)pkv_node_close(set->node);
    for (uint32_t i = 0; i < set->count; ++i) (void)pkv_tier_close(set->tiers[i]);
    memset(set, 0, sizeof *set);
}

void tiers_attach(const tier_set *set, pkv_tier_attachment *attachments) {
    for (uint32_t i = 0; i < set->count; ++i) {
        const pkv_tier_attachment initial = PKV_TIER_ATTACHMENT_INIT;
        attachments[i] = initial;
        attachments[i].tier = set->tiers[i];
        attachments[i].policy = set->places[i] == PLACE_REMOTE ? PKV_TIER_READ_ONLY : PKV_TIER_WRITE_BACK;
    }
}

bool tiers_read(const tier_set *set, const run_config *config, run_result *result) {
    for (uint32_t i = 0; i < set->count; ++i) {
        pkv_tier_stats stats = PKV_TIER_STATS_INIT;
        run_tier *const tier = &result->tiers[set->places[i]];
        if (pkv_tier_get_stats(set->tiers[i], &stats) != PKV_OK) {
            fprintf(stderr, "replay: pkv_tier_get_stats failed\n");
            return false;
        }
        tier->exists = true;
        tier->capacity_bytes = stats.usage.capacity_bytes;
        tier->images = stats.usage.images;
        tier->image_bytes =
            stats.usage.images > 0 ? stats.usage.used_bytes / stats.usage.images : tiers_image_bytes(config);
        tier->recovered_images = stats.usage.recovered_images;
        tier->evicted_images = stats.usage.evicted_images;
        tier->bytes_loaded = stats.bytes_loaded;
        tier->bytes_stored = stats.bytes_stored;
        tier->checksum_failures = stats.checksum_failures;
        tier->engine = stats.usage.engine;
        tier->failed_loads = stats.failed_loads;
    }
    return set->node == NULL || share_read(set->node, result);
}
