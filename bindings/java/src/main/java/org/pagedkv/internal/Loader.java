/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv.internal;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;

/* Loads the native library, once: from the folder or file that the property pagedkv.library.path names, or out of the JAR. */
final class Loader {
    private static final String PROPERTY = "pagedkv.library.path";
    private static final String WRAPPER = "libpagedkv-java.so";
    /* The library first: the wrapper finds it by its name. */
    private static final List<String> FILES = List.of("libpagedkv.so.0", WRAPPER);
    private static final List<String> PLUGINS = List.of("pagedkv/libpagedkv-fabric.so", "pagedkv/libpagedkv-redis.so");

    private Loader() {}

    static void load() {
        String named = System.getProperty(PROPERTY);
        try {
            if (named != null && !named.isEmpty()) {
                Path path = Path.of(named).toAbsolutePath();
                System.load((Files.isDirectory(path) ? path.resolve(WRAPPER) : path).toString());
            } else {
                extract();
            }
        } catch (IOException e) {
            throw new UncheckedIOException("the native library cannot be taken out of the JAR into java.io.tmpdir; -D"
                    + PROPERTY + " names one that is there", e);
        }
        int built = CoreJNI.headers_version();
        int runs = CoreJNI.version_number();
        if (built / 100 != runs / 100) {
            throw new UnsatisfiedLinkError("the binding was built for version " + built + " of libpagedkv, this is " + runs);
        }
    }

    private static void extract() throws IOException {
        String resources = "/org/pagedkv/native/" + platform() + "/";
        Path folder = Files.createTempDirectory("pagedkv-",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        folder.toFile().deleteOnExit();
        for (String plugin : PLUGINS) {
            Path target = folder.resolve(plugin);
            if (Loader.class.getResource(resources + plugin) != null) {
                Files.createDirectories(target.getParent());
                target.getParent().toFile().deleteOnExit();
                copy(resources + plugin, target);
            }
        }
        for (String file : FILES) {
            if (Loader.class.getResource(resources + file) == null) {
                throw new UnsatisfiedLinkError("the JAR has no native library for " + platform() + "; -D" + PROPERTY
                        + " names the folder of one");
            }
            copy(resources + file, folder.resolve(file));
        }
        System.load(folder.resolve(WRAPPER).toString());
    }

    private static void copy(String resource, Path target) throws IOException {
        target.toFile().deleteOnExit(); // plug-ins are opened later, so that nothing can be removed at once
        try (InputStream from = Loader.class.getResourceAsStream(resource)) {
            Files.copy(from, target);
        }
    }

    private static String platform() {
        String os = System.getProperty("os.name").toLowerCase(java.util.Locale.ROOT);
        String arch = System.getProperty("os.arch");
        return os + "-" + switch (arch) {
            case "amd64" -> "x86_64";
            default -> arch;
        };
    }
}
