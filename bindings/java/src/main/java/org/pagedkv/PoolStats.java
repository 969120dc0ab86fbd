/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.pool_stats;

/** Statistics of a pool, of one moment: the fields are those of pkv_pool_stats (stats.h). Times are nanoseconds. */
public record PoolStats(
        long numPages, long freePages, long heldPages, long cachedPages, long quarantinedPages, long tables,
        long namespaces, long indexBlocks, long pageBytes, long metadataBytes, double usage, int memoryKind,
        int keySeed, long requests, long askedTokens, long hitTokens, long retries, long refused, long probes,
        long allocatedPages, long failedAllocations, long evictedPages, long clearedPages, long publishedBlocks,
        long unpublishedBlocks, long duplicateBlocks, long keyCollisions, long copiedPages, long partialTokens,
        long sharedDuplicates, long expiredBlocks, long events, long pinnedPages, long unstoredPages,
        long storedImages, long failedStores, long droppedImages, long loadedBlocks, long adoptedBlocks,
        long joinedLoads, long spilledBlocks, long lostBlocks, long exposedNs, long tierHitTokens, long imageBytes) {

    static PoolStats of(pool_stats s) {
        return new PoolStats(
                s.getNum_pages(), s.getFree_pages(), s.getHeld_pages(), s.getCached_pages(),
                s.getQuarantined_pages(), s.getTables(), s.getNamespaces(), s.getIndex_blocks(), s.getPage_bytes(),
                s.getMetadata_bytes(), s.getUsage(), s.getMemory_kind(), s.getKey_seed(), s.getRequests(),
                s.getAsked_tokens(), s.getHit_tokens(), s.getRetries(), s.getRefused(), s.getProbes(),
                s.getAllocated_pages(), s.getFailed_allocations(), s.getEvicted_pages(), s.getCleared_pages(),
                s.getPublished_blocks(), s.getUnpublished_blocks(), s.getDuplicate_blocks(), s.getKey_collisions(),
                s.getCopied_pages(), s.getPartial_tokens(), s.getShared_duplicates(), s.getExpired_blocks(),
                s.getEvents(), s.getPinned_pages(), s.getUnstored_pages(), s.getStored_images(),
                s.getFailed_stores(), s.getDropped_images(), s.getLoaded_blocks(), s.getAdopted_blocks(),
                s.getJoined_loads(), s.getSpilled_blocks(), s.getLost_blocks(), s.getExposed_ns(),
                s.getTier_hit_tokens(), s.getImage_bytes());
    }
}
