/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import org.pagedkv.internal.Core;

/* The objects of a conformance case. */
final class Case implements AutoCloseable {
    private record Named(Object object, String name) {}

    private final Deque<Named> objects = new ArrayDeque<>();
    private Path folder;

    <T> T make(Line line, String key, T object) {
        String name = line.text(key, null);
        if (name == null) {
            throw new Line.Wrong(key + "= names no new object");
        }
        objects.push(new Named(object, name));
        return object;
    }

    <T> T find(Class<T> type, String name) {
        for (Named each : objects) {
            if (type.isInstance(each.object) && each.name.equals(name)) {
                return type.cast(each.object);
            }
        }
        return null;
    }

    <T> T get(Line line, Class<T> type, String key) {
        T found = find(type, line.text(key, ""));
        if (found == null) {
            throw new Line.Wrong(key + "=" + line.text(key, "") + ": there is no such object");
        }
        return found;
    }

    Table[] tables(Line line) {
        String names = line.text("tables", "");
        if (names.isEmpty()) {
            return new Table[0];
        }
        String[] parts = names.split(",");
        Table[] tables = new Table[parts.length];
        for (int i = 0; i < parts.length; ++i) {
            tables[i] = find(Table.class, parts[i]);
            if (tables[i] == null) {
                throw new Line.Wrong("there is no table " + parts[i]);
            }
        }
        return tables;
    }

    Path scratch(String name) {
        try {
            if (folder == null) {
                folder = Files.createTempDirectory("pkv-cases");
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return folder.resolve(name);
    }

    /* A memory cell for Sync.counter. */
    record Counter(ByteBuffer cell) {
        Counter() {
            this(ByteBuffer.allocateDirect(8).order(ByteOrder.nativeOrder()));
        }
    }

    Sync sync(Line line) {
        String value = line.text("sync", null);
        if (value == null) {
            return null;
        }
        String[] parts = value.split(":");
        Counter counter = find(Counter.class, parts[0]);
        return Sync.counter(counter.cell, Long.parseUnsignedLong(parts[1]), line.number("sync_timeout", 1000000));
    }

    /* Closed ones are still found: their handles are stale, as a C program's. */
    static void destroy(NativeObject object) {
        if (object.isOpen()) {
            object.close();
        } else if (object instanceof Pool) {
            Core.pool_destroy(object.handle());
        } else if (object instanceof Table) {
            Core.table_destroy(object.handle(), null);
        } else if (object instanceof Batch) {
            Core.batch_destroy(object.handle());
        } else if (object instanceof Tier) {
            Core.tier_close(object.handle());
        } else if (object instanceof Queue) {
            Core.queue_destroy(object.handle());
        } else if (object instanceof Op) {
            Core.op_close(object.handle());
        } else if (object instanceof PrefetchSession) {
            Core.prefetch_close(object.handle(), null);
        }
    }

    @Override
    public void close() {
        for (Named each : objects) {
            if (each.object instanceof NativeObject object) {
                try {
                    object.close();
                } catch (PagedKvException e) {
                    // whatever that gives
                }
            }
        }
        if (folder == null) {
            return;
        }
        try (var files = Files.list(folder)) {
            for (Path file : files.toList()) {
                Files.deleteIfExists(file);
            }
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
