#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the crates with their tests and examples (all), or installs their sources below a folder, as distributions do (install).
#
#   bindings/rust/build.sh all
#   bindings/rust/build.sh install FOLDER

set -u
cd "$(dirname "$0")/../.." || exit 1
. bindings/rust/env.sh
make_pc

case ${1:-} in
    all) in_rust build -q --offline --workspace --all-targets ;;
    install)
        mkdir -p "$2" && folder=$(cd "$2" && pwd) || exit 1
        vendor "$folder" pagedkv-sys && vendor "$folder" pagedkv
        ;;
    *)
        sed -n '3,7s/^# \?//p' "$0" >&2
        exit 2
        ;;
esac
