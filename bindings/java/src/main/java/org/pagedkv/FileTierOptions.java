/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.file.Path;
import org.pagedkv.internal.file_tier_options;

/** A tier in a file: pkv_file_tier_options (tier.h). */
public final class FileTierOptions {
    /** Flag: begin empty. */
    public static final int RESET = 1;
    /** Flag: through the page cache. */
    public static final int BUFFERED = 2;

    private final String path;
    private byte[] identity;
    private long capacityBytes;
    private long maxImages;
    private int engine;
    private int depth;
    private int threads;
    private int flags;
    private long lockTimeoutNs;

    /** Room for page images; 0 = that of the file which is there. */
    public FileTierOptions capacityBytes(long capacityBytes) {
        this.capacityBytes = capacityBytes;
        return this;
    }

    /** Images it can hold at most; 0 = one for each 64 KiB. */
    public FileTierOptions maxImages(long maxImages) {
        this.maxImages = maxImages;
        return this;
    }

    /** How it reads and writes. */
    public FileTierOptions engine(IoEngine engine) {
        return engine(engine.code);
    }

    FileTierOptions engine(int engine) {
        this.engine = engine;
        return this;
    }

    /** Reads and writes under way at once; 0 = 64. */
    public FileTierOptions depth(int depth) {
        this.depth = depth;
        return this;
    }

    /** THREADS: how many; 0 = 4. */
    public FileTierOptions threads(int threads) {
        this.threads = threads;
        return this;
    }

    /** {@link #RESET}, {@link #BUFFERED}. */
    public FileTierOptions flags(int flags) {
        this.flags = flags;
        return this;
    }

    /** How long to wait for another process to let go of the file, in nanoseconds; 0 = 5 seconds. */
    public FileTierOptions lockTimeoutNs(long lockTimeoutNs) {
        this.lockTimeoutNs = lockTimeoutNs;
        return this;
    }

    /** @param path the file; made if it is not there */
    public FileTierOptions(Path path) {
        this.path = path.toString();
    }

    /** What the images belong to: a file made with another one is refused. */
    public FileTierOptions identity(byte[] identity) {
        this.identity = identity.clone();
        return this;
    }

    /* to be closed */
    file_tier_options open() {
        file_tier_options to = new file_tier_options();
        to.setCapacity_bytes(capacityBytes);
        to.setMax_images(maxImages);
        to.setEngine(engine);
        to.setDepth(Bytes.unsigned(depth));
        to.setThreads(Bytes.unsigned(threads));
        to.setFlags(Bytes.unsigned(flags));
        to.setLock_timeout_ns(lockTimeoutNs);
        try {
            to.set_path(Bytes.text(path));
            to.set_identity(identity);
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
