/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.node_stats;

/** Statistics of a node: the fields are those of pkv_node_stats (node.h). */
public record NodeStats(
        long guests, long accepted, long refused, long lookupsServed, long fetchesServed, long bytesServed,
        long leases, long expiredLeases, long badMessages, long peers, long connectedPeers, long reads,
        long failedReads, long bytesRead, long lateAnswers, long reconnects, long promoted, long openOffers,
        long offers, long expiredOffers, long pullsServed, long failedPullsServed, long handedBytes, long pulls,
        long failedPulls, long pulledBytes, long directoryEndpoints, long directoryEndpointsUp,
        long directoryPeers, long directoryLookups, long directoryHits, long directoryFailures,
        long directoryPublished, long directoryDropped, long directoryBadEntries, String provider) {

    static NodeStats of(node_stats s) {
        return new NodeStats(
                s.getGuests(), s.getAccepted(), s.getRefused(), s.getLookups_served(), s.getFetches_served(),
                s.getBytes_served(), s.getLeases(), s.getExpired_leases(), s.getBad_messages(), s.getPeers(),
                s.getConnected_peers(), s.getReads(), s.getFailed_reads(), s.getBytes_read(), s.getLate_answers(),
                s.getReconnects(), s.getPromoted(), s.getOpen_offers(), s.getOffers(), s.getExpired_offers(),
                s.getPulls_served(), s.getFailed_pulls_served(), s.getHanded_bytes(), s.getPulls(),
                s.getFailed_pulls(), s.getPulled_bytes(), s.getDirectory_endpoints(),
                s.getDirectory_endpoints_up(), s.getDirectory_peers(), s.getDirectory_lookups(),
                s.getDirectory_hits(), s.getDirectory_failures(), s.getDirectory_published(),
                s.getDirectory_dropped(), s.getDirectory_bad_entries(), s.getProvider());
    }
}
