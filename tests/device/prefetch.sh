#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of prefetch sessions on the fake device: prefetch.list says which, and how.

exec "$(dirname "$0")/suites.sh" prefetch
