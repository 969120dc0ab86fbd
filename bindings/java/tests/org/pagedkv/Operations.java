/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.pagedkv.internal.Core;

/* What the operations of the conformance cases are, through the classes; where a case is about what these do not let happen (an
 * object that could not be made, a capacity that is too small), through what is below them. */
final class Operations {
    interface Operation {
        /* The status, if it is not the one that a PagedKvException says. */
        Status run(Case objects, Line line);
    }

    interface Plain {
        void run(Case objects, Line line);
    }

    static final Map<String, Operation> ALL = new HashMap<>();

    private Operations() {}

    static void add(String name, Plain plain) {
        ALL.put(name, (c, l) -> {
            plain.run(c, l);
            return Status.OK;
        });
    }

    static void addEach(String name, Operation operation) {
        ALL.put(name, operation);
    }

    /* Of several statuses the first failure. */
    static Status first(Status[] statuses) {
        for (Status status : statuses) {
            if (status != Status.OK) {
                return status;
            }
        }
        return Status.OK;
    }

    static Prompt prompt(Line l) {
        Prompt prompt = Prompt.of(l.ints("tokens"));
        Namespace namespace = namespace(l);
        if (namespace != null) {
            prompt.namespace(namespace);
        }
        for (String each : l.text("media", "").split("/")) {
            if (!each.isEmpty()) {
                String[] parts = each.split(":", 3);
                prompt.media(Long.parseUnsignedLong(parts[0]), Long.parseUnsignedLong(parts[1]), Line.bytesOf(parts[2]));
            }
        }
        return prompt;
    }

    static Namespace namespace(Line l) {
        byte[] model = l.bytes("model");
        byte[] adapter = l.bytes("adapter");
        byte[] salt = l.bytes("salt");
        boolean named = l.has("adapter_id") | l.has("generation") | model != null | adapter != null | salt != null;
        if (!named) {
            return null;
        }
        Namespace namespace = new Namespace().adapterId(l.number("adapter_id", 0)).adapterGeneration(l.number("generation", 0));
        if (model != null) {
            namespace.model(model);
        }
        if (adapter != null) {
            namespace.adapter(adapter);
        }
        if (salt != null) {
            namespace.salt(salt);
        }
        return namespace;
    }

    static Retention retention(Line l) {
        return new Retention(l.small("priority", 50), l.number("pin", 0) != 0, l.number("ttl", 0));
    }

    static void outMatch(Line l, Match match) {
        l.out("match", match.tokens());
        l.out("blocks", match.blocks());
        l.out("resident", match.residentTokens());
        l.out("tier0", match.tierTokens()[0]);
        l.out("tier1", match.tierTokens()[1]);
    }

    static OpOptions opOptions(Case c, Line l) {
        OpOptions options = new OpOptions().user(l.number("user", 0)).timeoutNs(l.number("timeout", 0));
        return l.has("queue") ? options.queue(c.get(l, Queue.class, "queue")) : options;
    }

    static {
        add("version", (c, l) -> {
            l.out("number", PagedKv.versionNumber());
            l.out("text", PagedKv.version());
        });
        add("status_name", (c, l) -> l.out("name", Core.status_string(l.small("number", 0))));
        add("dtype_bytes", (c, l) -> l.out("bytes", Core.dtype_bytes(l.name("dtype", Pattern.DTYPES, 1, 0))));
        add("digest", (c, l) -> {
            String parts = l.text("parts", "");
            byte[][] bytes = parts.isEmpty() ? new byte[0][]
                    : java.util.Arrays.stream(parts.split(",", -1)).map(Line::bytesOf).toArray(byte[][]::new);
            l.out("digest", java.util.HexFormat.of().formatHex(PagedKv.digest(bytes)));
        });
        add("counter", (c, l) -> {
            Case.Counter counter = c.find(Case.Counter.class, l.text("counter", ""));
            if (counter == null) {
                counter = c.make(l, "counter", new Case.Counter());
            }
            counter.cell().putLong(0, l.number("value", 0));
        });
        add("tier.host", (c, l) -> c.make(l, "tier", made(new Tier(0), () -> Tier.host(l.number("capacity", 0)))));
        add("tier.file", (c, l) -> {
            FileTierOptions options = new FileTierOptions(c.scratch(l.text("path", "file"))).capacityBytes(l.number("capacity", 0))
                    .maxImages(l.number("max_images", 0)).engine(l.name("engine", List.of("auto", "uring", "threads"), 0, 0))
                    .threads(l.small("threads", 0)).flags(l.small("flags", 0)).lockTimeoutNs(l.number("lock_timeout", 0));
            byte[] identity = l.bytes("identity");
            if (identity != null) {
                options.identity(identity);
            }
            c.make(l, "tier", made(new Tier(0), () -> Tier.file(options)));
        });
        add("tier.close", (c, l) -> Case.destroy(c.get(l, Tier.class, "tier")));
        add("tier.stats", (c, l) -> {
            TierStats stats = c.get(l, Tier.class, "tier").stats();
            TierUsage usage = stats.usage();
            l.out("lookups", stats.lookups());
            l.out("hits", stats.hits());
            l.out("loads", stats.loads());
            l.out("failed_loads", stats.failedLoads());
            l.out("stores", stats.stores());
            l.out("failed_stores", stats.failedStores());
            l.out("bytes_loaded", stats.bytesLoaded());
            l.out("bytes_stored", stats.bytesStored());
            l.out("checksum_failures", stats.checksumFailures());
            l.out("capacity_bytes", usage.capacityBytes());
            l.out("used_bytes", usage.usedBytes());
            l.out("images", usage.images());
            l.out("pinned_images", usage.pinnedImages());
            l.out("evicted_images", usage.evictedImages());
            l.out("recovered_images", usage.recoveredImages());
            l.out("io_errors", usage.ioErrors());
        });
        add("queue.create", (c, l) -> c.make(l, "queue", new Queue()));
        add("queue.destroy", (c, l) -> Case.destroy(c.get(l, Queue.class, "queue")));
        add("queue.handle", (c, l) -> l.out("valid", c.get(l, Queue.class, "queue").fd() >= 0));
        add("queue.drain", (c, l) -> {
            List<Queue.Completion> ended = List.of();
            try {
                ended = c.get(l, Queue.class, "queue").drain(l.small("capacity", 16), l.number("timeout", 0));
            } finally {
                l.outUnsigned("users", ended.stream().mapToLong(Queue.Completion::user).toArray());
                l.out("statuses", ended.stream().map(Queue.Completion::status).toArray(Status[]::new));
            }
        });
        add("op.poll", (c, l) -> {
            Op.Info info = c.get(l, Op.class, "op").poll();
            l.out("state", info.ended());
            l.out("result", info.status().name());
            l.out("num_items", info.numItems());
            l.out("done_items", info.doneItems());
            l.out("good_items", info.goodItems());
            l.out("statuses", info.statuses());
        });
        add("op.wait", (c, l) -> c.get(l, Op.class, "op").await(l.number("timeout", -1)));
        add("op.cancel", (c, l) -> c.get(l, Op.class, "op").cancel());
        add("op.close", (c, l) -> Case.destroy(c.get(l, Op.class, "op")));
        PoolOperations.addAll();
        TableOperations.addAll();
        PrefetchOperations.addAll();
    }

    interface Maker<T> {
        T make();
    }

    /* The object, or, when it cannot be made, one whose handle is NULL: the case names it all the same, then sees the failure. */
    static <T> T made(T none, Maker<T> maker) {
        try {
            return maker.make();
        } catch (PagedKvException e) {
            Conformance.failure = e;
            return none;
        }
    }
}
