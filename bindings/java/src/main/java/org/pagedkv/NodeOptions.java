/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.util.ArrayList;
import java.util.List;
import org.pagedkv.internal.node_options;

/** How a node is opened: pkv_node_options (node.h). */
public final class NodeOptions {
    /** Flag: an image that a reader takes from a slower tier is copied to the first one. */
    public static final int PROMOTE = 1;
    /** Flag: images are copied for readers, in place of opening the memory of host tiers to them. */
    public static final int COPY = 2;

    private final List<Tier> tiers = new ArrayList<>();
    private final List<Pool> pools = new ArrayList<>();
    private final byte[] clusterKey;
    private byte[] identity;
    private String name;
    private String listen;
    private String provider;
    private String fabricHost;
    private String directory;
    private String advertise;
    private String directoryPrefix;
    private long exportBytes;
    private int maxGuests;
    private int maxLeases;
    private long leaseNs;
    private long timeoutNs;
    private int flags;
    private int directoryPeers;
    private long heartbeatNs;
    private long entryTtlNs;

    /** Memory that others read from; 0 = 64 MiB. */
    public NodeOptions exportBytes(long exportBytes) {
        this.exportBytes = exportBytes;
        return this;
    }

    /** Connections of readers; 0 = 64. */
    public NodeOptions maxGuests(int maxGuests) {
        this.maxGuests = maxGuests;
        return this;
    }

    /** Of one reader; 0 = 65536. */
    public NodeOptions maxLeases(int maxLeases) {
        this.maxLeases = maxLeases;
        return this;
    }

    /** Nanoseconds; 0 = 30 seconds. */
    public NodeOptions leaseNs(long leaseNs) {
        this.leaseNs = leaseNs;
        return this;
    }

    /** Of connecting and of answers, in nanoseconds; 0 = 5 seconds. */
    public NodeOptions timeoutNs(long timeoutNs) {
        this.timeoutNs = timeoutNs;
        return this;
    }

    /** {@link #PROMOTE}, {@link #COPY}. */
    public NodeOptions flags(int flags) {
        this.flags = flags;
        return this;
    }

    /** Nodes found through the directory that it is connected to, at most; 0 = 64. */
    public NodeOptions directoryPeers(int directoryPeers) {
        this.directoryPeers = directoryPeers;
        return this;
    }

    /** How often the address is written to the directory, in nanoseconds; 0 = 5 seconds. */
    public NodeOptions heartbeatNs(long heartbeatNs) {
        this.heartbeatNs = heartbeatNs;
        return this;
    }

    /** How long the directory keeps the word that a node has an image, in nanoseconds; 0 = 10 minutes. */
    public NodeOptions entryTtlNs(long entryTtlNs) {
        this.entryTtlNs = entryTtlNs;
        return this;
    }

    /** @param clusterKey 32 random bytes, a secret that all nodes share */
    public NodeOptions(byte[] clusterKey) {
        this.clusterKey = clusterKey.clone();
    }

    /** For the others' statistics and messages. */
    public NodeOptions name(String name) {
        this.name = name;
        return this;
    }

    /** "host:port" of the control connection, port 0 = any; without it nothing is served. */
    public NodeOptions listen(String listen) {
        this.listen = listen;
        return this;
    }

    /** Of libfabric: "tcp", "shm", "verbs" ...; without it the first that works. */
    public NodeOptions provider(String provider) {
        this.provider = provider;
        return this;
    }

    /** Local address of the fabric, or the name of an interface. */
    public NodeOptions fabricHost(String fabricHost) {
        this.fabricHost = fabricHost;
        return this;
    }

    /** Servers of the directory: "redis://host:port", several with commas between; without it peers are named by connect. */
    public NodeOptions directory(String directory) {
        this.directory = directory;
        return this;
    }

    /** "host:port" that the directory gives to others. */
    public NodeOptions advertise(String advertise) {
        this.advertise = advertise;
        return this;
    }

    /** Of names in the directory. */
    public NodeOptions directoryPrefix(String directoryPrefix) {
        this.directoryPrefix = directoryPrefix;
        return this;
    }

    /** Of the model: nodes of another one are refused. */
    public NodeOptions identity(byte[] identity) {
        this.identity = identity.clone();
        return this;
    }

    /** Adds a tier that is served, the fastest first. */
    public NodeOptions tier(Tier tier) {
        tiers.add(tier);
        return this;
    }

    /** Adds a pool whose geometry has to be that of the other nodes. */
    public NodeOptions pool(Pool pool) {
        pools.add(pool);
        return this;
    }

    /* to be closed */
    node_options open() {
        node_options to = new node_options();
        to.setExport_bytes(exportBytes);
        to.setMax_guests(Bytes.unsigned(maxGuests));
        to.setMax_leases(Bytes.unsigned(maxLeases));
        to.setLease_ns(leaseNs);
        to.setTimeout_ns(timeoutNs);
        to.setFlags(Bytes.unsigned(flags));
        to.setDirectory_peers(Bytes.unsigned(directoryPeers));
        to.setHeartbeat_ns(heartbeatNs);
        to.setEntry_ttl_ns(entryTtlNs);
        try {
            to.set_cluster_key(clusterKey);
            to.set_identity(identity);
            to.set_name(Bytes.text(name));
            to.set_listen(Bytes.text(listen));
            to.set_provider(Bytes.text(provider));
            to.set_fabric_host(Bytes.text(fabricHost));
            to.set_directory(Bytes.text(directory));
            to.set_advertise(Bytes.text(advertise));
            to.set_directory_prefix(Bytes.text(directoryPrefix));
            for (Tier tier : tiers) {
                to.add_tier(tier.handle());
            }
            for (Pool pool : pools) {
                to.add_pool(pool.handle());
            }
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
