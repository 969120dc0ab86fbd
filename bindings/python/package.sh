#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What pip makes of the Python binding: `make install-bindings-python`, a wheel with the C library in it, and a source
# distribution; each answers the conformance cases where it is installed.

set -u
cd "$(dirname "$0")/../.." || exit 1
out=${BUILD:-$PWD/build}/bindings/python
python=${PKV_PYTHON:-}
. bindings/checks.sh

if [ ! -e "$out/pagedkv/_core.so" ]; then
    skip "python" "the binding is not built (swig, python3-dev)"
    exit $status
fi
export PYTHONDONTWRITEBYTECODE=1

# As `make install-bindings` puts it, beside the library as `make install` does.
inner_make() { # no part of the make that runs the tests: it keeps the variables but not the job server
    (
        MAKEFLAGS=$(sed -E 's/ ?--jobserver-(auth|fds)=[^ ]*//g; s/(^| )-j[0-9]*//g' <<< "${MAKEFLAGS:-}")
        export MAKEFLAGS
        unset MFLAGS MAKELEVEL DESTDIR PREFIX LIBDIR INCLUDEDIR PKGCONFIGDIR PYTHONPATH
        "${MAKE:-make}" CC="${CC:-cc}" CXX="${CXX:-g++}" "$@"
    )
}
if "$python" -c 'import setuptools, pip, wheel' 2> "$tmp/log"; then
    {
        inner_make install-bindings-python DESTDIR="$tmp/dest" PREFIX=/opt/pagedkv LIBDIR="$tmp/libdir" PYTHON="$python" &&
            mkdir "$tmp/libdir" && cp -P "${BUILD:-$PWD/build}"/lib/libpagedkv.so* "$tmp/libdir/" &&
            PYTHONPATH=$(echo "$tmp"/dest/opt/pagedkv/lib/python3*/*-packages) "$python" bindings/python/tests/conformance.py \
                bindings/conformance/cases.txt && ! find "$tmp/dest" -name 'libpagedkv*' | grep .
    } > "$tmp/log" 2>&1
    result "make install-bindings-python" $? "$tmp/log"
else
    skip "make install-bindings-python" "pip, setuptools or wheel is missing (python3-pip, python3-setuptools, python3-wheel)"
fi

# What pip makes of a copy of the sources, and of nothing else: a wheel by way of a source distribution, in a new environment.
if ! "$python" -c 'import setuptools, build, venv' 2> "$tmp/log"; then
    skip "wheel" "setuptools, build or venv is missing (python3-setuptools, python3-build, python3-venv)"
    exit $status
fi
cp -r bindings/python "$tmp/python" && mkdir -p "$tmp/tree/bindings" "$tmp/tree/build" &&
    mv "$tmp/python" "$tmp/tree/bindings/" && cp -r bindings/swig "$tmp/tree/bindings/" && cp -r include "$tmp/tree/" &&
    ln -s "${BUILD:-$PWD/build}/lib" "$tmp/tree/build/lib"
"$python" -m build --no-isolation --wheel --outdir "$tmp/dist" "$tmp/tree/bindings/python" > "$tmp/log" 2>&1
result "python -m build makes a wheel" $? "$tmp/log"
in_new_environment() { # wheel or source distribution, options of pip...
    rm -rf "$tmp/venv"
    "$python" -m venv --without-pip "$tmp/venv" &&
        "$python" -m pip --python "$tmp/venv/bin/python" install --no-deps --no-index "$@"
}
try() { # the conformance cases, away from the sources
    (cd "$tmp" && "$tmp/venv/bin/python" -X dev "$OLDPWD/bindings/python/tests/conformance.py" "$OLDPWD/bindings/conformance/cases.txt")
}
in_new_environment "$tmp"/dist/*.whl > "$tmp/log" 2>&1 && try >> "$tmp/log" 2>&1 && tail -n 1 "$tmp/log" | grep -q ' 0 failed$'
result "the wheel works in a new environment" $? "$tmp/log"
unzip -l "$tmp"/dist/*.whl 2> /dev/null > "$tmp/log" || "$python" -m zipfile -l "$tmp"/dist/*.whl > "$tmp/log"
grep -q 'pagedkv/py.typed' "$tmp/log" && grep -q 'pagedkv/_core.pyi' "$tmp/log" && grep -q 'pagedkv/lib/libpagedkv.so' "$tmp/log"
result "the wheel has types and the C library in it" $? "$tmp/log"

# From a source distribution, with the library installed elsewhere, and without SWIG.
{
    "$python" -m build --no-isolation --sdist --outdir "$tmp/dist" "$tmp/tree/bindings/python" &&
        mkdir -p "$tmp/prefix/lib" && cp -r include "$tmp/prefix/" && cp -P "${BUILD:-$PWD/build}"/lib/libpagedkv.so* "$tmp/prefix/lib/" &&
        mkdir "$tmp/unpacked" && tar -xf "$tmp"/dist/*.tar.gz -C "$tmp/unpacked" &&
        (cd "$tmp/unpacked"/* && SWIG=false PAGEDKV_PREFIX=$tmp/prefix "$python" -m build --no-isolation --wheel --outdir "$tmp/dist2" .) &&
        in_new_environment "$tmp"/dist2/*.whl && try && tail -n 1 "$tmp/log" | grep -q ' 0 failed$'
} > "$tmp/log" 2>&1
result "the source distribution builds without SWIG" $? "$tmp/log"
exit $status
