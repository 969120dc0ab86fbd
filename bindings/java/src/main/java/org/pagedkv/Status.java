/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** What a call came to; the numbers are those of types.h, without their sign. */
public enum Status {
    /** Done. */
    OK,
    /** An argument is out of range or contradicts another. */
    INVALID,
    /** A closed object. */
    HANDLE,
    /** The object's parent was closed. */
    CLOSED,
    /** The handle was made before fork() in the parent process. */
    FORKED,
    /** The operating system or the allocator gave no memory. */
    NO_MEMORY,
    /** The pool has too few pages that are free or may be evicted. */
    NO_PAGES,
    /** A buffer or a tier is too small. */
    NO_SPACE,
    /** What was named does not exist. */
    NOT_FOUND,
    /** A block has no page in the pool. */
    NOT_RESIDENT,
    /** Blocks of a sequence could not be loaded and are gone. */
    LOST,
    /** The object or page is not in a state that allows this. */
    STATE,
    /** In use by an operation, or by a call on another thread. */
    BUSY,
    /** Not now; a later try may succeed. */
    AGAIN,
    /** A deadline passed. */
    TIMEOUT,
    /** Cancelled by the caller. */
    CANCELLED,
    /** Not supported by this build, machine or object. */
    UNSUPPORTED,
    /** Geometry, identity or seed differs. */
    MISMATCH,
    /** Input or output failed. */
    IO,
    /** Larger than a documented limit. */
    LIMIT,
    /** Not possible while a stream is being captured. */
    CAPTURE,
    /** A fault of the library itself: please report it. */
    INTERNAL,
    /** A number that this binding does not know. */
    UNKNOWN;

    private static final Status[] ALL = values();

    static Status of(int code) {
        return code <= 0 && code > -UNKNOWN.ordinal() ? ALL[-code] : UNKNOWN;
    }

    static Status[] of(int[] codes) {
        Status[] statuses = new Status[codes.length];
        for (int i = 0; i < codes.length; ++i) {
            statuses[i] = of(codes[i]);
        }
        return statuses;
    }

    int code() {
        return -ordinal();
    }
}
