/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/* A line of the conformance cases: its arguments, and what the operation gave (bindings/conformance/README.md). */
final class Line {
    static final class Wrong extends RuntimeException {
        private static final long serialVersionUID = 1;

        Wrong(String message) {
            super(message);
        }
    }

    final int number;
    final String op;
    final Map<String, String> wanted = new LinkedHashMap<>();
    final Map<String, String> outputs = new HashMap<>();
    private final Map<String, String> args = new TreeMap<>();
    private final Set<String> used = new HashSet<>();

    Line(String text, int number) {
        this.number = number;
        String[] words = text.trim().split("\\s+");
        op = words[0];
        Map<String, String> into = args;
        for (int i = 1; i < words.length; ++i) {
            int equals = words[i].indexOf('=');
            if (words[i].equals("->")) {
                into = wanted;
            } else if (equals < 0) {
                throw new Wrong("'" + words[i] + "' is no key=value");
            } else {
                into.put(words[i].substring(0, equals), words[i].substring(equals + 1));
            }
        }
    }

    Set<String> unused() {
        Set<String> left = new HashSet<>(args.keySet());
        left.removeAll(used);
        return left;
    }

    // ---- arguments

    boolean has(String key) {
        used.add(key);
        return args.containsKey(key);
    }

    String text(String key, String otherwise) {
        return has(key) ? args.get(key) : otherwise;
    }

    private static long number(String text) {
        if (text.equals("max")) {
            return -1;
        }
        if (text.startsWith("0x")) {
            return Long.parseUnsignedLong(text.substring(2), 16);
        }
        return text.startsWith("-") ? Long.parseLong(text) : Long.parseUnsignedLong(text);
    }

    long number(String key, long otherwise) {
        return has(key) ? number(args.get(key)) : otherwise;
    }

    int small(String key, long otherwise) {
        return (int) number(key, otherwise);
    }

    /* One of the names, as its place in the list plus `first`; or a number, which need be no name's. */
    int name(String key, List<String> names, int first, int otherwise) {
        if (!has(key)) {
            return otherwise;
        }
        int place = names.indexOf(args.get(key));
        return place >= 0 ? first + place : (int) number(args.get(key));
    }

    static long[] list(String text) {
        if (text == null || text.isEmpty() || text.equals("none")) {
            return new long[0];
        }
        List<Long> items = new ArrayList<>();
        for (String item : text.split(",")) {
            int dots = item.indexOf("..");
            int star = item.indexOf('*');
            if (dots >= 0) {
                long last = number(item.substring(dots + 2));
                for (long i = number(item.substring(0, dots)); i <= last; ++i) {
                    items.add(i);
                }
            } else if (star >= 0) {
                for (long i = number(item.substring(star + 1)); i > 0; --i) {
                    items.add(number(item.substring(0, star)));
                }
            } else {
                items.add(number(item));
            }
        }
        return items.stream().mapToLong(Long::longValue).toArray();
    }

    long[] longs(String key) {
        return list(text(key, null));
    }

    int[] ints(String key) {
        long[] wide = longs(key);
        int[] narrow = new int[wide.length];
        for (int i = 0; i < wide.length; ++i) {
            narrow[i] = (int) wide[i];
        }
        return narrow;
    }

    float[] floats(String key) {
        long[] whole = longs(key);
        float[] floats = new float[whole.length];
        for (int i = 0; i < whole.length; ++i) {
            floats[i] = whole[i];
        }
        return floats;
    }

    static byte[] bytesOf(String text) {
        if (!text.startsWith("@")) {
            return text.getBytes(StandardCharsets.UTF_8);
        }
        return java.util.HexFormat.of().parseHex(text.substring(1));
    }

    byte[] bytes(String key) {
        return has(key) ? bytesOf(args.get(key)) : null;
    }

    // ---- outputs

    void out(String key, String value) {
        outputs.put(key, value);
    }

    void out(String key, long value) {
        out(key, Long.toUnsignedString(value));
    }

    void outSigned(String key, long value) {
        out(key, Long.toString(value));
    }

    void out(String key, boolean value) {
        out(key, value ? "1" : "0");
    }

    void out(String key, long[] items) {
        outMany(key, java.util.Arrays.stream(items).mapToObj(Long::toString).toList());
    }

    void outUnsigned(String key, long[] items) {
        outMany(key, java.util.Arrays.stream(items).mapToObj(Long::toUnsignedString).toList());
    }

    void out(String key, int[] items) {
        outMany(key, java.util.Arrays.stream(items).mapToObj(Integer::toString).toList());
    }

    void out(String key, Status[] statuses) {
        outMany(key, java.util.Arrays.stream(statuses).map(Status::name).toList());
    }

    private void outMany(String key, List<String> items) {
        out(key, items.isEmpty() ? "none" : String.join(",", items));
    }

    static String digest(byte[] bytes, int size) {
        long hash = 0xcbf29ce484222325L;
        for (int i = 0; i < size; ++i) {
            hash = (hash ^ (bytes[i] & 0xff)) * 0x100000001b3L;
        }
        return String.format("%016x", hash);
    }

    /* Lists are written out: ranges and repetitions become their items. */
    static String expanded(String value) {
        if (!value.contains("..") && !value.contains("*")) {
            return value;
        }
        return String.join(",", java.util.Arrays.stream(list(value)).mapToObj(Long::toString).toList());
    }
}
