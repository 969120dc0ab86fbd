#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Java binding: its tests under -Xcheck:jni, the conformance cases, and the JAR as a program finds it.

set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "${BUILD:-build}" && pwd) || exit 1
jar=$(ls "$build"/bindings/java/pagedkv-*.jar 2> /dev/null | head -n 1)
if [ -z "$jar" ]; then
    if [ "${PKV_REQUIRE_BINDINGS:-0}" = 1 ]; then echo "FAIL java: the JAR was not built"; exit 1; fi
    echo "SKIP java: the JAR was not built (no JDK, or no swig)"
    exit 0
fi
java=${JAVA:-java} javac=${JAVAC:-javac}
. bindings/checks.sh
mkdir "$tmp/tmp"
# The collector with one thread and few compiler threads: the machine has other things to do.
run() { "$java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir="$tmp/tmp" "$@"; }

"$javac" --release 17 -encoding UTF-8 -Xlint:all -Werror -cp "$jar" -d "$tmp/tests" bindings/java/tests/org/pagedkv/*.java \
    > "$tmp/log" 2>&1
result "the tests compile" $? "$tmp/log"

run -Xcheck:jni -ea -Xmx256m -cp "$jar:$tmp/tests" org.pagedkv.Tests > "$tmp/log" 2>&1
code=$?
grep -E '^(PASS|FAIL|SKIP) ' "$tmp/log"
if [ "$code" != 0 ] || ! grep -q '^PASS ' "$tmp/log"; then
    result "the tests end well" 1 "$tmp/log"
fi
run -Xcheck:jni -ea -Xmx256m -cp "$jar:$tmp/tests" org.pagedkv.FirstCalls > "$tmp/first" 2>&1
code=$?
cat "$tmp/first" >> "$tmp/log"
grep -E '^(PASS|FAIL|SKIP) ' "$tmp/first"
[ "$code" = 0 ] || result "the first calls end well" 1 "$tmp/first"
device=$build/tests/device/fake # a device of host memory, that takes symbols of the library
if [ -e "$device/libpagedkv-cuda.so" ]; then
    PKV_FAKE_DEVICE=open PKV_PLUGIN_DIR=$device LD_PRELOAD=$build/lib/libpagedkv.so \
        run -Xcheck:jni -ea -Xmx256m -cp "$jar:$tmp/tests" org.pagedkv.DeviceTests pool > "$tmp/device" 2>&1
    code=$?
    cat "$tmp/device" >> "$tmp/log"
    grep -E '^(PASS|FAIL|SKIP) ' "$tmp/device"
    [ "$code" = 0 ] || result "the test of a device ends well" 1 "$tmp/device"
else
    echo "SKIP a pool on a device: tests/device/fake is not built"
fi
! grep -nE 'WARNING in native method|FATAL ERROR in native method|Warning: SIG' "$tmp/log" > "$tmp/jni"
result "-Xcheck:jni has nothing to say about the tests" $? "$tmp/jni"

bindings/conformance/compare.sh java env JAVA_TOOL_OPTIONS= "$java" -Xcheck:jni -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -ea \
    -Djava.io.tmpdir="$tmp/tmp" -cp "$jar:$tmp/tests" org.pagedkv.Conformance bindings/conformance/cases.txt || status=1

# A program that has the JAR and nothing else.
mkdir "$tmp/clean" && cp "$jar" "$tmp/clean/pagedkv.jar" && cp bindings/java/examples/Quickstart.java "$tmp/clean/"
clean() { # java or javac, arguments
    (cd "$tmp/clean" && env -i PATH="$PATH" HOME="$tmp" TMPDIR="$tmp/tmp" "$@")
}
clean "$javac" --release 17 -cp pagedkv.jar -d classes Quickstart.java > "$tmp/log" 2>&1 &&
    clean "$java" -XX:+UseSerialGC -Djava.io.tmpdir="$tmp/tmp" -cp pagedkv.jar:classes Quickstart > "$tmp/out" 2> "$tmp/log"
result "the quickstart runs from a clean class path" $? "$tmp/log"
if [ -x "$build/bin/quickstart" ]; then
    "$build/bin/quickstart" | diff - "$tmp/out" > "$tmp/log" 2>&1
    result "the quickstart prints what the C one does" $? "$tmp/log"
fi
clean "$java" -XX:+UseSerialGC -Djava.io.tmpdir="$tmp/tmp" -p pagedkv.jar --add-modules org.pagedkv -cp classes Quickstart \
    > "$tmp/log" 2>&1
result "the quickstart runs with the JAR as a module" $? "$tmp/log"
[ -z "$(ls -A "$tmp/tmp")" ]
result "what was taken out of the JAR is removed at the end" $? <(ls -lAR "$tmp/tmp")

# The code in README.md, with what it takes from around it, and fewer pages.
{
    cat << 'END'
import java.nio.ByteBuffer;
import org.pagedkv.*;

class Readme {
    static class Model {
        void compute(int layer, long first, ByteBuffer k, ByteBuffer v) {}
    }

    static void later(String detail) {
        throw new AssertionError(detail);
    }

    public static void main(String[] args) {
        int[] tokens = java.util.stream.IntStream.range(0, 40).toArray();
        ByteBuffer k = ByteBuffer.allocateDirect(40 * 8 * 128 * 2), v = ByteBuffer.allocateDirect(40 * 8 * 128 * 2);
        String tenant = "tenant";
        Model model = new Model();
END
    sed -n '/^```java$/,/^```$/p' README.md | sed '/^```/d; s/numPages(4096)/numPages(64)/; s/8L << 30/8L << 20/'
    echo '        System.out.println("the end"); } }'
} > "$tmp/clean/Readme.java"
clean "$javac" --release 17 -cp pagedkv.jar -d classes Readme.java > "$tmp/log" 2>&1 &&
    clean "$java" -XX:+UseSerialGC -Djava.io.tmpdir="$tmp/tmp" -cp pagedkv.jar:classes Readme >> "$tmp/log" 2>&1 &&
    [ "$(cat "$tmp/log")" = "the end" ]
result "the code in README.md runs" $? "$tmp/log"

# The native library from elsewhere.
mkdir "$tmp/native" && cp "$build"/bindings/java/libpagedkv-java.so "$tmp/native/" && cp "$build"/lib/libpagedkv.so.0 "$tmp/native/"
clean "$java" -XX:+UseSerialGC -Dpagedkv.library.path="$tmp/native" -Djava.io.tmpdir=/nowhere -cp pagedkv.jar:classes Quickstart \
    > "$tmp/log" 2>&1
result "the property names a folder with the native library" $? "$tmp/log"
clean "$java" -XX:+UseSerialGC -Dpagedkv.library.path="$tmp/native/libpagedkv-java.so" -cp pagedkv.jar:classes Quickstart \
    > "$tmp/log" 2>&1
result "the property names the native library" $? "$tmp/log"
! clean "$java" -XX:+UseSerialGC -Dpagedkv.library.path="$tmp/absent" -cp pagedkv.jar:classes Quickstart > "$tmp/log" 2>&1 &&
    grep -q "UnsatisfiedLinkError.*$tmp/absent" "$tmp/log"
result "a property that names nothing is an UnsatisfiedLinkError with the path" $? "$tmp/log"

nm -D --defined-only "$build/bindings/java/libpagedkv-java.so" | awk '{ print $3 }' | grep -vE '^(Java_org_pagedkv_|JNI_On)' > "$tmp/log"
[ ! -s "$tmp/log" ]
result "the wrapper exports what the virtual machine looks for, and nothing else" $? "$tmp/log"
exit $status
