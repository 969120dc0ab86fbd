/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/* Runs the cases of bindings/conformance through the classes: Conformance [FILE [CASE]]. */
final class Conformance {
    /* Of an operation that made an object all the same. */
    static PagedKvException failure;

    private int cases;
    private int checks;
    private int failed;
    private String name = "(before the first case)";

    private Conformance() {}

    private void check(Line line, String key, String got, String wanted, String detail) {
        ++checks;
        if (!wanted.equals(got)) {
            System.err.printf("FAIL %s, line %d: %s: %s is %s, not %s  %s%n", name, line.number, line.op, key, got, wanted, detail);
            ++failed;
        }
    }

    private void run(Case objects, String text, int number) {
        Line line = new Line(text, number);
        Operations.Operation operation = Operations.ALL.get(line.op);
        if (operation == null) {
            throw new Line.Wrong(line.op + ": there is no such operation");
        }
        Status status;
        String detail = "";
        failure = null;
        try {
            status = operation.run(objects, line);
            if (failure != null) {
                throw failure;
            }
        } catch (PagedKvException e) {
            status = e.status();
            detail = e.detail();
        }
        check(line, "status", status.name(), line.wanted.getOrDefault("status", "OK"), detail);
        for (Map.Entry<String, String> each : line.wanted.entrySet()) {
            if (!each.getKey().equals("status")) {
                check(line, each.getKey(), line.outputs.get(each.getKey()), Line.expanded(each.getValue()), detail);
            }
        }
        if (!line.unused().isEmpty()) {
            throw new Line.Wrong(line.op + ": " + line.unused() + " mean nothing here");
        }
    }

    private boolean run(List<String> lines, String only) {
        Case objects = new Case();
        boolean wanted = false;
        int number = 0;
        for (String whole : lines) {
            ++number;
            int hash = whole.indexOf('#');
            String text = (hash >= 0 ? whole.substring(0, hash) : whole).trim();
            if (text.startsWith("case ")) {
                objects.close();
                objects = new Case();
                name = text.substring(5).trim();
                wanted = only == null || only.equals(name);
                cases += wanted ? 1 : 0;
            } else if (wanted && !text.isEmpty()) {
                try {
                    run(objects, text, number);
                } catch (RuntimeException e) {
                    System.err.printf("line %d: %s: %s%n", number, text, e);
                    ++failed;
                }
            }
        }
        objects.close();
        System.out.printf("conformance: %d cases, %d checks, %d failed%n", cases, checks, failed);
        return cases > 0 && failed == 0;
    }

    public static void main(String[] args) throws IOException {
        Path file = Path.of(args.length > 0 ? args[0] : "bindings/conformance/cases.txt");
        boolean good = new Conformance().run(Files.readAllLines(file), args.length > 1 ? args[1] : null);
        System.exit(good ? 0 : 1);
    }
}
