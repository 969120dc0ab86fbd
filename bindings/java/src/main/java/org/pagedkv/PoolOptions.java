/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.util.ArrayList;
import java.util.List;
import org.pagedkv.internal.group_options;
import org.pagedkv.internal.pool_options;
import org.pagedkv.internal.sync;
import org.pagedkv.internal.tier_attachment;

/** How a pool is made: pkv_pool_options (pool.h). */
public final class PoolOptions {
    /** Flag: cached pages whose image is in no tier yet are not evicted. */
    public static final int KEEP_UNSTORED = 1;

    private record Attached(Tier tier, int policy, int hits, int flags, long timeoutNanos) {}

    private final List<GroupOptions> groups = new ArrayList<>();
    private final List<Attached> tiers = new ArrayList<>();
    private int pageTokens;
    private int hugePages;
    private int copyThreads;
    private long seed;
    private int debug;
    private int eventCapacity;
    private int flags;
    private long cleanPages;
    private long stagingBytes;
    private Device device = Device.HOST;
    private Sync inPlace;
    private int transferBlocks;

    /** Tokens of a page. */
    public PoolOptions pageTokens(int pageTokens) {
        this.pageTokens = pageTokens;
        return this;
    }

    /** 0 = where the kernel gives them, 1 = never, 2 = reserved ones only. */
    public PoolOptions hugePages(int hugePages) {
        this.hugePages = hugePages;
        return this;
    }

    /** Helper threads for large writes and gathers; 0 = the calling thread alone. */
    public PoolOptions copyThreads(int copyThreads) {
        this.copyThreads = copyThreads;
        return this;
    }

    /** Of the prefix keys; 0 = random. */
    public PoolOptions seed(long seed) {
        this.seed = seed;
        return this;
    }

    /** Bits for tests of an integration (PKV_DEBUG_*). */
    public PoolOptions debug(int debug) {
        this.debug = debug;
        return this;
    }

    /** Events kept for {@link Pool#events}; 0 = none. */
    public PoolOptions eventCapacity(int eventCapacity) {
        this.eventCapacity = eventCapacity;
        return this;
    }

    /** {@link #KEEP_UNSTORED}. */
    public PoolOptions flags(int flags) {
        this.flags = flags;
        return this;
    }

    /** WRITE_BACK: pages of each group to have free or stored; 0 = a quarter. */
    public PoolOptions cleanPages(long cleanPages) {
        this.cleanPages = cleanPages;
        return this;
    }

    /** Memory for images on their way; 0 = 32 MiB. */
    public PoolOptions stagingBytes(long stagingBytes) {
        this.stagingBytes = stagingBytes;
        return this;
    }

    /** Where pages lie. */
    public PoolOptions device(Device device) {
        this.device = device;
        return this;
    }

    /** On a device: {@link Sync#cudaStream} of the kernels that use pages in place. It has to exist as long as the pool and its tables. */
    public PoolOptions inPlace(Sync inPlace) {
        this.inPlace = inPlace;
        return this;
    }

    /** Thread blocks that a transfer to or from tiers may take on the device; 0 = no bound. */
    public PoolOptions transferBlocks(int transferBlocks) {
        this.transferBlocks = transferBlocks;
        return this;
    }

    /** Adds a layer group. */
    public PoolOptions group(GroupOptions group) {
        groups.add(group);
        return this;
    }

    /** Adds a tier, below those added before. */
    public PoolOptions tier(Tier tier, TierPolicy policy) {
        return tier(tier, policy.code, 0, 0, 0);
    }

    /**
     * Adds a tier.
     *
     * @param hits WRITE_ON_HITS: 1 .. 1000, else 0
     * @param exclusive an image that was loaded is removed from the tier
     * @param timeoutNanos longest wait for an answer of the tier where a call has none of its own; 0 = one second
     */
    public PoolOptions tier(Tier tier, TierPolicy policy, int hits, boolean exclusive, long timeoutNanos) {
        return tier(tier, policy.code, hits, exclusive ? 1 : 0, timeoutNanos);
    }

    PoolOptions tier(Tier tier, int policy, int hits, int flags, long timeoutNanos) {
        tiers.add(new Attached(tier, policy, hits, flags, timeoutNanos));
        return this;
    }

    List<GroupOptions> groups() {
        return groups;
    }

    /* to be closed */
    pool_options open() {
        pool_options to = new pool_options();
        to.setPage_tokens(Bytes.unsigned(pageTokens));
        to.setHuge_pages(hugePages);
        to.setCopy_threads(Bytes.unsigned(copyThreads));
        to.setSeed(seed);
        to.setDebug(Bytes.unsigned(debug));
        to.setEvent_capacity(Bytes.unsigned(eventCapacity));
        to.setFlags(Bytes.unsigned(flags));
        to.setClean_pages(cleanPages);
        to.setStaging_bytes(stagingBytes);
        to.setDevice(device.kind());
        to.setDevice_index(device.index());
        to.setTransfer_blocks(Bytes.unsigned(transferBlocks));
        try {
            try (sync stream = Sync.open(inPlace)) {
                to.set_in_place(stream);
            }
            for (GroupOptions group : groups) {
                try (group_options options = group.open(Bytes.unsigned(pageTokens))) {
                    to.add_group(options);
                }
            }
            for (Attached attached : tiers) {
                try (tier_attachment attachment = new tier_attachment()) {
                    attachment.set_tier(NativeObject.handleOf(attached.tier));
                    attachment.setPolicy(attached.policy);
                    attachment.setHits(Bytes.unsigned(attached.hits));
                    attachment.setFlags(Bytes.unsigned(attached.flags));
                    attachment.setTimeout_ns(attached.timeoutNanos);
                    to.add_tier(attachment);
                }
            }
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
