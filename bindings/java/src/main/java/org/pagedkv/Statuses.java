/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/* Calls that give a status for each item besides one of their own. */
final class Statuses {
    private Statuses() {}

    /* A failure of items is in their statuses; one of the whole call is not. */
    static void rethrowIfGood(int[] statuses, PagedKvException e) {
        for (int status : statuses) {
            if (status != 0) {
                return;
            }
        }
        throw e;
    }
}
