/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import static org.pagedkv.Operations.add;
import static org.pagedkv.Operations.addEach;
import static org.pagedkv.Operations.made;
import static org.pagedkv.Operations.namespace;
import static org.pagedkv.Operations.outMatch;
import static org.pagedkv.Operations.prompt;
import static org.pagedkv.Operations.retention;

import java.util.List;

/* Conformance: pools. */
final class PoolOperations {
    private static final List<String> POLICIES = List.of("write_back", "write_through", "write_on_hits", "demote", "read_only");

    private PoolOperations() {}

    private static Pool pool(Case c, Line l) {
        return c.get(l, Pool.class, "pool");
    }

    private static int group(Line l) {
        return l.small("group", 0);
    }

    private static GroupOptions groupOptions(Line l) {
        return new GroupOptions().numPages(l.number("num_pages", 0)).numLayers(l.small("num_layers", 0))
                .firstLayer(l.small("first_layer", 0)).totalLayers(l.small("total_layers", 0))
                .numKvHeads(l.small("num_kv_heads", 0)).kHeadDim(l.small("k_head_dim", 0)).vHeadDim(l.small("v_head_dim", 0))
                .dtype(l.name("dtype", Pattern.DTYPES, 1, DType.F16.code)).kRowBytes(l.small("k_row_bytes", 0))
                .vRowBytes(l.small("v_row_bytes", 0)).layout(l.name("layout", List.of("nhd", "hnd"), 0, 0))
                .arrangement(l.name("arrangement", List.of("page_major", "layer_major"), 0, 0))
                .attention(l.name("attention", List.of("full", "window"), 0, 0)).window(l.small("window", 0))
                .sinks(l.small("sinks", 0)).memory(l.name("memory", List.of("pool", "caller", "none"), 0, 0))
                .kPageStride(l.number("k_page_stride", 0)).maxCachedPages(l.number("max_cached_pages", 0))
                .scales(l.name("scales", List.of("none", "tensor", "head", "token_head"), 0, 0)).auxBytes(l.small("aux_bytes", 0));
    }

    private static void create(Case c, Line l) {
        PoolOptions options = new PoolOptions().pageTokens(l.small("page_tokens", 0)).seed(l.number("seed", 0))
                .debug(l.small("debug", 0)).eventCapacity(l.small("event_capacity", 0)).copyThreads(l.small("copy_threads", 0))
                .flags(l.small("flags", 0)).cleanPages(l.number("clean_pages", 0));
        String names = l.text("groups", null);
        if (names == null) {
            options.group(groupOptions(l));
        } else {
            for (String name : names.split(",")) {
                options.group(c.find(GroupOptions.class, name));
            }
        }
        for (String each : l.text("tiers", "").split("/")) {
            if (!each.isEmpty()) {
                String[] parts = each.split(":");
                int known = POLICIES.indexOf(parts[1]);
                options.tier(c.find(Tier.class, parts[0]), known >= 0 ? known : Integer.parseInt(parts[1]), l.small("hits", 0), 0, 0);
            }
        }
        c.make(l, "pool", made(Pool.none(), () -> new Pool(options)));
    }

    private static void outLayout(Case c, Line l) {
        LayerLayout layout = pool(c, l).layout(group(l), l.small("layer", 0));
        l.out("k_page_stride", layout.kPageStride());
        l.out("k_token_stride", layout.kTokenStride());
        l.out("k_head_stride", layout.kHeadStride());
        l.out("v_page_stride", layout.vPageStride());
        l.out("v_token_stride", layout.vTokenStride());
        l.out("v_head_stride", layout.vHeadStride());
        l.out("k_row_bytes", layout.kRowBytes());
        l.out("v_row_bytes", layout.vRowBytes());
        l.out("num_kv_heads", layout.numKvHeads());
        l.out("page_tokens", layout.pageTokens());
        l.out("dtype", layout.dtype().code);
        l.out("scale_page_stride", layout.scalePageStride());
        l.out("has_memory", layout.kBase() != 0);
    }

