/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.charset.StandardCharsets;

/** A call that failed: why ({@link #status}), and the library's text with the values at fault. */
public final class PagedKvException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final int code;
    private final String detail;

    private PagedKvException(int code, String detail) {
        super(Status.of(code) + (detail.isEmpty() ? "" : ": " + detail));
        this.code = code;
        this.detail = detail;
    }

    static PagedKvException of(Status status, String detail) {
        return new PagedKvException(status.code(), detail);
    }

    /* Called by the native code. */
    static PagedKvException of(int code, byte[] detail) {
        return new PagedKvException(code, new String(detail, StandardCharsets.UTF_8));
    }

    /** Why the call failed. */
    public Status status() {
        return Status.of(code);
    }

    /** The number of the status: PKV_ERR_* (types.h). */
    public int code() {
        return code;
    }

    /** What the library says about it. */
    public String detail() {
        return detail;
    }
}
