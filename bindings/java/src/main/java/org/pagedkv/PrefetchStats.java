/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.prefetch_stats;

/** Statistics of a session: the fields are those of pkv_prefetch_stats (prefetch.h). Times are nanoseconds. */
public record PrefetchStats(
        long needed, long onTime, long late, long onDemand, long failed, long requests, long readyRequests,
        long steps, long ranges, long prompts, long ioNs, long exposedNs, long maskedNs, long otherWaitNs,
        long loads, long goodLoads, long failedLoads, long cancelledLoads, long bytesLoaded, long bytesUsed,
        long wastedBytes, long checksumFailures, long readyBytes, long bytesInFlight, long loadsInFlight,
        long depth, long lookahead, long blockPages, long stagingPages, long bufferSlices,
        double maskingEfficiency, Histogram load, Histogram queue, Histogram exposed) {

    static PrefetchStats of(prefetch_stats s) {
        return new PrefetchStats(
                s.getNeeded(), s.getOn_time(), s.getLate(), s.getOn_demand(), s.getFailed(), s.getRequests(),
                s.getReady_requests(), s.getSteps(), s.getRanges(), s.getPrompts(), s.getIo_ns(),
                s.getExposed_ns(), s.getMasked_ns(), s.getOther_wait_ns(), s.getLoads(), s.getGood_loads(),
                s.getFailed_loads(), s.getCancelled_loads(), s.getBytes_loaded(), s.getBytes_used(),
                s.getWasted_bytes(), s.getChecksum_failures(), s.getReady_bytes(), s.getBytes_in_flight(),
                s.getLoads_in_flight(), s.getDepth(), s.getLookahead(), s.getBlock_pages(), s.getStaging_pages(),
                s.getBuffer_slices(), s.getMasking_efficiency(), Histogram.of(s.get_load_times()),
                Histogram.of(s.get_queue_times()), Histogram.of(s.get_exposed_times()));
    }
}