    private static void outStats(Case c, Line l) {
        PoolStats stats = pool(c, l).stats(group(l));
        try {
            for (var component : PoolStats.class.getRecordComponents()) {
                if (component.getType() != double.class) {
                    String name = component.getName().replaceAll("([A-Z])", "_$1").toLowerCase(java.util.Locale.ROOT);
                    l.out(name, ((Number) component.getAccessor().invoke(stats)).longValue());
                }
            }
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    private static void outKeys(Line l, int bytes, Packed.KeyCall call) {
        long[] count = new long[1];
        long capacity = l.number("capacity", 64);
        byte[] keys = new byte[64 * bytes];
        try (var of = prompt(l).open()) {
            call.call(of, keys, capacity, count);
            if (capacity != 0) {
                l.out("digest", Line.digest(keys, (int) count[0] * bytes));
            }
        } finally {
            l.out("num_keys", count[0]);
        }
    }

    private interface Move {
        Op move(Pool pool, byte[] keys, int[] pages, Sync sync, OpOptions options);
    }

    private static void move(Case c, Line l, Move move) {
        Pool pool = pool(c, l);
        Prompt prompt = prompt(l);
        int[] pages = l.ints("pages");
        Sync sync = c.sync(l);
        OpOptions options = Operations.opOptions(c, l);
        c.make(l, "op", made(new Op(0), () -> move.move(pool, pool.imageKeys(group(l), prompt), pages, sync, options)));
    }

    static void addAll() {
        add("group", (c, l) -> c.make(l, "group", groupOptions(l)));
        add("pool.create", PoolOperations::create);
        add("pool.destroy", (c, l) -> Case.destroy(pool(c, l)));
        add("pool.quiesce", (c, l) -> pool(c, l).quiesce(l.number("timeout", 0)));
        add("pool.flush", (c, l) -> pool(c, l).flush(l.number("timeout", 0)));
        add("pool.layout", PoolOperations::outLayout);
        add("pool.alloc", (c, l) -> l.out("pages", pool(c, l).alloc(group(l), l.number("num_pages", 0))));
        add("pool.retain", (c, l) -> pool(c, l).retain(group(l), l.ints("pages")));
        addEach("pool.release", (c, l) -> {
            if (l.number("each", 0) == 0) {
                pool(c, l).release(group(l), l.ints("pages"), c.sync(l));
                return Status.OK;
            }
            Status[] statuses = pool(c, l).releaseEach(group(l), l.ints("pages"), c.sync(l));
            l.out("statuses", statuses);
            return Operations.first(statuses);
        });
        add("pool.page_info", (c, l) -> {
            PageInfo info = pool(c, l).pageInfo(group(l), l.small("page", 0));
            l.out("count", info.count());
            l.out("state", info.state());
            l.out("published", info.published());
            l.out("block", info.block());
            l.out("priority", info.priority());
            l.out("pinned", info.pinned());
        });
        add("pool.lookup", (c, l) -> {
            Pool.Lookup found = pool(c, l).lookup(prompt(l), l.number("max_match", 0), l.small("capacity", 16));
            outMatch(l, found.match());
            l.out("pages", found.pages()[0]);
            l.out("pages1", l.number("groups", 1) > 1 ? found.pages()[1] : new int[0]);
        });
        add("pool.probe", (c, l) -> outMatch(l, pool(c, l).probe(prompt(l), l.number("max_match", 0))));
        add("pool.publish", (c, l) -> l.out("owner",
                pool(c, l).publish(group(l), prompt(l), l.number("first_block", 0), l.ints("pages"))));
        add("pool.evict", (c, l) -> l.out("evicted", pool(c, l).evict(group(l), l.number("num_pages", 0))));
        add("pool.set_retention", (c, l) -> l.out("blocks", pool(c, l).setRetention(prompt(l), l.number("first_token", 0),
                l.number("num_tokens", -1), retention(l))));
        add("pool.set_namespace_retention", (c, l) -> {
            Retention retention = retention(l);
            pool(c, l).setNamespaceRetention(namespace(l), l.number("none", 0) != 0 ? null : retention);
        });
        add("pool.clear", (c, l) -> {
            ClearResult result = l.number("all", 0) != 0 ? pool(c, l).clearAll() : pool(c, l).clear(namespace(l));
            l.out("freed", result.freed());
            l.out("held", result.held());
        });
        add("pool.keys", (c, l) -> outKeys(l, Packed.KEY, pool(c, l)::keys));
        add("pool.image_keys", (c, l) -> outKeys(l, Packed.TIER_KEY,
                (of, keys, capacity, count) -> pool(c, l).imageKeys(group(l), of, keys, capacity, count)));
        add("pool.events", (c, l) -> {
            Pool.Events events = pool(c, l).events(l.number("after", 0), l.small("capacity", 64));
            List<Event> list = events.events();
            l.out("count", list.size());
            l.out("missed", events.missed());
            l.out("kinds", list.stream().mapToInt(Event::kind).toArray());
            l.out("blocks", list.stream().mapToLong(Event::block).toArray());
            l.out("last", list.isEmpty() ? 0 : list.get(list.size() - 1).sequence());
        });
        add("pool.write", (c, l) -> {
            long[] slots = l.longs("slots");
            int layer = l.small("layer", 0);
            Pattern rows = new Pattern(l, pool(c, l), group(l), layer, l.number("position", 0), slots.length, true);
            pool(c, l).write(group(l), layer, slots, rows.k(), rows.v(), c.sync(l));
        });
        add("pool.gather", (c, l) -> {
            long count = l.number("num_tokens", 0);
            Pattern rows = new Pattern(l, pool(c, l), group(l), l.small("layer", 0), 0, count, false);
            pool(c, l).gather(group(l), l.small("layer", 0), l.ints("pages"), l.number("first_token", 0), count, rows.k(), rows.v(),
                    c.sync(l));
            rows.out(l);
        });
        add("pool.copy_pages", (c, l) -> pool(c, l).copyPages(group(l), l.ints("src"), l.ints("dst"), c.sync(l)));
        add("pool.stats", PoolOperations::outStats);
        add("pool.store", (c, l) -> move(c, l, (pool, keys, pages, sync, options) ->
                pool.store(group(l), keys, pages, sync, options)));
        add("pool.load", (c, l) -> move(c, l, (pool, keys, pages, sync, options) ->
                pool.load(group(l), keys, pages, sync, options)));
    }
}
